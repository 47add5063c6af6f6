"""How far one log is compacted, what of it can be cleaned now, and the swap that puts a cleaned segment in place.

Guarantees: a section to clean lies below the limit that the log sets (the high watermark, the recovery point, any open
transaction) and holds whole closed segments: no leader's change can truncate anything in it, and no record goes for
the sake of one that a crash could take back. A swap begins only if the segments are those that were read, and ends
before the log changes otherwise. All calls come from the log's lane; `PartitionLog` owns one, `cleaner.cleaner` asks.
"""

from __future__ import annotations

from collections.abc import Collection, Set
from typing import NamedTuple

from partitions.log.cleaner.errors import CleaningAborted
from partitions.log.cleaner.sources import Group, SourceSegment
from partitions.log.cleaner.swap import SegmentSwap, SwapState
from partitions.log.config import LogConfig
from partitions.log.config_values import LONG_MAX
from partitions.log.errors import LogStorageError
from partitions.log.producers.transaction_index import AbortedTransaction, AbortedTransactions
from partitions.log.segment import Segment
from partitions.log.segments import SegmentList
from partitions.log.storage import LogStorage, storage_error


class Section(NamedTuple):
    """The part of a log that can be cleaned now."""

    first_dirty: int
    """Where the last cleaning ended."""
    end: int
    """Base offset of the first segment that must stay as it is."""
    clean_bytes: int
    dirty_bytes: int
    overdue: bool
    """Whether a record has waited for longer than max.compaction.lag.ms."""

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


