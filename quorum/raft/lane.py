"""The port to whatever runs the Raft lane beside the event loop, and the bounded queue in front of it.

`kraft.runtime.raft_lane` runs it in a thread, so that an fsync blocks nothing else; the simulator
runs it under virtual time with both queues delayed. Whoever assembles a node chooses.
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
        """Opens the driver (whatever the factory raises is raised here) and begins to step it.
        `deliver` is called on the event loop, with the effects of one step, in step order. A lane in a thread
        of its own hands what is for peers to `send` instead, if it is given: there, and without delay."""

    def post(self, event: RaftEvent) -> None:
        """Queues an event, and wakes the lane unless the event may wait (`Inbox`). One that a full queue loses is
        answered through `deliver` where it has an answer (see `lost_event`). Ignored after `stop`."""

    def stop(self) -> None:
        """Ends stepping, closes the driver, returns when that is done; nothing is delivered after."""


def lost_event(event: RaftEvent) -> list[RaftEffect]:
    """What to tell of an event that never reached the driver: a proposal was not committed, a report
    is not to be had here."""
    if isinstance(event, Propose):
        return [ProposalOutcome(event.request_id, None, NOT_COMMITTED)]
    if isinstance(event, ReportQuorum):
        return [QuorumReport(event.request_id, leads=False)]
    return []


class Inbox:
    """Events that wait for the next step. Not thread-safe: a lane holds its own lock.

    When it is full, messages and proposals are lost, as on a broken network; news of links never
    are (there is one for each connection made or broken), or a peer would stay unheard for good.

    An acknowledgement that only repeats the one before, as those of heartbeats do, makes no step due: the leader
    takes it with its next one, a heartbeat later at most. It tells that the peer lives, and there is time for that.
    """

    def __init__(self, max_events: int = INBOX_MAX_EVENTS, max_bytes: int = INBOX_MAX_BYTES) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._events: list[RaftEvent] = []
        self._bytes = 0
        self._told: dict[int, tuple[int, Acknowledged | None]] = {}
        """By peer: the session, and what the newest message in it acknowledged, of those that came while no step was
        due: the others were taken in at once."""
        self.is_due = False
        """Whether something is in here that a step is to take in at once."""

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
