"""How far one log is durable: its recovery point, and the flushes that move it.

Guarantees: the recovery point never passes a byte, a name or a leader epoch that is not durable. A flush may be split:
the log prepares a `FlushJob`, an executor runs it, the log completes it. The job covers exactly what was appended
before it was prepared, touches files by name and shares nothing with the log. A file that was deleted meanwhile needs
no fsync: retention removed it, or a truncation, after which the log ignores the job's outcome. `PartitionLog` owns its
`LogFlushes` and passes in where it ends; the log manager has the jobs run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from partitions.disk import Disk
from partitions.log.beside_loop import error_of, sync_and_close
from partitions.log.due_flush import DueFlush
from partitions.log.epochs.epoch_file import EpochFile
from partitions.log.errors import NoSpaceLeft
from partitions.log.producers.transaction_index import AbortedTransactions
from partitions.log.segment import Segment
from partitions.log.segments import SegmentList
from partitions.log.storage import LogStorage


class ActiveIndexes(NamedTuple):
    """Index files as they are when a job is prepared that covers them."""

    base_offset: int
    """Of their segment."""
    writes: int
    """How often they have been written to: once more, and the job proves nothing about them."""


class FlushJob(NamedTuple):
    """What must be made durable before the recovery point may move to `end_offset`."""

    end_offset: int
    paths: tuple[str, ...]
    directory: str | None
    """The folder, when names in it are not durable yet."""
    generation: int
    """Counts truncations: an older job proves nothing about the log as it is now."""
    names_version: int
    sealed: tuple[int, ...]
    """Base offsets of the sealed segments that the job covers."""
    no_room_for_epochs: NoSpaceLeft | None = None
    """Why the leader epochs are not in their file; the recovery point then stays below those."""
    active_indexes: ActiveIndexes | None = None
    """Of the active segment's indexes, for a log that is being closed: they grow no more."""


