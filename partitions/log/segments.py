"""A log's segments in order of their base offsets.

Guarantees: a segment holds the offsets from its base up to the next one's; the last is the active
one. Lookup, by offset and by time, is a binary search over plain integers: by time over the running
maximum of the segments' largest timestamps, since those themselves may rise and fall. A segment that was
found at start is asked for its largest timestamp once, by the first lookup by time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from partitions.log.config_values import INT_MAX
from partitions.log.segment import NO_TIMESTAMP, Segment


class SegmentList:
    """Never empty once a log is open."""

    __slots__ = ("_bases", "_newest", "_segments", "active")

    active: Segment
    """The last one. Kept apart: each append asks for it."""

    def __init__(self, segments: Sequence[Segment] = ()) -> None:
        self._segments = list(segments)
        if self._segments:
            self.active = self._segments[-1]
        self._newest: list[int] = []
        """Of the first closed segments: the largest timestamp (ms) in it or in any before it."""
        self._bases = [segment.base_offset for segment in self._segments]
        assert self._bases == sorted(set(self._bases))
        for before, segment in pairwise(self._segments):
            before.next_base = segment.base_offset

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, position: int) -> Segment:
        return self._segments[position]

    @property
    def first(self) -> Segment:
        return self._segments[0]

    def position_for(self, offset: int) -> int:
        """Place in the list of the segment whose range holds `offset`; the first for older offsets."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def next_base(self, position: int) -> int | None:
        """The base offset of the segment after `position`; None for the active one."""
        return self._bases[position + 1] if position + 1 < len(self._bases) else None

    def limit_after(self, position: int) -> int:
        """The offset that no batch of the segment at `position` reaches, whatever is in it."""
        next_base = self.next_base(position)
        return self._bases[position] + INT_MAX + 1 if next_base is None else next_base

    def append(self, segment: Segment) -> None:
        assert not self._bases or segment.base_offset > self._bases[-1]
        if self._segments:
            self.active.next_base = segment.base_offset
        self._segments.append(segment)
        self.active = segment
        self._bases.append(segment.base_offset)

    def pop_first(self) -> Segment:
        self._newest.clear()
        del self._bases[0]
        return self._segments.pop(0)

    def pop_last(self) -> Segment:
        del self._newest[max(len(self._segments) - 2, 0) :]  # the one before it becomes the active one
        del self._bases[-1]
        removed = self._segments.pop()
        if self._segments:
            self.active = self._segments[-1]
            self.active.next_base = None
        else:
            del self.active  # the one that is gone is not to be used on
        return removed

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Puts `new` in the place of neighbours; the first of them has the same base offset."""
        first = self._segments.index(old[0])
        assert self._segments[first : first + len(old)] == list(old)
        del self._newest[first:]
        new.next_base = old[-1].next_base
        self._segments[first : first + len(old)] = [new]
        self.active = self._segments[-1]
        self._bases[first : first + len(old)] = [new.base_offset]

    def from_offset(self, offset: int) -> list[Segment]:
        """The segment that holds `offset` and all later ones."""
        return self._segments[self.position_for(offset) :]

    def newest_timestamp(self, position: int) -> int:
        """The largest timestamp (ms) of the segments up to and with the one at `position`; -1 if none has any."""
        newest, active = self._newest, len(self._segments) - 1
        while len(newest) < min(position + 1, active):
            largest = self._segments[len(newest)].max_timestamp
            newest.append(max(largest, newest[-1]) if newest else largest)
        if position < active:
            return newest[position]
        return max(self.active.max_timestamp, newest[-1] if newest else NO_TIMESTAMP)

    def first_reaching(self, timestamp: int, position: int = 0) -> int | None:
        """The first segment at or after `position` that has a timestamp (ms) of at least this; None if none has.

        A binary search from the first segment on; one by one where older segments already reach it.
        """
        segments = self._segments
        last = len(segments) - 1
        if self.newest_timestamp(last) < timestamp:
            return None
        first = bisect_left(self._newest, timestamp)
        if first >= position:
            return first
        return next((n for n in range(position, last + 1) if segments[n].max_timestamp >= timestamp), None)

    def wholly_below(self, offset: int) -> int:
        """How many segments, from the first on, end at or below `offset`; never the active one."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def has_base(self, offset: int) -> bool:
        """Whether a segment starts exactly at `offset`."""
        position = bisect_left(self._bases, offset)
        return position < len(self._bases) and self._bases[position] == offset
