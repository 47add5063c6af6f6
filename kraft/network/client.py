"""The client side of a connection to another broker: pipelined requests, answers in order.

Used by the replica fetcher's endpoint and by whatever else in a node talks to a peer's client port.
Guarantees: at most `max_in_flight` requests are out; each has a deadline; when the connection is
lost, when an answer is late or malformed, every request in flight fails with `ConnectionLostError`
at once, and the object is finished: reconnecting is its owner's business. A caller may be cancelled
at any time; the answer that comes for it later is dropped, and later requests are not harmed.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections import deque
from collections.abc import Callable
from typing import cast

from kraft.network.framing import FrameBuffer, FrameError
from kraft.protocol.errors import ProtocolError
from kraft.protocol.headers import decode_response_header
from kraft.protocol.messages import decode_response, encode_request_frame
from kraft.protocol.schema import Message
from partitions.disk import Buffer

DEFAULT_CONNECT_TIMEOUT_S = 5.0
DEFAULT_MAX_IN_FLIGHT = 16
DEFAULT_MAX_RESPONSE_BYTES = 256 * 1024 * 1024
_CORRELATION_ID_BYTES = 4
_MAX_CORRELATION_ID = 2**31 - 1

_unpack_correlation_id = struct.Struct(">i").unpack_from


class ConnectionLostError(ConnectionError):
    """The connection to the broker is gone, or could not be made; the text names the broker and why."""


class RequestTimeoutError(ConnectionLostError):
    """No answer within the request's time; the connection was given up, since answers come in order."""


class _InFlight:
    """One request that was written and not answered yet; `deadline_s` is loop time."""

    __slots__ = ("answer", "correlation_id", "deadline_s", "timeout_s")

    def __init__(
        self, correlation_id: int, answer: asyncio.Future[memoryview], deadline_s: float, timeout_s: float
    ) -> None:
        self.correlation_id = correlation_id
        self.answer = answer
        self.deadline_s = deadline_s
        self.timeout_s = timeout_s


