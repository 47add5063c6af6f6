"""A batch whose base offset has rotted beside a hole in the offsets, told by the segment's two indexes.

Guarantees: a batch counts as displaced only where two files contradict what it says of itself, which no checksum
covers: the offset index, by where the batch at this byte ends, and the time index, by the offset that first carried
its largest timestamp, name one and the same other offset, and the batch would fit there between its neighbours.
Where only one of them does, nobody can tell what has rotted; nor of a batch without an entry in both. Without a
hole (compaction leaves them) the order of the batches tells. Pure. Asked at the first read, and before indexes are
made anew of the batches, after which nothing would be left to compare these with.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from partitions.log.index import OffsetIndexView, TimeIndexView
from partitions.records.batch import BatchHeader

_NOWHERE: Final = 2**63 - 1


class Displaced(NamedTuple):
    """A batch that is not where it was written."""

    position: int
    header: BatchHeader
    last_offset: int
    """Where it ends by both indexes."""


class DisplacedCheck:
    """Takes the batches of a segment in order, from one position on."""

    def __init__(
        self, base_offset: int, offsets: OffsetIndexView, times: TimeIndexView, *, position: int = 0
    ) -> None:
        self._base_offset = base_offset
        self._offsets = offsets
        self._times = times
        self._number = offsets.count_up_to(position - 1)
        """Of the index entry that comes next."""
        self.indexed_at = self._position_of_next()
        """The next place that has an index entry: batches before it need not be taken."""
        self.suspect: Displaced | None = None
        """The batch that was taken last, if the indexes have it elsewhere, until `found_before` is asked."""

    def _position_of_next(self) -> int:
        return self._offsets.entry(self._number)[1] if self._number < len(self._offsets) else _NOWHERE

    def found_before(self, next_base: int) -> Displaced | None:
        """The suspect, if there is room for it where the indexes have it: what follows it begins at this offset."""
        suspect, self.suspect = self.suspect, None
        return suspect if suspect is not None and suspect.last_offset < next_base else None

    def take(self, position: int, header: BatchHeader, due: int) -> None:
        """A batch at `indexed_at` or behind; those before it end below the offset `due`."""
        while self.indexed_at < position:
            self._number += 1
            self.indexed_at = self._position_of_next()
        if self.indexed_at != position:
            return
        relative = self._offsets.entry(self._number)[0]
        last_offset = self._base_offset + relative
        if (
            last_offset != header.last_offset
            and due <= last_offset - header.last_offset_delta
            and self._times.offset_of(header.max_timestamp) == relative
        ):
            self.suspect = Displaced(position, header, last_offset)


def find_displaced(
    batches: Iterable[tuple[int, BatchHeader]],
    base_offset: int,
    offsets: OffsetIndexView,
    times: TimeIndexView,
) -> Displaced | None:
    """The first one of all batches of the segment that begins at `base_offset`. Raises what the batches do."""
    check = DisplacedCheck(base_offset, offsets, times)
    due = base_offset
    for position, header in batches:
        if (found := check.found_before(header.base_offset)) is not None:
            return found
        check.take(position, header, due)
        due = header.next_offset
    return check.found_before(_NOWHERE)
