"""What the cleaner may do to a log, and what it sees of one.

Guarantees: the section to clean lies below the high watermark, the recovery point and any open
transaction, and holds whole closed segments: nothing in it can be truncated by a leader's change, and
no record goes for the sake of one that a crash could take back. A swap begins only if the segments are
those that were read. All calls come from the log's lane; `cleaner.cleaner` makes them.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple

from partitions.log.cleaner.errors import CleaningAborted
from partitions.log.cleaner.sources import Group, SourceSegment
from partitions.log.cleaner.swap import SegmentSwap, SwapState
from partitions.log.config_values import LONG_MAX
from partitions.log.errors import LogStorageError
from partitions.log.segment import Segment
from partitions.log.shortening import ShortenableLog
from partitions.log.storage import storage_error
from partitions.log.transaction_index import AbortedTransaction


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


class CleanableLog(ShortenableLog):
    """A log whose closed segments can be replaced by smaller ones."""

    __slots__ = ()

    @property
    def generation(self) -> int:
        """Counts truncations."""
        return self._generation

    def cleanable_section(self, now_ms: int, high_watermark: int) -> Section:
        """What can be cleaned once everything below the high watermark is flushed."""
        segments = self._segments
        # From the first offset on disk, not the log start, which a crash may take back.
        first_dirty = max(self.clean_offset, segments.first.base_offset)
        limit = min(high_watermark, self.log_end_offset)
        first_open = self.producer_state.transactions.first_open
        if first_open is not None:
            limit = min(limit, first_open)
        first = segments.position_for(first_dirty)
        last = min(segments.position_for(limit), len(segments) - 1)
        overdue = False
        number = first
        while number < last:
            if self._is_too_young(segments[number], now_ms):
                break
            overdue = overdue or self._is_overdue(segments[number], now_ms)
            number += 1
        return Section(
            first_dirty,
            max(segments[number].base_offset, first_dirty),
            sum(segments[clean].size_bytes for clean in range(first)),
            sum(segments[dirty].size_bytes for dirty in range(first, number)),
            overdue,
        )

    def look_ahead(self, first: int, count: int, now_ms: int) -> int:
        """Has so many segments, from the one at `first` on, keep in memory what `cleanable_section` asks the disk of
        them; says how many there were. Raises LogCorruptError, OSError."""
        segments = self._segments
        dirty = segments.position_for(max(self.clean_offset, segments.first.base_offset))
        end = min(first + count, len(segments) - 1)
        for number in range(first, end):
            segment = segments[number]
            if segment.size_bytes and number >= dirty:
                self._is_too_young(segment, now_ms)
                self._is_overdue(segment, now_ms)
        return max(0, end - first)

    def _is_too_young(self, segment: Segment, now_ms: int) -> bool:
        lag_ms = self.config.min_compaction_lag_ms
        return bool(lag_ms) and segment.newest_ms > now_ms - lag_ms

    def _is_overdue(self, segment: Segment, now_ms: int) -> bool:
        """By the timestamp of the first batch alone, as in Kafka: when a segment's file was last changed does not
        tell since when its first record has been waiting."""
        lag_ms = self.config.max_compaction_lag_ms
        return lag_ms != LONG_MAX and 0 < segment.first_timestamp < now_ms - lag_ms

    def source_segments(self) -> tuple[SourceSegment, ...]:
        """All segments as they are now, the active one last."""
        segments = self._segments
        return tuple(
            SourceSegment(
                segment.base_offset,
                next_base if (next_base := segments.next_base(number)) is not None else self.log_end_offset,
                segment.log_path,
                segment.size_bytes,
                segment.created_ms,
            )
            for number, segment in enumerate(segments)
        )

    @property
    def active_producers(self) -> frozenset[int]:
        """Ids of the producers that the log remembers."""
        return frozenset(self.producer_state.producers)

    def make_segment(self, group: Group) -> Segment:
        """An empty segment in memory for what a cleaning makes of the group; it is not part of the log."""
        segment = Segment(
            self._storage,
            self.directory,
            group[0].base_offset,
            index_interval_bytes=self.config.index_interval_bytes,
            now_ms=group[-1].created_ms,
        )
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
                f"reading a transaction index of {self.directory} failed: {error}"
            ) from error

    def begin_swap(self, group: Group, new: Segment, *, has_transaction_index: bool) -> SegmentSwap:
        """Has `new`, whose files are durable as `*.cleaned`, take the group's place; nothing is changed yet.

        Raises CleaningAborted if the group's segments are not what they were, LogStorageError.
        """
        self._ensure_open()
        segments = self._segments
        first = segments.position_for(group[0].base_offset)
        old = [segments[number] for number in range(first, min(first + len(group), len(segments)))]
        for source, segment in zip(group, old, strict=False):
            if (
                segment.base_offset != source.base_offset
                or segment.size_bytes != source.size_bytes
                or segment is segments.active
                or segment in self._unsynced_sealed
            ):
                raise CleaningAborted(f"the segment {source.path} changed while it was cleaned")
        if len(old) != len(group) or self._swap is not None:
            raise CleaningAborted(f"segments of {self.directory} are gone")
        try:
            self._swap = SegmentSwap(
                self._storage,
                self.directory,
                segments,
                old,
                new,
                has_transaction_index=has_transaction_index,
                on_end=self._swap_ended,
            )
        except OSError as error:
            reason = f"opening what was cleaned in {self.directory} failed: {error}"
            self._storage.fail_if_broken(reason, error)
            raise storage_error(reason, error) from error
        return self._swap

    def _swap_ended(self) -> None:
        swap, self._swap = self._swap, None
        assert swap is not None
        if swap.state is SwapState.DONE and swap.has_transaction_index:
            self._aborted.reload(swap.old_bases[0])

    def replace_segments(self, swap: SegmentSwap, aborted: Sequence[AbortedTransaction]) -> None:
        """Reads the new segment from now on, which has these `aborted` transactions; the decision is durable.
        Nothing if the swap was settled."""
        if swap is self._swap:
            self._reader.forget()
            swap.replace()
            self._aborted.replace(swap.old_bases, aborted)

    def finish_swap(self, swap: SegmentSwap) -> None:
        """All names are final, durably. Nothing if it was settled."""
        if swap is self._swap:
            swap.finish()

    def note_cleaned(self, offset: int) -> None:
        """The log is compacted up to `offset`, durably."""
        assert offset <= self.recovery_point
        self.clean_offset = offset
