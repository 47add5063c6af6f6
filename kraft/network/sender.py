"""The port through which responses with file slices leave, and its implementation for any transport.

A `Sender` belongs to one connection and sends one list of segments at a time, strictly in order. The
connection writes responses without slices to the transport itself and never while its sender is busy.
`TransportSender` reads a slice piece by piece and writes the pieces with flow control: it serves TLS
and the simulation; `kraft.runtime.sendfile` sends from the page cache on plain sockets.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from kraft.network.response import BUFFER_TYPES, JOIN_BYTES, Segment
from partitions.disk import Buffer, FileSlice

OnSent = Callable[[], None]
OnFailed = Callable[[Exception], None]
OnUnreadable = Callable[[str], None]
"""Told the path of a file of which a slice could not be read."""


class FileUnreadable(OSError):
    """A slice could not be sent because of its file, at `path`: it became shorter, or the disk refuses it."""

    def __init__(self, path: str, error: Exception) -> None:
        super().__init__(f"{path}: {error}")
        self.path = path


class Sender(Protocol):
    """Sends the segments of one connection; one list at a time."""

    @property
    def sent_bytes(self) -> int:
        """Bytes handed on so far; grows as long as the peer reads."""

    def send(self, segments: Sequence[Segment]) -> bool:
        """Sends `segments`. True: all of it is with the transport or the kernel. False: the sender is
        busy with the rest, and calls `on_sent` when done or `on_failed` when it cannot be done
        (never from within `send`). To be called only while the sender is idle and the transport has
        not paused writing.
        """

    def pause_writing(self) -> None:
        """The transport's write buffer is full."""

    def resume_writing(self) -> None:
        """The transport's write buffer has drained."""

    def close(self) -> None:
        """Drops what is left to send; no callback is called any more. May be called twice."""


SenderFactory = Callable[[asyncio.Transport, OnSent, OnFailed], Sender]
SliceReader = Callable[[FileSlice], Iterator[Buffer]]
"""Yields the bytes of a slice in order. Raises FileUnreadable."""


def telling_of_files(factory: SenderFactory, on_unreadable: OnUnreadable) -> SenderFactory:
    """The factory, with somebody who is told of files that could not be read."""

    def make(transport: asyncio.Transport, on_sent: OnSent, on_failed: OnFailed) -> Sender:
        def failed(error: Exception) -> None:
            on_failed(error)
            if isinstance(error, FileUnreadable):
                on_unreadable(error.path)

        return factory(transport, on_sent, failed)

    return make


def nobody(*_: object) -> None:
    """Whom a closed sender tells: nothing leads from it to its connection any more."""


def read_whole(piece: FileSlice) -> Iterator[Buffer]:
    """A slice as one piece: for slices that have no descriptor."""
    try:
        data = piece.read()
    except (OSError, EOFError) as error:
        raise FileUnreadable(piece.path, error) from error
    yield data


class TransportSender:
    """Reads slices and writes them to the transport, one piece more whenever it has drained.

    At most one piece is held in memory beside the transport's own buffer. Small ones are joined, since a
    write (a record of TLS, a segment on the wire) costs more than copying them.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        on_sent: OnSent,
        on_failed: OnFailed,
        *,
        reader: SliceReader = read_whole,
    ) -> None:
        self._transport = transport
        self._on_sent = on_sent
        self._on_failed = on_failed
        self._reader = reader
        self._segments: deque[Segment] = deque()
        self._pieces: Iterator[Buffer] | None = None
        self._ahead: Buffer | None = None  # was read, and did not fit into the last write
        self._paused = False
        self._closed = False
        self.sent_bytes = 0

    def send(self, segments: Sequence[Segment]) -> bool:
        try:
            whole = None if self._paused or not self._is_empty() else self._join(segments)
            if whole is not None:
                self.sent_bytes += len(whole)
                self._transport.write(whole)
                return True
            self._segments.extend(segments)
            return self._run()
        except OSError as error:
            self._segments.clear()
            asyncio.get_running_loop().call_soon(self._fail, error)
            return False

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._closed or self._is_empty():
            return
        try:
            done = self._run()
        except OSError as error:
            self._fail(error)
            return
        if done:
            self._on_sent()

    def close(self) -> None:
        self._closed = True
        self._segments.clear()
        self._pieces = self._ahead = None
        self._on_sent = self._on_failed = nobody

    def _fail(self, error: Exception) -> None:
        on_failed = self._on_failed
        self.close()
        on_failed(error)

    def _join(self, segments: Sequence[Segment]) -> bytes | None:
        """All of it as one buffer if it is small, as most answers are."""
        size_bytes = 0
        for segment in segments:
            size_bytes += len(segment) if type(segment) in BUFFER_TYPES else segment.length  # type: ignore[arg-type,union-attr]
        if size_bytes > JOIN_BYTES:
            return None
        pieces: list[Buffer] = []
        for segment in segments:
            if type(segment) in BUFFER_TYPES:
                pieces.append(segment)  # type: ignore[arg-type]
            else:
                pieces += self._reader(segment)  # type: ignore[arg-type]
        return b"".join(pieces)

    def _run(self) -> bool:
        """Writes until the transport pauses or nothing is left; True when nothing is left."""
        while not self._paused:
            data = self._gather()
            if data is None:
                return True
            self.sent_bytes += len(data)
            self._transport.write(data)
        return self._is_empty()

    def _is_empty(self) -> bool:
        return self._pieces is None and self._ahead is None and not self._segments

    def _gather(self) -> Buffer | None:
        """What the next write takes: a large piece, or small ones joined; None when nothing is left."""
        piece = self._next_piece()
        if piece is None or len(piece) > JOIN_BYTES:
            return piece
        run, size_bytes = [piece], len(piece)
        while (piece := self._next_piece()) is not None:
            size_bytes += len(piece)
            if size_bytes > JOIN_BYTES:
                self._ahead = piece
                break
            run.append(piece)
        return run[0] if len(run) == 1 else b"".join(run)

    def _next_piece(self) -> Buffer | None:
        if self._ahead is not None:
            piece, self._ahead = self._ahead, None
            return piece
        while True:
            if self._pieces is not None:
                following = next(self._pieces, None)
                if following is not None:
                    return following
                self._pieces = None
            if not self._segments:
                return None
            segment = self._segments.popleft()
            if isinstance(segment, bytes | bytearray | memoryview):
                return segment
            self._pieces = self._reader(segment)


def transport_sender(transport: asyncio.Transport, on_sent: OnSent, on_failed: OnFailed) -> Sender:
    """The `SenderFactory` for simulation."""
    return TransportSender(transport, on_sent, on_failed)
