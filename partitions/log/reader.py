"""Reading a log: from an offset to ranges of files, and from a time to an offset.

Guarantees: a read hands out whole batches only, starts with the batch that holds the offset, and
holds no record at or above the limit given. Data that this process wrote or has checked is not read, only
the few headers between an index entry and the boundaries looked for; the rest is checked first. The log
owns one reader; replicas that serve fetches call it through `PartitionLog`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from partitions.disk import FileSlice
from partitions.log.checked_bytes import CheckedBytes, WantedRange
from partitions.log.errors import SegmentEndsElsewhere
from partitions.log.scan import SEEK_CHUNK_BYTES, walk
from partitions.log.segment import NO_TIMESTAMP, Segment
from partitions.log.segments import SegmentList
from partitions.log.storage import LogStorage
from partitions.lookup_budget import RECORD_COST_BYTES, BudgetSpentError, LookupBudget
from partitions.records.batch import BatchHeader, CorruptBatchError, records_body
from partitions.records.record import MalformedRecordError, record_times

_MEMO_ENTRIES: Final = 64
"""Batch boundaries that a log remembers: about one for each reader that follows its end."""
_FOREVER: Final = 2**63 - 1


class ReadResult(NamedTuple):
    """Whole batches, as ranges of segment files in order."""

    slices: tuple[FileSlice, ...]
    size_bytes: int
    start_offset: int
    """Base offset of the first batch, which may lie below the offset asked for."""
    next_offset: int
    """Offset to read on from; the offset asked for when there was nothing."""


class TimestampedOffset(NamedTuple):
    """What a lookup by time finds: the record's timestamp (ms), offset and leader epoch."""

    timestamp: int
    offset: int
    leader_epoch: int


