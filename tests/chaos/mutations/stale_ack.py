"""A directed stage: an acknowledgement that arrives two terms late, on a connection that never broke.

A leader and one follower of five voters are cut off from the rest, and the follower's acknowledgement travels for
seconds. Meanwhile the rest elect another leader, which makes the old one give up the acknowledged entries. Then the
old one is elected again and writes others in their place, which only one more voter gets. If it takes the late
acknowledgement for one of these, it commits with two copies of five, and the other three decide otherwise. Random
faults do not get there in thousands of runs, since a leader that regains office that fast has mostly kept its
entries; only times and the voters' luck are left to the seed.
"""

from __future__ import annotations

from random import Random

from kraft.chaos.quorum.judge import Violation
from kraft.chaos.quorum.quorum import Quorum
from kraft.chaos.quorum.settings import Settings
from kraft.chaos.quorum.voter import Voter
from kraft.chaos.world.network import Impairment, Latency
from tests.chaos.mutations.registry import Sighting

VOTERS = 5
FOREVER_S = 60.0


class _Missed(Exception):
    """The voters' luck was another one; the seed shows nothing."""


class StaleAckStage:
    """The story above."""

    name = "an acknowledgement two terms late"

    def play(self, seed: int) -> Sighting:
        try:
            _Story(seed).play()
        except Violation as violation:
            return Sighting((violation.oracle,), (str(violation),))
        except _Missed:
            pass
        return Sighting(())


class _Story:
    def __init__(self, seed: int) -> None:
        self.rng = Random(f"{seed}/stale ack")
        self.quorum = Quorum(seed, Settings(voters=VOTERS, snapshot_every_entries=1000))

    def play(self) -> None:
        quorum, rng = self.quorum, self.rng
        quorum.start()
        old = self._elected(quorum.ids)
        quorum.propose(old, b"first")
        quorum.run_until(quorum.now_s + 0.5)
        others = [node_id for node_id in quorum.ids if node_id != old.node_id]
        rng.shuffle(others)
        late, friend, *rest = others
        self._alone(old.node_id, late)
        late_s = rng.uniform(0.8, 1.3)
        self._slow_down(late, old.node_id, late_s)
        for number in range(8):
            quorum.propose(old, b"lost %d" % number)
        quorum.run_until(quorum.now_s + 0.2)
        self._slow_down(old.node_id, late, FOREVER_S)
        between = self._elected([friend, *rest])
        for node_id in (friend, *rest):
            self._join(old.node_id, node_id)
        quorum.run_until(quorum.now_s + 0.3)
        between.host.kill()
        quorum.faults.keep_down(between.node_id, rng.uniform(0.0, 1.5))
        again = self._elected([old.node_id, friend, *rest])
        if again is not old or between.node_id == friend:
            raise _Missed
        for node_id in rest:
            self._part(old.node_id, node_id)
            self._part(friend, node_id)
        for number in range(16):
            quorum.propose(old, b"new %d" % number)
        quorum.run_until(quorum.now_s + 0.3 + late_s)
        self._alone(old.node_id, friend)
        for node_id in (late, *rest):
            for other in (late, *rest):
                self._join(node_id, other)
        quorum.propose(self._elected([late, *rest]), b"other")
        quorum.run_until(quorum.now_s + 1.0)

    def _elected(self, among: list[int]) -> Voter:
        """The active leader among these, when there is one."""

        def leads() -> list[Voter]:
            return [self.quorum.voters[node_id] for node_id in among if self.quorum.voters[node_id].active]

        if not self.quorum.run_until(self.quorum.now_s + 5.0, lambda: len(leads()) == 1):
            raise _Missed
        return leads()[0]

    def _slow_down(self, source: int, target: int, latency_s: float) -> None:
        hosts = self.quorum.hosts
        impairment = Impairment(latency=Latency(latency_s, latency_s))
        self.quorum.simulation.network.impair(hosts[source].address, hosts[target].address, impairment)

    def _part(self, one: int, other: int) -> None:
        self.quorum.sessions.disconnect(one, other)

    def _join(self, one: int, other: int) -> None:
        if one != other:
            self.quorum.sessions.connect(one, other)

    def _alone(self, *camp: int) -> None:
        """Cuts these off from all others."""
        for node_id in self.quorum.ids:
            for member in camp:
                if node_id not in camp:
                    self._part(member, node_id)
