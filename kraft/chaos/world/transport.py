"""asyncio's transport on a simulated connection, for Protocols and BufferedProtocols.

It behaves as the selector transport of the standard library does on Linux: one read of at most
256 KiB per turn of the loop, `pause_writing` above the high-water mark and `resume_writing` below the
low one, a lost connection noticed by reading (not while reading is paused) or by writing, exactly one
`connection_lost`. A transport of a killed process swallows everything.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from kraft.chaos.world.kernel import WINDOW_BYTES, Endpoint
from kraft.chaos.world.scheduler import Lane, LaneHandle
from kraft.chaos.world.sockets import SimSocket

READ_MAX_BYTES = 256 * 1024
HIGH_WATER_BYTES = 64 * 1024

Buffer = bytes | bytearray | memoryview


class SimTransport(asyncio.Transport):
    """The process's end of one connection."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        lane: Lane,
        endpoint: Endpoint,
        protocol: asyncio.BaseProtocol,
        socket: SimSocket,
        on_lost: Callable[[SimTransport], None] | None = None,
    ) -> None:
        """`lane` is the loop's. `on_lost` is told after the protocol that the connection is gone (a server counts
        with it)."""
        extra = {
            "socket": socket,
            "sockname": endpoint.local,
            "peername": endpoint.remote,
            "sslcontext": None,
        }
        super().__init__(extra)
        self._loop = loop
        self._lane = lane
        self._endpoint = endpoint
        self._context = contextvars.copy_context()
        # At most one read is scheduled at a time, so that one handle does for all of them.
        self._read_handle = LaneHandle(lane, self._read_ready, (), self._context)
        self._on_lost = on_lost
        self._buffer: deque[bytes] = deque()
        self._buffer_bytes = 0
        self._high_water = HIGH_WATER_BYTES
        self._low_water = HIGH_WATER_BYTES // 4
        self._writing_paused = False
        self._reading_paused = False
        self._read_scheduled = False
        self._write_scheduled = False
        self._closing = False
        self._lost = False
        self._eof_written = False
        self._eof_read = False
        self.set_protocol(protocol)
        endpoint.owner = self

    def start(self, waiter: asyncio.Future[None] | None = None) -> None:
        """Calls `connection_made` soon, then starts reading, then resolves `waiter`."""
        self._loop.call_soon(self._protocol.connection_made, self, context=self._context)
        self.readable()
        if waiter is not None:
            self._loop.call_soon(_resolve, waiter)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._receive: Callable[[], None]
        if isinstance(protocol, asyncio.BufferedProtocol):
            self._buffered_protocol = protocol
            self._receive = self._receive_into_buffer
        else:
            assert isinstance(protocol, asyncio.Protocol)
            self._plain_protocol = protocol
            self._receive = self._receive_data

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    # -- reading

    def readable(self) -> None:
        """Data, an end or an error is there: schedules one read, unless reading is paused."""
        if self._read_scheduled or self._reading_paused or self._closing:
            return
        endpoint = self._endpoint
        if endpoint.received or endpoint.error is not None or (endpoint.fin_received and not self._eof_read):
            self._read_scheduled = True
            post = self._lane.post
            post(self._read_handle)

    def _read_ready(self) -> None:
        self._read_scheduled = False
        if self._closing or self._reading_paused:
            return
        endpoint = self._endpoint
        try:
            if endpoint.received:
                receive = self._receive
                receive()
            elif endpoint.error is not None:
                self._force_close(endpoint.error)
            elif endpoint.fin_received and not self._eof_read:
                self._receive_eof()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - as asyncio's own transports do
            self._fatal_error(error, "a protocol's callback failed")
            return
        if endpoint.received or endpoint.error is not None or endpoint.fin_received:
            self.readable()

    def _receive_data(self) -> None:
        self._plain_protocol.data_received(self._endpoint.read(READ_MAX_BYTES))

    def _receive_into_buffer(self) -> None:
        protocol = self._buffered_protocol
        buffer = protocol.get_buffer(-1)
        if type(buffer) is not memoryview:
            buffer = memoryview(buffer).cast("B")
        room_bytes = len(buffer)
        if not room_bytes:
            raise RuntimeError("get_buffer() returned an empty buffer")
        data = self._endpoint.read(room_bytes if room_bytes < READ_MAX_BYTES else READ_MAX_BYTES)
        size_bytes = len(data)
        buffer[:size_bytes] = data
        del buffer  # the protocol looks whether anybody still holds its memory
        protocol.buffer_updated(size_bytes)

    def _receive_eof(self) -> None:
        self._eof_read = True
        assert isinstance(self._protocol, asyncio.Protocol | asyncio.BufferedProtocol)
        if not self._protocol.eof_received():
            self.close()

    def is_reading(self) -> bool:
        return not self._reading_paused and not self._closing

    def pause_reading(self) -> None:
        if not self._closing:
            self._reading_paused = True

    def resume_reading(self) -> None:
        if self._reading_paused and not self._closing:
            self._reading_paused = False
            self.readable()

    # -- writing

    def write(self, data: Buffer) -> None:
        if type(data) is bytes:
            chunk = data
        elif isinstance(data, bytes | bytearray | memoryview):
            chunk = bytes(data)
        else:
            raise TypeError(f"data must be bytes-like, not {type(data).__name__}")
        if self._eof_written:
            raise RuntimeError("Cannot call write() after write_eof()")
        if not chunk or self._lost or not self._lane.alive:
            return
        endpoint = self._endpoint
        if endpoint.dead:
            if endpoint.error is not None:
                self._force_close(endpoint.error)
            return
        if not self._buffer:
            window = WINDOW_BYTES - endpoint.in_flight_bytes
            if window >= len(chunk):
                endpoint.send(chunk)
                return
            if window > 0:
                endpoint.send(chunk[:window])
                chunk = chunk[window:]
        self._buffer.append(chunk)
        self._buffer_bytes += len(chunk)
        self._pause_protocol_if_full()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self.write(b"".join(list_of_data))

    def writable(self) -> None:
        """The window opened, or the connection broke: schedules one write, if one waits."""
        if self._buffer and not self._write_scheduled:
            self._write_scheduled = True
            self._loop.call_soon(self._write_ready, context=self._context)

    def _write_ready(self) -> None:
        self._write_scheduled = False
        endpoint = self._endpoint
        if self._lost or not self._buffer:
            return
        if endpoint.dead:
            self._force_close(endpoint.error)
            return
        self._drain_into(endpoint)
        if self._writing_paused and self._buffer_bytes <= self._low_water:
            self._writing_paused = False
            self._call_protocol(self._protocol.resume_writing)
        if not self._buffer:
            if self._closing:
                self._connection_lost(None)
            elif self._eof_written:
                endpoint.send_fin()

    def _drain_into(self, endpoint: Endpoint) -> None:
        buffer = self._buffer
        while buffer:
            window = endpoint.window_bytes()
            if window <= 0:
                return
            chunk = buffer.popleft()
            if len(chunk) > window:
                buffer.appendleft(chunk[window:])
                chunk = chunk[:window]
            self._buffer_bytes -= len(chunk)
            endpoint.send(chunk)

    def _pause_protocol_if_full(self) -> None:
        if self._buffer_bytes > self._high_water and not self._writing_paused:
            self._writing_paused = True
            self._call_protocol(self._protocol.pause_writing)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = HIGH_WATER_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high_water, self._low_water = high, low
        self._pause_protocol_if_full()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_water, self._high_water

    def get_write_buffer_size(self) -> int:
        return self._buffer_bytes

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if self._closing or self._eof_written:
            return
        self._eof_written = True
        if not self._buffer:
            self._endpoint.send_fin()

    # -- the end

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if not self._buffer:
            self._lost = True
            self._loop.call_soon(self._connection_lost, None, context=self._context)

    def abort(self) -> None:
        self._force_close(None)

    def _force_close(self, error: BaseException | None) -> None:
        if self._lost:
            return
        self._buffer.clear()
        self._buffer_bytes = 0
        self._closing = self._lost = True
        self._loop.call_soon(self._connection_lost, error, context=self._context)

    def _fatal_error(self, error: BaseException, message: str) -> None:
        if not isinstance(error, OSError):
            self._loop.call_exception_handler(
                {"message": message, "exception": error, "transport": self, "protocol": self._protocol}
            )
        self._force_close(error)

    def _call_protocol(self, callback: Callable[[], Any]) -> None:
        try:
            callback()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - as asyncio's own transports do
            self._loop.call_exception_handler(
                {"message": "flow control failed", "exception": error, "transport": self}
            )

    def _connection_lost(self, error: BaseException | None) -> None:
        self._lost = True
        try:
            self._protocol.connection_lost(error if error is None or isinstance(error, Exception) else None)
        finally:
            self._endpoint.close()
            self._endpoint.owner = None
            if self._on_lost is not None:
                self._on_lost(self)


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
