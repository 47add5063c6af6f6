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
- while a voter's disk has a rotten bit, or a disk has failed an fsync, the other nodes are spared;
- a bit of a partition rots only where no other replica of it has a rotten bit, and two other members of ISR
  or ELR run (one, where the replication factor is 2);
- a new, empty disk comes only into a whole cluster, where every voter's vote counts, that of the last one
  with a new disk too: metadata knows no excuse, and a majority of new disks ends the quorum. A majority of
  the other voters has to run; so it has when a bit of a voter rots.

In a small part of the runs, drawn by seed, only the first rule holds and what concerns voters. Dedicated controllers
are spared by the first, the fourth and the last only: the quorum syncs before it answers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from kraft.chaos.world.host import Host
from kraft.chaos.world.simulation import Simulation
from quorum.metadata.image import MetadataImage, PartitionImage

SPACING_S = (2.5, 5.0)
RECKLESS_ODDS = 0.1
"""Of the runs in which hardly anybody is spared."""
COPIES = 2
"""So many other running members of an ISR must there be, where that many replicas are."""
AFTERMATH_MAX_S = 10.0
HELD_BACK_ODDS = 0.8


class Cluster(Protocol):
    """What faults ask of a cluster, whatever its kind; nodes by their ids."""

    @property
    def simulation(self) -> Simulation: ...

    @property
    def hosts(self) -> Mapping[int, Host]: ...

    @property
    def running(self) -> list[int]:
        """The nodes that have a process, paused ones included."""

    @property
    def controller_ids(self) -> tuple[int, ...]: ...

    @property
    def broker_ids(self) -> tuple[int, ...]: ...

    def start_node(self, node_id: int) -> None: ...

    def stop_node(self, node_id: int) -> None:
        """Asks for a controlled shutdown."""

    def is_stopping(self, node_id: int) -> bool: ...

    def has_started(self, node_id: int) -> bool: ...

    def excuse(self, node_id: int, *, may_halt: bool = True) -> None:
        """Lets the node's present process complain, and perhaps end, since a fault struck it."""

    def log_dirs_of(self, node_id: int) -> tuple[str, ...]: ...

    def image(self) -> MetadataImage | None: ...

    def leader_of(self, topic: str, partition: int) -> int: ...

    def active_controller(self) -> int | None: ...

    def ailments(self, topics: Sequence[str]) -> list[str]:
        """Why the cluster is not whole."""

    def is_damaged(self, node_id: int, topic: str, partition: int) -> bool: ...


class DamageGuard:
    """Says whether a node may be damaged now."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
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
        return self.allows_voter(node_id) and not self._cluster.ailments(topics)

    def allows_voter(self, node_id: int) -> bool:
        """Whether the node may lose what it has as a voter now, besides all else."""
        return self.allows(node_id) and not self._is_needed_by_quorum(node_id)

    def allows_rot(self, node_id: int, topic: str, partition: int) -> bool:
        """Whether that replica may be damaged now."""
        cluster = self._cluster
        if self.reckless:
            return True
        image = cluster.image()
        known = None if image is None else image.topic(topic)
        if known is None or partition >= len(known.partitions) or cluster.active_controller() is None:
            return False
        if any(cluster.is_damaged(other, topic, partition) for other in cluster.broker_ids):
            return False
        return not self._is_needed_in(node_id, topic, partition, known.partitions[partition])

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
        return any(
            self._is_needed_in(node_id, topic.name, number, state)
            for topic in image.topics.values()
            for number, state in enumerate(topic.partitions)
        )

    def _is_needed_in(self, node_id: int, topic: str, number: int, state: PartitionImage) -> bool:
        """Whether too few others hold, undamaged, what the node holds of one partition."""
        members = (*state.isr, *state.elr)
        is_damaged = self._cluster.is_damaged
        others = sum(
            other in members and not is_damaged(other, topic, number) for other in self._others(node_id)
        )
        return node_id in members and others < max(1, min(COPIES, len(state.replicas) - 1))

    def _is_needed_by_quorum(self, node_id: int) -> bool:
        """Whether the other voters that run, and are well, are no majority."""
        voters = self._cluster.controller_ids
        others = [n for n in self._others(node_id) if n in voters and n not in self._ailing]
        return node_id in voters and 2 * len(others) <= len(voters)

    def _others(self, node_id: int) -> list[int]:
        cluster = self._cluster
        return [n for n in cluster.running if n != node_id and not cluster.hosts[n].paused]

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
