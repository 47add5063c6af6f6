"""Whether a segment's indexes say what its batches say.

Guarantees: an entry that passes names a batch's real end and place, or its real timestamp; one that names
a place inside damaged data is left alone. The checks are fed the segment's batches in order and hold one
entry at a time. Called by `segment_check`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from partitions.log.inspection.entries import OffsetIndexEntry, TimeIndexEntry, TransactionIndexEntry
from partitions.log.inspection.files import StoredDamage
from partitions.log.producers.transaction_index import ENTRY_BYTES as TXN_ENTRY_BYTES
from partitions.log.producers.transaction_offsets import CompletedTransaction
from partitions.records.header import NO_TIMESTAMP, BatchHeader
from partitions.records.markers import EndTransactionMarker

ReportAt = Callable[[int, str], None]
"""Takes a byte in the index and what is wrong there."""
IndexEntry = TypeVar("IndexEntry", OffsetIndexEntry, TimeIndexEntry, TransactionIndexEntry)


class IndexCheck(Protocol):
    """One index beside one segment."""

    def batch(self, position: int, header: BatchHeader) -> None:
        """The next sound batch of the segment."""

    def damage(self) -> None:
        """What follows the batch before is not sound, up to the next batch."""

    def end(self, size_bytes: int, end_offset: int) -> None:
        """The segment ends; the offset is the one behind its last batch."""


class _Cursor(Generic[IndexEntry]):
    """The entries one by one; damage ends them and is reported."""

    def __init__(self, entries: Iterator[IndexEntry], report: ReportAt) -> None:
        self._entries: Iterator[IndexEntry] = entries
        self.report = report
        self.last: IndexEntry | None = None
        """The entry that was passed last."""
        self.is_broken = False
        self.entry: IndexEntry | None = self._next()

    def _next(self) -> IndexEntry | None:
        try:
            return next(self._entries, None)
        except StoredDamage as damage:
            self.report(damage.position, damage.reason)
            self.is_broken = True
            return None

    def passing(self, is_passed: Callable[[IndexEntry], bool]) -> Iterator[IndexEntry]:
        """The next entries of which that is true; each is the last one once it was looked at."""
        while (entry := self.entry) is not None and is_passed(entry):
            yield entry
            self.last, self.entry = entry, self._next()

    def rest(self) -> Iterator[IndexEntry]:
        """All entries that are left."""
        return self.passing(lambda _: True)


class OffsetIndexCheck:
    """Entries name the first byte and the last offset of a batch."""

    def __init__(self, entries: Iterator[OffsetIndexEntry], report: ReportAt) -> None:
        self._cursor = _Cursor(entries, report)
        self._is_behind_damage = False

    def batch(self, position: int, header: BatchHeader) -> None:
        cursor = self._cursor
        for entry in cursor.passing(lambda entry: entry.position <= position):
            if entry.position == position:
                if entry.offset != header.last_offset:
                    cursor.report(
                        entry.at,
                        f"it names offset {entry.offset} for byte {position} of the log, where the batch of"
                        f" offsets {header.base_offset} to {header.last_offset} begins",
                    )
            elif not self._is_behind_damage:
                cursor.report(entry.at, f"it names byte {entry.position} of the log, where no batch begins")
        self._is_behind_damage = False

    def damage(self) -> None:
        self._is_behind_damage = True

    def end(self, size_bytes: int, end_offset: int) -> None:
        cursor = self._cursor
        for entry in cursor.rest():
            if entry.position >= size_bytes:
                cursor.report(
                    entry.at,
                    f"it names byte {entry.position} of the log, which ends at byte {size_bytes}",
                )
            elif not self._is_behind_damage:
                cursor.report(entry.at, f"it names byte {entry.position} of the log, where no batch begins")


class TimeIndexCheck:
    """Entries name the largest timestamp so far and the last offset of the first batch that carries it."""

    def __init__(
        self,
        entries: Iterator[TimeIndexEntry],
        report: ReportAt,
        size_of: Callable[[], int],
        *,
        is_closed: bool,
    ) -> None:
        self._cursor = _Cursor(entries, report)
        self._size_of = size_of
        self._is_closed = is_closed
        """The segment's last word must be there: it was sealed or closed."""
        self._max_timestamp = NO_TIMESTAMP
        self._has_damage = self._is_behind_damage = False

    def batch(self, position: int, header: BatchHeader) -> None:
        is_new_maximum = header.max_timestamp > self._max_timestamp
        self._max_timestamp = max(self._max_timestamp, header.max_timestamp)
        cursor = self._cursor
        for entry in cursor.passing(lambda entry: entry.offset <= header.last_offset):
            if entry.timestamp == NO_TIMESTAMP:
                pass  # a segment without timestamps says so
            elif entry.offset == header.last_offset:
                if entry.timestamp != header.max_timestamp or not (is_new_maximum or self._has_damage):
                    cursor.report(
                        entry.at,
                        f"it names timestamp {entry.timestamp} for offset {entry.offset}, whose batch has"
                        f" {header.max_timestamp}; the largest up to there is {self._max_timestamp}",
                    )
            elif not (self._is_behind_damage and entry.offset < header.base_offset):
                cursor.report(entry.at, f"it names offset {entry.offset}, with which no batch ends")
        self._is_behind_damage = False

    def damage(self) -> None:
        self._has_damage = self._is_behind_damage = True

    def end(self, size_bytes: int, end_offset: int) -> None:
        cursor = self._cursor
        for entry in cursor.rest():
            if not self._is_behind_damage and entry.timestamp != NO_TIMESTAMP:
                cursor.report(
                    entry.at, f"it names offset {entry.offset}, and the segment ends before {end_offset}"
                )
        if not self._is_closed or self._has_damage or cursor.is_broken or not size_bytes:
            return
        known = NO_TIMESTAMP if cursor.last is None else cursor.last.timestamp
        if cursor.last is not None and known < self._max_timestamp:
            cursor.report(
                self._size_of(),
                f"it ends with timestamp {known}, and the segment has records up to {self._max_timestamp}",
            )


