"""Cuts a byte stream into Kafka frames (a 4-byte big-endian length, then that many bytes).

Sans-IO: `FrameBuffer` hands out the memory to receive into and gives back whole frames as memory
views. It guarantees that a view handed out stays valid and unchanged for as long as anybody holds
it: memory is filled forwards only, and used again only when its reference count says that no view of
it is left. Small pipelined frames share one receive buffer; a large frame is received straight into
memory of exactly its size, that of the large frame before it where that is free. A length is not
believed before bytes back it: a connection that has never delivered a large frame makes us allocate
no more than `UNPROVEN_FRAME_BYTES` ahead of its data.

Used by the server's connections and by `BrokerConnection`. The framing is that of Kafka's protocol
guide ("RequestOrResponse => Size (RequestMessage | ResponseMessage)").
"""

from __future__ import annotations

import struct
from sys import getrefcount

LENGTH_BYTES = 4
MIN_WINDOW_BYTES = 4 * 1024
MAX_WINDOW_BYTES = 256 * 1024
LARGE_FRAME_BYTES = 64 * 1024
UNPROVEN_FRAME_BYTES = 256 * 1024
SPARE_BYTES = 4 * 1024 * 1024
"""The largest buffer that is kept for the next large frame: clearing a new one costs as much as reading."""
_UNSHARED = 2
"""Reference count of an object that one variable or attribute holds (the other one is the count's argument)."""
_MIN_ROOM_BYTES = 1024
_NO_VIEW = memoryview(b"")
_HTTP_REQUESTS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"CONN", b"OPTI", b"TRAC", b"PATC", b"PRI ")
_OTHER_PROTOCOLS = (
    (
        _HTTP_REQUESTS,
        "an HTTP request, but this port speaks Kafka's protocol; pages are at the node's http.listener",
    ),
    ((b"HTTP",), "an HTTP answer: that port does not speak Kafka's protocol"),
    (
        (b"\x16\x03",),
        "a TLS handshake, but this port is PLAINTEXT; clients need security.protocol=PLAINTEXT here",
    ),
    ((b"\x15\x03",), "a TLS alert: that port is encrypted"),
)
"""How other protocols begin, where a length should be, and what is said of them."""

_unpack_length = struct.Struct(">i").unpack_from


class FrameError(ValueError):
    """The peer announced a frame that is not allowed; the stream cannot be followed any further."""


