"""When a fault may destroy data, so that few runs need the excuse.

acks=-1 promises replication and not fsync: a record is lost by right when every replica that counts has
lost it to injected faults. Which losses that explains is computed elsewhere, record by record. Here it
is only made seldom, since a run with an excuse proves less:

- after a damage there is none for a while, drawn anew each time: longer than a session, so that a node
  that came back without its last records has left the ISR by then;
- a node that is alone in the ISR of some partition (replication factor 1 and clusters of one node
  included) is spared, except in a small part of the runs, drawn by seed, where nobody is;
- a new, empty disk comes only into a whole cluster (every node ready, every ISR full), in every run: a
  voter that has forgotten everything counts in the majority, and metadata knows no excuse;
- while a disk has a rotten bit or has failed an fsync, the other nodes are spared, with the same exception.

Dedicated controllers are never last copies: the quorum syncs before it answers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from kraft.chaos.cluster import SimulatedCluster

SPACING_S = (2.5, 5.0)
RECKLESS_ODDS = 0.12
"""Of the runs in which last copies are not spared."""


class DamageGuard:
    """Says whether a node may be damaged now."""

    def __init__(self, cluster: SimulatedCluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self._not_before_s = 0.0
        self._ailing: list[int] = []
        self.reckless = rng.random() < RECKLESS_ODDS

    def allows(self, node_id: int) -> bool:
        """Whether the node may lose data now."""
        if not self.allows_any():
            return False
        if self.reckless:
            return True
        return all(other == node_id for other in self._ailing) and not self.is_last_copy(node_id)

    def allows_wipe(self, node_id: int, topics: Sequence[str]) -> bool:
        """Whether the node may lose everything now."""
        return self.allows(node_id) and not self._cluster.ailments(topics)

    def allows_any(self) -> bool:
        """Whether the last damage is long enough ago."""
        return self._cluster.simulation.now >= self._not_before_s

    def is_last_copy(self, node_id: int) -> bool:
        """Whether the node is alone in the ISR of some partition, by the newest metadata."""
        image = self._cluster.image()
        if image is None:
            return True
        return any(
            state.isr and all(member == node_id for member in state.isr)
            for topic in image.topics.values()
            for state in topic.partitions
        )

    def ails(self, node_id: int) -> Callable[[], None]:
        """The data of the node is in doubt, until the returned function is called."""
        self._ailing.append(node_id)
        return lambda: self._ailing.remove(node_id)

    def damaged(self) -> None:
        """A node was damaged now."""
        self._not_before_s = self._cluster.simulation.now + self._rng.uniform(*SPACING_S)
