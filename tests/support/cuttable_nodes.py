"""Real node processes whose network can be cut: every connection between nodes goes through `links`."""

from __future__ import annotations

from kraft.runtime.free_ports import free_ports
from kraft.chaos.real.relay import Relays
from tests.support.node_processes import NodeProcesses


class CuttableNodes(NodeProcesses):
    """As `NodeProcesses`; replication has a listener of its own, and it and the controllers' are behind relays."""

    links: Relays

    def _prepare(self) -> None:
        nodes = self._spec.nodes
        taken = {port for n in nodes for port in (n.client_port, n.controller_port, n.http_port)}
        self.links = Relays(self.local.pid, self.node_ids)
        voters = [f"{n.id}@127.0.0.1:{self.links.relay(n.id, n.controller_port)}" for n in nodes]
        for node, port in zip(nodes, free_ports(len(nodes), avoid=taken), strict=True):
            client = f"PLAINTEXT://127.0.0.1:{node.client_port}"
            changes = {
                "controller.quorum.voters": ",".join(voters),
                "listeners": f"{client},REPLICATION://127.0.0.1:{port},CONTROLLER://127.0.0.1:{node.controller_port}",
                "advertised.listeners": f"{client},REPLICATION://127.0.0.1:{self.links.relay(node.id, port)}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,REPLICATION:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "inter.broker.listener.name": "REPLICATION",
            }
            file = self.local.node_dir(node.id) / "server.properties"
            lines = dict(line.split("=", 1) for line in file.read_text().splitlines())
            file.write_text("".join(f"{key}={value}\n" for key, value in {**lines, **changes}.items()))

    def close(self) -> None:
        super().close()
        if hasattr(self, "links"):
            self.links.close()
