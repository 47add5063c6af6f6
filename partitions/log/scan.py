"""Walking over the batches of a segment file without reading more of it than needed.

Guarantees: positions handed out are batch boundaries, and a length or offset that cannot be is a
LogCorruptError naming file and byte, never a wrong answer or an endless loop. `seek` serves reads
(a few headers from an index entry on), `walk` rebuilds indexes and producer state from headers, and
`walk_checked` is recovery: every byte is read and every CRC compared.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from partitions.disk import File
from partitions.log.errors import BatchDamaged, LogCorruptError, SegmentEndsElsewhere
from partitions.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    CorruptBatchError,
    parse_header,
    verify_stamped,
)

_PEEK: Final = struct.Struct(">qiib6xi")
"""Base offset, batch length, leader epoch, magic and last offset delta of a batch, and nothing else of its header."""
_MAGIC: Final = 2
_MIN_BATCH_LENGTH: Final = HEADER_BYTES - LOG_OVERHEAD_BYTES
SEEK_CHUNK_BYTES: Final = 8 * 1024
"""Two index intervals: a seek from an index entry mostly ends within one read."""
WALK_CHUNK_BYTES: Final = 64 * 1024
_CHECK_CHUNK_BYTES: Final = 1024 * 1024


class Stop(NamedTuple):
    """Where a seek ended: before a batch of `batch_bytes` at `position`, or (0 bytes) at the end."""

    position: int
    offset: int
    """The batch's base offset; at the end, the same as `passed_offset`."""
    batch_bytes: int
    passed_offset: int
    """The offset after the last batch that was passed."""
    passed_epoch: int | None
    """The leader epoch of that batch; None if none was passed."""


def seek(
    file: File, position: int, end: int, *, stop_offset: int, stop_position: int, passed_offset: int
) -> Stop:
    """Passes whole batches from `position` on, as long as they lie below both limits.

    Stops before the first batch whose last offset is >= `stop_offset` or whose bytes go beyond
    `stop_position`. `position` is a batch boundary: bytes that can be no batch there, or one from below
    `passed_offset`, are a LogCorruptError. That offset is reported when nothing was passed.
    """
    passed_epoch: int | None = None
    while position < end:
        chunk = file.read(position, min(SEEK_CHUNK_BYTES, end - position))
        available = len(chunk) - _PEEK.size
        at = 0
        while at <= available:
            base_offset, length, epoch, magic, last_delta = _PEEK.unpack_from(chunk, at)
            batch_end = position + at + length + LOG_OVERHEAD_BYTES
            if (
                length < _MIN_BATCH_LENGTH
                or last_delta < 0
                or batch_end > end
                or base_offset < passed_offset
                or magic != _MAGIC
            ):
                raise LogCorruptError(file.path, position + at, "no batch can have this header")
            if base_offset + last_delta >= stop_offset or batch_end > stop_position:
                size_bytes = length + LOG_OVERHEAD_BYTES
                return Stop(position + at, base_offset, size_bytes, passed_offset, passed_epoch)
            passed_offset = base_offset + last_delta + 1
            passed_epoch = epoch
            at = batch_end - position
        if at == 0:
            raise LogCorruptError(file.path, position, f"{end - position} bytes are no batch")
        position += at
    return Stop(position, passed_offset, 0, passed_offset, passed_epoch)


def walk(
    file: File, position: int, end: int, *, first_read_bytes: int = WALK_CHUNK_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every batch from `position` to `end`. Raises LogCorruptError.

    A caller that expects to stop soon, because an index led here, gives a smaller `first_read_bytes`.
    """
    chunk_bytes = first_read_bytes
    while position < end:
        chunk = file.read(position, min(chunk_bytes, end - position))
        at = 0
        while len(chunk) - at >= HEADER_BYTES:
            try:
                header = parse_header(chunk, at)
            except CorruptBatchError as error:
                raise LogCorruptError(file.path, position + at, str(error)) from error
            if position + at + header.size_bytes > end:
                raise LogCorruptError(file.path, position + at, "the file ends inside the batch")
            yield position + at, header
            at += header.size_bytes
        if at == 0:
            raise LogCorruptError(file.path, position, f"{end - position} bytes are no batch")
        # Batches beyond the chunk's size: from now on read no more of them than the header.
        chunk_bytes = HEADER_BYTES if at > WALK_CHUNK_BYTES else WALK_CHUNK_BYTES
        position += at


def ensure_sound(file: File, position: int, header: BatchHeader) -> None:
    """Compares the checksum of the batch that has this header. Raises BatchDamaged, OSError."""
    try:
        verify_stamped(file.read(position, header.size_bytes), 0, header)
    except CorruptBatchError as error:
        raise BatchDamaged(file.path, position, str(error)) from error


def ensure_end(
    file: File,
    size_bytes: int,
    last: tuple[int, BatchHeader] | None,
    *,
    base_offset: int,
    next_base: int | None,
) -> None:
    """Whether a segment that begins at `base_offset` and has this last batch, at this place, ends where the next one
    begins, if there is one. Raises BatchDamaged, OSError."""
    end_offset = base_offset if last is None else last[1].next_offset
    if next_base is None or end_offset == next_base:
        return
    if last is not None:  # mostly it is sound, and what was behind it is gone
        ensure_sound(file, *last)
    raise SegmentEndsElsewhere(file.path, size_bytes, end_offset, next_base)


class Readable(Protocol):
    """As much of a file as a check needs."""

    def read(self, position: int, length: int) -> bytes: ...


class Damage(NamedTuple):
    """The first batch that is not sound, and why."""

    position: int
    reason: str


def walk_checked(file: Readable, end: int) -> Iterator[tuple[int, BatchHeader] | Damage]:
    """Every sound batch from the start of the file, CRCs compared; last, the damage if there is one."""
    position = 0
    while position < end:
        chunk = memoryview(file.read(position, min(_CHECK_CHUNK_BYTES, end - position)))
        at = 0
        while len(chunk) - at >= HEADER_BYTES:
            try:
                header = parse_header(chunk, at)
                if position + at + header.size_bytes > end:
                    yield Damage(position + at, "the file ends inside the batch")
                    return
                if at + header.size_bytes > len(chunk):
                    if at:
                        break
                    chunk = memoryview(file.read(position, header.size_bytes))
                verify_stamped(chunk, at, header)
            except CorruptBatchError as error:
                yield Damage(position + at, str(error))
                return
            yield position + at, header
            at += header.size_bytes
        if at == 0:
            yield Damage(position, f"{end - position} bytes are no batch")
            return
        position += at
