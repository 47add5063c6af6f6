"""Lets a stranger's request heads through to aiohttp, one at a time.

Of a stranger's bytes no more than `HEAD_MAX_BYTES` are taken out of the socket before somebody asks for more. The
HTTP parser sees nothing but whole heads, one at a time, that begin as a request of this listener does and keep to
plain characters; bodies wait in the socket. Everything else gets a fixed answer and the end of the connection:
aiohttp keeps what it cannot parse, and its errors, by the megabyte, and sends it all back. A connection is opened for
good when its other end is known.
Made by `quorum.rpc.connection_gate` and, for the pages of a node, by `kraft.http.server`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import cast

from aiohttp.web_protocol import RequestHandler

HEAD_MAX_BYTES = 8 * 1024
HEAD_END = b"\r\n\r\n"
HEADERS_MAX = 64
REASON_MAX_BYTES = 120
_HEADERS = re.compile(rb"(?:[!-9;-~]+:[\t -~]*\r\n){0,%d}\r\n" % HEADERS_MAX)
_REFUSAL_TEXT = b"this is no request that is served here\n"
REFUSAL = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s"
) % (len(_REFUSAL_TEXT), _REFUSAL_TEXT)

Refused = Callable[[str | None, bytes], None]
"""Is told who sent what is no request, and how that begins."""


class RequestLine:
    """Which request lines a listener serves: `METHOD PATH-PREFIX`, then anything printable, then HTTP/1.x."""

    def __init__(self, *beginnings: bytes) -> None:
        """`beginnings`: such as `b"GET /session"`."""
        self._beginnings = beginnings
        any_of = b"|".join(re.escape(beginning) for beginning in beginnings)
        self._line = re.compile(rb"(?:" + any_of + rb")[!-~]* HTTP/1\.[01]\r\n")

    def may_begin_with(self, data: bytes) -> bool:
        """Whether a served line may begin so."""
        return any(data[: len(line)] == line[: len(data)] for line in self._beginnings)

    def fits(self, head: bytes) -> bool:
        """Whether a whole head is one of a served request."""
        line = self._line.match(head)
        return line is not None and _HEADERS.fullmatch(head, line.end()) is not None


class RequestDoor(asyncio.BufferedProtocol):
    """One connection, between its transport and aiohttp's handler of it."""

    def __init__(
        self,
        handler: RequestHandler,
        line: RequestLine,
        refused: Refused,
        ended: Callable[[RequestHandler], None],
    ) -> None:
        """`ended` is told when the connection is over before it was opened."""
        self._handler = handler
        self._line = line
        self._refused = refused
        self._ended = ended
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray(HEAD_MAX_BYTES)
        self._filled_bytes = 0
        self._is_shut = False
        self._is_over = False

    # -- from the transport

    def connection_accepted(self, handshake: asyncio.Transport) -> None:
        self._transport = handshake

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._is_over:  # while it was on its way
            cast(asyncio.Transport, transport).abort()
            return
        self._transport = cast(asyncio.Transport, transport)  # uvloop's do not inherit from it
        self._handler.connection_made(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[self._filled_bytes :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled_bytes += nbytes
        self._look()

    def eof_received(self) -> None:
        self._handler.eof_received()

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._ended(self._handler)
        self._handler.connection_lost(exc)

    # -- from those who serve the requests

    def next_request(self) -> None:
        """The last head was served, and another one may come."""
        transport = self._transport
        if self._is_shut and transport is not None and not transport.is_closing():
            self._is_shut = False
            transport.resume_reading()
            self._look()

    def open(self) -> None:
        """The other end is known: the handler gets all that comes, and the door is gone."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        rest = bytes(self._buffer[: self._filled_bytes])
        transport.set_protocol(self._handler)
        # The handler may want to pause for what it gets here.
        transport.resume_reading()
        if rest:
            self._handler.data_received(rest)

    def end(self) -> None:
        """Cuts the connection off, whether or not the other end reads what was written to it."""
        self._is_over = True
        self._handler.force_close()
        if self._transport is not None:
            self._transport.abort()

    def _look(self) -> None:
        """Hands a head on if it is there, or the connection an end if it can become none."""
        if self._is_shut or not self._filled_bytes or self._transport is None:
            return
        end = self._buffer.find(HEAD_END, 0, self._filled_bytes)
        if end >= 0:
            head = bytes(self._buffer[: end + len(HEAD_END)])
            if not self._line.fits(head):
                self._refuse()
                return
            self._shut()
            self._buffer[: self._filled_bytes - len(head)] = self._buffer[len(head) : self._filled_bytes]
            self._filled_bytes -= len(head)
            self._handler.data_received(head)
        elif self._filled_bytes == HEAD_MAX_BYTES or not self._line.may_begin_with(
            bytes(self._buffer[: self._filled_bytes])
        ):
            self._refuse()

    def _shut(self) -> None:
        self._is_shut = True
        assert self._transport is not None
        self._transport.pause_reading()

    def _refuse(self) -> None:
        self._shut()
        assert self._transport is not None
        peer = self._transport.get_extra_info("peername")
        self._refused(
            peer[0] if peer else None, bytes(self._buffer[: min(self._filled_bytes, REASON_MAX_BYTES)])
        )
        self._transport.write(REFUSAL)
        self._handler.force_close()
