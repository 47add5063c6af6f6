"""What strikes a simulated quorum: deaths in all manners, disks that fail, pauses, wiped disks, rotten bits.

Every 10 ms each voter may be struck; what a fault began it also ends. Wiped and rotten disks strike one voter
at a time, and only while every other one has caught up: a quorum keeps its promises as long as a majority
keeps its disks. Owned by `quorum`.
"""

from __future__ import annotations

from random import Random
from typing import Protocol

from kraft.chaos.quorum import counters
from kraft.chaos.quorum.judge import RaftJudge
from kraft.chaos.quorum.links import Links
from kraft.chaos.quorum.settings import Settings
from kraft.chaos.quorum.voter import Injury, Voter
from kraft.chaos.world.scheduler import Scheduler
from quorum.raft.events import TransferLeadership
from quorum.raft.storage import RaftStorageError

TICK_S = 0.01
ISOLATED_MAX_S = 2.0
PAUSE_MAX_S = 1.5
OPERATIONS_MAX = 12
SYNCS_MAX = 8


class Struck(Protocol):
    """The quorum, as its faults see it."""

    settings: Settings
    scheduler: Scheduler
    voters: dict[int, Voter]
    links: Links
    judge: RaftJudge

    def happened(self, what: str, text: str = "", times: int = 1) -> None: ...

    def is_recorded(self, voter: Voter, *, besides: Voter) -> bool:
        """Whether somebody else than `besides` knows that the voter's disk is recorded."""


