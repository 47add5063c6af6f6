"""A directed stage: an acknowledgement that arrives two terms late, in a connection that never broke.

A leader and one follower are cut off from the rest of five voters; what the follower acknowledges is on
its way for seconds. Meanwhile the rest elect another leader, which makes the old one give up those
entries; then the old one is elected again and writes others there, which only one more voter gets. If it
takes the late acknowledgement for one of these, it commits with two copies of five, and the other three
decide otherwise. Random faults do not get there in thousands of runs, since whoever regains its office
that fast has mostly kept its entries; only times and the voters' luck are left to the seed.
"""

from __future__ import annotations

from random import Random

from tests.chaos.mutations.registry import Sighting
from tests.support.chain_machine import Violation
from tests.support.raft_cluster import Faults, RaftCluster, Settings, Voter

QUIET = Faults(drop=0, duplicate=0, reorder=0, late=0)
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
        self.cluster = RaftCluster(seed, Settings(voters=VOTERS, snapshot_every_entries=1000, faults=QUIET))

    def play(self) -> None:
        cluster, rng = self.cluster, self.rng
        cluster.start()
        old = self._elected(cluster.ids)
        old.propose(b"first")
        cluster.run_until(cluster.now_s + 0.5)
        others = [node_id for node_id in cluster.ids if node_id != old.node_id]
        rng.shuffle(others)
        late, friend, *rest = others
        self._alone(old.node_id, late)
        cluster.slowness_s[late, old.node_id] = rng.uniform(1.0, 3.0)
        for number in range(8):
            old.propose(b"lost %d" % number)
        cluster.run_until(cluster.now_s + 0.2)
        cluster.slowness_s[old.node_id, late] = FOREVER_S
        between = self._elected([friend, *rest])
        for node_id in (friend, *rest):
            self._join(old.node_id, node_id)
        cluster.run_until(cluster.now_s + 0.3)
        cluster.crash(between, power_loss=False)
        again = self._elected([old.node_id, friend, *rest])
        if again is not old or between.node_id == friend:
            raise _Missed
        for node_id in rest:
            self._part(old.node_id, node_id)
            self._part(friend, node_id)
        for number in range(16):
            old.propose(b"new %d" % number)
        cluster.run_until(cluster.now_s + 0.3 + cluster.slowness_s[late, old.node_id])
        self._alone(old.node_id, friend)
        for node_id in (late, *rest):
            for other in (late, *rest):
                self._join(node_id, other)
        self._elected([late, *rest]).propose(b"other")
        cluster.run_until(cluster.now_s + 1.0)

    def _elected(self, among: list[int]) -> Voter:
        """The active leader among these, when there is one."""

        def leads() -> list[Voter]:
            return [self.cluster.voters[node_id] for node_id in among if self.cluster.voters[node_id].active]

        if not self.cluster.run_until(self.cluster.now_s + 5.0, lambda: len(leads()) == 1):
            raise _Missed
        return leads()[0]

    def _part(self, one: int, other: int) -> None:
        self.cluster.disconnect(min(one, other), max(one, other))

    def _join(self, one: int, other: int) -> None:
        if one != other:
            self.cluster.connect(min(one, other), max(one, other))

    def _alone(self, *camp: int) -> None:
        """Cuts these off from all others."""
        for node_id in self.cluster.ids:
            for member in camp:
                if node_id not in camp:
                    self._part(member, node_id)
