"""The steps of a cleaning that read and write data, as jobs for the executor.

Guarantees: a job reads a bounded piece of one segment, or makes a finished file durable, and touches
no file of the log but those of its own, `*.cleaned` and `*.deleted`. Every batch read has passed its
checksum, so that damage is never given a new one, and records that cannot be read behind it are no damage: their
producer sent them so. Jobs share nothing with the event loop: the scan,
the map and the filter are handed from one job to the next, and nobody looks at them in between.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final, NamedTuple

from partitions.disk import Buffer, Disk, File
from partitions.log.beside_loop import sync_and_close
from partitions.log.cleaner.errors import CleaningFailed
from partitions.log.cleaner.filter import BatchFilter, batch_body, control_type
from partitions.log.cleaner.offset_map import OffsetMap
from partitions.log.cleaner.raw_records import raw_records
from partitions.log.cleaner.sources import SourceSegment
from partitions.log.cleaner.transactions import CleanedTransactions, ProducerScan
from partitions.log.config_values import INT_MAX
from partitions.log.errors import LogCorruptError, SegmentEndsElsewhere
from partitions.log.segment import Placed
from partitions.records.batch import (
    HEADER_BYTES,
    BatchHeader,
    CorruptBatchError,
    parse_header,
    verify_stamped,
)
from partitions.records.record import MalformedRecordError

_BAD_RECORDS: Final = (CorruptBatchError, MalformedRecordError, ValueError, struct.error)
"""What becomes of a body that holds anything at all; the last one where a number fits into no header."""


class PiecePlace(NamedTuple):
    """Between two batches of a segment."""

    position: int
    due_offset: int
    """No batch behind begins below."""

    @classmethod
    def start_of(cls, source: SourceSegment) -> PiecePlace:
        return cls(0, source.base_offset)


class PassProgress(NamedTuple):
    """How far a job came in its segment."""

    place: PiecePlace
    read_bytes: int
    done: bool = False
    """Nothing after this is of interest to this pass, in this segment or a later one."""


class Cleaned(NamedTuple):
    """How far a cleaning job came, and what it wrote."""

    place: PiecePlace
    read_bytes: int
    placed: list[Placed]
    written_bytes: int
    changed: bool
    """Whether anything was left out or written differently."""


def scan_producers(
    disk: Disk,
    source: SourceSegment,
    start: PiecePlace,
    buffer_bytes: int,
    scan: ProducerScan,
    up_to_offset: int,
) -> PassProgress:
    """Looks for producers and transactions in a piece of the segment, below `up_to_offset`."""
    with _Piece(disk, source, start, buffer_bytes) as piece:
        for at, header in piece:
            if header.next_offset > up_to_offset:
                return PassProgress(piece.place, piece.read_bytes, done=True)
            if header.is_control:
                scan.see_marker(header, control_type(piece.data, at, header))
            else:
                scan.see_data(header)
        return PassProgress(piece.place, piece.read_bytes)


def map_offsets(
    disk: Disk,
    source: SourceSegment,
    start: PiecePlace,
    buffer_bytes: int,
    offsets: OffsetMap,
    transactions: CleanedTransactions,
    from_offset: int,
) -> PassProgress:
    """Takes the keys of a piece of the segment, from `from_offset` on, into the map; done when it is full."""
    with _Piece(disk, source, start, buffer_bytes) as piece:
        for at, header in piece:
            if header.is_control:
                transactions.on_control(header, control_type(piece.data, at, header))
            elif not transactions.on_data(header) and header.last_offset >= from_offset:
                full = _map_batch(offsets, piece.data, at, header, from_offset)
                if full:
                    return PassProgress(piece.place, piece.read_bytes, done=True)
            if header.last_offset >= from_offset:
                offsets.latest_offset = header.last_offset
        return PassProgress(piece.place, piece.read_bytes)


def _map_batch(offsets: OffsetMap, data: memoryview, at: int, header: BatchHeader, from_offset: int) -> bool:
    """Whether the map was full before the batch's end."""
    if not header.record_count:
        return False
    for record in raw_records(batch_body(data, at, header), header.record_count):
        offset = header.base_offset + record.offset_delta
        if offset < from_offset:
            continue
        if offset > header.last_offset:  # it would take the place of later records of its key
            raise MalformedRecordError(f"a record is at offset {offset}, behind its batch's last one")
        if record.key is not None and not offsets.put(record.key, offset):
            return True
        offsets.latest_offset = offset
    return False


