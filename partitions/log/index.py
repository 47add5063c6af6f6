"""A segment's two sparse indexes, in Kafka's file formats.

Guarantees: entries grow strictly, so that a lookup is a binary search; the file holds a prefix of
what memory holds. Entries are collected in memory and written when the segment is sealed, flushed
or closed: they are hints that recovery can rebuild, so no append waits for them. The offset index
maps a batch's last offset to the batch's position in the log file (8 bytes an entry: relative
offset int32, position int32); the time index maps the largest timestamp so far to the offset that
carries it (12 bytes: timestamp int64, relative offset int32).
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

OFFSET_ENTRY_BYTES: Final = 8
TIME_ENTRY_BYTES: Final = 12
_TIME_ENTRY: Final = struct.Struct(">qi")
_SWAP: Final = sys.byteorder == "little"


class OffsetIndex:
    """Relative offset of a batch's last record → position of the batch, in bytes."""

    __slots__ = ("_offsets", "_positions", "persisted")

    def __init__(self) -> None:
        self._offsets = array("i")
        self._positions = array("i")
        self.persisted: int = 0
        """Entries that are in the file."""

    @classmethod
    def decode(cls, data: bytes) -> OffsetIndex | None:
        """The index in a file's bytes; None if they cannot be one (it is rebuilt then)."""
        if len(data) % OFFSET_ENTRY_BYTES:
            return None
        values = array("i")
        values.frombytes(data)
        if _SWAP:
            values.byteswap()
        index = cls()
        index._offsets = values[0::2]
        index._positions = values[1::2]
        index.persisted = len(index._offsets)
        return index

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def last_position(self) -> int:
        """Position that the newest entry names; 0 when there is none."""
        return self._positions[-1] if self._positions else 0

    @property
    def last_relative_offset(self) -> int:
        return self._offsets[-1] if self._offsets else -1

    def append(self, relative_offset: int, position: int) -> None:
        """Adds an entry unless it does not grow (a rebuilt tail may name a known batch again)."""
        if not self._offsets or relative_offset > self._offsets[-1]:
            self._offsets.append(relative_offset)
            self._positions.append(position)

    def floor(self, relative_offset: int) -> int:
        """A batch's position at or before the batch that holds the offset; 0 when none is known."""
        entry = bisect_right(self._offsets, relative_offset) - 1
        if entry < 0 or self._offsets[entry] > relative_offset:
            return 0
        return self._positions[entry]

    def floor_position(self, position: int) -> int:
        """The last indexed batch position at or before `position`; 0 when none is known."""
        entry = bisect_right(self._positions, position) - 1
        if entry < 0 or self._positions[entry] > position:
            return 0
        return self._positions[entry]

    def truncate(self, relative_offset: int) -> None:
        """Drops the entries at or after the offset."""
        keep = bisect_left(self._offsets, relative_offset)
        del self._offsets[keep:]
        del self._positions[keep:]
        self.persisted = min(self.persisted, keep)

    def encode_from(self, first: int) -> bytes:
        """The file's bytes for the entries from the `first`-th on."""
        count = len(self._offsets) - first
        values = array("i", bytes(count * OFFSET_ENTRY_BYTES))
        values[0::2] = self._offsets[first:]
        values[1::2] = self._positions[first:]
        if _SWAP:
            values.byteswap()
        return values.tobytes()


class TimeIndex:
    """Largest timestamp so far (ms) → relative offset of the batch that carries it."""

    __slots__ = ("_data", "persisted")

    def __init__(self, data: bytes = b"") -> None:
        self._data = bytearray(data)
        self.persisted: int = len(data) // TIME_ENTRY_BYTES

    @classmethod
    def decode(cls, data: bytes) -> TimeIndex | None:
        """The index in a file's bytes; None if they cannot be one."""
        return None if len(data) % TIME_ENTRY_BYTES else cls(data)

    def __len__(self) -> int:
        return len(self._data) // TIME_ENTRY_BYTES

    def _entry(self, number: int) -> tuple[int, int]:
        timestamp, relative_offset = _TIME_ENTRY.unpack_from(self._data, number * TIME_ENTRY_BYTES)
        return timestamp, relative_offset

    @property
    def last(self) -> tuple[int, int] | None:
        """(timestamp, relative offset) of the newest entry."""
        return self._entry(len(self) - 1) if self._data else None

    def append(self, timestamp: int, relative_offset: int) -> None:
        """Adds an entry if the timestamp grew; nothing to say otherwise."""
        last = self.last
        if last is None or (timestamp > last[0] and relative_offset > last[1]):
            self._data += _TIME_ENTRY.pack(timestamp, relative_offset)

    def floor(self, timestamp: int) -> int | None:
        """The offset up to which no record is younger than an entry at or below `timestamp`."""
        low, high = 0, len(self)
        unpack, data = _TIME_ENTRY.unpack_from, self._data
        while low < high:
            middle = (low + high) // 2
            if unpack(data, middle * TIME_ENTRY_BYTES)[0] <= timestamp:
                low = middle + 1
            else:
                high = middle
        return self._entry(low - 1)[1] if low else None

    def truncate(self, relative_offset: int) -> None:
        """Drops the entries at or after the offset."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self._entry(middle)[1] < relative_offset:
                low = middle + 1
            else:
                high = middle
        del self._data[low * TIME_ENTRY_BYTES :]
        self.persisted = min(self.persisted, low)

    def encode_from(self, first: int) -> bytes:
        """The file's bytes for the entries from the `first`-th on."""
        return bytes(self._data[first * TIME_ENTRY_BYTES :])
