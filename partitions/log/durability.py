"""The state of a log, and what of it is on disk: rolling, flushing, closing.

Guarantees: the recovery point never passes a byte, a name or a leader epoch that is not durable. `PartitionLog`
is built on this; the log manager runs the flushes through its executor.
"""

from __future__ import annotations

from typing import Final

from partitions.log.checkpointed_offsets import CheckpointedOffsets
from partitions.log.cleaner.swap import SegmentSwap
from partitions.log.errors import LogStorageError, NoSpaceLeft
from partitions.log.flush import ActiveIndexes, FlushJob
from partitions.log.opening import OpenedLog, OpenRequest
from partitions.log.producer_recovery import KnownProducers
from partitions.log.producer_snapshot import SNAPSHOT_SUFFIX, encode_snapshot
from partitions.log.reader import LogReader
from partitions.log.segment import Segment, file_name
from partitions.log.storage import LogStorage, is_disk_full, is_passing, storage_error
from partitions.ports import NowMs
from partitions.topic_partition import TopicPartition

MARK_EVERY_BYTES: Final = 8 * 1024 * 1024
"""So many bytes of batches a truncation walks over at most, where it does not go back beyond the marks; more with
many producers."""
PRODUCERS_PER_MARK: Final = 1000
"""Where there are more, marks are as many times rarer: each copies what is known of all, in an append."""
MARKS: Final = 3


