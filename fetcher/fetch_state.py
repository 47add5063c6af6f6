"""Where a follower stands with each partition that it copies from one leader: pure.

Guarantees: an answer is used only for the subscription, leader epoch and offset that were asked for, so
that answers may come late, twice or out of order; partitions take turns (whoever got records goes to the
end of the order); a failing partition waits with growing back-off and holds nobody up. `fetcher.py` sends
what `build_request` gives and has `replication.py` apply the answers. Times are monotonic milliseconds.

    FETCHING --OFFSET_OUT_OF_RANGE--> TRUNCATING --offsets of the leader--> FETCHING
        |                                  |
        '--fenced, or the log failed------>'--> FAILED    (until metadata brings a newer leader epoch)

In FETCHING and TRUNCATING a partition may be delayed after an error. A diverging epoch needs no state of
its own: the log is cut, and the next fetch asks from its new end whether the logs agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from fetcher.follower_log import FollowerLog
from fetcher.leader_endpoint import (
    NO_EPOCH,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    OffsetsQuery,
    PartitionKey,
)
from fetcher.settings import FetcherSettings, backoff_ms


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
    phase: FetchPhase = FetchPhase.FETCHING
    delayed_until_ms: int | None = None
    failures: int = 0
    failure: str | None = None
    """Kafka's error name of the last failure; None once all is well."""
    covered_by: int | None = None
    """Sequence of the newest request in flight that asks for it."""
    lag: int | None = None
    """Records between the log's end and the leader's high watermark; None before the first answer."""

    @property
    def key(self) -> PartitionKey:
        return self.followed.key

    @property
    def log(self) -> FollowerLog:
        return self.followed.log

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
    return Step.APPEND if answer.diverging_epoch is None else Step.TRUNCATE


class Reset(NamedTuple):
    """How a log comes back into the leader's range: cut at `truncate_to`, or emptied to start at `restart_at`."""

    truncate_to: int | None = None
    restart_at: int | None = None


def reset_for_range(
    *, log_start_offset: int, log_end_offset: int, leader_start_offset: int, leader_end_offset: int
) -> Reset:
    """What to do with a log whose end is out of the leader's range.

    The leader has deleted what should follow (it starts above our end): start anew where it starts.
    The leader ends below our end (an unclean election): cut there, or start anew where it starts if
    that leaves nothing. Otherwise our end came into range meanwhile: keep everything; the next fetch
    compares the epochs and cuts what diverges.
    """
    if leader_start_offset > log_end_offset:
        return Reset(restart_at=leader_start_offset)
    if leader_end_offset < log_end_offset:
        if leader_end_offset < log_start_offset:
            return Reset(restart_at=leader_start_offset)
        return Reset(truncate_to=leader_end_offset)
    return Reset()


