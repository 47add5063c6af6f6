"""The real batches in the bytes of a log's segments, found without the product's own reading code.

Used after injected damage, when a log is opened after a crash in mid-operation, and at the end of a run. Pure: it
works on bytes that the judge took from a simulated disk.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from struct import Struct

from crc32c import crc32c

from kraft.chaos.oracles.shadow_log import Batch

_HEAD = Struct(">qiibIhi")
"""Base offset, length, leader epoch, magic, CRC, attributes, last offset delta."""
_HEADER_BYTES = 61
_LENGTH_ENDS = 12
_CRC_AT = 17
_CRC_COVERS_FROM = 21
_MAX_TIMESTAMP_AT = 35
_MAGIC = 2
_new_tuple = tuple.__new__
"""As `Batch(...)`, without a Python frame: every append of every replica makes some."""


def sound_batches(segments: Sequence[bytes], known: Sequence[Batch] = ()) -> list[Batch]:
    """Every whole batch with a right checksum, in order of the bytes. A batch with a wrong checksum is left out. A
    batch with an impossible length ends its segment, unless one of the `known` batches is found behind it."""
    found: list[Batch] = []
    for data in segments:
        view = memoryview(data)
        position, size = 0, len(data)
        while size - position >= _HEADER_BYTES:
            base, length, epoch, magic, crc, _, delta = _HEAD.unpack_from(data, position)
            end = position + _LENGTH_ENDS + length
            if (
                magic != _MAGIC
                or length < _HEADER_BYTES - _LENGTH_ENDS
                or end > size
                or delta < 0
                or base < 0
            ):
                position = _next_known(data, position + 1, known, found[-1].base if found else -1)
                if position < 0:
                    break
                continue
            if crc32c(view[position + _CRC_COVERS_FROM : end]) == crc:
                found.append(Batch(base, base + delta + 1, epoch, crc))
            position = end
    return found


def newest_timestamp(data: bytes) -> int | None:
    """The largest timestamp (ms) of a segment's sound batches; None if none of them has one."""
    newest = -1
    view, position = memoryview(data), 0
    while len(data) - position >= _HEADER_BYTES:
        _, length, _, magic, crc, _, _ = _HEAD.unpack_from(data, position)
        end = position + _LENGTH_ENDS + length
        if magic != _MAGIC or length < _HEADER_BYTES - _LENGTH_ENDS or end > len(data):
            break
        if crc32c(view[position + _CRC_COVERS_FROM : end]) == crc:
            (timestamp,) = _TIMESTAMP.unpack_from(data, position + _MAX_TIMESTAMP_AT)
            newest = max(newest, timestamp)
        position = end
    return newest if newest >= 0 else None


def _next_known(data: bytes, position: int, known: Sequence[Batch], last: int) -> int:
    """The position of the first known batch behind offset `last`, found by its checksum; -1: none."""
    for batch in known:
        if batch.base > last:
            at = data.find(_CRC.pack(batch.crc), position + _CRC_AT)
            if at >= 0:
                return at - _CRC_AT
    return -1


def without_displaced(
    found: Sequence[Batch], known: Collection[Batch], rotten: Sequence[Batch]
) -> list[Batch]:
    """The batches `found`, without `rotten` ones that claim another offset than theirs: a bit of the base offset,
    which no checksum covers, has flipped. A batch that claims to be one of the `known` is that one."""
    offsets: dict[tuple[int, int], list[int]] = {}
    for batch in rotten:
        offsets.setdefault((batch.crc, batch.next - batch.base), []).append(batch.base)
    known = set(known)

    def is_displaced(batch: Batch) -> bool:
        bases = offsets.get((batch.crc, batch.next - batch.base))
        return bases is not None and batch.base not in bases and batch not in known

    return [batch for batch in found if not is_displaced(batch)]


def first_unsound(data: bytes | bytearray | memoryview) -> str:
    """The problem with the first unsound batch of a Fetch answer; "" if all are sound."""
    view = memoryview(data)
    position, size = 0, len(view)
    while position < size:
        if size - position < _HEADER_BYTES:
            return f"{size - position} bytes at {position} are no batch"
        base, length, _, magic, crc, _, _ = _HEAD.unpack_from(view, position)
        end = position + _LENGTH_ENDS + length
        if magic != _MAGIC or length < _HEADER_BYTES - _LENGTH_ENDS or end > size:
            return f"the batch at {position} has magic {magic} and length {length}"
        if crc32c(view[position + _CRC_COVERS_FROM : end]) != crc:
            return f"the batch of offset {base} at {position} does not have the CRC {crc} that it names"
        position = end
    return ""


def chain(batches: Sequence[Batch], start: int, end: int) -> list[Batch]:
    """The batches that form a log from `start` to `end`: in order, none behind `end`."""
    chosen: list[Batch] = []
    for batch in batches:
        if start < batch.next <= end and (not chosen or batch.base >= chosen[-1].next):
            chosen.append(batch)
    return chosen


def batches_of_append(
    buffers: Sequence[bytes | bytearray | memoryview], placed: Sequence[tuple[int, int, int]]
) -> list[Batch]:
    """The batches of one vectored write. `placed`: last offset, bytes and timestamp of each, in order.

    A leader writes each batch as 16 stamped bytes and the rest; a follower writes one stretch of batches.
    """
    if len(buffers) == 2 * len(placed):
        found = []
        for number, (last_offset, _, _) in enumerate(placed):
            base, _, epoch = _PREFIX.unpack_from(buffers[2 * number])
            (crc,) = _CRC.unpack_from(buffers[2 * number + 1], 1)
            found.append(_new_tuple(Batch, (base, last_offset + 1, epoch, crc)))
        return found
    data = buffers[0] if len(buffers) == 1 else b"".join(buffers)
    found, position = [], 0
    for last_offset, size_bytes, _ in placed:
        base, _, epoch, _, crc, _, _ = _HEAD.unpack_from(data, position)
        found.append(_new_tuple(Batch, (base, last_offset + 1, epoch, crc)))
        position += size_bytes
    return found


_PREFIX = Struct(">qii")
_TIMESTAMP = Struct(">q")
_CRC = Struct(">I")