class DurableLog(CheckpointedOffsets):
    """Segments, leader epochs and producers of one partition, and how far each is flushed."""

    __slots__ = (
        "_aborted",
        "_generation",
        "_half_set_aside",
        "_names_synced",
        "_names_version",
        "_now_ms",
        "_owns_storage",
        "_producer_marks",
        "_reader",
        "_segments",
        "_snapshot_offset",
        "_swap",
        "_unmarked_bytes",
        "_unsynced_sealed",
        "config",
        "producer_state",
        "recovery",
        "topic_id",
    )

    def __init__(
        self,
        storage: LogStorage,
        topic_partition: TopicPartition,
        request: OpenRequest,
        opened: OpenedLog,
        now_ms: NowMs,
        *,
        owns_storage: bool,
    ) -> None:
        super().__init__(storage, topic_partition, request, opened)
        self.config = request.config
        self.topic_id = opened.topic_id
        self.producer_state = opened.producer_state
        self.recovery = opened.report
        """What opening the log found."""
        self._owns_storage = owns_storage
        self._now_ms = now_ms
        self._segments = opened.segments
        self._reader = LogReader(storage, opened.segments, opened.verification())
        self._generation = 0
        self._half_set_aside: tuple[str, ...] = ()
        """Files of the first segment that have their new names already, where others could not be renamed."""
        self._names_version = 0
        self._names_synced = 0 if opened.existed_cleanly else -1
        self._snapshot_offset = opened.snapshot_offset
        self._producer_marks: tuple[KnownProducers, ...] = ()
        """What was known of producers at a few places near the log's end."""
        self._unmarked_bytes = 0
        self._aborted = opened.aborted
        self._unsynced_sealed: list[Segment] = []
        if not opened.report.clean:
            self._unsynced_sealed = opened.segments.from_offset(opened.recovery_point)[:-1]
        self._swap: SegmentSwap | None = None

    @property
    def storage(self) -> LogStorage:
        """The data directory as this log uses it."""
        return self._storage

    @property
    def _is_empty(self) -> bool:
        return len(self._segments) == 1 and self._segments.active.size_bytes == 0

    def roll(self) -> None:
        """Closes the active segment and begins a new one; nothing to do when it is empty.

        Raises LogStorageError; the log goes on with the old segment where that may pass (NoSpaceLeft, want of
        descriptors or memory), and is given up where it does not.
        """
        self._ensure_open()
        if self._segments.active.size_bytes:
            try:
                self._roll()
            except OSError as error:
                reason = f"no new segment could be made: {error}"
                self._storage.fail_if_broken(reason, error)
                if not (is_disk_full(error) or is_passing(error)):
                    self._storage.on_lost(self.topic_partition, LogStorageError(reason))
                raise storage_error(reason, error) from error

    def _roll(self) -> Segment:
        """As `roll`, for an active segment that is not empty. Raises OSError with nothing changed."""
        old = self._segments.active
        if self.config.preallocate:
            old.trim()
        old.persist_indexes()
        self._aborted.persist(old.base_offset)
        flushed = self.recovery_point >= self.log_end_offset
        if flushed:
            # Neither a flush nor a recovery looks at this segment again once the new one is there.
            old.sync_indexes()
            self._aborted.sync(old.base_offset)
        self._write_snapshot()
        new = self._create_segment(self.log_end_offset)
        old.seal()
        self._aborted.persist(old.base_offset, sealed=True)
        self._segments.append(new)
        if not flushed:
            self._unsynced_sealed.append(old)
        return new

    def _create_segment(self, base_offset: int) -> Segment:
        self._names_version += 1
        segment = Segment(
            self._storage,
            self.directory,
            base_offset,
            index_interval_bytes=self.config.index_interval_bytes,
            now_ms=self._now_ms(),
        )
        try:
            segment.create_files()
            if self.config.preallocate:
                segment.reserve(self.config.segment_bytes)
        except OSError:
            # An empty segment left here would claim offsets that the old one goes on to fill.
            try:
                segment.remove()
            except OSError as error:
                self._storage.fail(
                    f"removing an unfinished segment of {self.directory} failed: {error}", error
                )
            raise
        return segment

    def _write_snapshot(self) -> None:
        """Producer state at the log's end. Not fsynced: a damaged one is replaced by replaying."""
        if self._snapshot_offset == self.log_end_offset or self._is_empty:
            return
        old = self._snapshot_offset
        path = self._snapshot_path(self.log_end_offset)
        file = self._storage.open(path, create=True)
        try:
            if file.size():
                file.truncate(0)
            file.append([encode_snapshot(self.producer_state.producers)])
        finally:
            file.close()
        self._snapshot_offset = self.log_end_offset
        if old >= 0 and not self._segments.has_base(old):
            self._storage.remove(self._snapshot_path(old))
            self._names_version += 1

    def _mark_producers(self) -> None:
        """Keeps what is known of producers now, for a truncation: a snapshot file is at the segment's start only,
        and all batches behind it would have to be walked over. Called when so many bytes came that a mark is due
        for few producers."""
        count = len(self.producer_state.producers)
        if (
            count > PRODUCERS_PER_MARK
            and self._unmarked_bytes * PRODUCERS_PER_MARK < MARK_EVERY_BYTES * count
        ):
            return
        self._unmarked_bytes = 0
        self._producer_marks = (*self._producer_marks[1 - MARKS :], KnownProducers.of(self.producer_state))

    @property
    def _needs_no_snapshot(self) -> bool:
        """Whether a start learns as soon without one that there are no producers: it reads all headers anyway."""
        return (
            self._snapshot_offset < 0
            and not self.producer_state.producers
            and len(self._segments) == 1
            and self._segments.active.is_unindexed
        )

    def _snapshot_path(self, offset: int) -> str:
        return f"{self.directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"

    # ---- flushing

    def sync(self) -> None:
        """Makes the log durable up to its end and moves the recovery point there.

        Raises LogStorageError; after a failed fsync the node has been halted.
        """
        self._ensure_open()
        if self.recovery_point < self.log_end_offset:
            for segment in self._unsynced_sealed:
                self._sync_data(segment)
                segment.sync_indexes()
                self._aborted.sync(segment.base_offset)
            self._sync_data(self._segments.active)
            self._unsynced_sealed.clear()
        self._sync_names()
        if self._epochs_dirty:
            self._write_epochs()
        if self.recovery_point != self.log_end_offset:
            self.recovery_point = self._durable_to = self.log_end_offset
            self._offsets_moved()
        self._lift_limits()

    def _sync_names(self) -> None:
        """Makes the names of new segments durable, and the absence of removed files."""
        if self._names_synced != self._names_version:
            self._storage.sync_dir(self.directory)
            self._names_synced = self._names_version

    def _sync_data(self, segment: Segment) -> None:
        try:
            file = self._storage.file(segment.log_path)
        except OSError as error:
            self._storage.fail(f"{segment.log_path} cannot be opened for its fsync: {error}", error)
        self._storage.sync(file)

    @property
    def needs_flush(self) -> bool:
        """Whether `sync` would have anything to do."""
        is_durable = self.recovery_point >= self.log_end_offset and self._names_synced == self._names_version
        return self._epochs_dirty or not is_durable

    def prepare_flush(self) -> FlushJob | None:
        """The first half of a sync: a job for `flush.run_flush` on an executor; None if none is due."""
        self._ensure_open()
        return self._flush_job() if self.needs_flush else None

    def prepare_close(self) -> FlushJob | None:
        """As `prepare_flush`, for a log that takes no more: `close` has nothing to wait for after this job."""
        self._ensure_open()
        self._settle_swap()
        self._write_rest()
        if self._epochs_dirty:
            self._write_epochs()
        active = self._segments.active
        index_paths = active.unsynced_index_paths
        if not self.needs_flush and not index_paths:
            return None
        job = self._flush_job()
        return job._replace(
            paths=(*job.paths, *index_paths),
            active_indexes=ActiveIndexes(active.base_offset, active.index_writes) if index_paths else None,
        )

    def _flush_job(self) -> FlushJob:
        no_room: NoSpaceLeft | None = None
        if self._epochs_dirty:
            try:
                self._write_epochs()
            except NoSpaceLeft as error:
                no_room = error
                self._names_version += self._drop_contradicted_epochs()
        paths: list[str] = []
        for segment in self._unsynced_sealed:
            paths += (segment.log_path, *segment.index_paths, *self._aborted.paths(segment.base_offset))
        if self.recovery_point < self.log_end_offset:
            paths.append(self._segments.active.log_path)
        return FlushJob(
            end_offset=self.log_end_offset,
            paths=tuple(paths),
            directory=self.directory if self._names_synced != self._names_version else None,
            generation=self._generation,
            names_version=self._names_version,
            sealed=tuple(segment.base_offset for segment in self._unsynced_sealed),
            no_room_for_epochs=no_room,
        )

    def complete_flush(self, job: FlushJob) -> None:
        """The second half, after the job succeeded: moves the recovery point as far as it covers.

        Raises NoSpaceLeft if all but the epochs is durable now: below the recovery point they are in their file;
        LogStorageError if a file that is no longer needed cannot be removed.
        """
        if self._closed or job.generation != self._generation:
            return
        unsynced = [segment for segment in self._unsynced_sealed if segment.base_offset not in job.sealed]
        if unsynced and (unsynced[1:] or [self._segments.active])[0].base_offset <= job.end_offset:
            # Closed while the job ran, where the job ended: recovery would not rebuild its indexes.
            closed = unsynced.pop(0)
            closed.sync_indexes()
            self._aborted.sync(closed.base_offset)
        self._unsynced_sealed = unsynced
        covered, active = job.active_indexes, self._segments.active
        if covered is not None and covered.base_offset == active.base_offset:
            active.indexes_are_durable(covered.writes)
        if job.directory is not None:
            self._names_synced = max(self._names_synced, job.names_version)
        self._durable_to = max(self._durable_to, job.end_offset)
        durable_to = min(job.end_offset, self._epochs_agree_below)
        if durable_to > self.recovery_point:
            self.recovery_point = durable_to
            self._offsets_moved()
        self._lift_limits()
        if job.no_room_for_epochs is not None:
            raise job.no_room_for_epochs

    # ---- compaction

    @property
    def is_swapping(self) -> bool:
        """Whether a cleaned segment is about to take the place of others."""
        return self._swap is not None

    def _settle_swap(self) -> None:
        """Ends a swap of segments that is under way, before the segments change otherwise."""
        if self._swap is not None:
            self._swap.settle()

    # ---- closing

    def close(self) -> None:
        """Flushes everything, so that the next open may be a clean one. Raises LogStorageError."""
        if self._closed:
            return
        self._storage.ensure_usable()
        self._settle_swap()
        self._write_rest()
        active = self._segments.active
        if active.unsynced_index_paths:
            active.sync_indexes()
        self._aborted.sync(active.base_offset)
        self.sync()
        self._release()

    def _write_rest(self) -> None:
        """Writes what a log keeps in memory while it grows. Raises LogStorageError."""
        active = self._segments.active
        try:
            if self.config.preallocate:
                active.trim()
            active.persist_indexes(is_closing=True)
            self._aborted.persist(active.base_offset)
            if not self._needs_no_snapshot:
                self._write_snapshot()
        except OSError as error:
            raise storage_error(f"closing the log {self.directory} failed: {error}", error) from error

    def abandon(self) -> None:
        """Lets go of files and memory without flushing: the log is deleted, or its disk is gone."""
        self._limits = None
        if self._swap is not None:
            self._swap.abandon()
            self._swap = None
        self._release()

    def _release(self) -> None:
        self._closed = True
        self._take_install_over()
        for segment in self._segments:
            segment.release()
        self._aborted.release()
        if self._owns_storage:
            self._storage.close()
