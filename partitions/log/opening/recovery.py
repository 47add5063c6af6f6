"""Bringing a log back from its files.

Guarantees: after a clean shutdown nothing but names, index tails and a few headers is read. After
any other end every batch from the segment of the recovery point on is read and its CRC compared; a
torn tail is cut, durably, at the first batch that is not sound, or goes back behind the ones before it; where
one of those stands alone, and may be what is wrong, it goes as well. Indexes,
leader epochs and producer state are rebuilt from what is left. Damage below the recovery point was on disk once and
is no torn write: it is a LogCorruptError, and nothing is cut. Called by `PartitionLog.open`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from leader_epoch.epoch_cache import EpochCache
from partitions.log.config import LogConfig
from partitions.log.errors import BatchDamaged, LogCorruptError
from partitions.log.scan import Damage, walk, walk_checked
from partitions.log.segment import LOG_SUFFIX, Segment, base_offsets, file_name
from partitions.log.segment_indexes import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from partitions.log.segments import SegmentList
from partitions.log.storage import LogStorage
from partitions.records.batch import BatchHeader

_FOREVER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What opening the log found, for the node's log and metrics."""

    clean: bool
    checked_bytes: int = 0
    truncated_bytes: int = 0
    removed_segments: int = 0
    reason: str | None = None
    """Why the tail was cut; None if it was not."""
    epochs_rebuilt: str | None = None
    """Why the leader epochs were taken from the batches; None if their file holds them."""

    @property
    def is_notable(self) -> bool:
        """Whether an operator should know of something that was cut or rebuilt."""
        return self.reason is not None or self.epochs_rebuilt is not None

    def __str__(self) -> str:
        """What was done to the log, in words."""
        done = []
        if self.reason is not None:
            whole = f", among them {self.removed_segments} whole segments" if self.removed_segments else ""
            done.append(f"the last {self.truncated_bytes} bytes were cut{whole}: {self.reason}")
        if self.epochs_rebuilt is not None:
            done.append(f"the leader epochs were taken from the batches: {self.epochs_rebuilt}")
        return "; ".join(done) or "nothing had to be cut or rebuilt"


def find_segments(
    storage: LogStorage, directory: str, names: Sequence[str], config: LogConfig, *, now_ms: int
) -> list[Segment]:
    """The segments whose data files are there; indexes that deletion has left before the first one, or a crash
    behind the last one, are removed. Those between may tell of a file that is lost (`closed_segments`)."""
    found = base_offsets(names, LOG_SUFFIX)
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        for base_offset in base_offsets(names, suffix):
            if not found or not found[0] <= base_offset <= found[-1]:
                storage.remove(f"{directory}/{file_name(base_offset, suffix)}")
    return [Segment(storage, directory, base, config, now_ms=now_ms) for base in found]


class LogEnd(NamedTuple):
    """Where a log ends."""

    offset: int
    last_epoch: int | None
    """The leader epoch of the last batch; None if that is not in the active segment."""


def log_end_after_clean_shutdown(segments: SegmentList) -> LogEnd:
    """The log's end, from the active segment's last index entry on; an index that leads to no batch is made
    anew. Raises LogCorruptError, OSError."""
    try:
        return _end_of(segments.active)
    except BatchDamaged:
        raise
    except LogCorruptError:
        segments.active.remake_indexes()
        return _end_of(segments.active)


def _end_of(active: Segment) -> LogEnd:
    active.unseal()
    end = active.seek(active.offset_index.last_position, stop_offset=_FOREVER)
    return LogEnd(end.offset, end.passed_epoch)


class Suspect(NamedTuple):
    """A batch that contradicts a later one, and that no other batch confirms."""

    number: int
    """Of its segment."""
    position: int
    offset: int
    """After the batch before it."""
    is_wrong_itself: bool
    """If it was flushed: when the log was, this was no epoch of it, or not where it ended."""


