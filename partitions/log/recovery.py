"""Bringing a log back from its files.

Guarantees: after a clean shutdown nothing but names, index tails and a few headers is read. After
any other end every batch from the segment of the recovery point on is read and its CRC compared; a
torn tail is cut, durably, at the first batch that is not sound, and indexes, leader epochs and
producer state are rebuilt from what is left. Damage below the recovery point was on disk once and
is no torn write: it is a LogCorruptError, and nothing is cut. Called by `PartitionLog.open`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leader_epoch.epoch_cache import EpochCache
from partitions.log.errors import LogCorruptError
from partitions.log.scan import Damage, walk_checked
from partitions.log.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, Segment, file_name
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
        """Whether something was cut or rebuilt of which an operator should know."""
        return self.reason is not None or self.epochs_rebuilt is not None


def base_offsets(names: Sequence[str], suffix: str) -> list[int]:
    """The base offsets of the files with this suffix, in order; other names are not ours."""
    stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return sorted(int(stem) for stem in stems if len(stem) == 20 and stem.isdecimal())


def find_segments(
    storage: LogStorage, directory: str, names: Sequence[str], *, index_interval_bytes: int, now_ms: int
) -> list[Segment]:
    """The segments whose data files are there; leftovers of others' indexes are removed."""
    found = base_offsets(names, LOG_SUFFIX)
    present = set(found)
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        for base_offset in base_offsets(names, suffix):
            if base_offset not in present:
                storage.remove(f"{directory}/{file_name(base_offset, suffix)}")
    return [
        Segment(storage, directory, base, index_interval_bytes=index_interval_bytes, now_ms=now_ms)
        for base in found
    ]


def log_end_after_clean_shutdown(segments: SegmentList) -> int:
    """The log end offset, from the active segment's last index entry on. Raises LogCorruptError."""
    active = segments.active
    active.unseal()
    return active.seek(active.offset_index.last_position, stop_offset=_FOREVER).offset


class Recovery:
    """One pass over the segments that a crash may have torn."""

    def __init__(
        self, storage: LogStorage, segments: SegmentList, epochs: EpochCache, *, recovery_point: int
    ) -> None:
        self._storage = storage
        self._segments = segments
        self._epochs = epochs
        self._recovery_point = recovery_point
        self._first = segments.position_for(recovery_point)
        self._expected = segments[self._first].base_offset
        """The offset that comes next, or a later one."""
        self._checked_bytes = 0
        self.first_offset = self._expected
        """Where the segments begin that are checked."""
        self.has_markers = False
        """Whether control batches of producers were met in them."""

    def run(self) -> tuple[int, RecoveryReport]:
        """Checks, cuts and rebuilds. Returns the log end offset. Raises LogCorruptError, OSError."""
        self._epochs.truncate_from_end(self._expected)
        number = self._first
        while number < len(self._segments):
            segment = self._segments[number]
            if segment.base_offset != self._expected:
                return self._cut_segments(number, self._gap_reason(segment))
            damage = self._recover_segment(segment)
            if damage is not None:
                return self._cut_tail(number, segment, damage)
            number += 1
            if number < len(self._segments):
                segment.seal()  # its indexes leave memory before those of the next one fill it
        active = self._segments.active
        # A log without any record is one whose files somebody removed, to have them copied again.
        if self._expected < self._recovery_point and active.size_bytes:
            raise LogCorruptError(
                active.log_path,
                active.size_bytes,
                f"the log ends at offset {self._expected}, but was flushed up to {self._recovery_point}",
            )
        return self._finish(RecoveryReport(clean=False, checked_bytes=self._checked_bytes))

    def _recover_segment(self, segment: Segment) -> Damage | None:
        """Reads the segment whole and indexes the sound batches at its start."""
        file = self._storage.file(segment.log_path)
        size_bytes = segment.size_bytes
        segment.reset()
        self._checked_bytes += size_bytes
        for step in walk_checked(file, size_bytes):
            if isinstance(step, Damage):
                return step
            position, header = step
            reason = self._out_of_order(header)
            if reason is not None:
                return Damage(position, reason)
            epoch = header.partition_leader_epoch
            if epoch >= 0 and epoch != self._epochs.latest_epoch:
                self._epochs.assign(epoch, header.base_offset)
            segment.index(((header.last_offset, header.size_bytes, header.max_timestamp),))
            self.has_markers |= header.is_control and header.has_producer_id
            self._expected = header.next_offset
        segment.rewrite_indexes()
        return None

    def _out_of_order(self, header: BatchHeader) -> str | None:
        """Old bytes of a file that was cut and written again can be sound batches, but not in order."""
        if header.base_offset < self._expected:
            return f"a batch goes back to offset {header.base_offset}, expected {self._expected}"
        latest = self._epochs.latest_epoch
        if latest is not None and 0 <= header.partition_leader_epoch < latest:
            return f"a batch goes back to leader epoch {header.partition_leader_epoch} from {latest}"
        return None

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
        torn_bytes = self._storage.file(segment.log_path).size() - damage.position
        removed, removed_bytes = self._remove_from(number + 1)
        self._storage.truncate_durably(segment.log_path, damage.position)
        segment.rewrite_indexes()
        return self._finish(
            RecoveryReport(False, self._checked_bytes, torn_bytes + removed_bytes, removed, damage.reason)
        )

    def _cut_segments(self, number: int, reason: str) -> tuple[int, RecoveryReport]:
        segment = self._segments[number]
        if self._expected < self._recovery_point:
            raise LogCorruptError(segment.log_path, 0, reason)
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
