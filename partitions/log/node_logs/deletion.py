"""Giving logs up: their folders are renamed at once, and removed later.

Guarantees: when a deletion has returned, the names are free for new logs, durably: no start takes a folder for a
partition's again, no checkpoint says anything of the name, and no cleaning touches the files. In a directory that
failed the folder stays; should it come back, it is known to be older than what took its place. Owned by the log
manager, on its loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from partitions.log.cleaner.schedule import LogCleaner
from partitions.log.node_logs.data_directory import CHECKPOINTS, DataDirectory
from partitions.log.node_logs.directories import PostponedErrors
from partitions.log.node_logs.parts import LogParts
from partitions.topic_partition import TopicPartition


class LogDeleter:
    """Deletes logs of a node; takes them out of its `FoundLogs`."""

    def __init__(self, parts: LogParts, cleaner: LogCleaner) -> None:
        self._parts = parts
        self._cleaner = cleaner
        self._under_way: set[TopicPartition] = set()

    def is_under_way(self, partition: TopicPartition) -> bool:
        """Whether the log is being deleted."""
        return partition in self._under_way

    async def delete(self, partitions: Iterable[TopicPartition]) -> None:
        """Deletes these logs; those that are not there, or go already, are left out. Raises LogStorageError."""
        home = self._parts.found.home
        gone = [p for p in partitions if p in home and p not in self._under_way]
        self._under_way.update(gone)
        try:
            for partition in gone:
                await self._cleaner.abort(partition)
            touched = {home[partition]: None for partition in gone}
            for partition in gone:
                self._set_aside(partition)
            for directory in touched:
                with self._parts.directories.unless_last():
                    await directory.storage.sync_dir_beside(self._parts.executor, directory.path)
            await self._forget(gone, touched)
        finally:
            self._under_way.difference_update(gone)
            for partition in gone:
                self._cleaner.allow(partition)

    def _set_aside(self, partition: TopicPartition) -> None:
        """Closes the log and renames its folder."""
        directory = self._parts.found.home[partition]
        log = self._parts.found.logs.pop(partition, None)
        if log is not None:
            log.abandon()
        target = directory.deleted_folder(partition, f"{self._parts.rng.getrandbits(128):032x}")
        with self._parts.directories.unless_last():
            if self._rename(directory, partition, target):
                config = self._parts.default_config if log is None else log.config
                self._parts.removals.add_folder(target, config.file_delete_delay_ms)
        self._parts.found.failed.pop(partition, None)
        del self._parts.found.home[partition]

    def _rename(self, directory: DataDirectory, partition: TopicPartition, target: str) -> bool:
        """Whether there was a folder. Raises DirectoryFailed."""
        directory.storage.ensure_usable()
        try:
            self._parts.disk.rename(directory.folder(partition), target)
        except FileNotFoundError:
            return False
        except OSError as error:
            directory.storage.fail(f"renaming the folder of {partition} for deletion failed: {error}", error)
        return True

    async def _forget(self, gone: Sequence[TopicPartition], directories: Iterable[DataDirectory]) -> None:
        """Has the checkpoints and the list of partitions say nothing of the names. The renames are durable.

        A full directory keeps none of the others from it. Raises NoSpaceLeft; the creator of a log of such a
        name tries again.
        """
        postponed = PostponedErrors()
        for directory in directories:
            with postponed.passed_over(), self._parts.directories.unless_last():
                for name in CHECKPOINTS:
                    await self._parts.checkpoints.write(directory, name, {})
        with postponed.passed_over():
            await self._parts.placements.record({}, gone)
        postponed.report()
