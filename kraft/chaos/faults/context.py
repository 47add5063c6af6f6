"""What all faults of one run share: targets, ends, who is held down, and when data may be destroyed.

Guarantees: every fault ends by itself, at its time or in `end_all`, whichever comes first; a node that a
fault took down comes back when the last fault that holds it down has ended, and not before; a fault is
counted only when it really happened; after `end_all` nothing strikes any more. Kinds of clusters are `Cluster`s here:
whole ones (`kraft.chaos.cluster`) and the quorum alone (`kraft.chaos.quorum`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kraft.chaos.faults.damage import Cluster, DamageGuard
from kraft.chaos.outcome import FAULT_PREFIX
from kraft.chaos.scenario import TopicSpec
from kraft.chaos.verdict import Verdicts
from kraft.chaos.world.host import Host

REVIVE_EVERY_S = 0.1
STARTED_AGAIN = "start after a fault"
LEADER_ODDS, CONTROLLER_ODDS = 0.35, 0.15
"""How often the target is a leader, or the active controller, rather than any running node."""

COORDINATOR_ODDS = 0.35
"""How often the leader is one that coordinates transactions, where there are any."""

OnDamage = Callable[[int, str], None]
"""Told node id and kind ("power loss", "wipe", "data wipe", "bit rot", "voter rot", "disk error") right
after data was destroyed."""


class Pace(NamedTuple):
    """How long faults last, as a part of what they last in whole clusters."""

    down: float = 1.0
    """Of the time that a killed node is down."""
    lasts: float = 1.0
    """Of all other times."""


FULL_PACE = Pace()


@dataclass(eq=False)
class Struck:
    """One fault that has really happened."""

    number: int
    """From 1, in the order in which they struck."""
    name: str
    text: str
    """Target and size."""
    lasts: int = 0
    """How many of its ends are still to come; 0: it is over, or was of a moment."""


class FaultContext:
    """The faults of one run, and the cluster that they strike."""

    def __init__(
        self,
        cluster: Cluster,
        verdicts: Verdicts,
        topics: Sequence[TopicSpec],
        on_damage: OnDamage,
        *,
        coordinated_by: str = "",
        guard: DamageGuard | None = None,
        pace: Pace = FULL_PACE,
    ) -> None:
        """`topics` are those whose leaders are aimed at, and those of the internal topic `coordinated_by`, if any.
        `guard`: a `DamageGuard` if not given."""
        self.cluster = cluster
        self.simulation = cluster.simulation
        self.verdicts = verdicts
        self.pace = pace
        self.guard = guard or DamageGuard(cluster, self.simulation.stream("fault/damage guard"))
        self.topics = [topic.name for topic in topics]
        self._partitions = [(topic.name, number) for topic in topics for number in range(topic.partitions)]
        self._coordinated_by = coordinated_by
        self._on_damage = on_damage
        self._ends: dict[int, Callable[[], None]] = {}
        self._last_end = 0
        self._held_down = dict.fromkeys(cluster.hosts, 0)
        self._sick = dict.fromkeys(cluster.hosts, 0)
        self._over = False
        self._struck = 0
        self.heard: list[Callable[[Struck, bool], None]] = []
        """Are told of every fault that has really happened: when it strikes, and (with true) when it is over, if it
        lasts."""

    @property
    def is_over(self) -> bool:
        """Whether nothing may strike any more."""
        return self._over

    def end_all(self) -> None:
        """Ends every fault now: links are whole, disks well, clocks right, dead nodes start."""
        self._over = True
        while self._ends:
            self._end(next(iter(self._ends)))
        for host in self.cluster.hosts.values():
            host.resume()
            host.clock.set_right()
        for node_id in self.cluster.hosts:
            self.revive(node_id)

    # -- for faults: what happened, and when it ends

    def happened(self, name: str, text: str) -> Struck:
        """The fault `name` has really happened; whoever ends it hands this to `until`, or to `over`."""
        self._struck += 1
        struck = Struck(self._struck, name, text)
        self.simulation.note("fault", name, text)
        self.verdicts.happened(FAULT_PREFIX + name, text)
        for heard in self.heard:
            heard(struck, False)
        return struck

    def over(self, struck: Struck) -> None:
        """An end of the fault has come; with the last one it is over."""
        struck.lasts = max(0, struck.lasts - 1)
        if not struck.lasts:
            for heard in self.heard:
                heard(struck, True)

    def until(
        self, duration_s: float, end: Callable[[], None], struck: Struck | None = None
    ) -> Callable[[], None]:
        """Calls `end` once: in `duration_s`, in `end_all`, or when the function that it returns is called. It ends
        `struck`, if given."""
        if struck is not None:
            struck.lasts += 1
        self._last_end += 1
        number = self._last_end
        self._ends[number] = end if struck is None else lambda: self._end_of(struck, end)
        self.simulation.call_later(duration_s, self._end, number)
        return lambda: self._end(number)

    def _end_of(self, struck: Struck, end: Callable[[], None]) -> None:
        self.over(struck)
        end()

    def _end(self, number: int) -> None:
        end = self._ends.pop(number, None)
        if end is not None:
            end()

    # -- for faults: sizes

    def draw_duration_s(self, rng: random.Random, min_s: float, max_s: float, *, long_max_s: float) -> float:
        """Mostly between the first two, every seventh time up to `long_max_s`, longer than most timeouts; at the
        run's pace."""
        return _draw_s(rng, min_s, max_s, long_max_s) * self.pace.lasts

    def draw_down_s(self, rng: random.Random) -> float:
        """How long a node is down."""
        return _draw_s(rng, 0.05, 2.5, 7.0) * self.pace.down

    # -- for faults: targets

    def host(self, node_id: int) -> Host:
        """The machine of a node."""
        return self.cluster.hosts[node_id]

    def node(self, rng: random.Random) -> int | None:
        """A running node (perhaps paused), often one that leads something; None if none runs."""
        running = self.cluster.running
        if not running:
            return None
        way = rng.random()
        aimed: int | None = None
        if way < LEADER_ODDS:
            aimed = self.leader(rng)
        elif way < LEADER_ODDS + CONTROLLER_ODDS:
            aimed = self.cluster.active_controller()
        return rng.choice(running) if aimed is None else aimed

    def leader(self, rng: random.Random) -> int | None:
        """The leader of some partition, if it runs."""
        if not self._partitions:
            return None
        leader = self.cluster.leader_of(*self._partition(rng))
        return leader if leader in self.cluster.running else None

    def _partition(self, rng: random.Random) -> tuple[str, int]:
        """A partition to whose leader something may happen."""
        if self._coordinated_by and rng.random() < COORDINATOR_ODDS:
            image = self.cluster.image()
            topic = None if image is None else image.topic(self._coordinated_by)
            if topic is not None:
                return self._coordinated_by, rng.randrange(len(topic.partitions))
        return rng.choice(self._partitions)

    # -- for faults: lives

    def keep_down(self, node_id: int, duration_s: float, struck: Struck | None = None) -> None:
        """Nobody starts the node before; then it starts, unless another fault still holds it down. `struck`: the fault
        that ends so."""
        self.until(duration_s, self.hold_down(node_id), struck)

    def hold_down(self, node_id: int) -> Callable[[], None]:
        """As `keep_down`, until the function that it returns is called, once; a node that runs goes on."""
        self._held_down[node_id] += 1
        return lambda: self._release(node_id)

    def _release(self, node_id: int) -> None:
        self._held_down[node_id] -= 1
        self.revive(node_id)

    def revive(self, node_id: int) -> None:
        """Starts the node if it does not run and nothing holds it down; one that is stopping, afterwards."""
        if self._held_down[node_id]:
            return
        if not self.host(node_id).alive:
            self.verdicts.happened(STARTED_AGAIN, f"node {node_id}")
            self.cluster.start_node(node_id)
            if self._sick[node_id]:
                self.cluster.excuse(node_id)
            elif any(map(self.host(node_id).storage.is_rotten, self.cluster.log_dirs_of(node_id))):
                self.cluster.excuse(node_id, may_halt=False)
        elif self.cluster.is_stopping(node_id):
            self.simulation.call_later(REVIVE_EVERY_S, self.revive, node_id)

    def kill(self, node_id: int) -> None:
        """kill -9, if the node runs."""
        if self.host(node_id).alive:
            self.host(node_id).kill()

    # -- for faults: damage

    def damaged(self, node_id: int, kind: str) -> None:
        """Data of the node was destroyed now."""
        self.guard.damaged()
        self._on_damage(node_id, kind)

    def rotted(self, node_id: int) -> None:
        """A bit of a replica flipped now: too little for other damage to keep its distance."""
        self._on_damage(node_id, "bit rot")

    def sicken(self, node_id: int) -> Callable[[], None]:
        """Every incarnation of the node is excused from now on, until the returned function is called."""
        self._sick[node_id] += 1
        self.cluster.excuse(node_id)
        recover = self.guard.ails(node_id)

        def heal() -> None:
            self._sick[node_id] -= 1
            recover()

        return heal


def _draw_s(rng: random.Random, min_s: float, max_s: float, long_max_s: float) -> float:
    if rng.random() < 1 / 7:
        return rng.uniform(max_s, long_max_s)
    return rng.uniform(min_s, max_s)
