"""A connection of a simulated client to a broker: pipelined requests, answers in order, by callback.

It is made for many requests at little cost: a request costs no task and no timer of its own. Guarantees: each
callback is called once, with the answer's body, or with None when the connection is gone. A late answer ends the
connection, as in Kafka's clients, since answers come in order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import cache
from struct import Struct
from typing import NamedTuple, cast

from kraft.protocol.api import ApiKey, is_flexible
from kraft.protocol.headers import RequestHeader, encode_request_header
from kraft.protocol.messages import encode_request
from kraft.protocol.schema import Message

CLIENT_ID = "chaos"
FRAME_MAX_BYTES = 64 * 1024 * 1024
_LENGTH_BYTES, _CORRELATION_ID_BYTES = 4, 4
_START_BYTES = _LENGTH_BYTES + _CORRELATION_ID_BYTES
_CORRELATION_ID_POSITION = 4

_pack_int32, _int32 = Struct(">i").pack, Struct(">i").unpack_from

OnAnswer = Callable[[memoryview | None], None]
"""Takes an answer's body, or None if none will come."""


class _InFlight(NamedTuple):
    correlation_id: int
    deadline_s: float
    body_position: int
    on_answer: OnAnswer


@cache
def _header_parts(api_key: ApiKey, version: int) -> tuple[bytes, bytes]:
    """The parts of a request's header before and behind the correlation id."""
    header = encode_request_header(RequestHeader(api_key, version, 0, CLIENT_ID))
    return header[:_CORRELATION_ID_POSITION], header[_CORRELATION_ID_POSITION + _CORRELATION_ID_BYTES :]


class ClientConnection(asyncio.Protocol):
    """An established connection; finished for good once `closed`."""

    def __init__(self, broker: int, on_surprise: Callable[[int, str], None] | None = None) -> None:
        """`on_surprise(broker, text)` hears of frames that no broker may send."""
        self.broker = broker
        self._on_surprise = on_surprise
        self.closed = False
        self.reason = ""
        """Why it closed."""
        self.renew_at_s: float | None = None
        """When its client is to say anew who it is."""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._in_flight: deque[_InFlight] = deque()
        self._next_correlation_id = 0
        self._timer: asyncio.TimerHandle | None = None

    def request(self, message: Message, version: int, timeout_s: float, on_answer: OnAnswer | None) -> None:
        """Sends a request on a connection that is not closed. `on_answer=None`: none will come (acks=0)."""
        assert self._transport is not None, "it stands"
        assert not self.closed, "a closed connection takes no request"
        api_key = message.API_KEY
        correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        before, behind = _header_parts(api_key, version)
        body = encode_request(message, version)
        size = len(before) + _CORRELATION_ID_BYTES + len(behind) + len(body)
        frame = b"".join((_pack_int32(size), before, _pack_int32(correlation_id), behind, body))
        if on_answer is not None:
            deadline_s = self._loop.time() + timeout_s
            body_position = _CORRELATION_ID_BYTES + is_flexible(api_key, version)
            self._in_flight.append(_InFlight(correlation_id, deadline_s, body_position, on_answer))
            if self._timer is None or deadline_s < self._timer.when():
                self._arm(deadline_s)
        self._transport.write(frame)

    def close(self, reason: str) -> None:
        """Ends the connection; every request in flight gets None."""
        if self.closed:
            return
        self.closed, self.reason = True, reason
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        while self._in_flight:
            self._in_flight.popleft().on_answer(None)

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        received = self._received
        if not received and len(data) >= _START_BYTES and len(data) == _LENGTH_BYTES + _int32(data)[0]:
            if not self.closed:
                self._settle(data[_LENGTH_BYTES:])  # one whole answer, as nearly always
            return
        received += data
        while not self.closed and len(received) >= _LENGTH_BYTES:
            (size,) = _int32(received)
            if not _CORRELATION_ID_BYTES <= size <= FRAME_MAX_BYTES:
                self._surprise(f"a frame of {size} bytes came")
                return
            end = _LENGTH_BYTES + size
            if len(received) < end:
                return
            frame = bytes(received[_LENGTH_BYTES:end])
            del received[:end]
            self._settle(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self.close("the broker closed it" if exc is None else f"{type(exc).__name__}")

    # -- requests in flight

    def _settle(self, frame: bytes) -> None:
        (correlation_id,) = _int32(frame)
        if not self._in_flight or self._in_flight[0].correlation_id != correlation_id:
            self._surprise(f"an answer to no request came ({correlation_id})")
            return
        sent = self._in_flight.popleft()
        sent.on_answer(memoryview(frame)[sent.body_position :])

    def _surprise(self, text: str) -> None:
        if self._on_surprise is not None:
            self._on_surprise(self.broker, text)
        self.close(text)

    def _arm(self, deadline_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline_s, self._look_for_late_answers)

    def _look_for_late_answers(self) -> None:
        self._timer = None
        if not self._in_flight:
            return
        deadline_s = min(sent.deadline_s for sent in self._in_flight)
        if deadline_s <= self._loop.time():
            self.close("an answer was late")
        else:
            self._arm(deadline_s)