class TxnIndexCheck:
    """Aborted transactions end in the segment, with their producer's marker, and none is left out.

    An entry may begin earlier than the batches that are left, and may be of a transaction of which none is:
    retention and the cleaner leave such. One that begins later, or claims that more was decided than was,
    makes readers see aborted records.
    """

    def __init__(
        self,
        entries: Iterator[TransactionIndexEntry],
        report: ReportAt,
        base_offset: int,
        *,
        is_complete: bool,
    ) -> None:
        """`is_complete`: the segment was sealed or closed, so that every entry is in the file."""
        self._cursor = _Cursor(entries, report)
        self._base_offset = base_offset
        self._is_complete = is_complete
        self._marker: EndTransactionMarker | None = None
        self._completed: CompletedTransaction | None = None

    def expect(self, marker: EndTransactionMarker | None, completed: CompletedTransaction | None) -> None:
        """What the batch that comes next says, if it is a marker, and which transaction it ends; None where
        damage before it leaves that unsure."""
        self._marker, self._completed = marker, completed

    def batch(self, position: int, header: BatchHeader) -> None:
        cursor = self._cursor
        here: TransactionIndexEntry | None = None
        for entry in cursor.passing(lambda entry: entry.last_offset <= header.last_offset):
            # The cleaner may have removed the marker; then no batch holds the offset.
            is_here = header.base_offset <= entry.last_offset
            if entry.last_offset < self._base_offset or (is_here and not self._is_abort_of(header, entry)):
                cursor.report(
                    entry.at,
                    f"it says that producer {entry.producer_id} aborted at offset {entry.last_offset}, where"
                    " it has no marker that says so",
                )
            elif is_here:
                here = entry
        if self._completed is not None and self._completed.is_aborted:
            self._compare(here, self._completed)

    def _is_abort_of(self, header: BatchHeader, entry: TransactionIndexEntry) -> bool:
        says_commit = self._marker is not None and not self._marker.is_abort
        return header.is_control and header.producer_id == entry.producer_id and not says_commit

    def _compare(self, entry: TransactionIndexEntry | None, completed: CompletedTransaction) -> None:
        cursor = self._cursor
        if entry is None:
            if self._is_complete and not cursor.is_broken:
                at = 0 if cursor.last is None else cursor.last.at + TXN_ENTRY_BYTES
                cursor.report(
                    at,
                    f"it does not say that producer {completed.producer_id} aborted what it wrote from offset"
                    f" {completed.first_offset} to {completed.marker_offset}: readers would see it",
                )
        elif entry.first_offset > completed.first_offset:
            cursor.report(
                entry.at,
                f"it says that the transaction which producer {entry.producer_id} aborted at offset"
                f" {entry.last_offset} began at {entry.first_offset}, and it began at {completed.first_offset}",
            )
        elif entry.last_stable_offset > completed.last_stable_offset:
            cursor.report(
                entry.at,
                f"it gives {entry.last_stable_offset} as the last stable offset once producer"
                f" {entry.producer_id} had aborted at offset {entry.last_offset}, and it was"
                f" {completed.last_stable_offset}",
            )

    def damage(self) -> None:
        """Entries of damaged batches find no batch that holds their offset."""

    def end(self, size_bytes: int, end_offset: int) -> None:
        cursor = self._cursor
        for entry in cursor.rest():
            if entry.last_offset >= end_offset:
                cursor.report(
                    entry.at,
                    f"it names offset {entry.last_offset}, and the segment ends before {end_offset}",
                )
