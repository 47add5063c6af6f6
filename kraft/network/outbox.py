"""The sending half of a connection: gathers responses into few writes and keeps them in order.

Responses of buffers go to the transport, those with file slices to the connection's `Sender`; while
either has not let go of what it was given, the outbox is `blocked` and must not be added to. Used by
`kraft.network.connection` only.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

from kraft.network.response import BUFFER_TYPES, JOIN_BYTES, Response, Segment, join_small
from kraft.network.sender import OnFailed, OnSent, SenderFactory
from partitions.disk import Buffer

FLUSH_BYTES = 256 * 1024
"""Answers gathered before they are handed to the transport."""

_pack_length = struct.Struct(">i").pack


class Outbox:
    """What leaves one connection. `on_sent` is called when a send that blocked has ended."""

    __slots__ = (
        "_clock_s",
        "_has_slices",
        "_on_sent",
        "_segments",
        "_sender",
        "_size",
        "_timed",
        "_transport",
        "busy",
        "write_paused",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        factory: SenderFactory,
        on_sent: OnSent,
        on_failed: OnFailed,
        clock_s: Callable[[], float],
    ) -> None:
        self._clock_s = clock_s
        self._transport = transport
        self._on_sent = on_sent
        self._sender = factory(transport, self._on_slices_sent, on_failed)
        self._segments: list[Segment] = []  # gathered, not handed on yet
        self._size = 0
        self._has_slices = False
        self._timed: list[Response] = []
        """What was added and has not left yet."""
        self.write_paused = False
        """The transport holds bytes that the peer has not taken."""
        self.busy = False
        """The sender is in the middle of a list of segments."""

    @property
    def blocked(self) -> bool:
        """Nothing may be added now."""
        return self.write_paused or self.busy

    @property
    def empty(self) -> bool:
        """Nothing is gathered, and the sender has nothing left (the transport may have)."""
        return not self._segments and not self.busy

    @property
    def sent_bytes(self) -> int:
        """Bytes that the sender has got rid of so far."""
        return self._sender.sent_bytes

    def add(self, response: Response) -> None:
        """Gathers a response; hands on what is gathered when that is a lot."""
        segments = self._segments
        segments.append(_pack_length(response.length))
        segments += response.segments
        if not BUFFER_TYPES.issuperset(map(type, response.segments)):
            self._has_slices = True
        self._size += response.length
        if response.times is not None:
            self._timed.append(response)
        if self._has_slices or self._size >= FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hands everything gathered to the transport, or to the sender when slices are among it."""
        segments, size, has_slices = self._segments, self._size, self._has_slices
        if not segments:
            return
        self._segments, self._size, self._has_slices = [], 0, False
        if has_slices:
            self.busy = not self._sender.send(segments)
            if not self.busy:
                self._note_sent()
            return
        buffers: list[Buffer] = segments  # type: ignore[assignment]  # no slices: all are buffers
        if size <= JOIN_BYTES:
            self._transport.write(b"".join(buffers))
        else:
            self._transport.writelines(join_small(buffers))
        self._note_sent()

    def _note_sent(self) -> None:
        if self._timed:
            now_s = self._clock_s()
            for response in self._timed:
                assert response.times is not None
                response.times.send.add(now_s - response.ready_s)
            self._timed.clear()

    def pause_writing(self) -> None:
        """The transport says that it holds bytes."""
        self.write_paused = True
        self._sender.pause_writing()

    def resume_writing(self) -> None:
        """The transport has drained; `on_sent` follows unless the sender goes on."""
        self.write_paused = False
        was_busy = self.busy
        self._sender.resume_writing()
        if not was_busy:
            self._on_sent()

    def close(self) -> None:
        """Drops what was not handed on; no callback comes any more."""
        self._segments = []
        self._sender.close()

    def _on_slices_sent(self) -> None:
        self.busy = False
        self._note_sent()
        if not self.write_paused:
            self._on_sent()
