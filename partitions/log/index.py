"""A segment's two sparse indexes, in Kafka's file formats.

Guarantees: entries grow strictly, so that a lookup is a binary search, and looks at a few entries of however many; the
file holds a prefix of what memory holds. The active segment's entries are collected in memory (`OffsetIndex`,
`TimeIndex`) and written when the segment is sealed, flushed or closed: they are hints that recovery can rebuild, so no
append waits for them. A sealed segment's are looked up in the mapped file (`OffsetIndexView`, `TimeIndexView` over
`Disk.map`); nothing is read or decoded beforehand. The offset index maps a batch's last offset to the batch's position
in the log file (8 bytes an entry: relative offset int32, position int32); the time index maps the largest timestamp so
far to the offset that carries it (12 bytes: timestamp int64, relative offset int32).
"""

from __future__ import annotations

import struct
from typing import Final, Protocol

from partitions.disk import Buffer

OFFSET_ENTRY_BYTES: Final = 8
TIME_ENTRY_BYTES: Final = 12
_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_POSITION_AT: Final = 4
"""Where in an offset entry the position begins."""
_RELATIVE_OFFSET_AT: Final = 8
"""Where in a time entry the offset begins."""


class GrowingIndex(Protocol):
    """What of the two indexes in memory goes to their files."""

    persisted: int

    def __len__(self) -> int: ...

    def encode_from(self, first: int) -> bytes: ...


def _count_up_to(field: struct.Struct, data: Buffer, at: int, entry_bytes: int, value: int) -> int:
    """How many entries, of the first on, have a number of at most `value` in the field at byte `at`."""
    unpack = field.unpack_from
    low, high = 0, len(data) // entry_bytes
    while low < high:
        middle = (low + high) >> 1
        if unpack(data, middle * entry_bytes + at)[0] <= value:
            low = middle + 1
        else:
            high = middle
    return low


class OffsetIndexView:
    """Relative offset of a batch's last record → position of the batch, in bytes."""

    __slots__ = ("data",)

    data: Buffer

    def __init__(self, data: Buffer) -> None:
        """`data` is a file's whole content: a multiple of OFFSET_ENTRY_BYTES."""
        self.data = data

    def __len__(self) -> int:
        return len(self.data) // OFFSET_ENTRY_BYTES

    @property
    def last_position(self) -> int:
        """Position that the newest entry names; 0 when there is none."""
        data = self.data
        return int(_INT.unpack_from(data, len(data) - _POSITION_AT)[0]) if data else 0

    @property
    def last_relative_offset(self) -> int:
        data = self.data
        return int(_INT.unpack_from(data, len(data) - OFFSET_ENTRY_BYTES)[0]) if data else -1

    def floor(self, relative_offset: int) -> int:
        """A batch's position at or before the batch that holds the offset; 0 when none is known."""
        return self._position(_count_up_to(_INT, self.data, 0, OFFSET_ENTRY_BYTES, relative_offset))

    def floor_position(self, position: int) -> int:
        """The last indexed batch position at or before `position`; 0 when none is known."""
        return self._position(self.count_up_to(position))

    def count_up_to(self, position: int) -> int:
        """How many entries are of batches at or before `position`."""
        return _count_up_to(_INT, self.data, _POSITION_AT, OFFSET_ENTRY_BYTES, position)

    def entry(self, number: int) -> tuple[int, int]:
        """Relative offset and position."""
        relative_offset, position = _OFFSET_ENTRY.unpack_from(self.data, number * OFFSET_ENTRY_BYTES)
        return relative_offset, position

    def copy(self) -> OffsetIndex:
        """The same entries in memory, to be added to or cut; all of them are in the file."""
        return OffsetIndex(self.data)

    def _position(self, count: int) -> int:
        """The position in the last of the first `count` entries; 0 when there is none."""
        if not count:
            return 0
        position: int = _INT.unpack_from(self.data, count * OFFSET_ENTRY_BYTES - _POSITION_AT)[0]
        return position


