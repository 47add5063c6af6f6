"""Writing the data directories' checkpoint files, one at a time, through the executor.

Guarantees: a file never says more than what is durable, nor what a truncation has made untrue without
the log's folder capping it; a log's clean offset is written behind a recovery point that covers it.
The log manager calls it on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from partitions.disk import Disk, write_atomically
from partitions.log.data_directory import (
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    DataDirectory,
)
from partitions.log.log import PartitionLog
from partitions.log.offset_checkpoint import encode_offset_checkpoint
from partitions.log.partition_files import TruncationCheckpoint
from partitions.log.storage import LogStorage
from partitions.ports import Executor
from partitions.topic_partition import TopicPartition


class CheckpointWriter:
    """The checkpoint files of a node's data directories; looks at its logs, which the manager changes."""

    def __init__(
        self,
        disk: Disk,
        executor: Executor,
        storage: LogStorage,
        directories: Sequence[DataDirectory],
        logs: Mapping[TopicPartition, PartitionLog],
        home: Mapping[TopicPartition, DataDirectory],
    ) -> None:
        self._disk = disk
        self._executor = executor
        self._storage = storage
        self._directories = directories
        self._logs = logs
        self._home = home
        self._lock = asyncio.Lock()

    async def write_recovery_points(self) -> None:
        """Raises LogStorageError, as all methods do."""
        for directory in self._directories:
            begun = self._begin(directory)
            values = {partition: state.recovery_point for partition, (_, state) in begun.items()}
            await self.write(directory, RECOVERY_POINTS, values)
            for partition, (log, state) in begun.items():
                if self._logs.get(partition) is log:
                    log.complete_checkpoint(recovery_point=state.recovery_point)
            await self._lower_clean_offsets(directory)

    async def write_log_start_offsets(self) -> None:
        for directory in self._directories:
            begun = self._begin(directory)
            values = {partition: state.log_start_offset for partition, (_, state) in begun.items()}
            await self.write(directory, LOG_START_OFFSETS, values)
            for partition, (log, state) in begun.items():
                if self._logs.get(partition) is log:
                    log.complete_checkpoint(log_start_offset=state.log_start_offset)

    def _begin(
        self, directory: DataDirectory
    ) -> dict[TopicPartition, tuple[PartitionLog, TruncationCheckpoint]]:
        return {
            partition: (log, log.begin_checkpoint())
            for partition, log in self._logs.items()
            if self._home[partition] is directory
        }

    async def write_clean_offset(self, partition: TopicPartition, log: PartitionLog) -> None:
        """Notes how far the log is compacted, and a recovery point that is not below."""
        directory = self._home[partition]
        recovery_point = log.begin_checkpoint().recovery_point
        await self.write(directory, RECOVERY_POINTS, {partition: recovery_point})
        if self._logs.get(partition) is log:
            log.complete_checkpoint(recovery_point=recovery_point)
            await self._write_clean_offsets(directory, {partition: log})

    async def _lower_clean_offsets(self, directory: DataDirectory) -> None:
        """After truncations: the logs whose file says more than is true."""
        known = directory.checkpoints[CLEANER_OFFSETS]
        lowered = {
            partition: self._logs[partition]
            for partition, offset in known.items()
            if partition in self._logs and self._logs[partition].clean_offset < offset
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

    async def write(self, directory: DataDirectory, name: str, changed: Mapping[TopicPartition, int]) -> None:
        """Replaces a checkpoint file if it changes: these values, and for other logs those it holds.

        Raises LogStorageError when the disk is full; any other failure halts the node.
        """
        async with self._lock:
            known = directory.checkpoints[name]
            offsets = {p: o for p, o in {**known, **changed}.items() if self._home.get(p) is directory}
            if offsets == known:
                return
            path = directory.checkpoint_path(name)
            try:
                await self._executor.run(
                    write_atomically, self._disk, path, encode_offset_checkpoint(offsets)
                )
            except OSError as error:
                self._storage.replace_failed(path, error)
            directory.checkpoints[name] = offsets