class Recovery:
    """One pass over the segments that a crash may have torn."""

    def __init__(
        self, storage: LogStorage, segments: SegmentList, epochs: EpochCache, *, recovery_point: int
    ) -> None:
        self._storage = storage
        self._segments = segments
        self._epochs = epochs
        self._stored_epochs = frozenset(entry.epoch for entry in epochs.entries)
        self._recovery_point = recovery_point
        self._first = segments.position_for(recovery_point)
        self._expected = segments[self._first].base_offset
        """The offset that comes next, or a later one."""
        self._checked_bytes = 0
        self._epoch_before: int | None = None
        """The latest epoch below the segments that are checked."""
        self.first_offset = self._expected
        """Where the segments begin that are checked."""
        self.has_markers = False
        """Whether control batches of producers were met in them."""

    def run(self) -> tuple[int, RecoveryReport]:
        """Checks, cuts and rebuilds. Returns the log end offset. Raises LogCorruptError, OSError."""
        self._epochs.truncate_from_end(self._expected)
        self._epoch_before = self._epochs.latest_epoch
        number = self._first
        while number < len(self._segments):
            segment = self._segments[number]
            if segment.base_offset != self._expected:
                return self._cut_segments(number, self._gap_reason(segment))
            damage = self._recover_segment(segment)
            if isinstance(damage, BatchHeader):
                return self._cut_contradiction(number, damage)
            if damage is not None:
                return self._cut_tail(number, segment, damage)
            number += 1
            if number < len(self._segments):
                segment.seal()  # its indexes leave memory before those of the next one fill it
        active = self._segments.active
        # A log without any record is one whose files an operator removed, to have them copied again.
        is_empty = len(self._segments) == 1 and not active.size_bytes
        if self._expected < self._recovery_point and not is_empty:
            raise LogCorruptError(
                active.log_path,
                active.size_bytes,
                f"the log ends at offset {self._expected}, but was flushed up to {self._recovery_point}",
            )
        return self._finish(RecoveryReport(clean=False, checked_bytes=self._checked_bytes))

    def _recover_segment(self, segment: Segment) -> Damage | BatchHeader | None:
        """Reads the segment whole and indexes the sound batches at its start; returns what ended that: damage,
        or a batch that is sound and out of order."""
        file = self._storage.file(segment.log_path)
        size_bytes = segment.size_bytes
        segment.reset()
        self._checked_bytes += size_bytes
        limit = self._segments.limit_after(self._segments.position_for(segment.base_offset))
        for step in walk_checked(file, size_bytes):
            if isinstance(step, Damage):
                return step
            position, header = step
            if self._out_of_order(header) is not None:
                return header
            if header.last_offset >= limit:
                return Damage(
                    position, f"a batch reaches offset {header.last_offset}, its segment ends at {limit}"
                )
            epoch = header.partition_leader_epoch
            if epoch >= 0 and epoch != self._epochs.latest_epoch:
                self._epochs.assign(epoch, self._expected)  # a hole before it counts as of its epoch
            segment.index(((header.last_offset, header.size_bytes, header.max_timestamp),))
            self.has_markers |= header.is_control and header.has_producer_id
            self._expected = header.next_offset
        segment.indexes.rewrite()
        return None

    def _out_of_order(self, header: BatchHeader) -> str | None:
        """Neither the offset nor the epoch of a batch is in its checksum; and old bytes of a file that was cut
        and written again can be sound batches."""
        if header.base_offset < self._expected:
            return f"a batch goes back to offset {header.base_offset}, expected {self._expected}"
        latest = self._epochs.latest_epoch
        if latest is not None and 0 <= header.partition_leader_epoch < latest:
            return f"a batch goes back to leader epoch {header.partition_leader_epoch} from {latest}"
        return None

    def _cut_contradiction(self, number: int, header: BatchHeader) -> tuple[int, RecoveryReport]:
        """Cuts at a batch that goes back, or before an earlier one that may be what is wrong: it claims an offset,
        or an epoch, that nothing confirms. What was flushed is not cut for that: it is damaged, or right."""
        segment, reason = self._segments[number], self._out_of_order(header)
        assert reason is not None
        damage = Damage(segment.size_bytes, reason)
        goes_back = header.base_offset < self._expected
        suspect = self._displaced(number, header) if goes_back else self._epoch_alone(number, header)
        if suspect is None or (suspect.offset < self._recovery_point and not suspect.is_wrong_itself):
            return self._cut_tail(number, segment, damage)
        if suspect.offset < self._recovery_point:
            path = self._segments[suspect.number].log_path
            raise LogCorruptError(path, suspect.position, f"a later batch contradicts this one: {reason}")
        self._storage.has_cut_records = True
        cut_bytes = self._storage.file(segment.log_path).size() - segment.size_bytes
        removed, removed_bytes = self._remove_from(suspect.number + 1)
        segment = self._segments[suspect.number]
        cut_bytes += removed_bytes + segment.size_bytes - suspect.position
        self._expected = suspect.offset
        self._epochs.truncate_from_end(suspect.offset)
        segment.truncate(suspect.position, suspect.offset)
        segment.indexes.rewrite()
        return self._finish(RecoveryReport(False, self._checked_bytes, cut_bytes, removed, reason))

    def _displaced(self, number: int, header: BatchHeader) -> Suspect | None:
        """The batch before `header`, if a gap before it would hold both: then its offset may be too high.

        Without such a gap the batches before confirm it, and at a segment's start the segment's name does.
        """
        segment = self._segments[number]
        offset = gap_offset = segment.base_offset
        last: tuple[int, BatchHeader] | None = None
        for last in walk(self._storage.file(segment.log_path), 0, segment.size_bytes):
            gap_offset, offset = offset, last[1].next_offset
        if last is None:
            return None
        position, before = last
        count = before.next_offset - before.base_offset
        if before.base_offset == gap_offset or gap_offset + count > header.base_offset:
            return None
        return Suspect(number, position, gap_offset, before.next_offset > self._recovery_point)

    def _epoch_alone(self, last_number: int, header: BatchHeader) -> Suspect | None:
        """The one batch before `header` whose epoch is later, if the epochs on both its sides say that it is
        wrong: two batches confirm each other, and what the checkpoint file knows was an epoch."""
        epoch = header.partition_leader_epoch
        if self._epoch_before is not None and self._epoch_before > epoch:
            return None
        found: Suspect | None = None
        offset = self.first_offset
        for number in range(self._first, last_number + 1):
            segment = self._segments[number]
            for position, earlier in walk(self._storage.file(segment.log_path), 0, segment.size_bytes):
                if earlier.partition_leader_epoch > epoch:
                    if found is not None or earlier.partition_leader_epoch in self._stored_epochs:
                        return None
                    found = Suspect(number, position, offset, is_wrong_itself=True)
                offset = earlier.next_offset
        return found

    def _gap_reason(self, segment: Segment) -> str:
        return (
            f"the segment before it ends at offset {self._expected}, this one starts at {segment.base_offset}"
        )

    def _cut_tail(self, number: int, segment: Segment, damage: Damage) -> tuple[int, RecoveryReport]:
        if self._expected < self._recovery_point:
            raise LogCorruptError(
                segment.log_path,
                damage.position,
                f"{damage.reason}; it was flushed, up to offset {self._recovery_point}",
            )
        self._storage.has_cut_records = True
        torn_bytes = self._storage.file(segment.log_path).size() - damage.position
        removed, removed_bytes = self._remove_from(number + 1)
        self._storage.truncate_durably(segment.log_path, damage.position)
        segment.indexes.rewrite()
        return self._finish(
            RecoveryReport(False, self._checked_bytes, torn_bytes + removed_bytes, removed, damage.reason)
        )

    def _cut_segments(self, number: int, reason: str) -> tuple[int, RecoveryReport]:
        segment = self._segments[number]
        if self._expected < self._recovery_point:
            raise LogCorruptError(segment.log_path, 0, reason)
        self._storage.has_cut_records = True
        removed, removed_bytes = self._remove_from(number)
        return self._finish(RecoveryReport(False, self._checked_bytes, removed_bytes, removed, reason))

    def _remove_from(self, number: int) -> tuple[int, int]:
        """Removes the segments from `number` on, the last first, so that no hole can be left."""
        removed = removed_bytes = 0
        while len(self._segments) > number:
            segment = self._segments.pop_last()
            removed_bytes += segment.size_bytes
            segment.remove()
            removed += 1
        return removed, removed_bytes

    def _finish(self, report: RecoveryReport) -> tuple[int, RecoveryReport]:
        self._segments.active.unseal()
        if report.removed_segments:
            self._storage.sync_dir(self._segments.active.log_path.rpartition("/")[0])
        return self._expected, report
