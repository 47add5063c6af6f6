"""Giving logs up: their folders are renamed at once, and removed later.

Guarantees: when a deletion has returned, the names are free for new logs, durably: no start takes a folder
for a partition's again, no checkpoint says anything of the name, and no cleaning touches the files. In a
directory that failed the folder stays; should it come back, it is known to be older than what took its
place. Owned by the log manager, on its loop.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from partitions.disk import Disk
from partitions.log.checkpointing import CheckpointWriter
from partitions.log.cleaner.schedule import LogCleaner
from partitions.log.config import LogConfig
from partitions.log.data_directory import CHECKPOINTS, DataDirectory
from partitions.log.directories import LogDirectories
from partitions.log.placements import PartitionPlacements
from partitions.log.removal import DelayedRemovals
from partitions.log.startup import FoundLogs
from partitions.ports import Executor
from partitions.topic_partition import TopicPartition


class LogDeleter:
    """Deletes logs of a node; takes them out of its `FoundLogs`."""

    def __init__(
        self,
        disk: Disk,
        executor: Executor,
        directories: LogDirectories,
        placements: PartitionPlacements,
        found: FoundLogs,
        checkpoints: CheckpointWriter,
        cleaner: LogCleaner,
        removals: DelayedRemovals,
        *,
        default_config: LogConfig,
        rng: random.Random,
    ) -> None:
        """A log that could not be opened goes by `default_config`."""
        self._disk = disk
        self._executor = executor
        self._directories = directories
        self._placements = placements
        self._found = found
        self._checkpoints = checkpoints
        self._cleaner = cleaner
        self._removals = removals
        self._default_config = default_config
        self._rng = rng
        self._under_way: set[TopicPartition] = set()

    def is_under_way(self, partition: TopicPartition) -> bool:
        """Whether the log is being deleted."""
        return partition in self._under_way

    async def delete(self, partitions: Iterable[TopicPartition]) -> None:
        """Deletes these logs; those that are not there, or go already, are left out. Raises LogStorageError."""
        home = self._found.home
        gone = [p for p in partitions if p in home and p not in self._under_way]
        self._under_way.update(gone)
        try:
            for partition in gone:
                await self._cleaner.abort(partition)
            touched = {home[partition]: None for partition in gone}
            for partition in gone:
                self._set_aside(partition)
            for directory in touched:
                await self._forget(directory)
            await self._placements.record({}, gone)
        finally:
            self._under_way.difference_update(gone)
            for partition in gone:
                self._cleaner.allow(partition)

    def _set_aside(self, partition: TopicPartition) -> None:
        """Closes the log and renames its folder."""
        directory = self._found.home[partition]
        log = self._found.logs.pop(partition, None)
        if log is not None:
            log.abandon()
        target = directory.deleted_folder(partition, f"{self._rng.getrandbits(128):032x}")
        with self._directories.unless_last():
            if self._rename(directory, partition, target):
                config = self._default_config if log is None else log.config
                self._removals.add_folder(target, config.file_delete_delay_ms)
        self._found.failed.pop(partition, None)
        del self._found.home[partition]

    def _rename(self, directory: DataDirectory, partition: TopicPartition, target: str) -> bool:
        """Whether there was a folder. Raises DirectoryFailed."""
        directory.storage.ensure_usable()
        try:
            self._disk.rename(directory.folder(partition), target)
        except FileNotFoundError:
            return False
        except OSError as error:
            directory.storage.fail(f"renaming the folder of {partition} for deletion failed: {error}", error)
        return True

    async def _forget(self, directory: DataDirectory) -> None:
        """Makes the renames durable, and has the checkpoints say nothing of the names."""
        with self._directories.unless_last():
            await directory.storage.sync_dir_beside(self._executor, directory.path)
            for name in CHECKPOINTS:
                await self._checkpoints.write(directory, name, {})
