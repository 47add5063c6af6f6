"""Broker sessions: the brokers that sent a heartbeat lately, and those whose session has expired.

Guarantees: O(1) per heartbeat and O(expired) per tick. All sessions last equally long, so the order of last contact is
the order of deadlines. Only the active controller has sessions; they are not replicated. A new controller starts
afresh and gives every unfenced broker a whole session (KIP-631). `ClusterControl` owns them. Times are monotonic ms.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(slots=True)
class Session:
    """One registration's session. `metadata_offset` is the offset that the broker last reported as applied."""

    broker_epoch: int
    deadline_ms: int
    metadata_offset: int = -1


class BrokerSessions:
    """Sessions by broker id, the next to expire first."""

    def __init__(self, session_timeout_ms: int) -> None:
        self._timeout_ms = session_timeout_ms
        self._sessions: OrderedDict[int, Session] = OrderedDict()
        self._now_ms = 0

    def touch(
        self, broker_id: int, broker_epoch: int, now_ms: int, metadata_offset: int | None = None
    ) -> None:
        """Restarts the session of a registration that was heard of; begins one if the epoch is new."""
        self._now_ms = max(self._now_ms, now_ms)
        session = self._sessions.get(broker_id)
        if session is None or session.broker_epoch != broker_epoch:
            session = self._sessions[broker_id] = Session(broker_epoch, 0)
        session.deadline_ms = self._now_ms + self._timeout_ms
        if metadata_offset is not None:
            session.metadata_offset = metadata_offset
        self._sessions.move_to_end(broker_id)

    def extend(self, duration_ms: int, now_ms: int) -> None:
        """Prolongs every session by a duration, but not beyond a whole session from now. O(brokers)."""
        latest_ms = max(self._now_ms, now_ms) + self._timeout_ms
        for session in self._sessions.values():
            session.deadline_ms = min(session.deadline_ms + duration_ms, latest_ms)

    def end(self, broker_id: int) -> None:
        """Ends the broker's session, if there is one."""
        self._sessions.pop(broker_id, None)

    def is_valid(self, broker_id: int, broker_epoch: int, now_ms: int) -> bool:
        """Whether this registration has a session that has not run out."""
        session = self._sessions.get(broker_id)
        return session is not None and session.broker_epoch == broker_epoch and now_ms < session.deadline_ms

    def metadata_offset(self, broker_id: int, broker_epoch: int) -> int:
        """The metadata offset that the registration last reported; -1 when it has not."""
        session = self._sessions.get(broker_id)
        return session.metadata_offset if session and session.broker_epoch == broker_epoch else -1

    def expired(self, now_ms: int) -> list[tuple[int, int]]:
        """The sessions that have run out; (broker id, broker epoch) of each, ascending."""
        found = []
        for broker_id, session in self._sessions.items():
            if now_ms < session.deadline_ms:
                break
            found.append((broker_id, session.broker_epoch))
        return sorted(found)

    def pop_expired(self, now_ms: int) -> list[tuple[int, int]]:
        """Ends every session that has run out, and returns them as `expired` does."""
        found = self.expired(now_ms)
        for broker_id, _ in found:
            del self._sessions[broker_id]
        return found

    def next_deadline_ms(self) -> int | None:
        """When the next session runs out; None without sessions."""
        for session in self._sessions.values():
            return session.deadline_ms
        return None
