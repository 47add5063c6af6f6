"""The sender of file slices from the page cache to plain sockets, without their bytes passing through Python.

uvloop's transports have no sendfile, so `SendfileSender` works on a dup of the transport's socket: `os.sendfile`
and `loop.add_writer`, for which the loop insists on a descriptor of its own. One rule keeps the order: the sender
touches the socket only while the transport's write buffer is empty, and the connection writes nothing to the
transport while the sender is busy. Buffers between slices go out on the same dup with MSG_MORE, so that a response
header shares a packet with its data. On two cores, answers of 1 MB leave at 0.87 to 1.02 of the rate of a bare
sendfile loop (`python -m bench.micro`).

`real_sender` is the factory for production: sendfile on plain sockets, piecewise pread below TLS.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Iterator, Sequence

from kraft.network.response import Segment
from kraft.network.sender import (
    FileUnreadable,
    OnFailed,
    OnSent,
    Sender,
    TransportSender,
    nobody,
    read_whole,
)
from partitions.disk import Buffer, FileSlice

SENDFILE_MIN_BYTES = 32 * 1024
"""Smaller slices are read and sent together with the buffers around them."""
GATHER_BYTES = 256 * 1024
"""Buffers and small slices gathered for one send."""
CALL_BYTES = 1024 * 1024
"""Handed to one sendfile call: bounds the time for which the loop sits in the kernel."""
TURN_BYTES = 4 * 1024 * 1024
"""Sent before other connections get their turn, however fast the peer reads."""
PIECE_BYTES = 256 * 1024
"""Read at once where the bytes have to pass through the transport (TLS)."""

_SENDFILE_REFUSED = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


def read_pieces(piece: FileSlice) -> Iterator[Buffer]:
    """The bytes of a slice in pieces of at most PIECE_BYTES, each read when it is asked for."""
    descriptor = piece.fileno()
    if descriptor < 0:
        yield from read_whole(piece)
        return
    position, end = piece.position, piece.position + piece.length
    while position < end:
        data = _pread(piece, descriptor, position, min(PIECE_BYTES, end - position))
        if not data:
            raise _ended_early(piece, end - position)
        position += len(data)
        yield data


def _pread(piece: FileSlice, descriptor: int, position: int, length: int) -> bytes:
    try:
        return os.pread(descriptor, length, position)
    except OSError as error:
        raise FileUnreadable(piece.path, error) from error


def _ended_early(piece: FileSlice, left_bytes: int) -> FileUnreadable:
    return FileUnreadable(
        piece.path, EOFError(f"the file ended {left_bytes} bytes before the end of a slice of it")
    )


class SendfileSender:
    """Sends on a dup of the transport's socket; see the module's text for the order of things."""

    def __init__(self, transport: asyncio.Transport, on_sent: OnSent, on_failed: OnFailed) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = transport
        self._on_sent = on_sent
        self._on_failed = on_failed
        self._socket: socket.socket | None = None
        self._segments: deque[Segment] = deque()
        self._chunk = memoryview(b"")
        self._file: FileSlice | None = None
        self._file_position = 0
        self._file_left = 0
        self._waiting = False
        self._closed = False
        self.sent_bytes = 0

    def send(self, segments: Sequence[Segment]) -> bool:
        assert not self._busy(), "a sender sends one list at a time"
        self._segments.extend(segments)
        if self._transport.get_write_buffer_size():
            return False  # `resume_writing` starts it: these bytes come first
        try:
            return self._run()
        except OSError as error:
            self._loop.call_soon(self._fail, error)
            return False

    def pause_writing(self) -> None:
        """Nothing to do: the rule is checked where sending starts."""

    def resume_writing(self) -> None:
        if self._busy() and not self._waiting:
            self._on_writable()

    def close(self) -> None:
        self._closed = True
        self._on_sent = self._on_failed = nobody
        self._drop()
        if self._socket is not None:
            self._stop_waiting()
            self._socket.close()
            self._socket = None

    def _busy(self) -> bool:
        return bool(self._segments) or bool(self._chunk) or self._file is not None

    def _drop(self) -> None:
        self._segments.clear()
        self._chunk = memoryview(b"")
        self._file = None

    def _fail(self, error: Exception) -> None:
        on_failed = self._on_failed
        self.close()
        on_failed(error)

    def _on_writable(self) -> None:
        if self._closed:
            return
        try:
            done = self._run()
        except OSError as error:
            self._fail(error)
            return
        if done:
            self._stop_waiting()
            self._on_sent()

    def _run(self) -> bool:
        """Sends until all is sent (True), the socket is full or the turn is over (False)."""
        if self._socket is None:
            self._socket = self._transport.get_extra_info("socket").dup()
            self._socket.setblocking(False)
        turn_end = self.sent_bytes + TURN_BYTES
        try:
            while self.sent_bytes < turn_end:
                if self._chunk:
                    more = socket.MSG_MORE if self._segments or self._file is not None else 0
                    sent = self._socket.send(self._chunk, more)
                    self._chunk = self._chunk[sent:]
                    self.sent_bytes += sent
                elif self._file is not None:
                    self._send_file(self._socket, self._file)
                elif self._segments:
                    self._load()
                else:
                    return True
        except (BlockingIOError, InterruptedError):
            pass
        if not self._busy():
            return True
        self._wait()
        return False

    def _send_file(self, to: socket.socket, piece: FileSlice) -> None:
        """One sendfile call; a file system that has none is read from instead."""
        try:
            sent = os.sendfile(
                to.fileno(), piece.fileno(), self._file_position, min(self._file_left, CALL_BYTES)
            )
        except OSError as error:
            if isinstance(error, BlockingIOError | InterruptedError | ConnectionError):
                raise
            if error.errno not in _SENDFILE_REFUSED:
                _pread(piece, piece.fileno(), self._file_position, 1)  # is the file to blame, or the socket?
                raise
            data = _pread(piece, piece.fileno(), self._file_position, min(self._file_left, PIECE_BYTES))
            self._chunk = memoryview(data)
            self._advance_file(piece, len(data))
            return
        self.sent_bytes += sent
        self._advance_file(piece, sent)

    def _advance_file(self, piece: FileSlice, sent: int) -> None:
        if sent == 0:
            raise _ended_early(piece, self._file_left)
        self._file_position += sent
        self._file_left -= sent
        if self._file_left == 0:
            self._file = None

    def _load(self) -> None:
        """Takes the next large slice, or gathers the buffers and small slices up to it."""
        gathered: list[Buffer] = []
        size = 0
        while self._segments and size < GATHER_BYTES:
            segment = self._segments[0]
            data: Buffer
            if isinstance(segment, bytes | bytearray | memoryview):
                data = segment
            elif segment.length < SENDFILE_MIN_BYTES or segment.fileno() < 0:
                try:
                    data = segment.read()
                except (OSError, EOFError) as error:
                    raise FileUnreadable(segment.path, error) from error
            else:
                if not gathered:
                    self._file, self._file_position, self._file_left = (
                        segment,
                        segment.position,
                        segment.length,
                    )
                    self._segments.popleft()
                    return
                break
            self._segments.popleft()
            gathered.append(data)
            size += len(data)
        self._chunk = memoryview(gathered[0] if len(gathered) == 1 else b"".join(gathered))

    def _wait(self) -> None:
        if not self._waiting and self._socket is not None:
            self._waiting = True
            self._loop.add_writer(self._socket.fileno(), self._on_writable)

    def _stop_waiting(self) -> None:
        if self._waiting and self._socket is not None:
            self._waiting = False
            self._loop.remove_writer(self._socket.fileno())


def real_sender(transport: asyncio.Transport, on_sent: OnSent, on_failed: OnFailed) -> Sender:
    """The `SenderFactory` for production."""
    if transport.get_extra_info("sslcontext") is not None:
        return TransportSender(transport, on_sent, on_failed, reader=read_pieces)
    return SendfileSender(transport, on_sent, on_failed)
