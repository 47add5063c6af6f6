"""Which bytes of a log are known to be as they were written; others are checked at their first read.

Guarantees: bit rot is not handed on. A range that `check` lets through was written by this process, or its batches'
CRCs, the order of their offsets, and their epochs have been compared since the log was opened; one read checks at most
`MAX_BYTES_PER_READ`, or one larger batch. A segment keeps one checked interval. A read that goes on where the last one
ended extends it: a consumer that reads a log through has each byte checked once. Bytes that rot after their check
the consumer finds, by the same CRC. The log's reader owns one.

Zero-copy reads look at no byte; data that slept on a disk is what rots, and only a reader can tell that bytes in the
page cache have changed. So a follower that asks twice for the same records makes the leader check its own bytes
(`PartitionLog.distrust`), and so does a file that ends before what is to be sent of it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from leader_epoch.epoch_cache import EpochCache
from partitions.disk import File
from partitions.log.displaced import DisplacedCheck
from partitions.log.epochs.epoch_evidence import check_epoch
from partitions.log.errors import BatchDamaged, BatchDisplaced, LogCorruptError, SegmentEndsElsewhere
from partitions.log.segment import Segment
from partitions.records.batch import (
    HEADER_BYTES,
    BatchHeader,
    CorruptBatchError,
    parse_header,
    verify_stamped,
)

MAX_BYTES_PER_READ: Final = 1024 * 1024


class _Interval(NamedTuple):
    """Checked bytes of a segment: from one batch boundary to another."""

    start: int
    end: int
    next_offset: int
    """After the last batch in it."""
    latest_epoch: int = -1


class CheckedTo(NamedTuple):
    """How far a range may be read: a batch boundary, and the offset there if the range was cut."""

    end: int
    next_offset: int | None


class WantedRange(NamedTuple):
    """A range of a segment that is to be read, from one batch boundary to another."""

    position: int
    end: int
    offset: int
    """What its first batch has to reach, and no batch before it may."""
    limit_offset: int
    """Where the next segment begins, or the log ends: no batch here reaches that."""


class CheckedBytes:
    """What of one log's bytes is known to be as they were written."""

    __slots__ = ("_boundary", "_epochs", "_intervals", "_known_from")

    def __init__(self, active: Segment, epochs: EpochCache, *, known_from: int | None = None) -> None:
        """Segments that begin at offset `known_from` or later were checked whole; None: no segment was.

        What is appended to the `active` segment from now on, and to later ones, this process writes. `epochs` are
        the log's, which tell of every batch what its epoch is.
        """
        self._epochs = epochs
        self._known_from = active.base_offset + 1 if known_from is None else known_from
        self._boundary = (active, active.size_bytes)
        self._intervals: dict[int, _Interval] = {}

    def forget(self) -> None:
        """Segments were replaced or are gone: what was found in them says nothing any more."""
        self._intervals.clear()

    def cut(self, active: Segment) -> None:
        """The log was cut in this segment, which goes on from there with what this process writes."""
        self._intervals.clear()
        if active.base_offset < self._known_from:
            self.restart(active)

    def restart(self, active: Segment) -> None:
        """Everything up to now is to be checked at its next read, also what this process wrote."""
        self._intervals.clear()
        self._boundary = (active, active.size_bytes)
        self._known_from = active.base_offset + 1

    def check(self, segment: Segment, file: File, wanted: WantedRange) -> CheckedTo:
        """How far the batches of the range may be handed out; as far as wanted, mostly.

        Raises BatchDamaged, or LogCorruptError where an index may have led to the wrong place.
        """
        position, end = wanted.position, wanted.end
        base_offset = segment.base_offset
        if base_offset >= self._known_from:
            return CheckedTo(end, None)
        known = self._intervals.get(base_offset)
        if known is not None and known.start >= max(position, 1):
            known = None  # the batch before has to be in it: it says that it does not hold the offset
        if known is not None and end <= known.end:
            return CheckedTo(end, None)
        stop = min(end, self._boundary[1]) if self._boundary[0] is segment else end
        if position >= stop:
            return CheckedTo(end, None)
        if known is None or position > known.end:
            # An entry that has rotted may name any number.
            begin = max(segment.offset_index.floor_position(position - 1), 0) if position else 0
            known = _Interval(begin, begin, base_offset)
        displaced = DisplacedCheck(base_offset, segment.offset_index, segment.time_index, position=known.end)
        found = _Check(file, segment, wanted, known, self._epochs, displaced).up_to(stop)
        self._intervals[base_offset] = found
        return CheckedTo(end, None) if found.end >= stop else CheckedTo(found.end, found.next_offset)