class LogFlushes:
    """What of a log is durable, and what the next flush has to cover."""

    __slots__ = ("_aborted", "_directory", "_epoch_file", "_names_synced", "_names_version", "_segments", "_storage",
                 "due", "durable_to", "recovery_point", "unsynced_sealed")  # fmt: skip

    def __init__(
        self,
        storage: LogStorage,
        directory: str,
        segments: SegmentList,
        aborted: AbortedTransactions,
        epoch_file: EpochFile,
        recovery_point: int,
    ) -> None:
        """`segments` and `aborted` are the log's."""
        self._storage = storage
        self._directory = directory
        self._segments = segments
        self._aborted = aborted
        self._epoch_file = epoch_file
        self.recovery_point = recovery_point
        """Everything below is durable."""
        self.durable_to = recovery_point
        """Higher than the recovery point while a full disk takes no new file of the epochs."""
        self.unsynced_sealed: list[Segment] = []
        """Closed segments that no flush has covered."""
        self.due = DueFlush()
        """What `flush.messages` asks for."""
        self._names_version = self._names_synced = 0

    # ---- what becomes of the log

    def names_changed(self) -> None:
        """A file was made or removed in the log's folder."""
        self._names_version += 1

    @property
    def names_are_durable(self) -> bool:
        """Whether the folder's names, and the absence of removed files, are on disk."""
        return self._names_synced == self._names_version

    def cut(self, log_end_offset: int) -> None:
        """The log was cut, and ends here in what is its active segment now."""
        self.recovery_point = min(self.recovery_point, log_end_offset)
        self.durable_to = min(self.durable_to, log_end_offset)
        self.due.cut(log_end_offset)
        active = self._segments.active
        self.unsynced_sealed = [s for s in self.unsynced_sealed if s.base_offset < active.base_offset]

    def restart_at(self, offset: int) -> None:
        """The log is empty, durably, and goes on at this offset."""
        self.unsynced_sealed.clear()
        self.recovery_point = self.durable_to = offset
        self.due.cut(offset)

    def deleted_before(self, offset: int) -> None:
        """The first segment begins here now: those before it are gone."""
        self.unsynced_sealed = [s for s in self.unsynced_sealed if s.base_offset >= offset]
        self.recovery_point = max(self.recovery_point, offset)
        self.durable_to = max(self.durable_to, offset)

    # ---- flushing, on the log's lane

    def is_due(self, log_end_offset: int) -> bool:
        """Whether anything of a log that ends here is not durable."""
        is_durable = self.recovery_point >= log_end_offset and self.names_are_durable
        return not (is_durable and self._epoch_file.is_durable)

    def sync(self, log_end_offset: int) -> bool:
        """Makes the log durable up to its end; whether the recovery point has moved. Raises LogStorageError."""
        if self.recovery_point < log_end_offset:
            for segment in self.unsynced_sealed:
                self._sync_data(segment)
                segment.indexes.sync()
                self._aborted.sync(segment.base_offset)
            self._sync_data(self._segments.active)
            self.unsynced_sealed.clear()
        self.sync_names()
        if not self._epoch_file.is_durable:
            self._epoch_file.write()
        if self.recovery_point == log_end_offset:
            return False
        self.recovery_point = self.durable_to = log_end_offset
        return True

    def sync_names(self) -> None:
        """Makes the names of new segments durable, and the absence of removed files. Raises LogStorageError."""
        if not self.names_are_durable:
            self._storage.sync_dir(self._directory)
            self._names_synced = self._names_version

    def _sync_data(self, segment: Segment) -> None:
        try:
            file = self._storage.file(segment.log_path)
        except OSError as error:
            self._storage.fail(f"{segment.log_path} cannot be opened for its fsync: {error}", error)
        self._storage.sync(file)

    # ---- flushing by a job

    def prepare(self, log_end_offset: int, generation: int) -> FlushJob:
        """A job for `run_flush` that makes the log durable up to its end. Raises LogStorageError."""
        no_room: NoSpaceLeft | None = None
        if not self._epoch_file.is_durable:
            try:
                self._epoch_file.write()
            except NoSpaceLeft as error:
                no_room = error
                self._names_version += self._epoch_file.drop_contradicted()
        paths: list[str] = []
        for segment in self.unsynced_sealed:
            paths += (segment.log_path, *segment.indexes.paths, *self._aborted.paths(segment.base_offset))
        if self.recovery_point < log_end_offset:
            paths.append(self._segments.active.log_path)
        return FlushJob(
            end_offset=log_end_offset,
            paths=tuple(paths),
            directory=None if self.names_are_durable else self._directory,
            generation=generation,
            names_version=self._names_version,
            sealed=tuple(segment.base_offset for segment in self.unsynced_sealed),
            no_room_for_epochs=no_room,
        )

    def prepare_last(self, log_end_offset: int, generation: int) -> FlushJob | None:
        """As `prepare`, for a log that takes no more and whose rest was written: closing it has nothing to wait for
        after this job. None where nothing is to be done."""
        if not self._epoch_file.is_durable:
            self._epoch_file.write()
        active = self._segments.active
        index_paths = active.unsynced_index_paths
        if not self.is_due(log_end_offset) and not index_paths:
            return None
        job = self.prepare(log_end_offset, generation)
        return job._replace(
            paths=(*job.paths, *index_paths),
            active_indexes=ActiveIndexes(active.base_offset, active.indexes.writes) if index_paths else None,
        )

    def complete(self, job: FlushJob) -> bool:
        """The job has succeeded, and the log was not cut meanwhile; whether the recovery point has moved."""
        unsynced = [segment for segment in self.unsynced_sealed if segment.base_offset not in job.sealed]
        if unsynced and (unsynced[1:] or [self._segments.active])[0].base_offset <= job.end_offset:
            # Closed while the job ran, where the job ended: recovery would not rebuild its indexes.
            closed = unsynced.pop(0)
            closed.indexes.sync()
            self._aborted.sync(closed.base_offset)
        self.unsynced_sealed = unsynced
        covered, active = job.active_indexes, self._segments.active
        if covered is not None and covered.base_offset == active.base_offset:
            active.indexes.are_durable(covered.writes)
        if job.directory is not None:
            self._names_synced = max(self._names_synced, job.names_version)
        self.durable_to = max(self.durable_to, job.end_offset)
        durable_to = min(job.end_offset, self._epoch_file.agrees_below)
        if durable_to <= self.recovery_point:
            return False
        self.recovery_point = durable_to
        return True


def run_flush(disk: Disk, job: FlushJob) -> None:
    """Waits for the disk. Raises OSError, after which the node must halt and not try again."""
    for path in job.paths:
        try:
            file = disk.open(path)
        except FileNotFoundError:
            continue
        sync_and_close(file)
    if job.directory is not None:
        try:
            disk.sync_dir(job.directory)
        except FileNotFoundError:
            return


def run_flushes(disk: Disk, jobs: Sequence[FlushJob]) -> tuple[OSError | None, ...]:
    """Several jobs in one; what failed, in their order, which must not be tried again."""
    return tuple(error_of(run_flush, disk, job) for job in jobs)
