"""Where in a segment an offset or a time is.

Guarantees: a lookup starts at an index entry and goes on over batch headers, and what the entry says is compared
with the batch that it leads to: one that is wrong has the indexes made anew, and is never a wrong answer. `Segment`
adds what changes the files, to what `IndexedSegment` knows of them.
"""

from __future__ import annotations

from partitions.log.errors import LogCorruptError
from partitions.log.indexed_segment import IndexedSegment
from partitions.log.scan import Stop, seek


class SearchedSegment(IndexedSegment):
    """A segment as readers use it."""

    __slots__ = ()

    def seek(self, position: int, *, stop_offset: int, stop_position: int | None = None) -> Stop:
        """`scan.seek` in this segment's file, from a known batch boundary. Raises LogCorruptError, also for a
        position that no batch can have: an index has named it."""
        if not 0 <= position <= self.size_bytes:
            raise LogCorruptError(self.log_path, position, "the file has no such place")
        return seek(
            self._storage.file(self.log_path),
            position,
            self.size_bytes,
            stop_offset=stop_offset,
            stop_position=self.size_bytes if stop_position is None else stop_position,
            passed_offset=self.base_offset,
        )

    def locate(self, offset: int) -> Stop:
        """The first batch whose last offset is >= `offset`; at the segment's end, 0 bytes.

        Starts at a batch that lies wholly below, so that `passed_offset` is always right. Raises LogCorruptError
        where the data are what is wrong, not the index.
        """
        start = self.offset_index.floor(offset - 1 - self.base_offset)
        try:
            found = self.seek(start, stop_offset=offset)
        except LogCorruptError:
            if not start:
                raise
        else:
            if not start or found.position != start:
                return found
        # The entry leads to no batch; or to one that, by the entry's own offset, lies below: so it is wrong.
        self.mend_indexes()
        return self.seek(self.offset_index.floor(offset - 1 - self.base_offset), stop_offset=offset)

    def locate_time(self, timestamp: int) -> int:
        """Position of a batch before which every record is older than `timestamp` (ms)."""
        entry = self.time_index.floor(timestamp)
        if entry is None:
            return 0
        position = self.offset_index.floor(entry[1])
        if self._is_sound(entry, position):
            return position
        self.mend_indexes()
        entry = self.time_index.floor(timestamp)
        return 0 if entry is None else self.offset_index.floor(entry[1])