class _Check:
    """Goes on behind an interval of one segment, comparing what there is to compare."""

    def __init__(
        self,
        file: File,
        segment: Segment,
        wanted: WantedRange,
        known: _Interval,
        epochs: EpochCache,
        displaced: DisplacedCheck,
    ) -> None:
        self._epochs = epochs
        self._displaced = displaced
        self._file = file
        self._size_bytes = segment.size_bytes
        self._next_base = segment.next_base
        self._wanted = wanted
        self._known = known
        self._next_offset = known.next_offset
        self._latest_epoch = known.latest_epoch

    def up_to(self, stop: int) -> _Interval:
        """Checks to `stop`, or as far as one read goes, but the first batch wanted in any case."""
        position = begin = self._known.end
        while position < stop and (
            position - begin < MAX_BYTES_PER_READ or position <= self._wanted.position
        ):
            chunk = self._file.read(position, min(MAX_BYTES_PER_READ, stop - position))
            at = 0
            while len(chunk) - at >= HEADER_BYTES:
                header = self._header(chunk, position, at)
                if at + header.size_bytes > len(chunk):
                    if position + at + header.size_bytes > stop:
                        raise self._misled(position + at, "the batch goes beyond its place")
                    if at:
                        break
                    chunk = self._file.read(position, header.size_bytes)
                self._check_boundary(position + at, header)
                self._check_batch(chunk, position, at, header)
                at += header.size_bytes
            if at == 0:
                raise self._misled(position, f"{stop - position} bytes are no batch")
            position += at
        self._check_successor(position)
        return _Interval(self._known.start, position, self._next_offset, self._latest_epoch)

    def _misled(self, position: int, reason: str) -> LogCorruptError:
        return LogCorruptError(self._file.path, position, reason)

    def _header(self, chunk: bytes, position: int, at: int) -> BatchHeader:
        try:
            return parse_header(chunk, at)
        except CorruptBatchError as error:
            raise self._misled(position + at, str(error)) from error

    def _check_boundary(self, position: int, header: BatchHeader) -> None:
        """Whether the range begins with the batch that it should."""
        wanted = self._wanted
        if position <= wanted.position < position + header.size_bytes and (
            position != wanted.position or self._next_offset > wanted.offset
        ):
            raise self._misled(wanted.position, f"the batch of offset {wanted.offset} is not there")

    def _check_batch(self, chunk: bytes, position: int, at: int, header: BatchHeader) -> None:
        """CRC, and what the CRC does not cover: offset and leader epoch only ever grow, and the log knows where
        each epoch begins."""
        try:
            verify_stamped(chunk, at, header)
        except CorruptBatchError as error:
            raise BatchDamaged(self._file.path, position + at, str(error)) from error
        self._check_order(position + at, header)
        check_epoch(self._file.path, position + at, header, self._epochs)
        if position + at >= self._displaced.indexed_at:
            self._displaced.take(position + at, header, self._next_offset)
        self._next_offset = header.next_offset
        self._latest_epoch = max(self._latest_epoch, header.partition_leader_epoch)

    def _check_order(self, position: int, header: BatchHeader) -> None:
        if self._displaced.suspect is not None:
            self._check_place(header.base_offset)
        if not self._next_offset <= header.base_offset <= header.last_offset < self._wanted.limit_offset:
            reason = (
                f"the batch has the offsets {header.base_offset} to {header.last_offset}, between"
                f" {self._next_offset} and {self._wanted.limit_offset}"
            )
        elif 0 <= header.partition_leader_epoch < self._latest_epoch:
            reason = f"the batch goes back to leader epoch {header.partition_leader_epoch} from {self._latest_epoch}"
        else:
            return
        raise BatchDamaged(self._file.path, position, reason)

    def _check_place(self, next_base: int) -> None:
        """Whether the batch that was checked last is where the indexes have it, now that it is known where the
        next one begins."""
        found = self._displaced.found_before(next_base)
        if found is not None:
            raise BatchDisplaced(self._file.path, *found)

    def _check_successor(self, position: int) -> None:
        """The batch behind has to agree with the last one's offsets, whichever of the two is wrong, and the next
        segment with where this one ends: nothing that makes a log leaves a gap there, compaction included."""
        if position < self._size_bytes:
            chunk = self._file.read(position, min(HEADER_BYTES, self._size_bytes - position))
            self._check_order(position, self._header(chunk, position, 0))
        else:
            self._check_place(self._wanted.limit_offset)
            if self._next_base is not None and self._next_offset != self._next_base:
                raise SegmentEndsElsewhere(self._file.path, position, self._next_offset, self._next_base)
