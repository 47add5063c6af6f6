"""Whether one segment is what was written: every batch, every record in it, and its indexes.

Guarantees: each byte of the `.log` file is either in a sound batch or in a finding. Batches follow each
other in offsets, hold the records that their headers promise, and carry the timestamps that they say;
index entries point at them. A torn tail is told from damage by what the data directory knows to have been
flushed. Nothing is written. Called by `partition_check`, segment by segment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import NamedTuple, TypeAlias

from partitions.log.inspection.batches import (
    RecordsNotReadError,
    SegmentReader,
    StoredBatch,
    Unsound,
    plain_reason,
)
from partitions.log.inspection.entries import (
    TransactionIndexEntry,
    aborted_transactions,
    offset_index_entries,
    time_index_entries,
)
from partitions.log.inspection.files import ReadableDisk, ReadableFile
from partitions.log.inspection.findings import Findings
from partitions.log.inspection.index_check import IndexCheck, OffsetIndexCheck, TimeIndexCheck, TxnIndexCheck
from partitions.log.inspection.log_state import EVERYTHING, Expected, LogState
from partitions.log.producers.transaction_index import TRANSACTION_INDEX_SUFFIX
from partitions.log.segment import LOG_SUFFIX, file_name
from partitions.log.segment_indexes import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from partitions.records.batch import BatchHeader, CorruptBatchError, Record
from partitions.records.control import decode_control_type
from partitions.records.markers import EndTransactionMarker, marker_in

OnBatch = Callable[[BatchHeader], None]
"""Called before a sound batch is taken into the state."""


StoredStep: TypeAlias = StoredBatch | Unsound


class _GoingBack(NamedTuple):
    """A run of batches that begin below the offset that is due."""

    position: int
    """Of the first of them."""
    offset: int
    due: int
    others: int = 0


class SegmentCheck:
    """The check of one segment; `state` goes on from the segment before it."""

    def __init__(
        self,
        disk: ReadableDisk,
        directory: str,
        base_offset: int,
        *,
        next_base: int | None,
        state: LogState,
        expected: Expected,
        findings: Findings,
        on_batch: OnBatch,
    ) -> None:
        """`next_base` is the base offset of the segment that follows, None for the last one."""
        self._disk = disk
        self._directory = directory
        self._base_offset = base_offset
        self._is_last = next_base is None
        self._state = state
        self._expected = expected
        self._findings = findings
        self._on_batch = on_batch
        self._path = self._path_of(LOG_SUFFIX)
        self._is_rebuilt = expected.durable_to != EVERYTHING and (
            next_base is None or next_base > expected.durable_to
        )
        """The next start makes the segment's indexes anew."""
        self._txn_index = self._txn_check(iter(()))
        self._going_back: _GoingBack | None = None

    def _path_of(self, suffix: str) -> str:
        return f"{self._directory}/{file_name(self._base_offset, suffix)}"

    def run(self) -> None:
        """Reads the segment. What cannot be read is a finding."""
        was_read = False
        with self._findings.reading(self._path), ExitStack() as opened:
            # Before the log: what a running broker adds meanwhile is in the log then, not in these.
            indexes = self._open_indexes(opened)
            file = self._disk.open(self._path)
            opened.callback(file.close)
            self._walk(SegmentReader(file), indexes)
            size_bytes = file.size()
            self._findings.log_bytes += size_bytes
            for index in indexes:
                index.end(size_bytes, self._state.end_offset)
            was_read = True
        if not was_read:  # dropped by retention meanwhile, or not readable: its offsets are not missing
            self._state.next_offset = None
            self._state.has_damage = True

    def _walk(self, reader: SegmentReader, indexes: list[IndexCheck]) -> None:
        for found, following in _with_next(reader.batches()):
            if isinstance(found, Unsound):
                self._take_damage(found)
                for index in indexes:
                    index.damage()
                continue
            self._findings.batches += 1
            step = self._in_place(found, following)
            self._on_batch(step.header)
            is_in_order = self._check_order(step)
            records = self._check_records(reader, step)
            if is_in_order and step.header.has_producer_id:
                self._take_producer(step.header, records)
            else:
                self._txn_index.expect(None, None)
            for index in indexes:
                index.batch(step.position, step.header)
        self._tell_going_back()

    # ---- batches

    def _take_damage(self, damage: Unsound) -> None:
        state, size = self._state, damage.end - damage.position
        is_torn = damage.is_last and self._is_last and state.end_offset >= self._expected.durable_to
        if is_torn:
            self._findings.note(
                self._path,
                damage.position,
                f"the last {size} bytes are a write that was not finished and never flushed ({damage.reason});"
                " the next start cuts them",
            )
        else:
            self._findings.error(
                self._path,
                damage.position,
                f"{damage.reason} ({size} bytes, behind offset {state.end_offset - 1})",
            )
        state.has_damage = True
        state.next_offset = None

    def _in_place(self, batch: StoredBatch, following: StoredBatch | Unsound | None) -> StoredBatch:
        """The batch, with the offset that the batches around it leave for it: no checksum covers its own. If
        that is another one, it is reported, and the rest is judged as if it were right."""
        due, header = self._state.next_offset, batch.header
        if due is None or not isinstance(following, StoredBatch):
            return batch
        limit = following.header.base_offset
        base_offset = limit - header.last_offset_delta - 1
        if base_offset < due or (header.base_offset >= due and header.next_offset <= limit):
            return batch
        self._findings.error(
            self._path,
            batch.position,
            f"the batch begins at offset {header.base_offset}, and by the batches around it at {base_offset}",
        )
        return batch._replace(header=header._replace(base_offset=base_offset))

    def _check_order(self, batch: StoredBatch) -> bool:
        """Whether the batch goes on from what was before it."""
        state, header = self._state, batch.header
        due = state.next_offset
        if due is None:
            due = header.base_offset if header.base_offset >= state.end_offset else state.end_offset
        if header.base_offset < due:
            if self._going_back is None:
                self._going_back = _GoingBack(batch.position, header.base_offset, due)
            else:
                self._going_back = self._going_back._replace(others=self._going_back.others + 1)
            state.next_offset = due + header.last_offset_delta + 1
            is_in_order = False
        else:
            self._tell_going_back()
            if header.base_offset > due:
                state.suspect(
                    self._path,
                    batch.position,
                    f"the batch begins at offset {header.base_offset}, and {due} is due",
                )
            state.next_offset = header.next_offset
            state.add_epoch(self._path, batch.position, header)
            is_in_order = True
        state.end_offset = max(state.end_offset, state.next_offset)
        return is_in_order

    def _tell_going_back(self) -> None:
        """Reports a run of batches that go back: one wrong offset before them makes all of them do so."""
        back, self._going_back = self._going_back, None
        if back is not None:
            rest = f"; so do the {back.others} batches that follow it" if back.others else ""
            reason = f"the batch goes back to offset {back.offset}, and {back.due} is due{rest}"
            self._findings.error(self._path, back.position, reason)

    def _take_producer(self, header: BatchHeader, records: Sequence[Record]) -> None:
        """What the batch says of its producer, and of a transaction that it ends."""
        marker: EndTransactionMarker | None = None
        if header.is_control:
            with suppress(CorruptBatchError):  # found by `record_faults`
                marker = marker_in(records)
        completed = self._state.producers.record(header, header.base_offset, marker)
        self._txn_index.expect(marker, None if self._state.has_damage else completed)

    def _check_records(self, reader: SegmentReader, batch: StoredBatch) -> list[Record]:
        """Returns the batch's records, as far as they can be read."""
        try:
            records = reader.records(batch)
        except RecordsNotReadError as error:
            self._findings.note(
                self._path, batch.position, f"the records of the batch were not read: {error}"
            )
            return []
        except CorruptBatchError as error:
            self._findings.error(
                self._path,
                batch.position,
                f"the batch was written so, its checksum is right: {plain_reason(error)}",
            )
            return []
        header = batch.header
        self._findings.records += len(records)
        if header.record_count <= header.last_offset_delta or not header.record_count:
            self._state.is_cleaned = True
        for reason in record_faults(header, records):
            self._findings.error(self._path, batch.position, reason)
        return records

    # ---- indexes

    def _open_indexes(self, opened: ExitStack) -> list[IndexCheck]:
        base = self._base_offset
        checks: list[IndexCheck] = []

        def offset_index(path: str, file: ReadableFile) -> IndexCheck:
            return OffsetIndexCheck(offset_index_entries(path, file, base), self._reporter(path))

        def time_index(path: str, file: ReadableFile) -> IndexCheck:
            entries = time_index_entries(path, file, base)
            is_closed = not self._is_last or self._expected.was_closed
            return TimeIndexCheck(entries, self._reporter(path), file.size, is_closed=is_closed)

        def txn_index(path: str, file: ReadableFile) -> IndexCheck:
            self._txn_index = self._txn_check(aborted_transactions(path, file))
            return self._txn_index

        for suffix, make in (
            (INDEX_SUFFIX, offset_index),
            (TIME_INDEX_SUFFIX, time_index),
            (TRANSACTION_INDEX_SUFFIX, txn_index),
        ):
            path = self._path_of(suffix)
            if not self._disk.exists(path):
                if make is txn_index:  # there is none where nothing was aborted
                    checks.append(self._txn_index)
                else:
                    self._findings.note(path, None, "it is missing, and made anew when it is needed")
                continue
            with self._findings.reading(path):
                file = self._disk.open(path)
                opened.callback(file.close)
                checks.append(make(path, file))
        return checks

    def _txn_check(self, entries: Iterator[TransactionIndexEntry]) -> TxnIndexCheck:
        return TxnIndexCheck(
            entries,
            self._reporter(self._path_of(TRANSACTION_INDEX_SUFFIX)),
            self._base_offset,
            is_complete=not self._is_last or self._expected.was_closed,
        )

    def _reporter(self, path: str) -> Callable[[int, str], None]:
        def report(position: int, reason: str) -> None:
            if self._is_rebuilt:
                self._findings.note(path, position, f"{reason}; the next start makes it anew")
            else:
                self._findings.error(path, position, reason)

        return report


def _with_next(steps: Iterator[StoredStep]) -> Iterator[tuple[StoredStep, StoredStep | None]]:
    """Each with the one that follows it; the last with None."""
    held: StoredStep | None = None
    for step in steps:
        if held is not None:
            yield held, step
        held = step
    if held is not None:
        yield held, None


def record_faults(header: BatchHeader, records: list[Record]) -> Iterator[str]:
    """What the records of a sound batch contradict of its header."""
    if not records:
        return
    is_whole = header.record_count == header.last_offset_delta + 1
    newest = max(record.timestamp for record in records)
    # A batch that the cleaner took records out of may keep the timestamp of one that is gone.
    if newest > header.max_timestamp or (is_whole and newest != header.max_timestamp):
        yield f"the batch says that its largest timestamp is {header.max_timestamp}, and it is {newest}"
    if header.is_control:
        try:
            decode_control_type(records[0].key)
        except ValueError as error:
            yield f"the control batch holds no control record: {error}"
