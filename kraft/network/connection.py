"""One client connection: frames in, answers out, in the order of the requests.

Guarantees, to the broker's handlers (`FrameHandler`) and to the peer: frames are handed on in order
and as views that nobody overwrites; a handler that returns a `Response` is answered without a task
or a timer; one that returns an awaitable holds up only the answers behind it on this connection.
Memory is bounded: no frame is handled while `max_unanswered_requests` answers are owed or the peer
does not read what it asked for; reading pauses and TCP pushes back. A malformed frame, a handler's
`CloseConnectionError` and a bug in a handler close this connection with one log line and touch no other.
Handlers run in the order of arrival up to their first await; who needs more order has to see to it.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from kraft.network.framing import FrameBuffer, FrameError
from kraft.network.limits import NetworkLimits
from kraft.network.outbox import Outbox
from kraft.network.response import Answer, Deferred, Response, as_it_is
from kraft.network.sender import SenderFactory
from kraft.network.session import Session
from kraft.protocol.texts import printable

logger = logging.getLogger(__name__)

FRAMES_PER_TURN = 64
"""Frames handled before other connections get their turn."""
MUTE_MAX_S = 60.0
"""How long a connection is muted at most."""

FrameHandler = Callable[[memoryview, "Connection"], Answer]


Introduce = Callable[[Session, asyncio.Transport], None]
"""Tells a new connection's session who is there, or how to find out. May raise CloseConnectionError."""


class CloseConnectionError(Exception):
    """Raised by a handler when the connection cannot go on; its text becomes the log line."""


class State(enum.IntEnum):
    OPEN = 0
    DRAINING = 1
    """No more requests are taken; closes when what is owed was sent."""
    CLOSING = 2
    """The transport was told to close."""
    CLOSED = 3


# Looking a member up on an enum class is slow enough to be seen on the path of a request.
_OPEN, _DRAINING, _CLOSING, _CLOSED = State


