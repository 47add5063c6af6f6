"""When a fault may destroy data, so that few runs need the excuse.

acks=-1 promises replication and not fsync: a record is lost by right when every replica that counts has
lost it to injected faults. Which losses that explains is computed elsewhere, record by record. Here it
is only made seldom, since a run with an excuse proves less:

- after a damage there is none for a while, drawn anew each time: longer than a session, so that a node
  that came back without its last records has left the ISR by then;
- a node is spared unless two other members of ISR or ELR run, of every partition in whose ISR or ELR it is
  (one other, where the replication factor is 2); so it is when nobody knows, while there is no controller;
- in the aftermath of a damage, until the cluster is whole again, most faults that take another node down
  or cut it off are held back: otherwise the damaged node is soon the last member of an ISR;
- while a disk has a rotten bit or has failed an fsync, the other nodes are spared;
- a new, empty disk comes only into a whole cluster, where every voter's vote counts, that of the last one
  with a new disk too: metadata knows no excuse, and a majority of new disks ends the quorum.

In a small part of the runs, drawn by seed, only the first and the last rule hold. Dedicated controllers
are spared by the first, the fourth and the last only: the quorum syncs before it answers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from kraft.chaos.cluster import SimulatedCluster

SPACING_S = (2.5, 5.0)
RECKLESS_ODDS = 0.1
"""Of the runs in which hardly anybody is spared."""
COPIES = 2
"""So many other running members of an ISR must there be, where that many replicas are."""
AFTERMATH_MAX_S = 10.0
HELD_BACK_ODDS = 0.8


class DamageGuard:
    """Says whether a node may be damaged now."""

    def __init__(self, cluster: SimulatedCluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self._not_before_s = 0.0
        self._aftermath_until_s = 0.0
        self._ailing: list[int] = []
        self.reckless = rng.random() < RECKLESS_ODDS

    def allows(self, node_id: int) -> bool:
        """Whether the node may lose data now."""
        if not self.allows_any():
            return False
        if self.reckless:
            return True
        return all(other == node_id for other in self._ailing) and not self.is_needed(node_id)

    def allows_wipe(self, node_id: int, topics: Sequence[str]) -> bool:
        """Whether the node may lose everything now."""
        return self.allows(node_id) and not self._cluster.ailments(topics)

    def allows_any(self) -> bool:
        """Whether the last damage is long enough ago."""
        return self._cluster.simulation.now >= self._not_before_s

    def is_needed(self, node_id: int) -> bool:
        """Whether too few others hold what the node holds, by the newest metadata."""
        cluster = self._cluster
        image = cluster.image()
        if node_id not in cluster.broker_ids:
            return False
        if image is None or cluster.active_controller() is None:
            return True
        others = [n for n in cluster.running if n != node_id and not cluster.hosts[n].paused]
        return any(
            node_id in members
            and sum(other in members for other in others) < max(1, min(COPIES, len(state.replicas) - 1))
            for topic in image.topics.values()
            for state in topic.partitions
            for members in ((*state.isr, *state.elr),)
        )

    def holds_back(self, rng: random.Random, topics: Sequence[str]) -> bool:
        """Whether a fault that takes a node down or cuts it off shall not strike now."""
        if self.reckless or self._cluster.simulation.now >= self._aftermath_until_s:
            return False
        if not self._cluster.ailments(topics):
            self._aftermath_until_s = 0.0
            return False
        return rng.random() < HELD_BACK_ODDS

    def ails(self, node_id: int) -> Callable[[], None]:
        """The data of the node is in doubt, until the returned function is called."""
        self._ailing.append(node_id)
        return lambda: self._ailing.remove(node_id)

    def damaged(self) -> None:
        """A node was damaged now."""
        now_s = self._cluster.simulation.now
        self._not_before_s = now_s + self._rng.uniform(*SPACING_S)
        self._aftermath_until_s = now_s + AFTERMATH_MAX_S