class Compaction:
    """What the cleaner has done to a log, and is about to do."""

    __slots__ = ("_aborted", "_directory", "_segments", "_storage", "_swap", "clean_offset")

    def __init__(
        self,
        storage: LogStorage,
        directory: str,
        segments: SegmentList,
        aborted: AbortedTransactions,
        clean_offset: int,
    ) -> None:
        """`segments` and `aborted` are the log's, which changes them."""
        self._storage = storage
        self._directory = directory
        self._segments = segments
        self._aborted = aborted
        self._swap: SegmentSwap | None = None
        self.clean_offset = clean_offset
        """Up to here the log was compacted; not above the recovery point."""

    # ---- what there is to clean

    def section(self, config: LogConfig, now_ms: int, limit: int) -> Section:
        """What can be cleaned below the limit. Raises LogCorruptError, OSError."""
        segments = self._segments
        first_dirty = self._first_dirty
        first = segments.position_for(first_dirty)
        last = min(segments.position_for(limit), len(segments) - 1)
        overdue = False
        number = first
        while number < last:
            if _is_too_young(segments[number], config, now_ms):
                break
            overdue = overdue or _is_overdue(segments[number], config, now_ms)
            number += 1
        return Section(
            first_dirty,
            max(segments[number].base_offset, first_dirty),
            sum(segments[clean].size_bytes for clean in range(first)),
            sum(segments[dirty].size_bytes for dirty in range(first, number)),
            overdue,
        )

    def look_ahead(self, config: LogConfig, first: int, count: int, now_ms: int) -> int:
        """Has so many segments, from the one at `first` on, keep in memory what `section` asks the disk of them; says
        how many there were. Raises LogCorruptError, OSError."""
        segments = self._segments
        dirty = segments.position_for(self._first_dirty)
        end = min(first + count, len(segments) - 1)
        for number in range(first, end):
            segment = segments[number]
            if segment.size_bytes and number >= dirty:
                _is_too_young(segment, config, now_ms)
                _is_overdue(segment, config, now_ms)
        return max(0, end - first)

    @property
    def _first_dirty(self) -> int:
        """Not below the first offset on disk: the log start a crash may take back."""
        return max(self.clean_offset, self._segments.first.base_offset)

    # ---- a cleaning

    def sources(self, log_end_offset: int) -> tuple[SourceSegment, ...]:
        """All segments as they are now, the active one last."""
        segments = self._segments
        return tuple(
            SourceSegment(
                segment.base_offset,
                next_base if (next_base := segments.next_base(number)) is not None else log_end_offset,
                segment.log_path,
                segment.size_bytes,
                segment.created_ms,
            )
            for number, segment in enumerate(segments)
        )

    def make_segment(self, group: Group, config: LogConfig) -> Segment:
        """An empty segment in memory for what a cleaning makes of the group; it is not part of the log."""
        base_offset, now_ms = group[0].base_offset, group[-1].created_ms
        segment = Segment(self._storage, self._directory, base_offset, config, now_ms=now_ms)
        segment.reset()
        return segment

    def aborted_transactions_of(self, group: Group, marker_offsets: Set[int]) -> list[AbortedTransaction]:
        """Of the aborted transactions that end in the group's segments, those with these markers.

        Raises LogCorruptError, LogStorageError.
        """
        try:
            return [
                entry
                for source in group
                for entry in self._aborted.entries(source.base_offset)
                if entry.last_offset in marker_offsets
            ]
        except OSError as error:
            raise LogStorageError(
                f"reading a transaction index of {self._directory} failed: {error}"
            ) from error

    # ---- the swap

    @property
    def is_swapping(self) -> bool:
        """Whether a cleaned segment is about to take the place of others."""
        return self._swap is not None

    def begin_swap(
        self, group: Group, new: Segment, unsynced: Collection[Segment], *, has_transaction_index: bool
    ) -> SegmentSwap:
        """Has `new`, whose files are durable as `*.cleaned`, take the group's place; nothing is changed yet.

        Raises CleaningAborted if the group's segments are not what they were, or `unsynced`; LogStorageError.
        """
        segments = self._segments
        first = segments.position_for(group[0].base_offset)
        old = [segments[number] for number in range(first, min(first + len(group), len(segments)))]
        for source, segment in zip(group, old, strict=False):
            if (
                segment.base_offset != source.base_offset
                or segment.size_bytes != source.size_bytes
                or segment is segments.active
                or segment in unsynced
            ):
                raise CleaningAborted(f"the segment {source.path} changed while it was cleaned")
        if len(old) != len(group) or self._swap is not None:
            raise CleaningAborted(f"segments of {self._directory} are gone")
        try:
            self._swap = SegmentSwap(
                self._storage,
                self._directory,
                old,
                new,
                has_transaction_index=has_transaction_index,
                on_end=self._swap_ended,
            )
        except OSError as error:
            reason = f"opening what was cleaned in {self._directory} failed: {error}"
            self._storage.fail_if_broken(reason, error)
            raise storage_error(reason, error) from error
        return self._swap

    def is_current(self, swap: SegmentSwap) -> bool:
        """Whether it goes on: nothing has settled it."""
        return swap is self._swap

    def finish_swap(self, swap: SegmentSwap) -> None:
        """All names are final, durably. Nothing if it was settled."""
        if self.is_current(swap):
            swap.finish()

    def _swap_ended(self) -> None:
        swap, self._swap = self._swap, None
        assert swap is not None
        if swap.state is SwapState.DONE and swap.has_transaction_index:
            self._aborted.reload(swap.old_bases[0])

    def settle(self) -> None:
        """Ends a swap that is under way, before the segments change otherwise. Raises LogStorageError."""
        if self._swap is not None:
            self._swap.settle()

    def abandon(self) -> None:
        """The log lets go of its files: a swap is left to the next start."""
        if self._swap is not None:
            self._swap.abandon()
            self._swap = None

    def cut(self, log_end_offset: int) -> None:
        """The log was cut, and ends here."""
        self.clean_offset = min(self.clean_offset, log_end_offset)


def _is_too_young(segment: Segment, config: LogConfig, now_ms: int) -> bool:
    lag_ms = config.min_compaction_lag_ms
    return bool(lag_ms) and segment.newest_ms > now_ms - lag_ms


def _is_overdue(segment: Segment, config: LogConfig, now_ms: int) -> bool:
    """By the timestamp of the first batch alone, as in Kafka: when a segment's file was last changed does not
    tell since when its first record has been waiting."""
    lag_ms = config.max_compaction_lag_ms
    return lag_ms != LONG_MAX and 0 < segment.first_timestamp < now_ms - lag_ms