class ConnectionOwner(Protocol):
    """What a connection needs of its server."""

    name: str
    limits: NetworkLimits
    sender_factory: SenderFactory
    handler: FrameHandler
    authentication_required: bool
    introduce: Introduce | None

    def admit(self, connection: Connection) -> str | None:
        """Registers a new connection, or says why it is refused."""

    def forget(self, connection: Connection, unfinished: list[asyncio.Task[Response | None]]) -> None:
        """The connection is gone; `unfinished` are its cancelled tasks, to be awaited."""


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one accepted connection.

    For handlers: `session` is what belongs to the connection. Where clients have to say who they are, what comes before
    that is bounded in sum and in time (`mark_authenticated` lifts both).
    """

    def __init__(self, owner: ConnectionOwner, loop: asyncio.AbstractEventLoop) -> None:
        limits = owner.limits
        self.session = Session(
            owner.name, mute=self.mute_until, finish=self.finish, recognize=self.mark_authenticated
        )
        self.state = _OPEN
        self._owner = owner
        self._loop = loop
        self._handler = owner.handler
        self._max_unanswered = limits.max_unanswered_requests
        self._frames = FrameBuffer(
            max_frame_bytes=(
                min(limits.max_unauthenticated_request_bytes, limits.max_request_bytes)
                if owner.authentication_required
                else limits.max_request_bytes
            ),
            min_frame_bytes=limits.min_request_bytes,
        )
        # The loop fetches this attribute once: one call less for every read.
        self.get_buffer = self._frames.writable  # type: ignore[method-assign]
        self._transport: asyncio.Transport | None = None
        self._outbox: Outbox | None = None
        # Answers owed, oldest first: a Response that waits for those before it, or what becomes one.
        self._owed: deque[Response | Deferred[Any, Response | None]] = deque()
        self._read_paused = False
        self._turn_scheduled = False
        self._eof = False
        self._muted: asyncio.TimerHandle | None = None
        self._muted_until_s = 0.0
        self._held: Sequence[memoryview] = ()
        """Frames that were taken from the buffer when the connection was muted."""
        # Activity, counted on the hot path and dated by `check_idle`.
        self._events = 0
        self._activity_seen = 0
        self._active_at_s = self._accepted_at_s = loop.time()
        self._unauthenticated_left: int | None = (
            self._frames.max_frame_bytes if owner.authentication_required else None
        )
        """Bytes that the peer may still send before it has said who it is; None: it has, or need not."""

    # -- for handlers ---------------------------------------------------------------------------

    @property
    def is_made(self) -> bool:
        """Whether it was taken, and its TLS handshake, if there is one, has ended well."""
        return self._outbox is not None

    @property
    def authenticated(self) -> bool:
        return self._unauthenticated_left is None

    def mark_authenticated(self) -> None:
        """The peer is known now: frames up to `max_request_bytes` are accepted from here on."""
        self._unauthenticated_left = None
        self._frames.max_frame_bytes = self._owner.limits.max_request_bytes

    def mute_until(self, at_s: float) -> None:
        """Reads nothing more, and hands on no request, before `at_s` of the loop's time or for `MUTE_MAX_S`.

        What is owed is answered meanwhile. The later one of two times holds; the end of the connection ends it.
        """
        now_s = self._loop.time()
        at_s = min(at_s, now_s + MUTE_MAX_S)
        if self.state is not _OPEN or at_s <= max(now_s, self._muted_until_s):
            return
        if self._muted is not None:
            self._muted.cancel()
        self._muted_until_s = at_s
        self._muted = self._loop.call_at(at_s, self._unmute)
        self._pause_reading()

    def close(self, reason: str) -> None:
        """Closes after what has been written so far; answers still owed are dropped."""
        if self.state < _CLOSING:
            logger.info("%s: closing connection from %s: %s", self._owner.name, self._peer_text(), reason)
            self._shut()

    def finish(self) -> None:
        """Takes no more requests, and closes once what is owed, the present request's answer too, was sent."""
        if self.state is _OPEN:
            self.state = _DRAINING
            self._pause_reading()

    # -- for the server -------------------------------------------------------------------------

    def drain(self) -> None:
        """Takes no more requests, and closes once what is owed was sent."""
        if self.state is _OPEN:
            self.state = _DRAINING
            self._pause_reading()
            self._close_if_drained()

    def abort(self) -> None:
        """Drops the connection at once."""
        if self._transport is not None and self.state is not _CLOSED:
            self.state = _CLOSING
            if self._outbox is not None:
                self._outbox.close()
            self._transport.abort()

    def check_idle(self, now_s: float, max_idle_s: float | None, closing_grace_s: float) -> None:
        """Called now and then: drops a peer that has been silent for too long, or does not let go."""
        activity = self._events + (self._outbox.sent_bytes if self._outbox is not None else 0)
        if activity != self._activity_seen:
            self._activity_seen = activity
            self._active_at_s = now_s
        idle_s = now_s - self._active_at_s
        if self.state is _CLOSING and idle_s >= closing_grace_s:
            self.abort()
        elif max_idle_s is not None and idle_s >= max_idle_s and not self._waits_for_others():
            logger.info(
                "%s: closing connection from %s: idle for %d s", self._owner.name, self._peer_text(), idle_s
            )
            self.abort()
        elif self._unauthenticated_left is not None and now_s - self._accepted_at_s >= (
            self._owner.limits.authentication_timeout_ms / 1000
        ):
            logger.info(
                "%s: closing connection from %s: it did not say who it is",
                self._owner.name,
                self._peer_text(),
            )
            self.abort()
        elif idle_s > closing_grace_s:
            self._frames.release_idle_memory()

    # -- asyncio.BufferedProtocol ---------------------------------------------------------------

    def connection_accepted(self, handshake: asyncio.Transport) -> None:
        """Before a TLS handshake (`quorum.rpc.listening`): it counts from here on. A muted one waits with it."""
        self._arrive(handshake)
        if self.state is not _OPEN:
            handshake.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's do not inherit from it
        if self._transport is None:
            self._arrive(transport)
        self._transport = transport
        if self.state is _OPEN and self._owner.introduce is not None:
            try:
                self._owner.introduce(self.session, transport)
            except CloseConnectionError as error:
                self._refuse(printable(str(error)))
        if self.state is not _OPEN:  # refused, or closed in its handshake
            transport.abort()
            return
        if transport.get_extra_info("sslcontext") is None:
            # Paused then means exactly: the transport holds bytes. The sender relies on it, since it
            # must not overtake them. (TLS transports keep their own limits.)
            transport.set_write_buffer_limits(high=0)
        self._outbox = Outbox(
            transport, self._owner.sender_factory, self._on_sent, self._on_send_failed, self._loop.time
        )
        if self._muted is not None:
            self._loop.call_soon(self._pause_again)

    def _arrive(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.session.peer = (peer[0], peer[1])
        refusal = self._owner.admit(self)
        if refusal is not None:
            self._refuse(refusal)

    def _refuse(self, reason: str) -> None:
        logger.warning("%s: refusing connection from %s: %s", self._owner.name, self._peer_text(), reason)
        self.state = _CLOSING

    def buffer_updated(self, nbytes: int) -> None:
        self._frames.advance(nbytes)
        self._events += 1
        self.session.arrived_s = self.session.now_s = self._loop.time()
        if not self._read_paused:
            self._take_turn()

    def eof_received(self) -> bool:
        self._eof = True
        if self.state is not _OPEN:
            return self.state is _DRAINING
        if not self._read_paused:
            self._take_turn()
        # A peer that only closed its sending side still gets its answers. TLS cannot be half closed.
        if self._transport is None or self._transport.get_extra_info("sslcontext") is not None:
            return False
        return self.state < _CLOSING

    def pause_writing(self) -> None:
        if self._outbox is not None:
            self._outbox.pause_writing()

    def resume_writing(self) -> None:
        if self._outbox is not None:
            self._outbox.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        # The parts let go of each other: the collector comes seldom, and strangers come and go.
        self.state = _CLOSED
        if self._outbox is not None:
            self._outbox.close()
            self._outbox = None
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None
        self.session.end()
        self._transport = None
        unfinished = self._cancel_owed()
        self._owner.forget(self, unfinished)

    # -- requests -------------------------------------------------------------------------------

    def _take_turn(self) -> None:
        """Hands frames to the handler until there are none, or the connection has to wait."""
        outbox = self._outbox
        assert outbox is not None
        while self.state is _OPEN:
            room = self._max_unanswered - len(self._owed)
            if room <= 0 or outbox.blocked or self._muted is not None:
                self._pause_reading()
                break
            limit = min(FRAMES_PER_TURN, room)
            were_held, frames = bool(self._held), self._held
            if not were_held:
                try:
                    frames = self._frames.take(limit)
                except FrameError as error:
                    self._reject(f"it sent {error}")
                    return
            left = iter(frames)
            for frame in left:
                if not self._handle(frame, outbox):
                    break
            if self.state >= _CLOSING:
                return
            self._held = tuple(left)
            outbox.flush()
            if were_held or self._held:
                continue
            if len(frames) < limit and not self._frames.broken:
                if self._eof:
                    self.state = _DRAINING
                elif self._read_paused:
                    self._resume_reading()
                break
            if limit == FRAMES_PER_TURN:
                self._pause_reading()
                self._schedule_turn()
                break
        if self.state is _DRAINING:
            self._close_if_drained()

    def _handle(self, frame: memoryview, outbox: Outbox) -> bool:
        """Runs the handler on one frame; False when that ended the connection's requests, or muted it."""
        if self._unauthenticated_left is not None and not self._take_from_stranger(len(frame)):
            return False
        try:
            answer = self._handler(frame, self)
        except Exception as error:  # noqa: BLE001 - closes the connection, whatever it is
            self._tell_if_bug(error)
            self._close_for(error)
            return False
        if type(answer) is Response:
            if self._owed or outbox.write_paused or outbox.busy:
                self._owed.append(answer)
            else:
                outbox.add(answer)
        elif answer is not None:
            assert not isinstance(answer, Response), "Response is not meant to be subclassed"
            if type(answer) is not Deferred:
                answer = Deferred(asyncio.ensure_future(answer, loop=self._loop), as_it_is)
            self._owed.append(answer)
            answer.future.add_done_callback(self._on_answer)
        return self.state is _OPEN and self._muted is None

    def _take_from_stranger(self, frame_bytes: int) -> bool:
        """Counts what somebody sends before it is known who it is; False: that was too much."""
        assert self._unauthenticated_left is not None
        self._unauthenticated_left -= frame_bytes
        if self._unauthenticated_left < 0:
            self._reject("it sent too much before it said who it is")
            return False
        self._frames.max_frame_bytes = max(self._unauthenticated_left, self._frames.min_frame_bytes)
        return True

    def _schedule_turn(self) -> None:
        if not self._turn_scheduled:
            self._turn_scheduled = True
            self._loop.call_soon(self._scheduled_turn)

    def _scheduled_turn(self) -> None:
        self._turn_scheduled = False
        self._take_later_turn()

    def _take_later_turn(self) -> None:
        """A turn that does not begin with bytes that were just read."""
        if self.state is _OPEN:
            self.session.now_s = self._loop.time()
            self._take_turn()

    # -- answers --------------------------------------------------------------------------------

    def _on_answer(self, future: asyncio.Future[Any]) -> None:
        # Looked at here and not in its turn, which never comes if the connection is closed before it.
        if not future.cancelled() and (error := future.exception()) is not None:
            self._tell_if_bug(error)
        head = self._owed[0] if self.state < _CLOSING and self._owed else None
        if isinstance(head, Deferred) and head.future is future:
            self._go_on()

    def _go_on(self) -> None:
        """Sends what can be sent by now, then handles the frames that had to wait for it."""
        self._send_owed()
        if self.state is _OPEN and self._read_paused:
            if not self._turn_scheduled:
                self._take_later_turn()
        elif self.state is _DRAINING:
            self._close_if_drained()

    def _send_owed(self) -> None:
        owed, outbox = self._owed, self._outbox
        assert outbox is not None
        while owed and not outbox.blocked:
            head = owed[0]
            if isinstance(head, Deferred):
                if not head.future.done():
                    break
                answer = self._result(head)
                if self.state >= _CLOSING:
                    return
            else:
                answer = head
            owed.popleft()
            if answer is not None:
                outbox.add(answer)
        outbox.flush()

    def _result(self, deferred: Deferred[Any, Response | None]) -> Response | None:
        """The answer, which is due; closes the connection when there is none to give."""
        future = deferred.future
        try:
            return deferred.finish(future.result())
        except asyncio.CancelledError:
            self._reject("its request was cancelled")
        except Exception as error:  # noqa: BLE001 - closes the connection, whatever it is
            if future.exception() is None:  # the future's own is told by `_on_answer`
                self._tell_if_bug(error)
            self._close_for(error)
        return None

    def _tell_if_bug(self, error: BaseException) -> None:
        if not isinstance(error, CloseConnectionError):
            text = "%s: a handler failed; the connection from %s will end"
            logger.error(text, self._owner.name, self._peer_text(), exc_info=error)

    def _on_sent(self) -> None:
        self._events += 1
        if self.state < _CLOSING:
            self._go_on()

    def _on_send_failed(self, error: Exception) -> None:
        logger.warning(
            "%s: sending to %s failed, closing the connection: %s", self._owner.name, self._peer_text(), error
        )
        self.abort()

    # -- reading and closing --------------------------------------------------------------------

    def _pause_reading(self) -> None:
        if not self._read_paused:
            self._read_paused = True
            if self._transport is not None and not self._eof:
                self._transport.pause_reading()

    def _pause_again(self) -> None:
        """For a connection that is muted as it is made: uvloop begins to read when `connection_made` returns."""
        if self._read_paused and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        self._read_paused = False
        if self._transport is not None and not self._eof:
            self._transport.resume_reading()

    def _unmute(self) -> None:
        self._muted = None
        if self._outbox is None:
            self._resume_reading()  # of a handshake, which begins
        else:
            self._take_later_turn()

    def _waits_for_others(self) -> bool:
        """Whether a silence is not the peer's: its handler is at work, or the connection is muted."""
        return self._muted is not None or self._waits_for_handler()

    def _waits_for_handler(self) -> bool:
        return bool(self._owed) and isinstance(head := self._owed[0], Deferred) and not head.future.done()

    def _close_if_drained(self) -> None:
        drained = not self._owed and (self._outbox is None or self._outbox.empty)
        if drained and self.state is _DRAINING:
            self._shut()

    def _reject(self, reason: str) -> None:
        """The peer broke the rules: what is ready goes out, then the connection is closed."""
        logger.warning("%s: closing connection from %s: %s", self._owner.name, self._peer_text(), reason)
        self._shut()

    def _close_for(self, error: BaseException) -> None:
        if isinstance(error, CloseConnectionError):
            self._reject(printable(str(error)))
        else:
            self._shut()

    def _shut(self) -> None:
        """Closes the transport behind what it was given; answers still owed are cancelled."""
        outbox = self._outbox
        if outbox is not None and not outbox.blocked:
            outbox.flush()
        self.state = _CLOSING
        self._events += 1
        if self._transport is None:
            return
        if outbox is not None and outbox.busy:
            self.abort()  # in the middle of a response: its end cannot be sent any more
        else:
            self._transport.close()

    def _cancel_owed(self) -> list[asyncio.Task[Response | None]]:
        unfinished: list[asyncio.Task[Response | None]] = []
        for answer in self._owed:
            if isinstance(answer, Deferred) and not answer.future.done():
                answer.future.cancel()
                if isinstance(answer.future, asyncio.Task):
                    unfinished.append(answer.future)
        self._owed.clear()
        return unfinished

    def _peer_text(self) -> str:
        return "{}:{}".format(*self.session.peer)