class BrokerConnection(asyncio.BufferedProtocol):
    """One connection to one broker. Made by `connect`; finished for good once `closed` is true."""

    def __init__(
        self, name: str, *, client_id: str | None, max_in_flight: int, max_response_bytes: int
    ) -> None:
        self.name = name
        self._client_id = client_id
        self._loop = asyncio.get_running_loop()
        self._frames = FrameBuffer(max_frame_bytes=max_response_bytes, min_frame_bytes=_CORRELATION_ID_BYTES)
        self.get_buffer = self._frames.writable  # type: ignore[method-assign]  # one call less
        self._transport: asyncio.Transport | None = None
        self._in_flight: deque[_InFlight] = deque()
        self._max_in_flight = max_in_flight
        self._taken = 0
        """Places in flight that are taken, by requests that were sent or are just about to be."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        """Callers that wait for a place; there are none as long as one is free."""
        self._writable = asyncio.Event()
        self._writable.set()
        self._next_correlation_id = 0
        self._timer: asyncio.TimerHandle | None = None
        """Goes off at the first deadline or before: a request that is answered leaves it as it is."""
        self._due_s = 0.0
        """When it does. (What uvloop returns for a deadline that is over has no `when()`.)"""
        self._lost: ConnectionLostError | None = None
        self._gone: asyncio.Future[None] = self._loop.create_future()

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        *,
        client_id: str | None = None,
        timeout_s: float = DEFAULT_CONNECT_TIMEOUT_S,
        max_in_flight: int = DEFAULT_MAX_IN_FLIGHT,
        max_response_bytes: int = DEFAULT_MAX_RESPONSE_BYTES,
        ssl_context: ssl.SSLContext | None = None,
    ) -> BrokerConnection:
        """Connects within `timeout_s`. Raises ConnectionLostError when that fails."""
        name = f"{host}:{port}"
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: cls(
                        name,
                        client_id=client_id,
                        max_in_flight=max_in_flight,
                        max_response_bytes=max_response_bytes,
                    ),
                    host,
                    port,
                    ssl=ssl_context,
                )
        except TimeoutError as error:
            raise ConnectionLostError(f"connecting to {name} took longer than {timeout_s:g} s") from error
        except OSError as error:
            raise ConnectionLostError(f"cannot connect to {name}: {error.strerror or error}") from error
        return connection

    @property
    def closed(self) -> bool:
        """True once no further request can succeed."""
        return self._lost is not None

    @property
    def in_flight_count(self) -> int:
        return len(self._in_flight)

    async def request(self, message: Message, version: int, *, timeout_s: float) -> Message:
        """Sends a message of the protocol and waits for its answer; record sets in it are views.

        Raises RequestTimeoutError, ConnectionLostError (also for an answer that cannot be read).
        """
        api_key = message.API_KEY

        def frame_of(correlation_id: int) -> bytes:
            return encode_request_frame(
                message, version, correlation_id=correlation_id, client_id=self._client_id
            )

        frame = await self.exchange(frame_of, timeout_s=timeout_s)
        try:
            _, position = decode_response_header(api_key, version, frame)
            return decode_response(api_key, version, frame, position)
        except ProtocolError as error:
            self._lose(ConnectionLostError(f"{self.name} sent an unreadable answer: {error}"))
            raise ConnectionLostError(f"{self.name} sent an unreadable answer: {error}") from error

    async def exchange(self, frame_of: Callable[[int], Buffer], *, timeout_s: float) -> memoryview:
        """Sends the frame (length prefix included) that `frame_of` makes for a correlation id, and
        returns the answer's frame without its length prefix: correlation id first.

        `timeout_s` runs from the call, so it covers the wait for a place in flight. Raises
        RequestTimeoutError, ConnectionLostError.
        """
        deadline_s = self._loop.time() + timeout_s
        if self._taken < self._max_in_flight:
            self._taken += 1
        else:
            await self._wait_for_place(deadline_s, timeout_s)
        try:
            if not self._writable.is_set():
                async with asyncio.timeout_at(deadline_s):
                    await self._writable.wait()
            sent = self._send(frame_of, deadline_s, timeout_s)
        except TimeoutError as error:
            self._give_place_back()
            late = self._late(timeout_s)
            self._lose(late)
            raise late from error
        except BaseException:
            self._give_place_back()
            raise
        # From here on the place is given back by whatever settles the request.
        return await sent.answer

    def close(self, reason: str = "it was closed by this side") -> None:
        """Drops the connection; every request in flight fails with ConnectionLostError."""
        self._lose(ConnectionLostError(f"the connection to {self.name} is gone: {reason}"))

    async def wait_closed(self) -> None:
        """Waits until the transport is gone, after `close` or a loss."""
        await asyncio.shield(self._gone)

    # -- asyncio.BufferedProtocol ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's do not inherit from it
        if self._lost is not None:
            self._transport.abort()

    def buffer_updated(self, nbytes: int) -> None:
        self._frames.advance(nbytes)
        try:
            more = True
            while more and self._lost is None:
                limit = len(self._in_flight) + 1
                frames = self._frames.take(limit)
                for frame in frames:
                    self._settle(frame)
                more = len(frames) == limit or self._frames.broken
        except FrameError as error:
            self._lose(ConnectionLostError(f"{self.name} sent {error}"))

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        why = "the broker closed it" if exc is None else str(exc)
        self._lose(ConnectionLostError(f"the connection to {self.name} is gone: {why}"))
        self._transport = None
        if not self._gone.done():
            self._gone.set_result(None)

    # -- requests in flight ---------------------------------------------------------------------

    async def _wait_for_place(self, deadline_s: float, timeout_s: float) -> None:
        """Returns when a place is the caller's, in order of arrival. Raises RequestTimeoutError."""
        granted = self._loop.create_future()
        self._waiting.append(granted)
        try:
            async with asyncio.timeout_at(deadline_s):
                await granted
        except BaseException as error:
            if granted.done() and not granted.cancelled():  # it came together with the end of the wait
                self._give_place_back()
            granted.cancel()
            if isinstance(error, TimeoutError):
                raise self._late(timeout_s) from error
            raise

    def _give_place_back(self) -> None:
        """To whoever has waited longest, if anybody does."""
        while self._waiting:
            granted = self._waiting.popleft()
            if not granted.done():
                granted.set_result(None)
                return
        self._taken -= 1

    def _send(self, frame_of: Callable[[int], Buffer], deadline_s: float, timeout_s: float) -> _InFlight:
        if self._lost is not None or self._transport is None:
            raise _again(self._lost) if self._lost is not None else self._unconnected()
        correlation_id = self._next_correlation_id
        frame = frame_of(correlation_id)
        self._next_correlation_id = 0 if correlation_id == _MAX_CORRELATION_ID else correlation_id + 1
        sent = _InFlight(correlation_id, self._loop.create_future(), deadline_s, timeout_s)
        self._in_flight.append(sent)
        self._watch(deadline_s)
        self._transport.write(frame)
        return sent

    def _settle(self, frame: memoryview) -> None:
        """Gives an answer to the oldest request, which must be the one it names."""
        if self._lost is not None:
            return
        correlation_id = _unpack_correlation_id(frame)[0]
        if not self._in_flight or self._in_flight[0].correlation_id != correlation_id:
            self._lose(
                ConnectionLostError(f"{self.name} sent an answer to no request of ours ({correlation_id})")
            )
            return
        sent = self._in_flight.popleft()
        self._give_place_back()
        if not sent.answer.done():  # done: its caller was cancelled
            sent.answer.set_result(frame)

    def _unconnected(self) -> ConnectionLostError:
        return ConnectionLostError(f"{self.name} is not connected")

    def _late(self, timeout_s: float) -> RequestTimeoutError:
        return RequestTimeoutError(f"{self.name} did not answer a request within {timeout_s:g} s")

    def _watch(self, deadline_s: float) -> None:
        """Has the timer go off no later than this."""
        if self._timer is not None:
            if self._due_s <= deadline_s:
                return
            self._timer.cancel()
        self._due_s = deadline_s
        self._timer = self._loop.call_at(deadline_s, self._on_deadline)

    def _on_deadline(self) -> None:
        """Gives the connection up if a request is late, or waits for the first that may be."""
        self._timer = None
        if self._in_flight:
            first = min(self._in_flight, key=lambda sent: sent.deadline_s)
            if first.deadline_s <= self._due_s:
                self._lose(self._late(first.timeout_s))
            else:
                self._watch(first.deadline_s)

    def _lose(self, error: ConnectionLostError) -> None:
        if self._lost is not None:
            return
        self._lost = error
        self._writable.set()  # who waits to write learns of it
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._in_flight:
            sent = self._in_flight.popleft()
            self._give_place_back()
            if not sent.answer.done():
                sent.answer.set_exception(_again(error))
        if self._transport is not None:
            self._transport.abort()


def _again(error: ConnectionLostError) -> ConnectionLostError:
    """The same error for one more caller: an exception object carries one traceback."""
    return type(error)(*error.args)
