"""What a leader knows about one follower, from that follower's fetches.

Guarantees: everything here was said by a fetch of the present leader epoch and of the follower's
registered incarnation; before the first such fetch the follower's log end offset is unknown and it is
not eligible to join the ISR (KIP-497, KIP-903). `leadership.py` owns one per follower. Times are
monotonic milliseconds.
"""

from __future__ import annotations

from typing import Final, Protocol

UNKNOWN_OFFSET: Final = -1
NEVER_MS: Final = -(1 << 62)
"""A time before every clock reading: a follower that was never seen caught up."""


class FetchClock(Protocol):
    """The fetch session in which a follower fetches a partition without naming it."""

    def look_again(self) -> None:
        """Has the session's next request repeat its fetch of the partition, named or not."""

    @property
    def fetch_offset(self) -> int:
        """Where it fetches: what it named last."""

    @property
    def last_fetch_ms(self) -> int:
        """When it did so last."""


class Replica:
    """A follower's progress as its leader sees it."""

    __slots__ = (
        "_forgotten_ms",
        "_handed_offsets",
        "broker_epoch",
        "broker_id",
        "clock",
        "lagged_at_offset",
        "last_caught_up_ms",
        "last_fetch_leader_end_offset",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int, *, in_sync: bool, now_ms: int) -> None:
        """A follower at the start of a leader epoch.

        A member of the ISR counts as caught up now, so that it has the whole of
        replica.lag.time.max.ms to send its first fetch. Any other follower counts as never caught up:
        it must not hold the high watermark back.
        """
        self.broker_id = broker_id
        self.broker_epoch: int | None = None
        self.clock: FetchClock | None = None
        self._handed_offsets = [UNKNOWN_OFFSET, UNKNOWN_OFFSET]
        """Where the records began that it was sent last and has not asked for again: beside sessions, in one."""
        self.log_start_offset = UNKNOWN_OFFSET
        self.log_end_offset = UNKNOWN_OFFSET
        self.last_fetch_leader_end_offset = UNKNOWN_OFFSET
        self.last_fetch_ms = NEVER_MS
        self.last_caught_up_ms = now_ms if in_sync else NEVER_MS
        self._forgotten_ms = NEVER_MS
        """What the one above was before it was forgotten."""
        self.lagged_at_offset = UNKNOWN_OFFSET
        """Where its log ended when its leader last found that it lags too long."""

    @property
    def has_fetched(self) -> bool:
        """Whether it fetched in this leader epoch."""
        return self.broker_epoch is not None

    @property
    def ends_where_it_lagged(self) -> bool:
        """Whether its log ends where it did when its leader last found that it lags too long."""
        return self.log_end_offset == self.lagged_at_offset

    @property
    def seen_caught_up_ms(self) -> int:
        """When it last was, also where that counts no longer; NEVER_MS if it never was in this leader epoch."""
        return max(self.last_caught_up_ms, self._forgotten_ms)

    def fetched_by(self, session: FetchClock | None) -> None:
        """A fetch came in the session, or without one.

        One that came another way than the session's may be an old one that arrived late. The session,
        which names the partition only when something changes, would never correct what was learnt from it.
        """
        if self.clock is not None and self.clock is not session:
            self.clock.look_again()
        if session is not None:
            self.clock = session

    def was_handed(self, fetch_offset: int, *, in_session: bool) -> bool:
        """Whether it asks for the records that it was sent last in the same way; says so once.

        One that asks in a session and beside it at a time asks for the same twice and means nothing by it.
        """
        is_same = self._handed_offsets[in_session] == fetch_offset
        self._handed_offsets[in_session] = UNKNOWN_OFFSET
        return is_same

    def handed(self, fetch_offset: int, *, in_session: bool) -> None:
        """It is sent records from there on."""
        self._handed_offsets[in_session] = fetch_offset

    def join_isr(self, now_ms: int) -> None:
        """The controller took it in: it has the whole of replica.lag.time.max.ms to catch up with the leader.

        It joins with all that is committed, and may never have been at the leader's end, or not for long.
        """
        self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)

    def leave_isr(self) -> None:
        """The controller dropped it: that it was caught up before is no reason to wait for it when it comes back.

        Where its log ends stays known.
        """
        self._forget_catching_up()
        if self.clock is not None:
            self.clock.look_again()
            self.clock = None

    def _forget_catching_up(self) -> None:
        self._forgotten_ms = self.seen_caught_up_ms
        self.last_caught_up_ms = NEVER_MS
        self.last_fetch_ms = NEVER_MS

    def record_fetch(
        self,
        *,
        broker_epoch: int,
        fetch_offset: int,
        log_start_offset: int,
        leader_end_offset: int,
        now_ms: int,
    ) -> None:
        """Takes over what a fetch says; `leader_end_offset` is the leader's log end when it arrived.

        A fetch that reads up to the leader's end proves that the follower is caught up now. One that
        reads up to where the leader's end was at the previous fetch proves that it was caught up then:
        without that rule a follower of a busy partition would never count as caught up, though it
        copies everything at once. A new incarnation has to prove it by its own fetches: the log of the
        one before may have ended elsewhere, and the leader's has gone on while it was away.
        """
        if self.has_fetched and broker_epoch != self.broker_epoch:
            self._forget_catching_up()
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif self.has_fetched and fetch_offset >= self.last_fetch_leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.broker_epoch = broker_epoch
        self.log_start_offset = log_start_offset
        self.log_end_offset = fetch_offset
        self.last_fetch_leader_end_offset = max(leader_end_offset, self.last_fetch_leader_end_offset)
        self.last_fetch_ms = now_ms

    def catch_up_with_session(self, leader_end_offset: int) -> None:
        """Takes over when its session fetched last; to be called before the leader's end moves.

        While the follower stands at the leader's end, its session's requests do not name the partition
        (KIP-227), and each of them is a fetch that proves that it is caught up.
        """
        if self.clock is not None and self.clock.fetch_offset == self.log_end_offset == leader_end_offset:
            fetched_ms = self.clock.last_fetch_ms
            if fetched_ms > self.last_fetch_ms:
                self.last_fetch_ms = fetched_ms
                self.last_caught_up_ms = max(self.last_caught_up_ms, fetched_ms)
                self.last_fetch_leader_end_offset = leader_end_offset

    def is_caught_up(self, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        """At the leader's end, or there at some time in the last `max_lag_ms`."""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= max_lag_ms

    def __repr__(self) -> str:
        return (
            f"Replica({self.broker_id}, epoch={self.broker_epoch}, end={self.log_end_offset},"
            f" caught_up_ms={self.last_caught_up_ms})"
        )
