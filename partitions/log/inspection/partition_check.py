"""Whether a partition's folder is what was written: its segments, and the files that speak of them.

Guarantees: reads everything and writes nothing, also while a broker runs. Segments join; producer
snapshots and the epoch checkpoint agree with the batches; the log reaches as far as it was flushed. Holes
between offsets are damage unless something says that the log was compacted. Called by `directory_check`
and `kraft log verify`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from typing import Final

from leader_epoch.checkpoint import CHECKPOINT_FILE_NAME
from partitions.log.inspection.batches import READ_ATTEMPTS
from partitions.log.inspection.entries import (
    PlacedEpoch,
    damage_note,
    epoch_entries,
    producer_entries,
    topic_id,
    truncation_limits,
)
from partitions.log.inspection.epoch_check import compare_with_checkpoint, entries_beyond, take_out_stray_runs
from partitions.log.inspection.files import ReadableDisk, read_whole
from partitions.log.inspection.findings import Finding, Findings
from partitions.log.inspection.log_state import EVERYTHING, Expected, LogState, snapshot_difference
from partitions.log.inspection.segment_check import SegmentCheck
from partitions.log.node_logs.data_directory import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from partitions.log.opening.damage_note import DAMAGE_NOTE, DamageNote, known_epochs
from partitions.log.partition_files import PARTITION_METADATA, TRUNCATION_CHECKPOINT
from partitions.log.producers.producer_snapshot import SNAPSHOT_SUFFIX, snapshot_path
from partitions.log.producers.transaction_index import TRANSACTION_INDEX_SUFFIX
from partitions.log.segment import LOG_SUFFIX, base_offsets, file_name
from partitions.log.segment_indexes import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from partitions.records.batch import BatchHeader

UNFINISHED_SUFFIXES: Final = (".tmp", ".cleaned", ".swap", ".deleted")
_CLEANING_SUFFIXES: Final = (".cleaned", ".swap")
_REMOVED: Final = "; the next start removes it"
_COMPACTED: Final = "; that is damage unless the topic is compacted (then say so with --compacted)"


def check_partition(
    disk: ReadableDisk, directory: str, expected: Expected, findings: Findings
) -> bytes | None:
    """Checks a folder, and once more if a running broker dropped, cut or compacted segments meanwhile.

    Returns the topic id in it, where it could be read.
    """
    names: Sequence[str] = ()
    for _ in range(READ_ATTEMPTS):
        found = Findings()
        with suppress(OSError):
            names = disk.list_dir(directory)
        check = PartitionCheck(disk, directory, expected, found)
        check.run()
        with suppress(OSError):
            if not found.errors or disk.list_dir(directory) == names:
                break
    findings.add(found)
    return check.topic_id


class PartitionCheck:
    """One check of one folder."""

    def __init__(self, disk: ReadableDisk, directory: str, expected: Expected, findings: Findings) -> None:
        self._disk = disk
        self._directory = directory
        self._expected = expected
        self._findings = findings
        self._state = LogState()
        self._snapshots: list[int] = []
        self._first_offset = 0
        self.topic_id: bytes | None = None
        """The id in `partition.metadata`, where it could be read."""

    def run(self) -> None:
        """Checks the folder. What cannot be read is a finding."""
        findings = self._findings
        findings.partitions += 1
        try:
            names = self._disk.list_dir(self._directory)
        except OSError as error:
            findings.unreadable.append(
                Finding(self._directory, None, f"it cannot be read: {error.strerror or error}")
            )
            return
        self._check_metadata(names)
        self._apply_limits()
        if any(name.endswith(_CLEANING_SUFFIXES) for name in names):
            self._expected = self._expected._replace(has_holes=True)
        bases = base_offsets(names, LOG_SUFFIX)
        self._snapshots = base_offsets(names, SNAPSHOT_SUFFIX)
        self._walk(bases)
        self._check_snapshots_at_end(bases)
        self._resolve_suspects()
        self._check_epochs(names)
        self._check_end(bases)
        self._check_damage_note(names)
        self._note_others(names, bases)

    def check_segment(self, base_offset: int) -> None:
        """Checks one segment and its indexes, and nothing that other files say."""
        bases = base_offsets(self._disk.list_dir(self._directory), LOG_SUFFIX)
        behind = [base for base in bases if base > base_offset]
        self._begin_at(base_offset)
        self._check_segment(base_offset, behind[0] if behind else None)
        self._resolve_suspects()
        for stray in take_out_stray_runs(self._state.epoch_runs):
            self._findings.errors.append(stray)

    def _tell(self, path: str, position: int | None, reason: str, *, becomes: str = "") -> None:
        """Damage where everything was flushed; else a crash explains it, and it `becomes` that at the next start."""
        if self._expected.durable_to == EVERYTHING:
            self._findings.error(path, position, reason)
        else:
            self._findings.note(path, position, reason + becomes)

    # ---- small files

    def _check_metadata(self, names: Sequence[str]) -> None:
        path = f"{self._directory}/{PARTITION_METADATA}"
        if PARTITION_METADATA not in names:
            self._findings.note(
                path, None, "it is missing: nothing says which topic id the folder belongs to"
            )
            return
        with self._findings.reading(path):
            self.topic_id = topic_id(path, read_whole(self._disk, path)).topic_id

    def _apply_limits(self) -> None:
        """A truncation has made untrue what the data directory says, until it is written again."""
        path = f"{self._directory}/{TRUNCATION_CHECKPOINT}"
        if not self._disk.exists(path):
            return
        with self._findings.reading(path):
            limits = truncation_limits(path, read_whole(self._disk, path))
            expected = self._expected
            if expected.recovery_point is not None:
                point = min(expected.recovery_point, limits.recovery_point)
                durable_to = expected.durable_to
                self._expected = expected._replace(
                    recovery_point=point, durable_to=durable_to if durable_to == EVERYTHING else point
                )

    # ---- segments

    def _begin_at(self, offset: int) -> None:
        self._state.next_offset = self._state.end_offset = offset
        self._first_offset = offset

    def _walk(self, bases: Sequence[int]) -> None:
        if not bases:
            return
        self._begin_at(bases[0])
        for number, base in enumerate(bases):
            due = self._state.next_offset
            path = f"{self._directory}/{file_name(base, LOG_SUFFIX)}"
            if due is not None and base < due:
                self._findings.error(
                    path, 0, f"it begins at offset {base}, and the segment before it ends at {due}"
                )
            elif due is not None and base > due:
                self._state.suspect(
                    path, 0, f"it begins at offset {base}, and the segment before it ends at {due}"
                )
            if due is not None:
                self._state.next_offset = max(base, due)
            self._state.end_offset = max(self._state.end_offset, base)
            self._check_segment(base, bases[number + 1] if number + 1 < len(bases) else None)

    def _check_segment(self, base: int, next_base: int | None) -> None:
        SegmentCheck(
            self._disk,
            self._directory,
            base,
            next_base=next_base,
            state=self._state,
            expected=self._expected,
            findings=self._findings,
            on_batch=self._before_batch,
        ).run()

    def _resolve_suspects(self) -> None:
        state = self._state
        if state.is_cleaned or self._expected.has_holes:
            count = len(state.suspects) + state.suspects_left_out
            if count:
                reason = f"the log is compacted: batches are missing in {count} places"
                self._findings.note(self._directory, None, reason)
            return
        for suspect in state.suspects:
            self._findings.error(suspect.path, suspect.position, suspect.reason + _COMPACTED)
        if state.suspects_left_out:
            self._findings.left_out[self._directory] += state.suspects_left_out

    # ---- producer snapshots

    def _before_batch(self, header: BatchHeader) -> None:
        while self._snapshots and self._snapshots[0] <= header.base_offset:
            self._check_snapshot(self._snapshots.pop(0))

    def _check_snapshots_at_end(self, bases: Sequence[int]) -> None:
        while self._snapshots:
            offset = self._snapshots.pop(0)
            self._check_snapshot(offset)
            if offset <= self._state.end_offset or self._state.next_offset is None:
                continue
            path = self._snapshot_path(offset)
            reason = f"it is of offset {offset}, and the log ends at {self._state.end_offset}"
            if bases:
                self._tell(path, None, reason, becomes=_REMOVED)
            else:
                self._findings.note(path, None, reason + _REMOVED)

    def _check_snapshot(self, offset: int) -> None:
        path = self._snapshot_path(offset)
        state = self._state
        with self._findings.reading(path):
            stored = producer_entries(path, read_whole(self._disk, path))
            first = self._first_offset
            if state.has_damage or not first <= offset <= state.end_offset:
                return  # batches are missing to compare it with
            difference = snapshot_difference(stored, state.producers.producers, first, offset)
            if difference is not None:
                state.suspect(path, 0, difference)

    def _snapshot_path(self, offset: int) -> str:
        return snapshot_path(self._directory, offset)

    # ---- leader epochs

    def _check_epochs(self, names: Sequence[str]) -> None:
        runs = self._state.epoch_runs
        for stray in take_out_stray_runs(runs):
            self._findings.error(*stray)
        path = f"{self._directory}/{CHECKPOINT_FILE_NAME}"
        if CHECKPOINT_FILE_NAME not in names:
            if runs and runs[0].first_offset < self._expected.durable_to:
                self._findings.error(path, None, "it is missing, and the log has batches of leader epochs")
            return
        entries: list[PlacedEpoch] = []
        is_read = False
        with self._findings.reading(path):
            entries.extend(epoch_entries(path, read_whole(self._disk, path)))
            is_read = True
        if is_read:
            for finding in compare_with_checkpoint(runs, path, entries, self._expected.durable_to):
                self._findings.error(*finding)
            self._check_epochs_beyond(path, entries)

    def _check_epochs_beyond(self, path: str, entries: Sequence[PlacedEpoch]) -> None:
        """A crash may take the log's end back behind what the checkpoint says; a proper end does not."""
        if self._state.next_offset is None:
            return  # damage hides where the log ends
        for finding in entries_beyond(path, entries, self._state.end_offset):
            self._tell(*finding, becomes="; the next start takes it out")

    # ---- what the broker has met

    def _check_damage_note(self, names: Sequence[str]) -> None:
        """Tells what was noted; what is still there is damage, also if nothing else has shown it."""
        if DAMAGE_NOTE not in names:
            return
        path = f"{self._directory}/{DAMAGE_NOTE}"
        with self._findings.reading(path):
            noted = damage_note(path, read_whole(self._disk, path))
            damaged = f"{self._directory}/{noted.file}"
            told = f"the broker has met damage in {noted.file} at byte {noted.position}: {noted.reason}"
            if not self._is_still_there(damaged, noted):
                told += "; it is there no more, and the next start removes this note"
            elif all(error.path != damaged for error in self._findings.errors):
                self._findings.error(damaged, noted.position, noted.reason)
            self._findings.note(path, None, told)

    def _is_still_there(self, damaged: str, noted: DamageNote) -> bool:
        if not self._disk.exists(damaged):
            return False
        path = f"{self._directory}/{CHECKPOINT_FILE_NAME}"
        epochs = known_epochs(read_whole(self._disk, path) if self._disk.exists(path) else None)
        with closing(self._disk.open(damaged)) as file:
            next_base = noted.next_base_among(self._disk.list_dir(self._directory))
            return noted.is_true_of(file, file.size(), epochs, next_base)

    # ---- the log's two ends

    def _check_end(self, bases: Sequence[int]) -> None:
        state, expected = self._state, self._expected
        if state.next_offset is None or not bases:
            if not bases and expected.recovery_point:
                self._findings.error(
                    self._directory,
                    None,
                    f"it holds no log, which was flushed up to {expected.recovery_point}",
                )
            return
        path = f"{self._directory}/{file_name(bases[-1], LOG_SUFFIX)}"
        size: int | None = None
        with suppress(OSError), closing(self._disk.open(path)) as file:
            size = file.size()
        end = state.end_offset
        if expected.recovery_point is not None and end < expected.recovery_point:
            self._apply_limits()  # a running broker may have cut the log meanwhile
            expected = self._expected
        if expected.recovery_point is not None and end < expected.recovery_point:
            reason = (
                f"the log ends at offset {end}, and was flushed up to {expected.recovery_point} by the"
                f" {RECOVERY_POINTS}"
            )
            self._findings.error(path, size, reason)
        if expected.closed_at is not None and end > expected.closed_at:
            reason = f"the log ends at offset {end}, and was closed at {expected.closed_at} by the {RECOVERY_POINTS}"
            self._findings.error(path, size, reason)
        for name, offset in (
            (HIGH_WATERMARKS, expected.high_watermark),
            (LOG_START_OFFSETS, expected.log_start_offset),
        ):
            if offset is not None and offset > end:
                self._tell(path, size, f"the log ends at offset {end}, and the {name} says {offset}")

    def _note_others(self, names: Sequence[str], bases: Sequence[int]) -> None:
        for name in names:
            if name.endswith(UNFINISHED_SUFFIXES):
                self._findings.note(
                    f"{self._directory}/{name}",
                    None,
                    "it is left from unfinished work, and was not looked at",
                )
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
            for base in sorted(set(base_offsets(names, suffix)) - set(bases)):
                index = file_name(base, suffix)
                if self._tells_of_a_lost_segment(names, bases, base) and suffix != TRANSACTION_INDEX_SUFFIX:
                    path = f"{self._directory}/{file_name(base, LOG_SUFFIX)}"
                    self._findings.error(path, None, f"it is missing, and {index} is there")
                    continue
                path = f"{self._directory}/{index}"
                self._findings.note(path, None, "it is an index without a segment; the next start removes it")

    def _tells_of_a_lost_segment(self, names: Sequence[str], bases: Sequence[int], base: int) -> bool:
        """Whether an index without a segment lies where only damage leaves one: inside the log, where it was
        flushed, and no cleaned segment is on its way into the place of others."""
        is_inside = len(bases) > 0 and bases[0] < base < bases[-1]
        is_cleaning = any(name.endswith(_CLEANING_SUFFIXES) for name in names)
        return is_inside and base < self._expected.durable_to and not is_cleaning
