"""All partition logs of a node: opening, creating, deleting, flushing, checkpoints, retention, closing.

Guarantees: the checkpoint files never say more than what is durable, and hold no entry of a deleted
partition when its name is used again; only a node that closed every log says that it ended cleanly.
Called by the replica manager on the event loop; what waits for the disk goes through the executor.
Nothing here runs by itself: a scheduler calls the periodic methods (high watermarks every 5 s,
recovery points and log start offsets every 60 s, retention every 5 min).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence

from partitions.disk import Disk
from partitions.log.checkpointing import CheckpointWriter
from partitions.log.cleaner.cleaner import CleanerPorts
from partitions.log.cleaner.config import CleanerConfig
from partitions.log.cleaner.schedule import LogCleaner
from partitions.log.config import LogConfig
from partitions.log.data_directory import (
    CHECKPOINTS,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    UNKNOWN_BROKER_EPOCH,
    DataDirectory,
)
from partitions.log.errors import LogError, LogStorageError
from partitions.log.flush import run_flush
from partitions.log.log import PartitionLog
from partitions.log.opening import stored_topic_id
from partitions.log.removal import DelayedRemovals
from partitions.log.retention import Retention
from partitions.log.start_report import StartReport
from partitions.log.storage import DEFAULT_MAX_OPEN_FILES, LogStorage
from partitions.ports import Executor, Halt, NowMs
from partitions.topic_partition import TopicPartition

DEFAULT_PRODUCER_EXPIRATION_MS = 86_400_000
KAFKAS_CLEANER = CleanerConfig()


class LogManager:
    """The logs of one node, by partition."""

    def __init__(
        self,
        disk: Disk,
        directories: Sequence[str],
        default_config: LogConfig,
        executor: Executor,
        *,
        now_ms: NowMs,
        halt: Halt,
        rng: random.Random,
        max_open_files: int = DEFAULT_MAX_OPEN_FILES,
        producer_expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS,
        cleaner: CleanerConfig = KAFKAS_CLEANER,
    ) -> None:
        if not directories:
            raise ValueError("a node needs at least one data directory (log.dirs)")
        self._disk = disk
        self._directories = [DataDirectory(disk, path.rstrip("/")) for path in directories]
        self._default_config = default_config
        self._executor = executor
        self._now_ms = now_ms
        self._halt = halt
        self._rng = rng
        self._storage = LogStorage(disk, halt, max_open_files=max_open_files)
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._home: dict[TopicPartition, DataDirectory] = {}
        self._failed: dict[TopicPartition, LogError] = {}
        self._deleting: set[TopicPartition] = set()
        self._removals = DelayedRemovals(disk, executor, now_ms)
        self._checkpoints = CheckpointWriter(
            disk, executor, self._storage, self._directories, self._logs, self._home
        )
        ports = CleanerPorts(disk, executor, self._storage, cleaner, now_ms)
        self.cleaner = LogCleaner(ports, self._logs, self._flush, self._checkpoints.write_clean_offset)
        """Compacts logs, when it is told to."""
        self._retention = Retention(
            self._logs,
            self._storage,
            executor,
            self._removals,
            flush=self._flush,
            now_ms=now_ms,
            producer_expiration_ms=producer_expiration_ms,
        )
        self._started = False
        self._closed = False

    # ---- start

    def start(self, *, cluster_id: str, node_id: int) -> StartReport:
        """Takes the directories and opens every log in them. Blocks; nothing is served before.

        A log that cannot be opened is reported and left alone; a directory that cannot be used
        raises DataDirectoryError with a sentence for the operator.
        """
        try:
            for directory in self._directories:
                directory.lock()
            for directory in self._directories:
                directory.check_identity(cluster_id=cluster_id, node_id=node_id)
            for directory in self._directories:
                directory.load()
                for folder in directory.deleted_folders():
                    self._removals.add_folder(folder, 0)
                self._open_logs(directory)
        except BaseException:
            self._release_directories()
            raise
        self._started = True
        epochs = [directory.previous_broker_epoch for directory in self._directories]
        clean = all(directory.clean_shutdown for directory in self._directories)
        return StartReport(
            clean_shutdown=clean,
            previous_broker_epoch=min(epochs) if clean and not self._failed else UNKNOWN_BROKER_EPOCH,
            logs=len(self._logs),
            recovered={
                partition: log.recovery
                for partition, log in self._logs.items()
                if log.recovery.reason is not None
            },
            failed=dict(self._failed),
        )

    def _open_logs(self, directory: DataDirectory) -> None:
        for partition, path in directory.partition_folders():
            other = self._home.get(partition)
            if other is not None:
                raise LogStorageError(
                    f"{partition} has a folder in {other.path} and in {directory.path}; remove the older one"
                )
            self._home[partition] = directory
            try:
                self._logs[partition] = self._open(directory, partition, path, None, self._default_config)
            except LogError as error:
                self._failed[partition] = error
        for name in CHECKPOINTS:
            known = directory.checkpoints[name]
            live = {partition: offset for partition, offset in known.items() if partition in self._home}
            if name == CLEANER_OFFSETS:
                live = {
                    partition: self._clean_offset(partition, offset) for partition, offset in live.items()
                }
            if live != known:  # left from partitions deleted just before a crash, or from lost files
                directory.write_checkpoint(name, live)

    def _clean_offset(self, partition: TopicPartition, checkpointed: int) -> int:
        """How far a log found at start is compacted: not beyond what is left of it."""
        log = self._logs.get(partition)
        return checkpointed if log is None else log.clean_offset

    def _open(
        self,
        directory: DataDirectory,
        partition: TopicPartition,
        path: str,
        topic_id: bytes | None,
        config: LogConfig,
    ) -> PartitionLog:
        return PartitionLog.open(
            self._disk,
            path,
            partition,
            config,
            now_ms=self._now_ms,
            halt=self._halt,
            recovery_point=directory.checkpoints[RECOVERY_POINTS].get(partition, 0),
            log_start_offset=directory.checkpoints[LOG_START_OFFSETS].get(partition, 0),
            clean_offset=directory.checkpoints[CLEANER_OFFSETS].get(partition, 0),
            clean_shutdown=directory.clean_shutdown,
            topic_id=topic_id,
            storage=self._storage,
        )

    # ---- the logs

    @property
    def executor(self) -> Executor:
        """Where jobs of these logs run that must not hold up the event loop."""
        return self._executor

    @property
    def logs(self) -> Mapping[TopicPartition, PartitionLog]:
        """The open logs; not to be changed by the caller."""
        return self._logs

    @property
    def failed(self) -> Mapping[TopicPartition, LogError]:
        """The logs that could not be opened at start, with the reason; not to be changed by the caller."""
        return self._failed

    def failed_topic_id(self, partition: TopicPartition) -> bytes | None:
        """The topic id in the folder of a log that could not be opened; None if nobody can tell."""
        return stored_topic_id(self._storage, self._home[partition].folder(partition))

    def get(self, partition: TopicPartition) -> PartitionLog | None:
        return self._logs.get(partition)

    def get_or_create(
        self, partition: TopicPartition, topic_id: bytes, config: LogConfig | None = None
    ) -> PartitionLog:
        """The partition's log for this incarnation of its topic, with `config` from now on.

        Raises InconsistentTopicId if the folder here belongs to another incarnation (delete it
        first), the error of a log that could not be opened, LogStorageError.
        """
        if self._closed or partition in self._deleting:
            raise LogStorageError(f"the log of {partition} is being closed or deleted")
        if partition in self._failed:
            raise self._failed[partition]
        config = config or self._default_config
        log = self._logs.get(partition)
        if log is not None:
            log.claim(topic_id)
            log.update_config(config)
            return log
        directory = self._emptiest_directory()
        log = self._open(directory, partition, directory.folder(partition), topic_id, config)
        self._logs[partition] = log
        self._home[partition] = directory
        return log

    def _emptiest_directory(self) -> DataDirectory:
        if len(self._directories) == 1:
            return self._directories[0]
        counts = {directory.path: 0 for directory in self._directories}
        for home in self._home.values():
            counts[home.path] += 1
        return min(self._directories, key=lambda directory: counts[directory.path])

    def high_watermark(self, partition: TopicPartition) -> int:
        """The high watermark that the last checkpoint holds; 0 for a partition it does not know."""
        home = self._home.get(partition)
        return 0 if home is None else home.checkpoints[HIGH_WATERMARKS].get(partition, 0)

    # ---- deleting

    async def delete(self, partitions: Iterable[TopicPartition]) -> None:
        """Deletes these logs. Their names are free for new ones when this returns.

        The folders are renamed at once, and removed by `remove_deleted` after `file.delete.delay.ms`.
        Raises LogStorageError.
        """
        gone = [p for p in partitions if p in self._home and p not in self._deleting]
        self._deleting.update(gone)
        touched: dict[str, DataDirectory] = {}
        try:
            for partition in gone:
                await self.cleaner.abort(partition)
            for partition in gone:
                touched[self._home[partition].path] = self._home[partition]
                self._set_aside(partition)
            for directory in touched.values():
                await self._storage.sync_dir_beside(self._executor, directory.path)
                for name in CHECKPOINTS:
                    await self._checkpoints.write(directory, name, {})
        finally:
            self._deleting.difference_update(gone)
            for partition in gone:
                self.cleaner.allow(partition)

    def _set_aside(self, partition: TopicPartition) -> None:
        """Closes the log and renames its folder, so that no start takes it for a partition's."""
        directory = self._home[partition]
        log = self._logs.pop(partition, None)
        if log is not None:
            log.abandon()
        self._failed.pop(partition, None)
        target = directory.deleted_folder(partition, f"{self._rng.getrandbits(128):032x}")
        try:
            self._disk.rename(directory.folder(partition), target)
        except FileNotFoundError:
            target = ""
        except OSError as error:
            self._storage.fail(f"renaming the folder of {partition} for deletion failed: {error}", error)
        del self._home[partition]
        if target:
            config = self._default_config if log is None else log.config
            self._removals.add_folder(target, config.file_delete_delay_ms)

    async def remove_deleted(self) -> None:
        """Removes folders and segments that have been set aside long enough, and what an earlier process
        left of folders. Raises LogStorageError; the next call tries again."""
        await self._removals.remove_due()

    # ---- flushing and checkpoints

    async def flush(self) -> None:
        """Makes every log durable up to where it is now. A failed fsync halts the node."""
        for log in list(self._logs.values()):
            if not log.is_closed and log.needs_flush:
                await self._flush(log)

    async def _flush(self, log: PartitionLog) -> None:
        job = log.prepare_flush()
        if job is None:
            return
        try:
            await self._executor.run(run_flush, self._disk, job)
        except OSError as error:
            self._storage.fail(f"fsync of the log {log.directory} failed: {error}", error)
        log.complete_flush(job)

    async def checkpoint_recovery_points(self) -> None:
        """Flushes all logs, then writes `recovery-point-offset-checkpoint`."""
        await self.flush()
        await self._checkpoints.write_recovery_points()

    async def checkpoint_log_start_offsets(self) -> None:
        """Writes `log-start-offset-checkpoint`."""
        await self._checkpoints.write_log_start_offsets()

    async def checkpoint_high_watermarks(self, changed: Mapping[TopicPartition, int]) -> None:
        """Writes `replication-offset-checkpoint`: these values, and for other logs those it holds."""
        for directory in self._directories:
            mine = {
                partition: offset
                for partition, offset in changed.items()
                if self._home.get(partition) is directory
            }
            if mine:
                await self._checkpoints.write(directory, HIGH_WATERMARKS, mine)

    # ---- retention

    async def delete_old_segments(
        self, high_watermark_of: Callable[[TopicPartition], int], *, max_logs: int
    ) -> int:
        """Retention on up to `max_logs` logs (`Retention.step`); call again while `retention_pending`.

        `high_watermark_of` answers for any open log. Returns the number of segments that went; their
        files go when `remove_deleted` finds them due. Raises LogStorageError.
        """
        return await self._retention.step(high_watermark_of, max_logs=max_logs)

    @property
    def retention_pending(self) -> bool:
        """Whether the round over all logs that `delete_old_segments` began is unfinished."""
        return self._retention.is_pending

    # ---- end

    async def close(self, *, broker_epoch: int, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Closes every log, writes the checkpoints and, if all went well, the clean shutdown markers.

        Appends must have ended. Raises the first error; there is no marker then. After a start that
        failed nothing is written: the directories may be another process's, their logs unrecovered.
        """
        if self._closed or not self._started:
            return
        self._closed = True
        try:
            await self.cleaner.close()
            await self.flush()
            for log in self._logs.values():
                log.close()
            await self.checkpoint_high_watermarks(high_watermarks)
            await self._checkpoints.write_recovery_points()
            await self._checkpoints.write_log_start_offsets()
            for directory in self._directories:
                try:
                    await self._executor.run(directory.write_clean_shutdown, broker_epoch)
                except OSError as error:
                    raise LogStorageError(f"ending cleanly in {directory.path} failed: {error}") from error
        finally:
            self._storage.close()
            self._release_directories()

    def _release_directories(self) -> None:
        for directory in self._directories:
            directory.release()
