"""Real node processes whose network can be cut: every connection between nodes goes through `links`."""

from __future__ import annotations

from kraft.chaos.real.cluster import put_behind_relays
from kraft.chaos.real.relay import Relays
from tests.support.node_processes import NodeProcesses


class CuttableNodes(NodeProcesses):
    """As `NodeProcesses`; replication has a listener of its own, and it and the controllers' are behind relays. Clients
    reach nodes directly, so that one that is cut off from its peers still has clients."""

    links: Relays

    def _prepare(self) -> None:
        self.links = Relays(self.local.pid, self.node_ids)
        put_behind_relays(self.local, self.links, clients=False)

    def close(self) -> None:
        super().close()
        if hasattr(self, "links"):
            self.links.close()
