"""Applies a leader's answers to the follower's logs, partition by partition; synchronous and pure.

A failure of one partition, of any kind, stays with that partition. A log is changed only in the leader epoch that was
asked in. The truncation rule is that of `leader_epoch.truncation` (KIP-101, KIP-279). `fetcher.py` calls it with each
answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from fetcher.fetch_state import FetchPhase, FetchState, Step, judge, reset_for_range
from fetcher.fetch_states import UNKNOWN_ERROR, FetchStates
from fetcher.follower_log import FollowerLog
from fetcher.leader_endpoint import (
    FetchedPartition,
    FetchRequest,
    FetchResponse,
    LeaderOffsets,
    OffsetsQuery,
    PartitionKey,
)
from leader_epoch.truncation import truncation_offset

STORAGE_ERROR = "KAFKA_STORAGE_ERROR"
_ROLE_CHANGED = frozenset({"NOT_LEADER_OR_FOLLOWER", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH"})


class LogTruncation(NamedTuple):
    """How a follower's log came to end elsewhere, and what the replica knew before it did."""

    key: PartitionKey
    from_offset: int
    """Where the log ended."""
    to_offset: int
    """Where it ends now; beyond `from_offset` if it starts anew there."""
    high_watermark: int
    latest_epoch: int | None
    """Nothing of a later leader epoch was cut off."""

    @property
    def known_committed(self) -> int:
        """How many of the offsets that were cut off lay below the high watermark."""
        return max(0, min(self.high_watermark, self.from_offset) - self.to_offset)


class ReplicationListener(Protocol):
    """Told what people and the node have to know."""

    def on_truncated(self, truncation: LogTruncation) -> None:
        """A log was cut, or starts anew."""

    def on_partition_failed(
        self, key: PartitionKey, leader_epoch: int, code: str, error: Exception | None
    ) -> None:
        """The partition is not copied any more until a newer leader epoch. KAFKA_STORAGE_ERROR: its disk failed."""

    def on_retry(
        self, key: PartitionKey, leader_epoch: int, code: str, error: Exception | None, failures: int
    ) -> None:
        """The partition failed, so many times in a row, and will be tried again after a back-off. `error` is what its
        own log refused; None where the leader did."""