class FaultDriver:
    """All faults of one run but those of messages."""

    def __init__(self, quorum: Struck, rng: Random) -> None:
        self._quorum = quorum
        self._rng = rng
        self.calm = False
        self._without_disk = 0
        """The last voter whose disk was, or is about to be, replaced by an empty one."""
        self._rotten = 0
        """The last voter whose journal has rotted."""
        self._rotten_end = 0
        """What every voter had applied then."""

    # -- striking

    def strike(self) -> None:
        """One tick: each voter may meet a fault."""
        faults, rng = self._quorum.settings.faults, self._rng
        kinds = (
            (faults.kill, self._kill),
            (faults.power_loss, self._cut_power),
            (faults.cut_short, self._cut_short),
            (faults.fsync_error, self._fail_fsync),
            (faults.pause, self._pause),
            (faults.isolate, self._isolate),
            (faults.hand_over, self._hand_over),
            (faults.wipe, self._wipe),
            (faults.rot, self._rot),
            (faults.insult, Voter.be_insulted),
            (faults.rot_snapshot, self._rot_snapshot),
        )
        total = sum(odds for odds, _ in kinds)
        for voter in self._quorum.voters.values():
            draw = rng.random()
            if draw >= total or not voter.is_up:
                continue
            for odds, strike in kinds:
                draw -= odds
                if draw < 0:
                    strike(voter)
                    break

    def _kill(self, voter: Voter) -> None:
        self._quorum.happened(counters.KILLED, _name(voter))
        self.crash(voter, power_loss=False)

    def _cut_power(self, voter: Voter) -> None:
        self._quorum.happened(counters.POWER_LOSS, _name(voter))
        self.crash(voter, power_loss=True)

    def _cut_short(self, voter: Voter) -> None:
        voter.injury = self._injury()

    def _injury(self) -> Injury:
        torn = self._rng.random() if self._rng.random() < 0.5 else 0.0
        return Injury(operations_left=self._rng.randrange(OPERATIONS_MAX), torn=torn)

    def _fail_fsync(self, voter: Voter) -> None:
        voter.injury = Injury(syncs_left=self._rng.randrange(SYNCS_MAX))

    def _pause(self, voter: Voter) -> None:
        pause_s = self._rng.uniform(0.05, PAUSE_MAX_S)
        self._quorum.happened(counters.PAUSED, f"{_name(voter)}, for {pause_s:.3f} s")
        voter.pause(pause_s)

    def _isolate(self, voter: Voter) -> None:
        """Of a leader, half of the time: what it appends meanwhile contradicts its successor's log."""
        leaders = [other for other in self._quorum.voters.values() if other.active]
        target = leaders[0] if leaders and self._rng.random() < 0.5 else voter
        cut_s = self._rng.uniform(0.1, ISOLATED_MAX_S)
        self._quorum.happened(counters.ISOLATED, f"{_name(target)}, for {cut_s:.3f} s at least")
        self._quorum.links.isolate(target.node_id, cut_s)

    def _hand_over(self, voter: Voter) -> None:
        if voter.active:
            self._quorum.happened(counters.HAND_OVER, _name(voter))
            voter.post(TransferLeadership())

    def _wipe(self, voter: Voter) -> None:
        if self._may_lose_disk(voter):
            self._quorum.happened(counters.WIPED, _name(voter))
            self.crash(voter, power_loss=True, restart=False)
            self._replace(voter)

    def _rot(self, voter: Voter) -> None:
        """A bit of the journal rots while the voter is down. It must refuse to start, unless the bit lies in
        what it wrote last: that looks torn, so every other voter has to have all of it. The leader that had
        its word for it notices. Half of the time it lies in the newest segment, where that is."""
        segments = [path for path in voter.storage.files() if path.endswith(".log")]
        self._rot_file(voter, max(segments, default=".log") if self._rng.random() < 0.5 else ".log")

    def _rot_snapshot(self, voter: Voter) -> None:
        """A bit of the snapshot rots while the voter is down, and it must refuse to start."""
        self._rot_file(voter, ".checkpoint")

    def _rot_file(self, voter: Voter, suffix: str) -> None:
        newest = max(other.log_end for other in self._quorum.voters.values())
        caught_up = all(other.is_up and other.applied == newest for other in self._quorum.voters.values())
        if caught_up and self._may_lose_disk(voter):
            self.crash(voter, power_loss=True, restart=False)
            if voter.storage.rot(self._rng, lambda path: path.endswith(suffix)) is not None:
                self._rotten = self._without_disk = voter.node_id
                self._rotten_end = newest
                # If the bit lies in what was written last, nobody can tell.
                self._quorum.judge.forget_acknowledgements(voter.node_id)
            self._start_later(voter)

    def has_rotted(self, voter: Voter) -> bool:
        return self._rotten == voter.node_id

    def _may_lose_disk(self, voter: Voter) -> bool:
        """One after the other: when the last new disk is in use and recorded, and not only this voter knows it,
        this one's may go. So it is with a rotten one, which has to get back what a bit may have cost it. Never
        the only disk, nor where voters are known by number alone."""
        if len(self._quorum.voters) < 3 or self._quorum.settings.workload == "bytes":
            return False
        last = self._quorum.voters.get(self._without_disk)
        if last is None:
            return True
        regained = self._rotten_end if last.node_id == self._rotten else 0
        return last.is_up and last.applied >= regained and self._quorum.is_recorded(last, besides=voter)

    def _replace(self, voter: Voter) -> None:
        self._without_disk = voter.node_id
        self._quorum.judge.forget(voter.node_id)
        voter.format()
        self._start_later(voter)

    def newly_leads(self, voter: Voter) -> None:
        """A new leader may be killed before it has done anything."""
        odds = self._quorum.settings.faults.kill_new_leader
        if odds and not self.calm and self._rng.random() < odds:
            delay_s = self._rng.uniform(0.002, 0.1)
            self._quorum.scheduler.call_kernel(delay_s, self._kill_if_alive, voter, voter.incarnation)

    def _kill_if_alive(self, voter: Voter, incarnation: int) -> None:
        if voter.is_up and voter.incarnation == incarnation and not self.calm:
            self._kill(voter)

    # -- dying and starting

    def crash(self, voter: Voter, *, power_loss: bool, restart: bool = True) -> None:
        """Ends a voter's process; somebody starts it again after a while."""
        self._quorum.links.isolate(voter.node_id)
        voter.end(power_loss=power_loss)
        if restart:
            self._start_later(voter)

    def died(self, voter: Voter) -> None:
        """A voter ended by its injury. After a failed fsync the machine is switched off and on again."""
        failed_fsync = voter.injury.struck == counters.FSYNC_ERROR
        self.crash(voter, power_loss=failed_fsync or self._rng.random() < 0.5)

    def _start_later(self, voter: Voter) -> None:
        delay_s = self._rng.uniform(0.0, self._quorum.settings.down_max_s)
        self._quorum.scheduler.call_kernel(delay_s, self._start, voter, voter.incarnation)

    def _start(self, voter: Voter, incarnation: int) -> None:
        if voter.is_up or voter.incarnation != incarnation:
            return
        if not self.calm:
            voter.meet_wrong_folder()
        if not self.calm and self._rng.random() < self._quorum.settings.faults.cut_short_start:
            voter.injury = self._injury()
        try:
            voter.start()
        except RaftStorageError:
            if not self.has_rotted(voter) or not (voter.has_forgotten or voter.storage.repair()):
                raise
            self._quorum.happened(counters.ROT, f"{_name(voter)}, which gets an empty disk")
            self._replace(voter)
            return
        self._quorum.happened(counters.RESTARTED, _name(voter))


def _name(voter: Voter) -> str:
    return f"voter {voter.node_id}" + (", the leader" if voter.active else "")
