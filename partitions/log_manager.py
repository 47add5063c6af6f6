"""All partition logs of a node: opening, creating, deleting, flushing, checkpoints, retention, closing.

Guarantees: the checkpoint files never say more than what is durable, and hold no entry of a deleted
partition when its name is used again; only a node that closed every log says that it ended cleanly. A
failure of one data directory, or damage of one log, takes away the logs it concerns and no others.
Called by the replica manager on the event loop; what waits for the disk goes through the executor.
Nothing here runs by itself: a scheduler calls the periodic methods (high watermarks every 5 s,
recovery points and log start offsets every 60 s, retention every 5 min).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog

from partitions.disk import Disk, DiskSpace
from partitions.log.cleaner.cleaner import CleanerPorts
from partitions.log.cleaner.config import CleanerConfig
from partitions.log.cleaner.schedule import LogCleaner
from partitions.log.config import LogConfig
from partitions.log.epochs.epoch_writer import EpochWriter
from partitions.log.errors import DirectoryFailed, LogCorruptError, LogError, LogStorageError
from partitions.log.flushes import run_flush
from partitions.log.log import PartitionLog
from partitions.log.node_logs.checkpointing import CheckpointWriter
from partitions.log.node_logs.closing import flush_before_closing
from partitions.log.node_logs.creation import LogCreator
from partitions.log.node_logs.data_directory import (
    HIGH_WATERMARKS,
    DataDirectory,
)
from partitions.log.node_logs.deletion import LogDeleter
from partitions.log.node_logs.directories import LogDirectories, PostponedErrors
from partitions.log.node_logs.parts import FoundLogs, LogParts
from partitions.log.node_logs.placements import PartitionPlacements
from partitions.log.node_logs.removal import DelayedRemovals
from partitions.log.node_logs.reopening import LogReopener
from partitions.log.node_logs.retention_rounds import Retention
from partitions.log.node_logs.startup import LogOpener, StartReport, start_report
from partitions.log.opening.damage_note import DamageNotes, LogExtent
from partitions.log.opening.open_log import stored_topic_id
from partitions.log.storage import DEFAULT_MAX_LOADED_INDEXES, DEFAULT_MAX_OPEN_FILES
from partitions.ports import Executor, Halt, NowMs
from partitions.topic_partition import CLUSTER_METADATA, TopicPartition

DEFAULT_PRODUCER_EXPIRATION_MS = 86_400_000
KAFKAS_CLEANER = CleanerConfig()
LOGS_PER_STEP = 500
"""Logs that a flush looks at before other events have their turn."""

logger = structlog.get_logger(__name__)

FailureListener = Callable[[Mapping[TopicPartition, LogError]], None]
"""Told which logs cannot be used any more, and why, in the middle of whatever met the failure."""


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
        max_loaded_indexes: int = DEFAULT_MAX_LOADED_INDEXES,
        producer_expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS,
        cleaner: CleanerConfig = KAFKAS_CLEANER,
        vital_directory: str | None = None,
    ) -> None:
        """`vital_directory` is the one of `directories` without which the node cannot go on, if any."""
        self._directories = LogDirectories(
            disk,
            directories,
            halt,
            vital_path=vital_directory,
            max_open_files=max_open_files,
            max_loaded_indexes=max_loaded_indexes,
            on_failure=self._directory_failed,
            on_lost=self.give_up,
        )
        found = FoundLogs()
        self._parts = parts = LogParts(
            disk,
            executor,
            now_ms,
            halt,
            rng,
            default_config,
            self._directories,
            found,
            PartitionPlacements(disk, executor, self._directories.all),
            DelayedRemovals(disk, executor, now_ms),
            CheckpointWriter(disk, executor, self._directories, found.logs, found.home),
        )
        self._logs, self._home, self._failed = found.logs, found.home, found.failed
        self.checkpoints = parts.checkpoints
        """Writes what the logs' offsets are to the directories' files."""
        self.removals = parts.removals
        """Removes what was deleted, when its time has come."""
        self._failure_listener: FailureListener | None = None
        self._damage_notes = DamageNotes(disk, executor)
        self.epoch_writer = EpochWriter(disk, executor, self._logs)
        """Makes leader epochs durable, for leaders that are to begin."""
        self.creator = LogCreator(parts)
        """Makes logs that do not exist."""
        self.cleaner = LogCleaner(
            CleanerPorts(disk, executor, cleaner, now_ms),
            self._logs,
            self._flush,
            self.checkpoints.write_clean_offset,
        )
        """Compacts logs, when it is told to."""
        self.reopener = LogReopener(parts, self.cleaner)
        """Opens logs again that wait for room."""
        self._deleter = LogDeleter(parts, self.cleaner)
        self.retention = Retention(parts, self._flush, producer_expiration_ms=producer_expiration_ms)
        """Deletes old segments, a few logs at a time."""
        self._started = False
        self._closed = False

    # ---- start

    def start(self, *, cluster_id: str, node_id: int) -> StartReport:
        """Takes the directories and opens every log in them. Blocks; nothing is served before.

        A log that cannot be opened is reported and left alone, and so is a directory that cannot be used
        while another one can; else that raises DataDirectoryError with a sentence for the operator.
        """
        try:
            self._directories.take(cluster_id=cluster_id, node_id=node_id)
            is_complete = LogOpener(self._parts).open_all()
        except BaseException:
            self._directories.release()
            raise
        self._started = True
        return start_report(self._parts, is_complete=is_complete)

    # ---- failures

    def set_failure_listener(self, listener: FailureListener) -> None:
        """Who is told of logs that fail from now on; those of the start are in `failed`."""
        self._failure_listener = listener

    @property
    def failed_directories(self) -> Mapping[str, str]:
        """Path and reason of the data directories that cannot be used."""
        return self._directories.failed

    @property
    def usable_directories(self) -> list[str]:
        """The data directories that can be used now."""
        return [directory.path for directory in self._directories.usable]

    @property
    def directory_paths(self) -> list[str]:
        """All data directories, in the order of log.dirs; those that failed too."""
        return [directory.path for directory in self._directories]

    def directory_of(self, partition: TopicPartition) -> str:
        """The data directory that a log in `logs` or `failed` is in."""
        return self._home[partition].path

    async def space(self, path: str) -> DiskSpace:
        """The room of the file system that a data directory is on. Raises OSError."""
        return await self._parts.executor.run(self._parts.disk.space, path)

    def fail_directory(self, path: str, reason: str) -> None:
        """Gives a data directory up in which a write that is no log's failed. May halt the node."""
        for directory in self._directories.usable:
            if directory.path == path.rstrip("/"):
                with contextlib.suppress(DirectoryFailed):
                    directory.storage.fail(reason)

    def give_up(self, partition: TopicPartition, error: LogError) -> None:
        """A replica met an error in its log that it cannot go on with."""
        log = self._logs.get(partition)
        if log is None:
            return
        extent = LogExtent(log.segment_base_offsets, log.log_end_offset)
        self._give_up({partition: error})
        if isinstance(error, LogCorruptError):
            self._damage_notes.add(log.directory, error, extent)

    async def damage_noted(self) -> None:
        """Waits until what `give_up` has begun to note of damage is durable, or could not be written."""
        await self._damage_notes.settled()

    def _directory_failed(self, directory: DataDirectory, reason: str) -> None:
        """Lets go of all logs in a directory while the others go on."""
        self.removals.forget_under(directory.path)
        error = DirectoryFailed(reason)
        self._give_up({partition: error for partition, home in self._home.items() if home is directory})

    def _give_up(self, failed: Mapping[TopicPartition, LogError]) -> None:
        for partition in failed:
            log = self._logs.pop(partition, None)
            if log is not None:
                log.abandon()
        self._failed.update(failed)
        if self._failure_listener is not None and not self._closed:
            self._failure_listener(failed)

    # ---- the logs

    @property
    def executor(self) -> Executor:
        """Where jobs of these logs run that must not hold up the event loop."""
        return self._parts.executor

    @property
    def logs(self) -> Mapping[TopicPartition, PartitionLog]:
        """The open logs; not to be changed by the caller."""
        return self._logs

    @property
    def failed(self) -> Mapping[TopicPartition, LogError]:
        """The logs that cannot be used, with the reason; not to be changed by the caller."""
        return self._failed

    def failed_topic_id(self, partition: TopicPartition) -> bytes | None:
        """The topic id that a log in `failed` belongs to; None if that is not known."""
        home = self._home[partition]
        placement = self._parts.placements.get(partition)
        if home.storage.failure is not None:
            return None if placement is None else placement.topic_id
        return stored_topic_id(home.storage, home.folder(partition))

    def get(self, partition: TopicPartition) -> PartitionLog | None:
        return self._logs.get(partition)

    def claim(self, partition: TopicPartition, topic_id: bytes, config: LogConfig) -> PartitionLog | None:
        """The partition's log for this incarnation of its topic, with `config` from now on; None if there is
        no folder, and `creator` has to make it.

        Raises InconsistentTopicId if the folder here belongs to another incarnation (delete it
        first), the error of a log that could not be opened, LogStorageError: also for the log that only the
        controller quorum has.
        """
        if self._closed or self._deleter.is_under_way(partition):
            raise LogStorageError(f"the log of {partition} is being closed or deleted")
        if partition in self._failed:
            raise self._failed[partition].with_traceback(None)  # it would grow with each time
        if partition == CLUSTER_METADATA:
            # It would have the folder of a voter's journal. Controllers refuse such a topic; a cluster may have one
            # from before they did.
            raise LogStorageError(
                f"{CLUSTER_METADATA} is the controller quorum's own log: a topic must not have its name;"
                " delete the topic"
            )
        log = self._logs.get(partition)
        if log is not None:
            log.claim(topic_id)
            log.update_config(config)
        return log

    def high_watermark(self, partition: TopicPartition) -> int:
        """The high watermark that the last checkpoint holds; 0 for a partition it does not know."""
        home = self._home.get(partition)
        return 0 if home is None else home.checkpoints[HIGH_WATERMARKS].get(partition, 0)

    # ---- deleting

    async def delete(self, partitions: Iterable[TopicPartition]) -> None:
        """Deletes these logs (`LogDeleter`). Their names are free for new ones when this returns.

        The folders are renamed at once, and removed by `removals` after `file.delete.delay.ms`.
        Raises LogStorageError.
        """
        await self.damage_noted()  # else a note might come to lie in the folder of another log
        await self._deleter.delete(partitions)

    # ---- flushing and checkpoints

    async def flush(self) -> None:
        """Makes every log durable up to where it is now. A failed fsync is its directory's end.

        Raises NoSpaceLeft when all have had their turn: a full disk may keep epochs from being written.
        """
        due: list[PartitionLog] = []
        for number, log in enumerate(list(self._logs.values()), start=1):
            if number % LOGS_PER_STEP == 0:
                await asyncio.sleep(0)
            if not log.is_closed and log.needs_flush:
                due.append(log)
        # Many at once; what fails here is met again by the flush of that log.
        await self.epoch_writer.write([log.topic_partition for log in due if not log.epoch_file.is_durable])
        postponed = PostponedErrors()
        for log in due:
            if not log.is_closed and log.needs_flush:
                with postponed.passed_over(), self._directories.unless_last():
                    await self._flush(log)
        postponed.report()

    async def flush_log(self, partition: TopicPartition) -> None:
        """As `flush`, one log; nothing if there is none. Raises LogStorageError."""
        log = self._logs.get(partition)
        if log is None or log.is_closed or not log.needs_flush:
            return
        if not log.epoch_file.is_durable:
            await self.epoch_writer.write([partition])
        if not log.is_closed:
            await self._flush(log)

    async def _flush(self, log: PartitionLog) -> None:
        job = log.prepare_flush()
        if job is None:
            return
        try:
            await self._parts.executor.run(run_flush, self._parts.disk, job)
        except OSError as error:
            log.flush_failed(error)
        else:
            log.complete_flush(job)

    async def checkpoint_recovery_points(self) -> None:
        """Flushes all logs, then writes `recovery-point-offset-checkpoint`, and what else had no room.

        Raises NoSpaceLeft when everything has had its turn.
        """
        postponed = PostponedErrors()
        with postponed.passed_over():
            await self.flush()
        await self._parts.placements.catch_up()
        with postponed.passed_over():
            await self.checkpoints.write_recovery_points()
        postponed.report()

    # ---- end

    async def close(self, *, broker_epoch: int, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Closes every log, writes the checkpoints and, where all went well, the clean shutdown markers.

        Appends must have ended. What the disk refuses (it is full, for example) is logged: there is no
        marker in such a directory, and the next start checks its logs. After a start that failed nothing
        is written: the directories may be another process's, their logs unrecovered.
        """
        if self._closed or not self._started:
            return
        self._closed = True
        try:
            await self.cleaner.close()  # whose last round may still find damage
            unclean = await self._close_logs()
            await self.damage_noted()
            unclean.update(await self._parts.placements.catch_up())
            for directory in self._directories.usable:
                if directory not in unclean:
                    await self._end_cleanly(directory, broker_epoch, high_watermarks)
        finally:
            self._directories.release()

    async def _close_logs(self) -> set[DataDirectory]:
        """Flushes and closes all logs; the directories with one that could not be, was given up before, or
        lacks records without the controller knowing it: the next start would take it for a whole one."""
        await flush_before_closing(self._parts.disk, self._parts.executor, self.epoch_writer, self._logs)
        doubtful = self._home.keys() & {*self._failed, *self.reopener.shortened}
        unclean = {self._home[partition] for partition in doubtful}
        for partition, log in list(self._logs.items()):
            try:
                if not log.is_closed and log.needs_flush:
                    await self._flush(log)
                log.close()
            except LogStorageError as error:
                logger.error("a log was not closed cleanly", partition=str(partition), reason=str(error))
                unclean.add(self._home[partition])
        return unclean

    async def _end_cleanly(
        self, directory: DataDirectory, broker_epoch: int, high_watermarks: Mapping[TopicPartition, int]
    ) -> None:
        try:
            await self.checkpoints.write_all(directory, high_watermarks)
            await self._parts.executor.run(directory.write_clean_shutdown, broker_epoch)
        except (LogStorageError, OSError) as error:
            logger.error("a data directory did not end cleanly", path=directory.path, reason=str(error))
