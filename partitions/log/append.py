"""Turning checked batches into what is written: stamped prefixes, untouched bodies, index notes.

Guarantees: the body of a batch is never copied (LogAppendTime excepted, which needs a new CRC); the
first 16 bytes, which lie before the checksum's range, are made anew with the offset and the leader
epoch. Called by `PartitionLog` for every append.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from partitions.disk import Buffer
from partitions.log.config_values import INT_MAX
from partitions.log.segment import Placed
from partitions.log.validation import PlacedHeader
from partitions.records.batch import (
    LOG_OVERHEAD_BYTES,
    parse_header,
    stamp_log_append_time,
    stamped_header_prefix,
)

_STAMPED_BYTES: Final = 16
NO_TIME: Final = -1


class AppendInfo(NamedTuple):
    """What an append did. A duplicate's offsets are those of the batches it repeats."""

    first_offset: int
    last_offset: int
    """first_offset - 1 when there was nothing to append."""
    max_timestamp: int
    log_append_time: int
    """Wall-clock ms given to the records when the topic uses LogAppendTime, else -1."""
    log_start_offset: int
    duplicate: bool
    batches: int
    size_bytes: int


Stamped: TypeAlias = tuple[list[Buffer], list[Placed], int, int]
"""Buffers for one vectored write, what the segment notes about their batches, the offset after the last one, and
the largest timestamp (ms)."""
append_info: Final[Callable[[tuple[int, ...]], AppendInfo]] = partial(tuple.__new__, AppendInfo)
"""As `AppendInfo._make`. The constructors of named tuples are Python: two of them cost as much as a checksum."""


def stamp_batches(
    buffer: memoryview, batches: Sequence[PlacedHeader], first_offset: int, leader_epoch: int
) -> Stamped:
    """Gives the batches consecutive offsets from `first_offset` on, and the leader's epoch."""
    buffers: list[Buffer] = []
    placed: list[Placed] = []
    offset = first_offset
    newest = NO_TIME
    for position, header in batches:
        batch_length = header.batch_length
        size_bytes = batch_length + LOG_OVERHEAD_BYTES
        buffers.append(stamped_header_prefix(offset, batch_length, leader_epoch))
        buffers.append(buffer[position + _STAMPED_BYTES : position + size_bytes])
        offset += header.last_offset_delta
        timestamp = header.max_timestamp
        placed.append((offset, size_bytes, timestamp))
        offset += 1
        if timestamp > newest:
            newest = timestamp
    return buffers, placed, offset, newest


def with_append_time(
    buffer: memoryview, batches: Sequence[PlacedHeader], now_ms: int
) -> tuple[memoryview, list[PlacedHeader]]:
    """A copy of the batches in which every record's timestamp is `now_ms`."""
    copy = bytearray(buffer)
    for position, _ in batches:
        stamp_log_append_time(copy, position, timestamp=now_ms)
    return memoryview(copy), [(position, parse_header(copy, position)) for position, _ in batches]


def split_to_fit(
    batches: Sequence[PlacedHeader], limit_bytes: int, start_offset: int
) -> Iterator[Sequence[PlacedHeader]]:
    """Runs of consecutive batches, each of which fits into one segment that begins where the run before it ends.

    The first begins at `start_offset`, where the log ends. A run has at most `limit_bytes`, or is one larger batch,
    and spans no more offsets than a segment's indexes can name: where a log was compacted, a few batches may.
    """
    first = size = 0
    base = following = start_offset
    for number, (_, header) in enumerate(batches):
        if size and (size + header.size_bytes > limit_bytes or header.last_offset - base > INT_MAX):
            yield batches[first:number]
            first, size, base = number, 0, following
        size += header.size_bytes
        following = header.next_offset
    if first < len(batches):
        yield batches[first:]
