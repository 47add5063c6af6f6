"""The faults that only a quorum alone knows, beside those of `kraft.chaos.faults`, and when its data may be destroyed.

A quorum keeps its promises as long as a majority keeps its disks, whatever else is lost: voters sync before they
answer. So anybody may lose power at any time; disks are wiped and rot one at a time, and only while every other voter
has caught up. Strikes are given by `quorum`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, cast

from kraft.chaos.faults import FAULTS, FaultContext, FaultKind
from kraft.chaos.faults.damage import Cluster, DamageGuard
from kraft.chaos.faults.kind import fault
from kraft.chaos.faults.process import take_down
from kraft.chaos.quorum.settings import Settings
from kraft.chaos.quorum.voter import Voter
from kraft.chaos.world.host import Process
from quorum.raft.events import TransferLeadership

NEW_LEADER_LIVES_S = (0.002, 0.1)


class Voters(Cluster, Protocol):
    """The quorum, as these faults and their guard see it."""

    settings: Settings
    voters: dict[int, Voter]
    on_next_leader: list[Callable[[int], None]]
    """Called, once, with whoever is elected next."""

    def is_recorded(self, voter: Voter, *, besides: Voter) -> bool:
        """Whether somebody else than `besides` knows that the voter's disk is recorded."""


class QuorumGuard(DamageGuard):
    """Spares whoever holds what is nowhere else, and nobody else."""

    def __init__(self, quorum: Voters, rng: random.Random) -> None:
        super().__init__(quorum, rng)
        self._quorum = quorum
        self._without_disk = 0
        """The last voter whose disk was, or is about to be, replaced by an empty one, or has rotted."""
        self._rotten_end: int | None = None
        """What every voter had applied when it rotted, if it did."""

    def allows(self, node_id: int) -> bool:
        return True

    def allows_wipe(self, node_id: int, topics: Sequence[str]) -> bool:
        """One after the other: when the last new disk is in use and recorded, and not only this voter knows it,
        this one's may go. So it is with a rotten one, which has to get back what a bit may have cost it. Never
        the only disk, nor where voters are known by number alone."""
        voters = self._quorum.voters
        if len(voters) < 3 or self._quorum.settings.workload == "bytes" or self._ailing:
            return False
        last = voters.get(self._without_disk)
        if last is None:
            return True
        is_back = last.is_up and last.applied >= (self._rotten_end or 0)
        return is_back and self._quorum.is_recorded(last, besides=voters[node_id])

    def allows_voter(self, node_id: int) -> bool:
        """If the bit lies in what was written last, that looks torn: every other voter has to have all of it."""
        voters = self._quorum.voters.values()
        newest = max(voter.log_end for voter in voters)
        return all(one.is_up and one.applied == newest for one in voters) and self.allows_wipe(node_id, ())

    def damaged(self) -> None:
        """Nobody is spared because of it, but as `replaced` and `rotted` tell."""

    def replaced(self, node_id: int) -> None:
        """The voter has an empty disk now."""
        self._without_disk, self._rotten_end = node_id, None

    def rotted(self, node_id: int) -> None:
        """A bit of what the voter had promised flipped now."""
        self._without_disk = node_id
        self._rotten_end = max(voter.applied for voter in self._quorum.voters.values())

    def has_rotted(self, node_id: int) -> bool:
        """Whether a bit flipped on the voter's present disk."""
        return self._without_disk == node_id and self._rotten_end is not None


def _of(context: FaultContext) -> Voters:
    return cast(Voters, context.cluster)


@fault("hand-over", "the leader is asked to hand over its office")
def hand_over(context: FaultContext, rng: random.Random) -> None:
    """Nothing happens while there is none."""
    leader = context.cluster.active_controller()
    if leader is not None:
        context.happened("hand-over", f"node {leader}")
        _of(context).voters[leader].post(TransferLeadership())


@fault("kill-new-leader", "the next leader is killed before it has done much")
def kill_new_leader(context: FaultContext, rng: random.Random) -> None:
    """Whoever that is."""

    def kill(node_id: int, process: Process | None) -> None:
        if not context.is_over and process is not None and context.host(node_id).process is process:
            take_down(context, "kill-new-leader", node_id, context.draw_down_s(rng), context.kill)

    def led(node_id: int) -> None:
        lives_s = rng.uniform(*NEW_LEADER_LIVES_S)
        context.simulation.call_later(lives_s, kill, node_id, context.host(node_id).process)

    _of(context).on_next_leader.append(led)


@fault("stranger", "a peer says what the Raft library would obey, and what is not on the list")
def stranger(context: FaultContext, rng: random.Random) -> None:
    """To a voter that runs, and has a peer."""
    node_id = context.node(rng)
    voter = None if node_id is None else _of(context).voters[node_id]
    if voter is not None and voter.is_up and voter.host.kernel.peers():
        context.happened("stranger", f"node {node_id}")
        voter.be_insulted()


@fault("wrong-folder", "a voter is started on a disk that is not its own")
def wrong_folder(context: FaultContext, rng: random.Random) -> None:
    """Beside its own process, if that runs: it must refuse, and nothing else happens."""
    node_id = rng.choice(list(context.cluster.hosts))
    context.happened("wrong-folder", f"node {node_id}")
    _of(context).voters[node_id].meet_wrong_folder()


KINDS: Final[Mapping[str, FaultKind]] = {
    **FAULTS,
    **{kind.name: kind for kind in (hand_over, kill_new_leader, stranger, wrong_folder)},
}
"""All that may strike a quorum, by name."""