class FrameBuffer:
    """The receive side of one connection: memory to read into, frames out.

    Call `writable` for memory, `advance` with the number of bytes received into it, then `take` until
    it returns fewer frames than asked for. `writable` may be called at any time and always offers at
    least one byte.
    """

    __slots__ = (
        "_buffer",
        "_capacity",
        "_dedicated",
        "_end",
        "_frame_bytes",
        "_spare",
        "_start",
        "_view",
        "_window",
        "broken",
        "max_frame_bytes",
        "min_frame_bytes",
        "proven_bytes",
    )

    def __init__(self, *, max_frame_bytes: int, min_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self.min_frame_bytes = min_frame_bytes
        self.proven_bytes = UNPROVEN_FRAME_BYTES
        self.broken = False
        self._window = MIN_WINDOW_BYTES
        self._start = 0  # first byte that belongs to no handed-out frame
        self._end = 0  # behind the last received byte
        self._dedicated = False  # the buffer holds one large frame and nothing else
        self._spare: bytearray | None = None  # held the last large frame; views of it may be left
        self._frame_bytes = 0  # length on the wire of the frame under way, when it is known
        self._view = _NO_VIEW
        self._adopt(bytearray())

    @property
    def pending_bytes(self) -> int:
        """Bytes received that no frame handed out covers."""
        return self._end - self._start

    @property
    def capacity_bytes(self) -> int:
        """Size of the buffer held at the moment (views handed out may hold older ones)."""
        return self._capacity

    @property
    def spare_bytes(self) -> int:
        """Size of the buffer that is kept for the next large frame."""
        return 0 if self._spare is None else len(self._spare)

    def writable(self, sizehint: int = -1) -> memoryview:
        """Memory for the next read: at least one byte. The hint of asyncio's `get_buffer` is not used."""
        if self._capacity - self._end < _MIN_ROOM_BYTES:
            self._make_room()
        return self._view[self._end :]

    def advance(self, received_bytes: int) -> None:
        """Says that a read put `received_bytes` into the memory last offered."""
        self._end += received_bytes
        if self._end == self._capacity and not self._dedicated and self._window < MAX_WINDOW_BYTES:
            self._window *= 2  # there was more to read than room for it

    def take(self, limit: int) -> list[memoryview]:
        """Up to `limit` whole frames without their length prefixes; fewer when more bytes are needed.

        Raises FrameError for a length outside `min_frame_bytes`..`max_frame_bytes`; if whole frames lie
        before it, it returns those, sets `broken`, and raises at the next call.
        """
        frames: list[memoryview] = []
        buffer, view, start, end = self._buffer, self._view, self._start, self._end
        while end - start >= LENGTH_BYTES and len(frames) < limit:
            length = _unpack_length(buffer, start)[0]
            if not self.min_frame_bytes <= length <= self.max_frame_bytes:
                self.broken = True
                if not frames:
                    raise FrameError(self._describe(length, bytes(view[start : start + LENGTH_BYTES])))
                break
            stop = start + LENGTH_BYTES + length
            if stop > end:
                self._start = start
                self._expect(LENGTH_BYTES + length)
                return frames
            frames.append(view[start + LENGTH_BYTES : stop])
            start = stop
        self._start = start
        if self._dedicated and frames:
            self._release_dedicated()
        return frames

    def release_idle_memory(self) -> None:
        """Gives the receive buffer back when no byte waits in it; the next read allocates anew."""
        self._spare = None
        if self._start == self._end and self._capacity:
            self._window = MIN_WINDOW_BYTES
            self._start = self._end = 0
            self._adopt(bytearray())

    def _describe(self, length: int, head: bytes) -> str:
        for beginnings, text in _OTHER_PROTOCOLS:
            if head.startswith(beginnings):
                return text
        if length > self.max_frame_bytes:
            return f"a frame of {length} bytes, but at most {self.max_frame_bytes} are allowed here"
        return f"a frame length of {length}, but a frame has at least {self.min_frame_bytes} bytes"

    def _expect(self, frame_bytes: int) -> None:
        """A frame is incomplete: gives it room where the present buffer has too little."""
        if self._dedicated or self._start + frame_bytes <= self._capacity:
            return
        self._frame_bytes = frame_bytes
        if frame_bytes > LARGE_FRAME_BYTES:
            # Large frames come one after the other: next time look at little before the exact buffer.
            self._window = MIN_WINDOW_BYTES
            self._dedicated = True
            self._reallocate(max(min(frame_bytes, self.proven_bytes), self.pending_bytes))
        else:
            while self._window < 2 * frame_bytes and self._window < MAX_WINDOW_BYTES:
                self._window *= 2
            self._reallocate(max(self._window, frame_bytes))

    def _make_room(self) -> None:
        pending = self._end - self._start
        if not pending:
            if not self._reuse():
                self._reallocate(self._window)
        elif self._end == self._capacity:
            if self._dedicated:
                self._reallocate(min(self._frame_bytes, 2 * self._capacity))
            else:
                self._reallocate(max(self._window, 2 * pending))

    def _reuse(self) -> bool:
        """Begins anew at the front of the same buffer if it has the right size and nobody looks at it."""
        size = len(self._view)
        if self._dedicated or size != self._window:
            return False
        self._view = _NO_VIEW
        if getrefcount(self._buffer) != _UNSHARED:
            self._view = memoryview(self._buffer)[:size]
            return False
        self._start = self._end = 0
        self._adopt(self._buffer, size)
        return True

    def _reallocate(self, size: int) -> None:
        """Moves the bytes that are not handed out yet to the front of another buffer."""
        fresh = (self._take_spare(size) if self._dedicated else None) or bytearray(size)
        pending = self._end - self._start
        fresh[:pending] = self._view[self._start : self._end]
        self._start, self._end = 0, pending
        self._adopt(fresh, size)

    def _take_spare(self, size: int) -> bytearray | None:
        """The last large frame's buffer, if it has `size` bytes and nobody looks at it any more."""
        spare, self._spare = self._spare, None
        if spare is not None and len(spare) >= size and getrefcount(spare) == _UNSHARED:
            return spare
        return None

    def _adopt(self, buffer: bytearray, size: int = 0) -> None:
        """Goes on with the first `size` bytes of another buffer."""
        self._buffer = buffer
        self._view = memoryview(buffer)[:size]
        self._capacity = size

    def _release_dedicated(self) -> None:
        """The large frame was handed out and owns its buffer alone; later ones are believed sooner."""
        assert self._start == self._end == self._capacity, "a dedicated buffer never holds a second frame"
        self._dedicated = False
        self.proven_bytes = max(self.proven_bytes, 2 * self._frame_bytes)
        self._spare = self._buffer if len(self._buffer) <= SPARE_BYTES else None
        self._start = self._end = 0
        self._adopt(bytearray())
