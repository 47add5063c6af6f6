"""Writing the data directories' checkpoint files, one at a time, through the executor.

Guarantees: a file never says more than what is durable, nor what a truncation has made untrue without
the log's folder capping it; a log's clean offset is written behind a recovery point that covers it.
Nothing is written in a directory that failed, and one that fails keeps none of the others waiting. The event
loop gathers what has moved since the last time. A file names every partition of its directory, so the executor
composes it; the event loop copies what it must not see change. The log manager calls this on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

from partitions.disk import Disk, write_atomically
from partitions.log.log import PartitionLog
from partitions.log.node_logs.data_directory import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    DataDirectory,
)
from partitions.log.node_logs.directories import LogDirectories, PostponedErrors
from partitions.log.node_logs.offset_checkpoint import encode_offset_checkpoint
from partitions.log.partition_files import TruncationCheckpoint
from partitions.ports import Executor
from partitions.topic_partition import TopicPartition

_Begun: TypeAlias = Mapping[TopicPartition, tuple[PartitionLog, TruncationCheckpoint]]


class CheckpointWriter:
    """The checkpoint files of a node's data directories; looks at its logs, which the manager changes."""

    def __init__(
        self,
        disk: Disk,
        executor: Executor,
        directories: LogDirectories,
        logs: Mapping[TopicPartition, PartitionLog],
        home: Mapping[TopicPartition, DataDirectory],
    ) -> None:
        self._disk = disk
        self._executor = executor
        self._directories = directories
        self._logs = logs
        self._home = home
        self._lock = asyncio.Lock()

    async def write_recovery_points(self) -> None:
        """Raises NoSpaceLeft, DirectoryFailed where the node halts, LogStorageError where a file cannot be removed; as
        all methods do."""
        await self._everywhere(self._write_recovery_points)

    async def _write_recovery_points(self, directory: DataDirectory) -> None:
        moved = directory.storage.moved_recovery_points
        with self._begun(directory, moved) as begun:
            values = {partition: state.recovery_point for partition, (_, state) in begun.items()}
            if values:
                await self.write(directory, RECOVERY_POINTS, values)
            for partition, (log, state) in begun.items():
                if self._logs.get(partition) is log:
                    log.complete_checkpoint(recovery_point=state.recovery_point)
            await self._lower_clean_offsets(directory, begun)

    async def write_log_start_offsets(self) -> None:
        await self._everywhere(self._write_log_start_offsets)

    async def _write_log_start_offsets(self, directory: DataDirectory) -> None:
        with self._begun(directory, directory.storage.moved_log_starts) as begun:
            values = {partition: state.log_start_offset for partition, (_, state) in begun.items()}
            if values:
                await self.write(directory, LOG_START_OFFSETS, values)
            for partition, (log, state) in begun.items():
                if self._logs.get(partition) is log:
                    log.complete_checkpoint(log_start_offset=state.log_start_offset)

    async def write_high_watermarks(self, changed: Mapping[TopicPartition, int]) -> None:
        logs = {partition: self._logs.get(partition) for partition in changed}

        async def write(directory: DataDirectory) -> None:
            # A name may be another log's by the time that it is this directory's turn.
            same = {p: offset for p, offset in changed.items() if self._logs.get(p) is logs[p]}
            await self._write_high_watermarks(directory, same)

        await self._everywhere(write)

    async def _write_high_watermarks(
        self, directory: DataDirectory, changed: Mapping[TopicPartition, int]
    ) -> None:
        mine = {p: offset for p, offset in changed.items() if self._home.get(p) is directory}
        if mine:
            await self.write(directory, HIGH_WATERMARKS, mine)

    async def write_all(
        self, directory: DataDirectory, high_watermarks: Mapping[TopicPartition, int]
    ) -> None:
        """What a directory's checkpoints are to say when its logs have been closed."""
        await self._write_high_watermarks(directory, high_watermarks)
        await self._write_recovery_points(directory)
        await self._write_log_start_offsets(directory)

    async def _everywhere(self, write: Callable[[DataDirectory], Coroutine[Any, Any, None]]) -> None:
        """A full directory keeps none of the others waiting."""
        postponed = PostponedErrors()
        for directory in self._directories.usable:
            with postponed.passed_over(), self._directories.unless_last():
                await write(directory)
        postponed.report()

    @contextmanager
    def _begun(self, directory: DataDirectory, moved: dict[TopicPartition, None]) -> Iterator[_Begun]:
        """What is to be said of these logs; again by the next checkpoint, unless it is written inside.

        A name that was deleted here may be a log of another directory by now, whose file says nothing of it yet.
        """
        logs = {
            partition: log
            for partition in moved
            if self._home.get(partition) is directory and (log := self._logs.get(partition)) is not None
        }
        moved.clear()
        try:
            yield {partition: (log, log.begin_checkpoint()) for partition, log in logs.items()}
        except BaseException:
            moved.update(dict.fromkeys(logs))
            raise

    async def write_clean_offset(self, partition: TopicPartition, log: PartitionLog) -> None:
        """Notes how far the log is compacted, and a recovery point that is not below."""
        directory = self._home[partition]
        recovery_point = log.begin_checkpoint().recovery_point
        await self.write(directory, RECOVERY_POINTS, {partition: recovery_point})
        if self._logs.get(partition) is log:
            log.complete_checkpoint(recovery_point=recovery_point)
            await self._write_clean_offsets(directory, {partition: log})

    async def _lower_clean_offsets(self, directory: DataDirectory, begun: _Begun) -> None:
        """After truncations: the logs whose file says more than is true."""
        known = directory.checkpoints[CLEANER_OFFSETS]
        lowered = {
            partition: log
            for partition, (log, _) in begun.items()
            if self._logs.get(partition) is log and log.clean_offset < known.get(partition, 0)
        }
        if lowered:
            await self._write_clean_offsets(directory, lowered)

    async def _write_clean_offsets(
        self, directory: DataDirectory, logs: Mapping[TopicPartition, PartitionLog]
    ) -> None:
        values = {partition: log.begin_clean_checkpoint() for partition, log in logs.items()}
        await self.write(directory, CLEANER_OFFSETS, values)
        for partition, offset in values.items():
            if self._logs.get(partition) is logs[partition]:
                logs[partition].complete_checkpoint(clean_offset=offset)

    async def settled(self) -> None:
        """Waits for what is being written, or about to be: from then on the files say what is known of them."""
        async with self._lock:
            return

    async def write(self, directory: DataDirectory, name: str, changed: Mapping[TopicPartition, int]) -> None:
        """Replaces a checkpoint file if it changes: these values, and for other logs those it holds.

        The caller leaves `changed` as it is until this returns.
        Raises NoSpaceLeft when the disk is full; any other failure is the directory's, DirectoryFailed.
        """
        async with self._lock:
            directory.storage.ensure_usable()
            home = dict(self._home)
            try:
                offsets = await self._executor.run(
                    _replace_checkpoint, self._disk, name, directory, changed, home
                )
            except OSError as error:
                directory.storage.replace_failed(directory.checkpoint_path(name), error)
            directory.checkpoints[name] = offsets


def _replace_checkpoint(
    disk: Disk,
    name: str,
    directory: DataDirectory,
    changed: Mapping[TopicPartition, int],
    home: Mapping[TopicPartition, DataDirectory],
) -> dict[TopicPartition, int]:
    """A job: writes what the file is to say unless it says so; returns that. Raises OSError."""
    known = directory.checkpoints[name]  # nobody else replaces it meanwhile, nor are the mappings changed
    offsets = {p: o for p, o in {**known, **changed}.items() if home.get(p) is directory}
    if offsets == known:
        return known
    # Kept in the file's order: ten thousand names that are nearly in order are sorted in a tenth of the time,
    # during which no other thread runs.
    offsets = dict(sorted(offsets.items()))
    write_atomically(disk, directory.checkpoint_path(name), encode_offset_checkpoint(offsets))
    return offsets