class LogReader:
    """Position lookups over a log's segments, with a small memory for boundaries just seen."""

    __slots__ = ("_boundaries", "_segments", "_storage", "checked_bytes")

    def __init__(self, storage: LogStorage, segments: SegmentList, checked_bytes: CheckedBytes) -> None:
        self._storage = storage
        self._segments = segments
        self.checked_bytes = checked_bytes
        """Which bytes may be handed out unread."""
        self._boundaries: dict[int, tuple[int, int]] = {}

    def forget(self) -> None:
        """Positions may have changed (truncation, deletion)."""
        self._boundaries.clear()
        self.checked_bytes.forget()

    def read(
        self, offset: int, max_bytes: int, *, stop: int, log_end_offset: int, min_one_batch: bool
    ) -> ReadResult:
        """Batches from the one holding `offset` on, all records below `stop`, at most `max_bytes`.

        Log start <= `offset` < `stop` <= log end. The first batch is taken whole even if it is
        larger, when `min_one_batch`. Fewer where much would have to be checked first. Raises
        BatchDamaged, LogCorruptError (or an index misleads: see `mend_index`), OSError.
        """
        segments = self._segments
        number = segments.position_for(offset)
        position, start_offset = self._start(segments[number], offset)
        next_offset = offset
        slices: list[FileSlice] = []
        left = max_bytes
        while True:
            segment, next_base = segments[number], segments.next_base(number)
            if next_base is not None and next_base <= stop:
                end, end_offset = segment.size_bytes, next_base
            elif stop == log_end_offset:
                end, end_offset = segment.size_bytes, stop
            else:
                end, end_offset = self._start(segment, stop)
                end_offset = min(end_offset, stop)
            full = end - position > left
            if full:
                first_whole = min_one_batch and not slices
                end, end_offset = self._cut(segment, position, left, first_whole=first_whole)
            if end > position:
                file = self._storage.file(segment.log_path)
                limit = log_end_offset if next_base is None else next_base
                wanted = WantedRange(position, end, max(offset, segment.base_offset), limit)
                checked = self.checked_bytes.check(segment, file, wanted)
                if checked.next_offset is not None:
                    full, end, end_offset = True, checked.end, checked.next_offset
                slices.append(file.slice(position, end - position))
                left -= end - position
                next_offset = end_offset
            elif not full:
                self._confirm_absence(number, offset, position)
            if full or next_base is None or next_base >= stop:
                break
            number += 1
            position = 0
            if not slices:
                start_offset = next_base
        if not slices:
            return ReadResult((), 0, offset, offset)
        self._remember(next_offset, segment, end)
        return ReadResult(tuple(slices), max_bytes - left, start_offset, next_offset)

    def _confirm_absence(self, number: int, offset: int, position: int) -> None:
        """Has the batches checked that were passed over on the way to `position`, and the one there: they say that the
        segment has nothing to read from `offset` on, which is rare, and leads readers past it. Raises as `read`."""
        segment = self._segments[number]
        next_base = self._segments.next_base(number)
        if not segment.size_bytes and next_base is not None:
            raise SegmentEndsElsewhere(segment.log_path, 0, segment.base_offset, next_base)
        passed_from = segment.offset_index.floor(offset - 1 - segment.base_offset)
        there = segment.seek(position, stop_offset=segment.base_offset)
        self._confirm(number, passed_from, position + there.batch_bytes)

    def mend_index(self, path: str) -> None:
        """Rebuilds the indexes of a segment in which a read found something that cannot be.

        Reads all of its headers. Raises LogCorruptError if they are what is wrong, OSError.
        """
        self.forget()
        for segment in self._segments:
            if segment.log_path == path:
                segment.remake_indexes()
                if segment.sealed:
                    segment.unload_indexes()

    def _start(self, segment: Segment, offset: int) -> tuple[int, int]:
        """Position and base offset of the first batch that reaches `offset`; the segment's end if none."""
        if offset <= segment.base_offset:
            return 0, segment.base_offset
        known = self._boundaries.get(offset)
        if known is not None and known[0] == segment.base_offset:
            return known[1], offset
        found = segment.locate(offset)
        return found.position, found.offset

    def _cut(self, segment: Segment, position: int, budget: int, *, first_whole: bool) -> tuple[int, int]:
        """The last batch boundary within `budget` bytes after `position`, and the offset there."""
        limit = position + budget
        floor = max(position, segment.offset_index.floor_position(limit))
        found = segment.seek(floor, stop_offset=_FOREVER, stop_position=limit)
        if found.position == position and first_whole:
            found = segment.seek(position, stop_offset=_FOREVER, stop_position=position + found.batch_bytes)
        return found.position, found.offset

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        boundaries = self._boundaries
        boundaries[offset] = (segment.base_offset, position)
        if len(boundaries) > _MEMO_ENTRIES:
            del boundaries[next(iter(boundaries))]

    # ---- by time

    def offset_for_timestamp(
        self, timestamp: int, *, log_start_offset: int, budget: LookupBudget
    ) -> TimestampedOffset | None:
        """The first record at or after `log_start_offset` whose timestamp is >= `timestamp` (ms).

        Where the budget is spent, the batch that promises such a record, as a whole: no such record is before it.
        """
        segments = self._segments
        number = segments.first_reaching(timestamp, segments.position_for(log_start_offset))
        while number is not None:
            segment = segments[number]
            file = self._storage.file(segment.log_path)
            start = max(segment.locate_time(timestamp), self._first_in_log(segment, log_start_offset))
            for position, header in walk(file, start, segment.size_bytes, first_read_bytes=SEEK_CHUNK_BYTES):
                if header.max_timestamp < timestamp or header.last_offset < log_start_offset:
                    continue
                found = self._first_record(segment, position, header, timestamp, log_start_offset, budget)
                self._confirm(number, start, position + header.size_bytes)
                if found is not None:
                    return found
            number = segments.first_reaching(timestamp, number + 1)
        return None

    def _first_in_log(self, segment: Segment, log_start_offset: int) -> int:
        """Position of the first batch that is not wholly below the log's start, which may lie deep in a segment: no
        lookup walks through what is before."""
        return 0 if log_start_offset <= segment.base_offset else segment.locate(log_start_offset).position

    def _confirm(self, number: int, start: int, end: int) -> None:
        """Has the batches of a range checked that led to an answer. Raises as `read` does."""
        segment, limit = self._segments[number], self._segments.limit_after(number)
        file = self._storage.file(segment.log_path)
        while start < end:
            start = self.checked_bytes.check(segment, file, WantedRange(start, end, limit, limit)).end

    def offset_for_max_timestamp(
        self, *, log_start_offset: int, budget: LookupBudget
    ) -> TimestampedOffset | None:
        """The first record that carries the largest timestamp of the log; where the budget is spent, a batch as
        a whole."""
        segments = self._segments
        first = segments.position_for(log_start_offset)
        if first == 0:
            newest = segments.newest_timestamp(len(segments) - 1)
        else:
            newest = max(segment.max_timestamp for segment in segments.from_offset(log_start_offset))
        if newest == NO_TIMESTAMP:
            return None
        found = self.offset_for_timestamp(newest, log_start_offset=log_start_offset, budget=budget)
        return self._newest_record(log_start_offset, budget) if found is None else found

    def _newest_record(self, log_start_offset: int, budget: LookupBudget) -> TimestampedOffset | None:
        """As `offset_for_max_timestamp`, where the record is gone that its batch's header tells of.

        It was compacted away or lies below the log's start. Looks into segments and batches in which
        there may be a newer record than the newest one so far.
        """
        best: TimestampedOffset | None = None
        segments = self._segments.from_offset(log_start_offset)
        for segment in sorted(segments, key=lambda segment: segment.max_timestamp, reverse=True):
            if best is not None and segment.max_timestamp < best.timestamp:
                break
            file = self._storage.file(segment.log_path)
            start = self._first_in_log(segment, log_start_offset)
            # The one that promises most goes first: mostly no other has to be opened after it.
            promising = max(
                walk(file, start, segment.size_bytes), key=lambda step: step[1].max_timestamp, default=None
            )
            if promising is None:
                continue
            best = self._newest_in(segment, *promising, log_start_offset, best, budget)
            for position, header in walk(file, start, segment.size_bytes):
                if position != promising[0] and _may_be_newer(header, best):
                    best = self._newest_in(segment, position, header, log_start_offset, best, budget)
        return best

    def _first_record(
        self,
        segment: Segment,
        position: int,
        header: BatchHeader,
        timestamp: int,
        log_start_offset: int,
        budget: LookupBudget,
    ) -> TimestampedOffset | None:
        """The batch's first record that is at least as young, and not below the log's start."""
        epoch = header.partition_leader_epoch
        try:
            for offset, time in self._times(segment, position, header, budget):
                if time >= timestamp and offset >= log_start_offset:
                    return TimestampedOffset(time, offset, epoch)
        except (CorruptBatchError, MalformedRecordError, BudgetSpentError):
            return _as_a_whole(header, log_start_offset)
        return None

    def _newest_in(
        self,
        segment: Segment,
        position: int,
        header: BatchHeader,
        log_start_offset: int,
        best: TimestampedOffset | None,
        budget: LookupBudget,
    ) -> TimestampedOffset | None:
        """`best`, or the batch's first record with its largest timestamp if that is newer or as new and earlier."""
        found: TimestampedOffset | None = None
        try:
            for offset, time in self._times(segment, position, header, budget):
                if offset >= log_start_offset and (found is None or time > found.timestamp):
                    found = TimestampedOffset(time, offset, header.partition_leader_epoch)
        except (CorruptBatchError, MalformedRecordError, BudgetSpentError):
            found = _as_a_whole(header, log_start_offset)
        if found is None or best is None:
            return best if found is None else found
        return max(found, best, key=lambda record: (record.timestamp, -record.offset))

    def _times(
        self, segment: Segment, position: int, header: BatchHeader, budget: LookupBudget
    ) -> Iterator[tuple[int, int]]:
        """Opens one batch. Raises CorruptBatchError, MalformedRecordError, BudgetSpentError if it cannot be opened as
        far as is asked for: it is answered as a whole then."""
        budget.spend(header.size_bytes)
        data = self._storage.file(segment.log_path).read(position, header.size_bytes)
        room_bytes = budget.take_all()  # what is too large, or breaks off, has cost up to all of it
        body = records_body(data, 0, header, max_decompressed_bytes=room_bytes)
        budget.left_bytes = room_bytes - (len(body) if header.codec else 0)
        for offset_and_time in record_times(body, header):
            budget.spend(RECORD_COST_BYTES)
            yield offset_and_time


def _as_a_whole(header: BatchHeader, log_start_offset: int) -> TimestampedOffset:
    offset = max(header.base_offset, log_start_offset)
    return TimestampedOffset(header.max_timestamp, offset, header.partition_leader_epoch)


def _may_be_newer(header: BatchHeader, best: TimestampedOffset | None) -> bool:
    """Whether a batch may hold a newer record, or one as new that is earlier."""
    if best is None or header.max_timestamp > best.timestamp:
        return True
    return header.max_timestamp == best.timestamp and header.base_offset < best.offset