def clean_piece(
    disk: Disk,
    batch_filter: BatchFilter,
    source: SourceSegment,
    start: PiecePlace,
    target_path: str,
    target_bytes: int,
    ends_file: bool,
    buffer_bytes: int,
) -> Cleaned:
    """Appends what stays of a piece of the segment to the file, which is `target_bytes` long; 0 makes it.

    `ends_file`: the last batch of this segment is the last one of the file. Raises OSError.
    """
    with _Piece(disk, source, start, buffer_bytes) as piece:
        buffers: list[Buffer] = []
        placed: list[Placed] = []
        size, changed = target_bytes, False
        for at, header in piece:
            last = ends_file and piece.place.position == source.size_bytes
            kept = batch_filter.clean(piece.data, at, header, ends_file=last)
            if kept is None:
                changed = True
                continue
            if isinstance(kept, bytes):
                changed = True
                header = parse_header(kept)
            buffers.append(kept)
            placed.append((header.last_offset, len(kept), header.max_timestamp))
            size += len(kept)
        if size > INT_MAX:
            raise CleaningFailed(
                f"{target_path} would grow beyond 2 GiB by its delete horizons: lower segment.bytes"
            )
        _append(disk, target_path, target_bytes, buffers)
        return Cleaned(piece.place, piece.read_bytes, placed, size - target_bytes, changed)


def _append(disk: Disk, path: str, size_bytes: int, buffers: Sequence[Buffer]) -> None:
    """Appends, over whatever an earlier attempt may have left beyond `size_bytes`."""
    with closing(disk.open(path, create=size_bytes == 0)) as file:
        if file.size() != size_bytes:
            file.truncate(size_bytes)
        if buffers:
            file.append(buffers)


def take_age(disk: Disk, source_path: str, target_path: str) -> int:
    """The one file counts as changed when the other was, for records that have no timestamp; says when that was, in
    ms. Raises OSError."""
    modified_ms = disk.modified_ms(source_path)
    disk.set_modified_ms(target_path, modified_ms)
    return modified_ms


def make_durable(disk: Disk, data_path: str, index_files: Sequence[tuple[str, bytes]]) -> None:
    """Writes the indexes and fsyncs all files. Raises OSError."""
    for path, content in index_files:
        _append(disk, path, 0, [content] if content else [])
    for path in (data_path, *(path for path, _ in index_files)):
        sync_and_close(disk.open(path))


def remove_files(disk: Disk, paths: Sequence[str]) -> None:
    """Removes files that nobody needs; those that are gone are fine. Raises OSError."""
    for path in paths:
        try:
            disk.remove(path)
        except FileNotFoundError:
            continue


class _Piece:
    """Whole batches from a place on, as many as the buffer takes and at least one.

    While it is iterated, `place` is behind the batch at hand. Raises LogCorruptError for damage, and CleaningFailed
    for what goes wrong inside the `with` with the records of a batch, whose checksum is right; both name file and
    byte. No checksum covers offsets: a batch that rotted to a late one would take older records' places.
    """

    def __init__(self, disk: Disk, source: SourceSegment, start: PiecePlace, buffer_bytes: int) -> None:
        self._source = source
        self._start = start.position
        self._buffer_bytes = max(buffer_bytes, HEADER_BYTES)
        self._file: File = disk.open(source.path)
        self._at_hand = start.position
        self.place = start
        self.data = memoryview(b"")

    @property
    def read_bytes(self) -> int:
        """Of the batches up to the one at hand."""
        return self.place.position - self._start

    def __enter__(self) -> _Piece:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._file.close()
        if isinstance(error, _BAD_RECORDS):
            raise CleaningFailed(
                f"{self._source.path} holds records at byte {self._at_hand} that cannot be read, although their"
                f" checksum is right: {error}"
            ) from error

    def __iter__(self) -> Iterator[tuple[int, BatchHeader]]:
        try:
            yield from self._sound_batches()
        except CorruptBatchError as error:
            raise LogCorruptError(self._source.path, self.place.position, str(error)) from error

    def _sound_batches(self) -> Iterator[tuple[int, BatchHeader]]:
        """Raises CorruptBatchError."""
        end = self._source.size_bytes
        self.data = memoryview(self._file.read(self._start, min(self._buffer_bytes, end - self._start)))
        at = 0
        while self._start + at < end:
            if len(self.data) - at < HEADER_BYTES and at:
                return
            header = parse_header(self.data, at)
            if self._start + at + header.size_bytes > end:
                raise CorruptBatchError("the segment ends inside the batch", at)
            if at + header.size_bytes > len(self.data):
                if at:
                    return
                self.data = memoryview(self._file.read(self._start, header.size_bytes))
            verify_stamped(self.data, at, header)
            due_offset, limit = self.place.due_offset, self._source.next_base
            if not due_offset <= header.base_offset <= header.last_offset < limit:
                raise CorruptBatchError(
                    f"a batch of offsets {header.base_offset} to {header.last_offset} is between"
                    f" {due_offset} and {limit}",
                    at,
                )
            before, at = at, at + header.size_bytes
            self._at_hand = self._start + before
            self.place = PiecePlace(self._start + at, header.next_offset)
            yield before, header
        ended, next_base = self.place.due_offset, self._source.next_base
        if ended != next_base:  # a cleaning would make the hole look like records that were compacted away
            raise SegmentEndsElsewhere(self._source.path, end, ended, next_base)
