"""Where a follower stands with one partition, and what an answer means for it: pure.

An answer is used only for the subscription, leader epoch and offset that were asked for. To cut the log, the last
fetched epoch has to be the same, too. So answers may come late, twice or out of order. `fetch_states.py` keeps the
states of one leader's partitions, `replication.py` takes the steps that `judge` finds. Times are monotonic
milliseconds.

    FETCHING --OFFSET_OUT_OF_RANGE--> TRUNCATING --offsets of the leader--> FETCHING
        |                                  |
        '--fenced, or the log failed------>'--> FAILED    (until metadata brings a newer leader epoch)

In FETCHING and TRUNCATING a partition may be delayed after an error. In FETCHING it is held while its log awaits a
flush. A diverging epoch needs no state of
its own: the log is cut, and the next fetch asks from its new end whether the logs agree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from fetcher.follower_log import FollowerLog
from fetcher.leader_endpoint import NO_EPOCH, FetchedPartition, FetchPartition, PartitionKey


class FollowedPartition(NamedTuple):
    """A partition to copy: from whom, in which leader epoch, into which replica."""

    key: PartitionKey
    topic_id: bytes
    leader_id: int
    leader_epoch: int
    log: FollowerLog


class FetchPhase(Enum):
    """What the partition needs next."""

    FETCHING = "fetching"
    TRUNCATING = "truncating"
    """Its end is out of the leader's range: the leader's offsets say what to cut."""
    FAILED = "failed"


class Step(Enum):
    """What an answer asks for."""

    IGNORE = "ignore"
    APPEND = "append"
    TRUNCATE = "truncate"
    ASK_OFFSETS = "ask for the leader's offsets"
    BACK_OFF = "back off"
    STOP = "stop"


_STEP_ON_ERROR: Final = {
    "OFFSET_OUT_OF_RANGE": Step.ASK_OFFSETS,
    # Asked in this replica's own epoch, so it is this replica that missed an election.
    "FENCED_LEADER_EPOCH": Step.STOP,
}
"""Any other error (a leader that lags behind or just moved, a failed disk there, ...) may pass: BACK_OFF."""


@dataclass(slots=True, eq=False)
class FetchState:
    """One partition."""

    followed: FollowedPartition
    generation: int
    key: PartitionKey = field(init=False)
    log: FollowerLog = field(init=False)
    phase: FetchPhase = FetchPhase.FETCHING
    delayed_until_ms: int | None = None
    failures: int = 0
    failure: str | None = None
    """Kafka's error name of the last failure; None once all is well."""
    lag: int | None = None
    """Records between the log's end and the leader's high watermark; None before the first answer."""
    is_behind: bool = False
    """Below the leader's high watermark when it got records last: no member of the ISR is."""

    def __post_init__(self) -> None:
        self.key, self.log = self.followed.key, self.followed.log

    @property
    def is_ready(self) -> bool:
        """Whether it is to be fetched."""
        return (
            self.phase is FetchPhase.FETCHING and self.delayed_until_ms is None and not self.log.awaits_flush
        )

    @property
    def last_fetched_epoch(self) -> int:
        """The leader epoch of the log's last record; -1 if none is known."""
        latest = self.log.epochs.latest_epoch
        return NO_EPOCH if latest is None else latest

    def is_due(self, now_ms: int) -> bool:
        return self.delayed_until_ms is None or self.delayed_until_ms <= now_ms


def judge(state: FetchState | None, asked: FetchPartition, answer: FetchedPartition) -> Step:
    """What the answer means for the partition as it stands now."""
    if (
        state is None
        or state.generation != asked.generation
        or state.phase is not FetchPhase.FETCHING
        or state.log.log_end_offset != asked.fetch_offset
    ):
        return Step.IGNORE
    if answer.error is not None and state.delayed_until_ms is not None:
        return Step.IGNORE  # both lanes met the same failure
    if answer.error is not None:
        return _STEP_ON_ERROR.get(answer.error, Step.BACK_OFF)
    if answer.diverging_epoch is None:
        return Step.APPEND
    # The end alone does not tell: while this answer was late, the other lane's may have cut the log and filled it
    # up to the same offset. The leader was told of that, and may have committed it.
    return Step.TRUNCATE if state.last_fetched_epoch == asked.last_fetched_epoch else Step.IGNORE


class Reset(NamedTuple):
    """How a log comes back into the leader's range: cut at `truncate_to`, or emptied to start at `restart_at`."""

    truncate_to: int | None = None
    restart_at: int | None = None


def reset_for_range(
    *,
    log_start_offset: int,
    log_end_offset: int,
    leader_start_offset: int,
    leader_end_offset: int,
    stray_from: int | None = None,
) -> Reset:
    """What to do with a log whose end is out of the leader's range.

    The leader has deleted what should follow (it starts above our end): start anew where it starts.
    The leader ends below our end (an unclean election): cut there, or start anew where it starts if
    that leaves nothing. So too at `stray_from`, where batches begin that claim a later leader epoch than
    the one in which the leader answers: an epoch lies outside the checksum, and this one has rotted.
    Otherwise our end came into range meanwhile: keep everything; the next fetch compares the epochs and
    cuts what diverges.
    """
    if leader_start_offset > log_end_offset:
        return Reset(restart_at=leader_start_offset)
    end_offset = leader_end_offset if stray_from is None else min(leader_end_offset, stray_from)
    if end_offset >= log_end_offset and stray_from is None:
        return Reset()
    if end_offset < log_start_offset:
        return Reset(restart_at=leader_start_offset)
    return Reset(truncate_to=min(end_offset, log_end_offset))