@dataclass(slots=True)
class FetchStates:
    """The partitions that one fetcher copies, in the order in which they are asked for."""

    settings: FetcherSettings
    jitter: Callable[[], float]
    """Gives numbers in [0, 1)."""
    _states: dict[PartitionKey, FetchState] = field(default_factory=dict)
    _hungry: dict[PartitionKey, None] = field(default_factory=dict)
    """Ready and in no request in flight: worth a request of their own."""
    _delayed: dict[PartitionKey, FetchState] = field(default_factory=dict)
    _truncating: dict[PartitionKey, FetchState] = field(default_factory=dict)
    _generations: int = 0
    _sequence: int = 0

    def __len__(self) -> int:
        return len(self._states)

    def get(self, key: PartitionKey) -> FetchState | None:
        return self._states.get(key)

    @property
    def keys(self) -> tuple[PartitionKey, ...]:
        """All partitions, in the order of the next request."""
        return tuple(self._states)

    @property
    def has_hungry(self) -> bool:
        """Whether a partition waits that no request in flight asks for."""
        return bool(self._hungry)

    @property
    def has_truncating(self) -> bool:
        """Whether a partition is out of its leader's range."""
        return bool(self._truncating)

    def add(self, followed: FollowedPartition) -> bool:
        """Starts to copy a partition; False if it is copied in this leader epoch, or a newer one, already."""
        current = self._states.get(followed.key)
        if current is not None and self._goes_on(current, followed):
            return False
        self.remove(followed.key)
        self._generations += 1
        self._states[followed.key] = FetchState(followed, self._generations)
        self._hungry[followed.key] = None
        return True

    @staticmethod
    def _goes_on(current: FetchState, followed: FollowedPartition) -> bool:
        have = current.followed
        if have.topic_id != followed.topic_id or have.log is not followed.log:
            return False
        if have.leader_epoch != followed.leader_epoch:
            return have.leader_epoch > followed.leader_epoch
        return current.phase is not FetchPhase.FAILED

    def remove(self, key: PartitionKey) -> bool:
        """Stops to copy a partition; answers still under way for it will be ignored."""
        self._forget_waits(key)
        return self._states.pop(key, None) is not None

    def build_request(self, now_ms: int, lane: int) -> FetchRequest | None:
        """A request for all partitions that can be fetched now; None if there are none."""
        self._sequence += 1
        partitions: list[FetchPartition] = []
        for state in self._states.values():
            if state.phase is FetchPhase.FETCHING and state.is_due(now_ms):
                state.covered_by = self._sequence
                partitions.append(self._ask(state))
        self._hungry.clear()
        if not partitions:
            return None
        return FetchRequest(
            self._sequence,
            lane,
            tuple(partitions),
            self.settings.max_wait_ms,
            self.settings.min_bytes,
            self.settings.max_bytes,
        )

    def _ask(self, state: FetchState) -> FetchPartition:
        self._end_delay(state)
        followed, log = state.followed, state.followed.log
        last_epoch = log.epochs.latest_epoch
        return FetchPartition(
            followed.key,
            followed.topic_id,
            followed.leader_epoch,
            log.log_end_offset,
            NO_EPOCH if last_epoch is None else last_epoch,
            log.log_start_offset,
            self.settings.partition_max_bytes,
            state.generation,
        )

    def release(self, request: FetchRequest) -> None:
        """The request is over: partitions that no younger request covers are hungry again."""
        for asked in request.partitions:
            state = self._states.get(asked.key)
            if state is None or state.covered_by != request.sequence:
                continue
            state.covered_by = None
            if state.phase is FetchPhase.FETCHING and state.delayed_until_ms is None:
                self._hungry[state.key] = None

    def offsets_queries(self, now_ms: int) -> tuple[OffsetsQuery, ...]:
        """What to ask the leader for the partitions that are out of its range."""
        queries: list[OffsetsQuery] = []
        for state in self._truncating.values():
            if state.is_due(now_ms):
                self._end_delay(state)
                queries.append(OffsetsQuery(state.key, state.followed.topic_id, state.followed.leader_epoch))
        return tuple(queries)

    def next_due_ms(self, *phases: FetchPhase) -> int | None:
        """When the first back-off of a partition in one of the phases ends."""
        return min(
            (state.delayed_until_ms or 0 for state in self._delayed.values() if state.phase in phases),
            default=None,
        )

    # What became of a partition

    def progressed(self, state: FetchState, *, lag: int, got_records: bool) -> None:
        """It is in step with its leader; with records it goes to the end of the order."""
        state.failures = 0
        state.failure = None
        state.lag = lag
        self._end_delay(state)
        if got_records:
            del self._states[state.key]
            self._states[state.key] = state

    def needs_offsets(self, state: FetchState) -> None:
        """Its end is out of the leader's range."""
        state.phase = FetchPhase.TRUNCATING
        self._forget_waits(state.key)
        state.delayed_until_ms = None
        self._truncating[state.key] = state

    def fetches_again(self, state: FetchState) -> None:
        """Its log is back in the leader's range."""
        state.phase = FetchPhase.FETCHING
        self._forget_waits(state.key)
        state.delayed_until_ms = None
        self._hungry[state.key] = None

    def back_off(self, state: FetchState, code: str, now_ms: int) -> None:
        """It failed in a way that may pass."""
        state.failures += 1
        state.failure = code
        state.delayed_until_ms = now_ms + backoff_ms(self.settings, state.failures, self.jitter())
        self._delayed[state.key] = state
        self._hungry.pop(state.key, None)

    def stop(self, state: FetchState, code: str) -> None:
        """It failed until there is a new leader epoch."""
        state.phase = FetchPhase.FAILED
        state.failure = code
        self._forget_waits(state.key)

    def failed(self) -> Iterable[FetchState]:
        """The partitions that are not copied any more."""
        return [state for state in self._states.values() if state.phase is FetchPhase.FAILED]

    def _end_delay(self, state: FetchState) -> None:
        if state.delayed_until_ms is not None:
            state.delayed_until_ms = None
            self._delayed.pop(state.key, None)

    def _forget_waits(self, key: PartitionKey) -> None:
        self._hungry.pop(key, None)
        self._delayed.pop(key, None)
        self._truncating.pop(key, None)
