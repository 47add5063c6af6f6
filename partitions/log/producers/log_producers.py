"""The producers and transactions of one log, in memory and in its files.

Guarantees: `state` is what the log's batches up to its end say; a snapshot file has what was known where a segment
begins, and where the log was closed; `aborted` has each aborted transaction whose marker is in the log. A truncation
goes on from the newest snapshot, or from a mark in memory, so that it walks over a bounded part of the batches.
`PartitionLog` owns one, and has `state` judge and note each append (KIP-98).

A snapshot file is at its segment's start only, and without marks the loop would walk over up to 1 GiB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Final

from partitions.log.producers.producer_recovery import (
    KnownProducers,
    aborted_transaction,
    load_producer_state,
)
from partitions.log.producers.producer_snapshot import SNAPSHOT_SUFFIX, encode_snapshot, snapshot_path
from partitions.log.producers.producer_state import ProducerState
from partitions.log.producers.transaction_index import AbortedTransactions
from partitions.log.producers.transaction_offsets import CompletedTransaction
from partitions.log.segment import base_offsets
from partitions.log.segments import SegmentList
from partitions.log.storage import LogStorage
from partitions.log.validation import PlacedHeader
from partitions.records.markers import EndTransactionMarker

MARK_EVERY_BYTES: Final = 8 * 1024 * 1024
"""So many bytes of batches a truncation walks over at most, where it does not go back beyond the marks; more with
many producers."""
PRODUCERS_PER_MARK: Final = 1000
"""Where there are more, marks are as many times rarer: each copies what is known of all, in an append."""
MARKS: Final = 3


class LogProducers:
    """What a log knows of its producers, and what it does about them as it grows, rolls and is cut."""

    __slots__ = ("_directory", "_marks", "_segments", "_snapshot_offset", "_storage", "aborted", "state",
                 "unmarked_bytes")  # fmt: skip

    def __init__(
        self,
        storage: LogStorage,
        directory: str,
        segments: SegmentList,
        state: ProducerState,
        aborted: AbortedTransactions,
        snapshot_offset: int,
    ) -> None:
        """`snapshot_offset`: of the newest snapshot that is there, -1 without one. `segments` are the log's."""
        self._storage = storage
        self._directory = directory
        self._segments = segments
        self.state = state
        self.aborted = aborted
        """The transaction indexes."""
        self._snapshot_offset = snapshot_offset
        self._marks: tuple[KnownProducers, ...] = ()
        self.unmarked_bytes = 0
        """Appended since the last mark; at `MARK_EVERY_BYTES` the log calls `mark`."""

    # ---- appends

    def record(
        self, batches: Sequence[PlacedHeader], offset: int, markers: Mapping[int, EndTransactionMarker]
    ) -> None:
        """Takes note of batches that were written into the active segment, the first at `offset`; `markers` are those
        among them, by their place in the sequence."""
        state = self.state
        for number, (_, header) in enumerate(batches):
            marker = markers.get(number) if markers else None
            completed = state.record(header, offset, marker)
            if completed is not None:
                self.complete(completed)
            offset += header.last_offset_delta + 1

    def complete(self, completed: CompletedTransaction) -> None:
        """The marker of this transaction was written into the active segment just now."""
        if completed.is_aborted:
            self.aborted.append(self._segments.active.base_offset, aborted_transaction(completed))

    def mark(self) -> None:
        """Keeps what is known of producers now, for a truncation: a snapshot file is at the segment's start only,
        and all batches behind it would have to be walked over. Called when so many bytes came that a mark is due
        for few producers."""
        count = len(self.state.producers)
        if count > PRODUCERS_PER_MARK and self.unmarked_bytes * PRODUCERS_PER_MARK < MARK_EVERY_BYTES * count:
            return
        self.unmarked_bytes = 0
        self._marks = (*self._marks[1 - MARKS :], KnownProducers.of(self.state))

    @property
    def mark_offsets(self) -> tuple[int, ...]:
        """Where the log ended when it kept what it knew."""
        return tuple(known.end_offset for known in self._marks)

    # ---- readers

    def last_stable_offset(self, high_watermark: int, log_start_offset: int) -> int:
        """Up to where a read_committed reader may read: no transaction with records below is undecided.

        One whose marker is not below the high watermark counts as undecided.
        """
        transactions = self.state.transactions
        if not transactions:
            return high_watermark
        first = transactions.first_unstable(high_watermark)
        return high_watermark if first is None else min(high_watermark, max(first, log_start_offset))

    # ---- snapshots

    def write_snapshot(self, log_end_offset: int) -> bool:
        """Writes what is known at the log's end, unless the log is empty; whether an older file went for it. Not
        fsynced: a damaged one is replaced by replaying. Raises OSError."""
        segments = self._segments
        is_empty = len(segments) == 1 and not segments.active.size_bytes
        if self._snapshot_offset == log_end_offset or is_empty:
            return False
        old = self._snapshot_offset
        with closing(self._storage.open(self.snapshot_path(log_end_offset), create=True)) as file:
            if file.size():
                file.truncate(0)
            file.append([encode_snapshot(self.state.producers)])
        self._snapshot_offset = log_end_offset
        if old < 0 or segments.has_base(old):
            return False
        self._storage.remove(self.snapshot_path(old))
        return True

    @property
    def needs_no_snapshot(self) -> bool:
        """Whether a start learns as soon without one that there are no producers: it reads all headers anyway."""
        return (
            self._snapshot_offset < 0
            and not self.state.producers
            and len(self._segments) == 1
            and self._segments.active.is_unindexed
        )

    def snapshot_path(self, offset: int) -> str:
        """Where the snapshot at this offset is, if there is one."""
        return snapshot_path(self._directory, offset)

    def remove_snapshots(self, names: Sequence[str]) -> None:
        """Removes those among the folder's files. Raises OSError."""
        for offset in base_offsets(names, SNAPSHOT_SUFFIX):
            self._storage.remove(self.snapshot_path(offset))

    # ---- cuts

    def reload(self, log_end_offset: int) -> None:
        """The log was cut, and ends here now. Raises LogCorruptError, OSError."""
        names = self._storage.disk.list_dir(self._directory)
        before = self.state.transactions
        self._marks = tuple(known for known in self._marks if known.end_offset <= log_end_offset)
        self.state, self._snapshot_offset = load_producer_state(
            self._storage,
            self._directory,
            names,
            self._segments,
            log_end_offset,
            known=self._marks[-1] if self._marks else None,
        )
        self.state.transactions.adopt_ended(before, log_end_offset)

    def restart_at(self, offset: int) -> None:
        """The log is empty, and goes on at this offset; its snapshots and transaction indexes are gone."""
        self.state.clear(offset)
        self._marks = ()
        self._snapshot_offset = -1
