"""The data directories of a node (`log.dirs`): which can be used, and what happens when one fails.

Guarantees: a directory that fails while others work takes nothing else with it: it is not written to any
more, and the log manager is told. The node halts when the last one fails, and when the one fails that holds
the controller's own log: without that there is no node. At start a directory that is missing, or whose disk
fails, is left out if another one works; one that belongs to somebody else, was never formatted or is in
use by another process refuses the start. (KIP-112.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import structlog

from partitions.disk import Disk
from partitions.log.errors import (
    DataDirectoryError,
    DirectoryFailed,
    DirectoryUnusable,
    LogError,
    LogStorageError,
)
from partitions.log.node_logs.data_directory import DataDirectory
from partitions.log.storage import LogStorage
from partitions.ports import Halt
from partitions.topic_partition import TopicPartition

logger = structlog.get_logger(__name__)


class PostponedErrors:
    """What was met on the way through logs in several directories, want of room above all: it keeps none of
    the others waiting, and is raised at the end. The end of the last directory is not postponed."""

    def __init__(self) -> None:
        self._first: LogStorageError | None = None

    @contextlib.contextmanager
    def passed_over(self) -> Iterator[None]:
        """An error ends what is done inside, and nothing else."""
        try:
            yield
        except DirectoryFailed:
            raise
        except LogStorageError as error:
            self._first = self._first or error

    def report(self) -> None:
        """Raises the first error that was passed over, if there was any; it is forgotten then."""
        first, self._first = self._first, None
        if first is not None:
            raise first


class LogDirectories:
    """The directories in the order of `log.dirs`."""

    def __init__(
        self,
        disk: Disk,
        paths: Sequence[str],
        halt: Halt,
        *,
        vital_path: str | None,
        max_open_files: int,
        max_loaded_indexes: int,
        on_failure: Callable[[DataDirectory, str], None],
        on_lost: Callable[[TopicPartition, LogError], None],
    ) -> None:
        """`vital_path` is the directory without which the node cannot go on, if there is one.

        `on_failure` is told of a directory that failed while the node goes on, with the reason; `on_lost` of
        a single log that must not be used as it is.
        """
        if not paths:
            raise ValueError("a node needs at least one data directory (log.dirs)")
        self._halt = halt
        self._vital_path = None if vital_path is None else vital_path.rstrip("/")
        self._on_failure = on_failure
        self.all = [
            self._make(
                disk,
                path.rstrip("/"),
                max(1, max_open_files // len(paths)),
                max(1, max_loaded_indexes // len(paths)),
                len(paths) > 1,
                on_lost,
            )
            for path in paths
        ]

    def _make(
        self,
        disk: Disk,
        path: str,
        max_open_files: int,
        max_loaded_indexes: int,
        has_others: bool,
        on_lost: Callable[[TopicPartition, LogError], None],
    ) -> DataDirectory:
        storage = LogStorage(
            disk,
            lambda reason: self._failed(directory, reason),
            max_open_files=max_open_files,
            max_loaded_indexes=max_loaded_indexes,
            fails_on_io_errors=has_others,
            on_lost=on_lost,
        )
        directory = DataDirectory(disk, path, storage)
        return directory

    def __iter__(self) -> Iterator[DataDirectory]:
        return iter(self.all)

    @property
    def usable(self) -> list[DataDirectory]:
        return [directory for directory in self.all if directory.storage.failure is None]

    @property
    def failed(self) -> dict[str, str]:
        """Path and reason of those that cannot be used."""
        return {
            directory.path: directory.storage.failure
            for directory in self.all
            if directory.storage.failure is not None
        }

    def _failed(self, directory: DataDirectory, reason: str) -> None:
        if directory.path == self._vital_path or not self.usable:
            self._halt(reason)
            return
        logger.error(
            "a data directory failed; the node goes on without it", path=directory.path, reason=reason
        )
        self._on_failure(directory, reason)

    @contextlib.contextmanager
    def unless_last(self) -> Iterator[None]:
        """A directory that fails inside ends what is done in it, and nothing else while others work."""
        try:
            yield
        except DirectoryFailed:
            if not self.usable:
                raise

    # ---- start and end

    def take(self, *, cluster_id: str, node_id: int) -> None:
        """Locks, identifies and loads what can be used. Blocks.

        Raises DataDirectoryError for a directory that is another's, or if none can be used.
        """
        for step in (
            DataDirectory.lock,
            lambda directory: directory.check_identity(cluster_id=cluster_id, node_id=node_id),
        ):
            self._each(step)
        self._check_distinct()
        self._each(DataDirectory.load)
        for directory in self.usable:
            for name, reason in directory.damaged_checkpoints.items():
                logger.error("a checkpoint file is damaged and counts as absent", file=name, reason=reason)

    def _each(self, step: Callable[[DataDirectory], object]) -> None:
        for directory in self.usable:
            try:
                step(directory)
            except DirectoryUnusable as error:
                self.leave_out(directory, error)

    def _check_distinct(self) -> None:
        """A copy of a data directory has its id: nobody could tell whose logs are the newer ones."""
        paths: dict[str, str] = {}
        for directory in self.usable:
            other = paths.setdefault(directory.directory_id, directory.path)
            if directory.directory_id and other != directory.path:
                raise DataDirectoryError(
                    f"{other} and {directory.path} have the same directory.id {directory.directory_id}: one is a copy"
                    " of the other; take the copy out of log.dirs, or give it an id by formatting it anew"
                )

    def leave_out(self, directory: DataDirectory, error: DirectoryUnusable) -> None:
        """Goes on without the directory. Raises the error where there is no other, or it is vital."""
        directory.storage.rule_out(str(error))
        directory.release()
        if directory.path == self._vital_path or not self.usable:
            raise error
        logger.error(
            "a data directory cannot be used; the node goes on without it",
            path=directory.path,
            reason=str(error),
        )

    def release(self) -> None:
        """Closes every file, and lets other processes have the directories."""
        for directory in self.all:
            directory.storage.close()
            directory.release()