class OffsetIndex(OffsetIndexView):
    """One that grows, in memory."""

    __slots__ = ("persisted",)

    data: bytearray

    def __init__(self, data: Buffer = b"") -> None:
        super().__init__(bytearray(data))
        self.persisted: int = len(self)
        """Entries that are in the file."""

    def append(self, relative_offset: int, position: int) -> None:
        """Adds an entry unless it does not grow (a rebuilt tail may name a known batch again)."""
        if relative_offset > self.last_relative_offset:
            self.data += _OFFSET_ENTRY.pack(relative_offset, position)

    def truncate(self, relative_offset: int) -> None:
        """Drops the entries at or after the offset."""
        keep = _count_up_to(_INT, self.data, 0, OFFSET_ENTRY_BYTES, relative_offset - 1)
        del self.data[keep * OFFSET_ENTRY_BYTES :]
        self.persisted = min(self.persisted, keep)

    def encode_from(self, first: int) -> bytes:
        """The file's bytes for the entries from the `first`-th on."""
        return bytes(self.data[first * OFFSET_ENTRY_BYTES :])


class TimeIndexView:
    """Largest timestamp so far (ms) → relative offset of the batch that carries it."""

    __slots__ = ("data",)

    data: Buffer

    def __init__(self, data: Buffer) -> None:
        """`data` is a file's whole content: a multiple of TIME_ENTRY_BYTES."""
        self.data = data

    def __len__(self) -> int:
        return len(self.data) // TIME_ENTRY_BYTES

    @property
    def last(self) -> tuple[int, int] | None:
        """(timestamp, relative offset) of the newest entry."""
        data = self.data
        if not data:
            return None
        timestamp, relative_offset = _TIME_ENTRY.unpack_from(data, len(data) - TIME_ENTRY_BYTES)
        return timestamp, relative_offset

    def floor(self, timestamp: int) -> tuple[int, int] | None:
        """The newest entry at or below `timestamp`, as `last`: up to its offset no record is younger than it."""
        count = _count_up_to(_LONG, self.data, 0, TIME_ENTRY_BYTES, timestamp)
        if not count:
            return None
        found, relative_offset = _TIME_ENTRY.unpack_from(self.data, (count - 1) * TIME_ENTRY_BYTES)
        return found, relative_offset

    def offset_of(self, timestamp: int) -> int | None:
        """The relative offset that first carried this largest timestamp so far; None if there is no entry of it."""
        found = self.floor(timestamp)
        return found[1] if found is not None and found[0] == timestamp else None

    def copy(self) -> TimeIndex:
        """The same entries in memory, to be added to or cut; all of them are in the file."""
        return TimeIndex(self.data)


class TimeIndex(TimeIndexView):
    """One that grows, in memory."""

    __slots__ = ("persisted",)

    data: bytearray

    def __init__(self, data: Buffer = b"") -> None:
        super().__init__(bytearray(data))
        self.persisted: int = len(self)
        """Entries that are in the file."""

    def append(self, timestamp: int, relative_offset: int) -> None:
        """Adds an entry if the timestamp grew; nothing to say otherwise."""
        last = self.last
        if last is None or (timestamp > last[0] and relative_offset > last[1]):
            self.data += _TIME_ENTRY.pack(timestamp, relative_offset)

    def truncate(self, relative_offset: int) -> None:
        """Drops the entries at or after the offset."""
        keep = _count_up_to(_INT, self.data, _RELATIVE_OFFSET_AT, TIME_ENTRY_BYTES, relative_offset - 1)
        del self.data[keep * TIME_ENTRY_BYTES :]
        self.persisted = min(self.persisted, keep)

    def encode_from(self, first: int) -> bytes:
        """The file's bytes for the entries from the `first`-th on."""
        return bytes(self.data[first * TIME_ENTRY_BYTES :])


def is_whole(offset_data: Buffer, time_data: Buffer) -> bool:
    """Whether these can be the contents of an offset and a time index; they are rebuilt if not."""
    return not (len(offset_data) % OFFSET_ENTRY_BYTES or len(time_data) % TIME_ENTRY_BYTES)
