"""The partitions that one fetcher copies, and its next requests: pure.

A partition that stands still costs a request nothing. Partitions take turns: one that got records goes to the end of
the order. A failing partition waits with growing back-off and holds nobody up. `fetcher.py` sends what `build_request`
gives and has `replication.py` apply the answers. Times are monotonic milliseconds.

Two lanes share the partitions, so that catching up delays no acks=all. The session lane holds a long poll in a fetch
session (KIP-227), and asks for all that are in sync. The catch-up lane asks, without a session, for those that are
behind the leader's high watermark, and for those that came while the long poll was pending ("hungry" ones), until that
takes them up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from fetcher.fetch_session import FetchSession
from fetcher.fetch_state import FetchPhase, FetchState, FollowedPartition
from fetcher.leader_endpoint import (
    FINAL_EPOCH,
    NO_SESSION,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    OffsetsQuery,
    PartitionKey,
)
from fetcher.settings import FetcherSettings, backoff_ms
from fetcher.throttle import THROTTLE_PAUSE_MS, UNTHROTTLED, ReplicationThrottle

SESSION_LANE: Final = 0
CATCH_UP_LANE: Final = 1
CATCH_UP_WAIT_MAX_MS: Final = 100
"""How long the leader holds a fetch of the catch-up lane: what comes meanwhile has no lane to go by."""
UNKNOWN_ERROR: Final = "UNKNOWN_SERVER_ERROR"


@dataclass(slots=True)
class FetchStates:
    """The partitions, in the order in which they are asked for."""

    settings: FetcherSettings
    jitter: Callable[[], float]
    """Gives numbers in [0, 1)."""
    throttle: ReplicationThrottle = UNTHROTTLED
    """Asked about what is not in sync, and told what came."""
    _states: dict[PartitionKey, FetchState] = field(default_factory=dict)
    _session: FetchSession = field(default_factory=FetchSession)
    _changed: dict[PartitionKey, None] = field(default_factory=dict)
    """Of which the leader may know something else than what is so."""
    _hungry: dict[PartitionKey, None] = field(default_factory=dict)
    """Ready, not behind, and in no request in flight; all of them are also in `_changed`."""
    _behind: dict[PartitionKey, None] = field(default_factory=dict)
    _delayed: dict[PartitionKey, FetchState] = field(default_factory=dict)
    _truncating: dict[PartitionKey, FetchState] = field(default_factory=dict)
    _held: dict[PartitionKey, None] = field(default_factory=dict)
    """Their logs await a flush; `touch` ends that."""
    _generations: int = 0
    _sequence: int = 0

    def __len__(self) -> int:
        return len(self._states)

    def get(self, key: PartitionKey) -> FetchState | None:
        return self._states.get(key)

    @property
    def keys(self) -> tuple[PartitionKey, ...]:
        """All partitions, in the order of the next full request."""
        return tuple(self._states)

    @property
    def has_hungry(self) -> bool:
        """Whether a partition waits that no request in flight asks for."""
        return bool(self._hungry)

    @property
    def is_polling(self) -> bool:
        """Whether the session lane's request is on its way; if not, the next takes up what is hungry."""
        return self._session.is_in_flight

    @property
    def wants_catch_up(self) -> bool:
        """Whether there is something to do for the catch-up lane, if it is idle."""
        return bool(self._hungry or self._behind)

    @property
    def has_delayed(self) -> bool:
        """Whether a partition waits for the end of a back-off, or of a pause."""
        return bool(self._delayed)

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
        state = self._states[followed.key] = FetchState(followed, self._generations)
        self._queue_up(state)
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

    def touch(self, key: PartitionKey) -> None:
        """The partition's log changed by itself; where it starts, say."""
        state = self._states.get(key)
        if state is not None:
            self._queue_up(state)

    def holds_any(self, response: FetchResponse) -> bool:
        """Whether a partition of the answer is held until its log was flushed."""
        return bool(self._held) and any(answer.key in self._held for answer in response.partitions)

    def asked_otherwise(self, key: PartitionKey) -> None:
        """An answer was to something else than what would be asked now: the session is told what that is.

        Who moved a log has said so already; but a log may also correct its epochs by itself, from its batches.
        """
        self._changed[key] = None

    # Requests

    def end_delays(self, now_ms: int) -> None:
        """Who has waited long enough is to be fetched again."""
        for state in [state for state in self._delayed.values() if state.is_due(now_ms)]:
            if state.phase is FetchPhase.FETCHING:
                self._end_delay(state)
                self._queue_up(state)

    def build_request(self, now_ms: int, lane: int) -> FetchRequest | None:
        """The lane's next request; None if it has nothing to ask for."""
        self._sequence += 1
        self.end_delays(now_ms)
        return self._session_request(now_ms) if lane == SESSION_LANE else self._catch_up_request(now_ms)

    def _session_request(self, now_ms: int) -> FetchRequest | None:
        session = self._session
        if session.is_in_flight:
            session.lost()  # nobody waits for its answer any more
        if session.is_full:
            states = list(self._states.values())
            asked = [self._ask(state) for state in states if self._is_for_session(state, now_ms)]
            if not asked:
                return None
            return self._send(asked, {})
        named: list[FetchPartition] = []
        forgotten: dict[PartitionKey, bytes] = {}
        growth = 0
        for key in list(self._changed):
            state, known = self._states.get(key), session.get(key)
            entry = None if state is None or not self._is_for_session(state, now_ms) else self._ask(state)
            if entry is not None and entry != known:
                named.append(entry)
            if known is not None and (entry is None or entry.topic_id != known.topic_id):
                forgotten[key] = known.topic_id
            growth += (entry is not None) - (known is not None)
        if len(session) + growth == 0:
            return None
        return self._send(named, forgotten)

    def _send(self, named: list[FetchPartition], forgotten: dict[PartitionKey, bytes]) -> FetchRequest:
        session = self._session
        request = FetchRequest(
            self._sequence,
            SESSION_LANE,
            tuple(named),
            self.settings.max_wait_ms,
            self.settings.min_bytes,
            self.settings.max_bytes,
            session.id,
            session.epoch,
            tuple(forgotten.items()),
        )
        session.send(self._sequence, named, forgotten)
        self._changed.clear()
        self._hungry.clear()
        return request

    def _catch_up_request(self, now_ms: int) -> FetchRequest | None:
        states = [self._states[key] for key in (*self._behind, *self._hungry)]
        asked = [
            self._ask(state) for state in states if state.is_ready and not self._holds_back(state, now_ms)
        ]
        self._hungry.clear()
        if not asked:
            return None
        return FetchRequest(
            self._sequence,
            CATCH_UP_LANE,
            tuple(asked),
            min(self.settings.max_wait_ms, CATCH_UP_WAIT_MAX_MS),
            self.settings.min_bytes,
            self.settings.max_bytes,
            NO_SESSION,
            FINAL_EPOCH,
        )

    def _is_for_session(self, state: FetchState, now_ms: int) -> bool:
        return state.is_ready and not state.is_behind and not self._holds_back(state, now_ms)

    def _holds_back(self, state: FetchState, now_ms: int) -> bool:
        """Whether the throttle wants it left out; then it is, for a while. Nothing in sync is throttled."""
        if state.lag == 0 or not self.throttle.holds_back(state.key, in_sync=False, now_ms=now_ms):
            return False
        state.delayed_until_ms = now_ms + THROTTLE_PAUSE_MS
        self._delayed[state.key] = state
        self._queue_up(state)
        return True

    def _ask(self, state: FetchState) -> FetchPartition:
        followed, log = state.followed, state.followed.log
        return FetchPartition(
            followed.key,
            followed.topic_id,
            followed.leader_epoch,
            log.log_end_offset,
            state.last_fetched_epoch,
            log.log_start_offset,
            self.settings.partition_max_bytes,
            state.generation,
        )

    # Answers

    def match(
        self, request: FetchRequest, response: FetchResponse
    ) -> list[tuple[FetchPartition, FetchedPartition]]:
        """What was asked with what was answered; takes note of what became of the session.

        An incremental answer leaves out what has no news. A full one that leaves out a partition says
        nothing about it; asking at once would ask for ever, so that counts as an error of the partition.
        """
        session, is_current = self._session, self._session.is_current(request.sequence)
        if request.is_full:
            answers = {answer.key: answer for answer in response.partitions}
            pairs = [
                (asked, answers.get(asked.key) or FetchedPartition(asked.key, UNKNOWN_ERROR))
                for asked in request.partitions
            ]
        else:
            named = {asked.key: asked for asked in request.partitions}
            known = session.get if is_current else named.get
            found = [(known(answer.key), answer) for answer in response.partitions]
            pairs = [(asked, answer) for asked, answer in found if asked is not None]
        if is_current:
            session.answered(response.session_id)
            if len(pairs) < len(response.partitions):
                session.lost()  # the leader takes the session for another
        return pairs

    def release(self, request: FetchRequest, error: str | None = None) -> None:
        """The request is over, `error` says how if it failed: who is in no request now is hungry again."""
        if request.lane == SESSION_LANE:
            if self._session.is_current(request.sequence):
                self._session.lost(error)
            return
        for asked in request.partitions:
            state = self._states.get(asked.key)
            if state is not None:
                self._queue_up(state)

    def offsets_queries(self, now_ms: int) -> tuple[OffsetsQuery, ...]:
        """What to ask the leader for the partitions that are out of its range."""
        queries: list[OffsetsQuery] = []
        for state in self._truncating.values():
            if state.is_due(now_ms):
                self._end_delay(state)
                followed = state.followed
                queries.append(
                    OffsetsQuery(state.key, followed.topic_id, followed.leader_epoch, state.generation)
                )
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
            self._states[state.key] = self._states.pop(state.key)
            self._behind.pop(state.key, None)
        if got_records or lag == 0:
            state.is_behind = lag > 0
        self._queue_up(state)

    def was_cut(self, state: FetchState) -> None:
        """Its log was truncated: the next fetch asks from its new end whether the logs agree."""
        self._queue_up(state)

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
        self._queue_up(state)

    def back_off(self, state: FetchState, code: str, now_ms: int) -> None:
        """It failed in a way that may pass; it leaves the session, which would repeat the error at once."""
        state.failures += 1
        state.failure = code
        state.delayed_until_ms = now_ms + backoff_ms(self.settings, state.failures, self.jitter())
        self._delayed[state.key] = state
        self._queue_up(state)

    def stop(self, state: FetchState, code: str) -> None:
        """It failed until there is a new leader epoch."""
        state.phase = FetchPhase.FAILED
        state.failure = code
        self._forget_waits(state.key)

    def failed(self) -> Iterable[FetchState]:
        """The partitions that are not copied any more."""
        return [state for state in self._states.values() if state.phase is FetchPhase.FAILED]

    def _queue_up(self, state: FetchState) -> None:
        """Has the lane that it belongs to now ask for it, unless a request in flight does."""
        key = state.key
        self._changed[key] = None
        self._hungry.pop(key, None)
        if not (state.is_ready and state.is_behind):
            self._behind.pop(key, None)
        if not state.is_ready:
            if state.log.awaits_flush:
                self._held[key] = None
            return
        self._held.pop(key, None)
        if state.is_behind:
            self._behind[key] = None
        elif not self._session.covers(self._ask(state)):
            self._hungry[key] = None

    def _end_delay(self, state: FetchState) -> None:
        if state.delayed_until_ms is not None:
            state.delayed_until_ms = None
            self._delayed.pop(state.key, None)

    def _forget_waits(self, key: PartitionKey) -> None:
        self._changed[key] = None
        self._hungry.pop(key, None)
        self._behind.pop(key, None)
        self._delayed.pop(key, None)
        self._truncating.pop(key, None)
        self._held.pop(key, None)