class Replication:
    """The logs of one fetcher's partitions, fed with its leader's answers."""

    __slots__ = ("_listener", "_states")

    def __init__(self, states: FetchStates, listener: ReplicationListener) -> None:
        self._states = states
        self._listener = listener

    def apply_fetch(self, request: FetchRequest, response: FetchResponse, now_ms: int) -> None:
        """Takes the answer to a fetch."""
        for _ in self.steps(request, response, now_ms):
            continue

    def steps(self, request: FetchRequest, response: FetchResponse, now_ms: int) -> Iterator[int]:
        """Takes the answer to a fetch, a partition at a time, and says how many bytes of records that had.

        Between steps anything may happen to the partitions; each is judged when its turn comes.
        """
        for asked, answer in self._states.match(request, response):
            state = self._states.get(asked.key)
            step = judge(state, asked, answer)
            if state is None or step is Step.IGNORE:
                self._states.asked_otherwise(asked.key)
            else:
                self._guarded(state, step, answer, now_ms)
            yield len(answer.records)
        self._states.release(request)

    def apply_offsets(
        self, queries: Sequence[OffsetsQuery], offsets: Mapping[PartitionKey, LeaderOffsets], now_ms: int
    ) -> None:
        """Takes the leader's log bounds for partitions that were out of its range.

        They count for the subscription that asked alone: another's say nothing of this log, even in the same
        leader epoch.
        """
        for query in queries:
            state = self._states.get(query.key)
            if (
                state is None
                or state.phase is not FetchPhase.TRUNCATING
                or state.generation != query.generation
            ):
                continue
            bounds = offsets.get(query.key) or LeaderOffsets(error=UNKNOWN_ERROR)
            if bounds.error == "FENCED_LEADER_EPOCH":
                self._stop(state, bounds.error, None)
            elif bounds.error is not None:
                self._retry(state, bounds.error, None, now_ms)
            else:
                try:
                    self._reset(state, bounds)
                except Exception as error:  # noqa: BLE001  # judged by its code, reported, never lost
                    self._on_log_error(state, error, now_ms)

    def _guarded(self, state: FetchState, step: Step, answer: FetchedPartition, now_ms: int) -> None:
        try:
            self._take(state, step, answer, now_ms)
        except Exception as error:  # noqa: BLE001  # judged by its code, reported, never lost
            self._on_log_error(state, error, now_ms)

    def _take(self, state: FetchState, step: Step, answer: FetchedPartition, now_ms: int) -> None:
        match step:
            case Step.APPEND:
                self._append(state, answer)
                self._states.throttle.copied(state.key, len(answer.records), now_ms)
            case Step.TRUNCATE:
                assert answer.diverging_epoch is not None, "only a diverging epoch truncates"
                self._truncate(state, answer.diverging_epoch, now_ms)
            case Step.ASK_OFFSETS:
                self._states.needs_offsets(state)
            case Step.STOP:
                self._stop(state, answer.error or UNKNOWN_ERROR, None)
            case _:
                self._retry(state, answer.error or UNKNOWN_ERROR, None, now_ms)

    def _append(self, state: FetchState, answer: FetchedPartition) -> None:
        log = state.log
        log.append_as_follower(
            answer.records,
            leader_epoch=state.followed.leader_epoch,
            leader_high_watermark=answer.high_watermark,
            leader_log_start_offset=answer.log_start_offset,
        )
        lag = max(0, answer.high_watermark - log.log_end_offset)
        self._states.progressed(state, lag=lag, got_records=len(answer.records) > 0)

    def _truncate(self, state: FetchState, leader_epoch_answer: tuple[int, int], now_ms: int) -> None:
        log = state.log
        before, latest_epoch, high_watermark = log.log_end_offset, log.epochs.latest_epoch, log.high_watermark
        log.confirm_epoch_end(leader_epoch_answer[0])
        cut = truncation_offset(
            log.epochs, leader_epoch_answer, log_end_offset=log.log_end_offset, high_watermark=high_watermark
        )
        log.truncate_to(cut.offset, leader_epoch=state.followed.leader_epoch)
        if (log.log_end_offset, log.epochs.latest_epoch) == (before, latest_epoch):
            # The leader says that the logs part, and yet there is nothing to cut: asking again at
            # once would bring the same answer.
            self._retry(state, UNKNOWN_ERROR, None, now_ms)
            return
        self._states.was_cut(state)
        if log.log_end_offset != before:
            self._listener.on_truncated(
                LogTruncation(state.key, before, log.log_end_offset, high_watermark, latest_epoch)
            )

    def _reset(self, state: FetchState, bounds: LeaderOffsets) -> None:
        log, leader_epoch = state.log, state.followed.leader_epoch
        before, high_watermark, latest_epoch = log.log_end_offset, log.high_watermark, log.epochs.latest_epoch
        reset = reset_for_range(
            log_start_offset=log.log_start_offset,
            log_end_offset=before,
            leader_start_offset=bounds.log_start_offset,
            leader_end_offset=bounds.log_end_offset,
            stray_from=_stray_from(log, leader_epoch),
        )
        if reset.restart_at is not None:
            log.truncate_fully_and_start_at(reset.restart_at, leader_epoch=leader_epoch)
        elif reset.truncate_to is not None:
            log.truncate_to(reset.truncate_to, leader_epoch=leader_epoch)
        if reset.restart_at is not None or log.log_end_offset != before:
            self._listener.on_truncated(
                LogTruncation(state.key, before, log.log_end_offset, high_watermark, latest_epoch)
            )
        self._states.fetches_again(state)

    def _on_log_error(self, state: FetchState, error: Exception, now_ms: int) -> None:
        """What a follower's log refuses: bytes may be sound next time, a disk or a bug will not be."""
        if isinstance(error, OSError):
            self._stop(state, STORAGE_ERROR, error)
            return
        code = getattr(error, "code", None)
        if not isinstance(code, str):
            self._stop(state, UNKNOWN_ERROR, error)
        elif code == STORAGE_ERROR and not getattr(error, "is_transient", False):
            self._stop(state, code, error)
        elif code in _ROLE_CHANGED:
            # The replica moved on to another epoch or role; the subscription follows with the metadata.
            self._states.stop(state, code)
        else:
            self._retry(state, code, error, now_ms)

    def _retry(self, state: FetchState, code: str, error: Exception | None, now_ms: int) -> None:
        self._states.back_off(state, code, now_ms)
        self._listener.on_retry(state.key, state.followed.leader_epoch, code, error, state.failures)

    def _stop(self, state: FetchState, code: str, error: Exception | None) -> None:
        self._states.stop(state, code)
        self._listener.on_partition_failed(state.key, state.followed.leader_epoch, code, error)


def _stray_from(log: FollowerLog, leader_epoch: int) -> int | None:
    """Where the log goes beyond this epoch; None if it does not."""
    latest = log.epochs.latest_epoch
    if latest is None or latest <= leader_epoch:
        return None
    log.confirm_epoch_end(leader_epoch)
    latest = log.epochs.latest_epoch
    if latest is None or latest <= leader_epoch:
        return None  # the file that the epochs came from had rotted
    return log.epochs.end_offset_for(leader_epoch, log.log_end_offset)[1]
