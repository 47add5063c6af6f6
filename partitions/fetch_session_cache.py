"""The fetch sessions of a broker: which one a request belongs to, and who gives way when there is no room.

Guarantees (KIP-227): there are never more sessions than slots, nor more partitions in them than
`PARTITIONS_MAX`, nor in one of a consumer than `CONSUMER_PARTITIONS_MAX`; a reader that gets none goes on
without; an incremental request is taken only by its own session, in the order of the session's epochs, from the
reader that opened it. Called by the broker's fetch handler. Pure: time and random ids come in.

A session gives way when it was not used for two minutes; else, where slots are short, one older than that gives
way to a larger one; and consumers' sessions always give way to those of followers, which cost far more to do
without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

from partitions.fetch_session import (
    FetchSession,
    Reader,
    SessionKey,
    SessionPartition,
    Topic,
    WantedPartition,
    next_epoch,
)

MIN_EVICTION_MS: Final = 120_000
PARTITIONS_MAX: Final = 1_000_000
"""Of all sessions together; a few hundred bytes each."""
CONSUMER_PARTITIONS_MAX: Final = 100_000
"""Of one session that is no follower's, so that a single client never takes the room of all others."""

Wanted: TypeAlias = Iterable[tuple[Topic, WantedPartition]]


class FetchSessionError(Exception):
    """The whole request is refused with Kafka's error `code`; the reader starts anew with a full one."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class FetchSessionCache:
    """Sessions by id, the one that was not used for longest first."""

    __slots__ = (
        "_on_closed",
        "_on_left",
        "_sessions",
        "evictions",
        "incremental_requests",
        "opened",
        "partition_count",
    )  # fmt: skip

    def __init__(
        self,
        on_left: Callable[[Iterable[SessionPartition]], None],
        on_closed: Callable[[FetchSession], None],
    ) -> None:
        """`on_left` is told of all partitions that leave a session, also by its end; then `on_closed` of that."""
        self._sessions: dict[int, FetchSession] = {}
        self._on_left = on_left
        self._on_closed = on_closed
        self.partition_count = 0
        """Of all sessions."""
        self.opened = 0
        self.incremental_requests = 0
        """That were taken."""
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def open(
        self,
        wanted: Wanted,
        *,
        reader: Reader,
        by_id: bool,
        slots: int,
        draw_id: Callable[[], int],
        now_ms: int,
    ) -> FetchSession | None:
        """A session for a full request, with everything pending; None if there is no room or nothing wanted.

        `draw_id` gives random numbers from 1 to EPOCH_MAX.
        """
        is_privileged = reader.is_follower and reader.is_registered
        if is_privileged:
            self._close_former(reader, now_ms)
        session = FetchSession(reader=reader, is_privileged=is_privileged, by_id=by_id, now_ms=now_ms)
        session.update(wanted, ())
        if len(session) == 0 or not self._make_room(session, slots, now_ms):
            return None
        session.id = draw_id()
        while session.id in self._sessions:
            session.id = draw_id()
        self.opened += 1
        self._touch(session, now_ms)
        return session

    def go_on(
        self,
        session_id: int,
        epoch: int,
        wanted: Wanted,
        forgotten: Iterable[SessionKey],
        *,
        reader: Reader,
        by_id: bool,
        now_ms: int,
    ) -> FetchSession:
        """The session of an incremental request, with the request's changes. Raises FetchSessionError.

        If the request leaves it empty, it is closed.
        """
        session = self._sessions.get(session_id)
        if session is None or not session.reader.is_same_as(reader):
            raise FetchSessionError(
                "FETCH_SESSION_ID_NOT_FOUND", f"there is no fetch session {session_id} of this reader"
            )
        if epoch != session.epoch:
            raise FetchSessionError(
                "INVALID_FETCH_SESSION_EPOCH",
                f"fetch session {session_id} is at epoch {session.epoch}, the request at {epoch}",
            )
        if by_id != session.by_id:
            raise FetchSessionError(
                "FETCH_SESSION_TOPIC_ID_ERROR",
                f"fetch session {session_id} names topics {'by id' if session.by_id else 'by name'}",
            )
        self._on_left(session.update(wanted, forgotten))
        if not self._make_space(session, now_ms):
            self.close(session_id)
            raise FetchSessionError("FETCH_SESSION_ID_NOT_FOUND", "there is no room for so many partitions")
        if len(session) == 0:
            self.close(session_id)
            return session
        self.incremental_requests += 1
        session.epoch = next_epoch(session.epoch)
        session.read_by(reader)
        self._touch(session, now_ms)
        return session

    def close(self, session_id: int) -> None:
        """Ends a session, if it is there."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partition_count -= session.cached_size
            session.end()
            self._on_left(session.partitions)
            self._on_closed(session)

    def _close_former(self, reader: Reader, now_ms: int) -> None:
        """Ends a follower's sessions that nobody uses any more: those of its earlier registrations, and those of
        fetchers that have ended, which do not say so. Each would cost every append to a partition that it holds."""
        for session in [
            known for known in self._sessions.values() if known.reader.replica_id == reader.replica_id
        ]:
            is_unused = now_ms - session.last_used_ms > MIN_EVICTION_MS
            if is_unused or session.reader.replica_epoch != reader.replica_epoch:
                self.close(session.id)

    def _touch(self, session: FetchSession, now_ms: int) -> None:
        """It is the one used last. What may give way to whom is decided here, as of its age and size now."""
        self._sessions.pop(session.id, None)
        self._sessions[session.id] = session
        size = len(session)
        self.partition_count += size - session.cached_size
        session.cached_size = size
        session.last_used_ms = now_ms
        is_old = now_ms - session.created_ms > MIN_EVICTION_MS
        session.gives_way_to_all = is_old
        session.gives_way_to_privileged = is_old or not session.is_privileged

    def _make_room(self, session: FetchSession, slots: int, now_ms: int) -> bool:
        """Whether there is a slot for it, and room for its partitions; somebody may have to go."""
        if slots <= 0 or not self._make_space(session, now_ms):
            return False
        while len(self._sessions) >= slots:
            loser = self._least_worth(session, now_ms)
            if loser is None:
                return False
            self._evict(loser)
        return True

    def _make_space(self, session: FetchSession, now_ms: int) -> bool:
        """Whether there is room for its partitions, new ones or more of them; nobody goes in vain."""
        size = len(session)
        if size > (PARTITIONS_MAX if session.is_privileged else CONSUMER_PARTITIONS_MAX):
            return False
        missing = self.partition_count - session.cached_size + size - PARTITIONS_MAX
        losers: list[FetchSession] = []
        if missing > 0:
            for loser in self._giving_up_space(session, now_ms):
                losers.append(loser)
                missing -= loser.cached_size
                if missing <= 0:
                    break
            else:
                return False
        for loser in losers:
            self._evict(loser)
        return True

    def _giving_up_space(self, session: FetchSession, now_ms: int) -> Iterator[FetchSession]:
        """Those that were not used for long; then, for a follower, consumers', the largest first: they are few."""
        in_use: list[FetchSession] = []
        for known in self._sessions.values():
            if known is session:
                continue
            if now_ms - known.last_used_ms > MIN_EVICTION_MS:
                yield known
            elif not session.is_privileged:
                return  # all that follow were used later still
            elif not known.is_privileged:
                in_use.append(known)
        yield from sorted(in_use, key=_worth, reverse=True)

    def _evict(self, loser: FetchSession) -> None:
        self.evictions += 1
        self.close(loser.id)

    def _least_worth(self, session: FetchSession, now_ms: int) -> FetchSession | None:
        """Who gives way to `session`. Looks at all sessions, which happens only while no slot is free."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return None
        if now_ms - oldest.last_used_ms > MIN_EVICTION_MS:
            return oldest
        candidates = (
            known
            for known in self._sessions.values()
            if (known.gives_way_to_privileged if session.is_privileged else known.gives_way_to_all)
        )
        loser = min(candidates, key=_worth, default=None)
        mine = (session.is_privileged, len(session))
        return loser if loser is not None and _worth(loser)[:2] < mine else None


def _worth(session: FetchSession) -> tuple[bool, int, int]:
    return session.is_privileged, session.cached_size, session.id
