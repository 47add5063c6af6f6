"""The port of the Raft lane, which steps a driver beside the event loop, and the bounded queue in front of it.

`kraft.runtime.raft_lane` runs the lane in a thread, so that an fsync blocks nothing else. The simulator runs it under
virtual time and delays both queues. The environment of the node chooses.

An acknowledgement that repeats the last one wakes no lane: a step for each follower's answer to each heartbeat was a
fifth of what an idle controller costs. The leader takes such answers with its next step, within a heartbeat. They
count only for its right to lead, which lasts eight times as long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from quorum.raft.driver import RaftDriver
from quorum.raft.events import (
    NOT_COMMITTED,
    PeerMessage,
    ProposalOutcome,
    Propose,
    QuorumReport,
    RaftEffect,
    RaftEvent,
    ReportQuorum,
    SendToPeer,
    TransferLeadership,
)
from quorum.raft.messages import Acknowledged, acknowledged_in

INBOX_MAX_EVENTS = 10_000
INBOX_MAX_BYTES = 128 * 1024 * 1024

Deliver = Callable[[list[RaftEffect]], None]
Send = Callable[[SendToPeer], None]


class RaftLane(Protocol):
    """Runs one driver: steps it when events are posted, and when its own next step is due."""

    def start(
        self, driver_factory: Callable[[], RaftDriver], deliver: Deliver, send: Send | None = None
    ) -> None:
        """Opens the driver (errors of the factory are raised here) and begins to step it.
        `deliver` is called on the event loop, with the effects of one step, in step order. A lane in a thread of
        its own calls `send`, if given, with messages to peers instead: in that thread, without delay."""

    def post(self, event: RaftEvent) -> None:
        """Queues an event, and wakes the lane unless the event may wait (`Inbox`). If a full queue loses it,
        `deliver` gets its answer, where it has one (`lost_event`). Ignored after `stop`."""

    def stop(self) -> None:
        """Ends stepping and closes the driver; returns when both are done. Nothing is delivered after."""


def lost_event(event: RaftEvent) -> list[RaftEffect]:
    """The effects of an event that never reached the driver: the proposal was not committed, the report is not
    available here."""
    if isinstance(event, Propose):
        return [ProposalOutcome(event.request_id, None, NOT_COMMITTED)]
    if isinstance(event, ReportQuorum):
        return [QuorumReport(event.request_id, leads=False)]
    return []


class Inbox:
    """Events that wait for the next step. Not thread-safe: a lane holds its own lock.

    When it is full, messages and proposals are lost, as on a broken network. News of links never are, or a peer
    would stay unheard for good; there is one for each connection made or broken.

    An acknowledgement that only repeats the one before, as an answer to a heartbeat does, makes no step due.
    """

    def __init__(self, max_events: int = INBOX_MAX_EVENTS, max_bytes: int = INBOX_MAX_BYTES) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._events: list[RaftEvent] = []
        self._bytes = 0
        self._told: dict[int, tuple[int, Acknowledged | None]] = {}
        """By peer: its session, and the newest acknowledgement that came while no step was due (the others were
        taken in at once)."""
        self.is_due = False
        """Whether an event in here makes a step due at once."""

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: RaftEvent) -> bool:
        """Queues an event; false if it was lost."""
        size_bytes = 0
        if isinstance(event, PeerMessage):
            size_bytes = len(event.data)
        elif isinstance(event, Propose):
            size_bytes = len(event.proposal)
        if isinstance(event, PeerMessage | Propose | TransferLeadership | ReportQuorum) and (
            len(self._events) >= self._max_events or self._bytes + size_bytes > self._max_bytes
        ):
            return False
        self._bytes += size_bytes
        self._events.append(event)
        self.is_due = self.is_due or not self._is_repetition(event)
        return True

    def _is_repetition(self, event: RaftEvent) -> bool:
        if not isinstance(event, PeerMessage):
            return False
        told = event.session, acknowledged_in(event.data)
        is_repetition = told[1] is not None and self._told.get(event.peer_id) == told
        self._told[event.peer_id] = told
        return is_repetition

    def take(self) -> list[RaftEvent]:
        """All events, in order; the inbox is empty then."""
        events, self._events, self._bytes, self.is_due = self._events, [], 0, False
        return events
