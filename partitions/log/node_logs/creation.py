"""New logs, many at once, made beside the event loop.

Guarantees: a log's folder has its name only when all that belongs in it is durable: the topic id, an empty
segment, and for a leader the start of its epoch (KIP-101). Until then the folder is called as one that waits
to be removed, so that the next start after a crash removes what is half made. When `LogCreator.create` has
returned without an error for a log, its name is durable too. The log manager owns the creator; a topic of
1,000 partitions is made by a few jobs of `LOGS_PER_JOB` logs each.

What it costs is fsyncs, and how few are needed decides how they are ordered: all files of a batch are written
before the first of them is waited for (a file system with a journal then commits most of the batch at once), a
log has one for each file that has content and one for its folder, and the folder above has one a batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from leader_epoch.checkpoint import CHECKPOINT_FILE_NAME, encode_checkpoint
from leader_epoch.epoch_cache import EpochEntry
from partitions.disk import Disk, File
from partitions.log.beside_loop import LOGS_PER_JOB, error_of, sync_and_close
from partitions.log.config import LogConfig
from partitions.log.errors import LogError, LogStorageError, NoSpaceLeft
from partitions.log.log import PartitionLog
from partitions.log.node_logs.data_directory import CHECKPOINTS, DataDirectory
from partitions.log.node_logs.parts import LogParts
from partitions.log.node_logs.placements import Placement
from partitions.log.partition_files import PARTITION_METADATA, encode_partition_metadata
from partitions.log.segment import LOG_SUFFIX, file_name
from partitions.log.segment_indexes import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from partitions.log.storage import LogStorage, is_wanting
from partitions.topic_partition import TopicPartition


class NewLog(NamedTuple):
    """A log that is to be made."""

    partition: TopicPartition
    topic_id: bytes
    config: LogConfig
    leader_epoch: int | None
    """The epoch in which this broker leads from offset 0 on; None where it follows."""


class NewFolder(NamedTuple):
    """A log's folder as the job makes it."""

    building: str
    """Its path until it is whole."""
    path: str
    files: tuple[tuple[str, bytes], ...]
    """Names and contents; an empty file needs no fsync of its own."""
    reserved_bytes: int = 0
    """Room that the first segment's data file takes on the disk."""


class FolderFailure(NamedTuple):
    """Why a folder was not made."""

    error: OSError
    is_fsync: bool
    """What is on the disk is not known then, unless the disk is full."""


class LogCreator:
    """Makes logs in the data directory that has fewest, of those with room, and adds them to `FoundLogs`."""

    def __init__(self, parts: LogParts) -> None:
        self._parts = parts

    async def create(self, wanted: Sequence[NewLog]) -> dict[TopicPartition, LogError]:
        """Makes up to `LOGS_PER_JOB` logs that do not exist; returns why those failed that did.

        That is NoSpaceLeft, DirectoryFailed, or LogStorageError for anything else that is wrong with one
        folder. A few calls at once are fine, for different logs; the caller waits for these before it has any
        of them deleted or the manager closed.
        """
        assert len(wanted) <= LOGS_PER_JOB, "that is more than a batch"
        failed: dict[TopicPartition, LogError] = {}
        left, full = list(wanted), set[DataDirectory]()
        while left:
            candidates = [d for d in self._parts.directories.usable if d not in full]
            if not candidates:
                error = LogStorageError("no data directory of this broker can be used")
                return failed | {new.partition: error for new in left if new.partition not in failed}
            for directory, logs in self._spread(left, candidates).items():
                errors = await self._create_in(directory, logs)
                failed.update(errors)
                for new in logs:
                    if new.partition not in errors:
                        failed.pop(new.partition, None)
                if any(isinstance(error, NoSpaceLeft) for error in errors.values()):
                    full.add(directory)
            # Another directory may have room.
            left = [new for new in left if isinstance(failed.get(new.partition), NoSpaceLeft)]
        return failed

    def _spread(
        self, wanted: Sequence[NewLog], candidates: Sequence[DataDirectory]
    ) -> Mapping[DataDirectory, list[NewLog]]:
        """Which log goes where: always to the directory that has fewest by then."""
        counts = dict.fromkeys(candidates, 0)
        if len(counts) > 1:
            for home in self._parts.found.home.values():
                if home in counts:
                    counts[home] += 1
        spread: dict[DataDirectory, list[NewLog]] = {}
        for new in wanted:
            assert new.partition not in self._parts.found.home, f"{new.partition} has a folder"
            directory = min(counts, key=lambda d: counts[d])
            counts[directory] += 1
            spread.setdefault(directory, []).append(new)
        return spread

    async def _create_in(
        self, directory: DataDirectory, logs: Sequence[NewLog]
    ) -> dict[TopicPartition, LogError]:
        storage = directory.storage
        folders = tuple(self._folder(directory, new) for new in logs)
        failed: dict[TopicPartition, LogError] = {}
        try:
            await self._forget_namesakes(directory, logs)
            # Before the folders are there: what is listed and was not made is found out by the next start.
            await self._parts.placements.record(
                {new.partition: Placement(new.topic_id, directory.directory_id) for new in logs},
                home=directory,
            )
            storage.ensure_usable()
            failures, parent_failure = await self._parts.executor.run(
                make_folders, self._parts.disk, directory.path, folders
            )
            for new, folder, failure in zip(logs, folders, failures, strict=True):
                if failure is not None:
                    self._parts.removals.add_folder(folder.building, 0)
                    failed[new.partition] = _as_log_error(storage, folder.path, failure)
            if parent_failure is not None:
                storage.fail(
                    f"fsync of {directory.path} failed: {parent_failure.error}", parent_failure.error
                )
            storage.ensure_usable()
        except LogStorageError as error:
            return {new.partition: error for new in logs}
        for new, folder in zip(logs, folders, strict=True):
            if new.partition not in failed:
                self._parts.found.logs[new.partition] = self._as_log(storage, new, folder)
                self._parts.found.home[new.partition] = directory
        return failed

    async def _forget_namesakes(self, directory: DataDirectory, logs: Sequence[NewLog]) -> None:
        """Has the checkpoints say nothing of deleted logs of these names: a full disk may have kept the
        deletion from that. Raises LogStorageError.
        """
        for name in CHECKPOINTS:
            if any(new.partition in directory.checkpoints[name] for new in logs):
                await self._parts.checkpoints.write(directory, name, {})

    def _folder(self, directory: DataDirectory, new: NewLog) -> NewFolder:
        unique = f"{self._parts.rng.getrandbits(128):032x}"
        files = [
            (PARTITION_METADATA, encode_partition_metadata(new.topic_id)),
            *((file_name(0, suffix), b"") for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)),
        ]
        if new.leader_epoch is not None:
            files.append((CHECKPOINT_FILE_NAME, encode_checkpoint(_first_epochs(new))))
        building = directory.deleted_folder(new.partition, unique)
        reserved_bytes = new.config.segment_bytes if new.config.preallocate else 0
        return NewFolder(building, directory.folder(new.partition), tuple(files), reserved_bytes)

    def _as_log(self, storage: LogStorage, new: NewLog, folder: NewFolder) -> PartitionLog:
        return PartitionLog.newly_made(
            storage,
            folder.path,
            new.partition,
            new.config,
            topic_id=new.topic_id,
            epochs=_first_epochs(new),
            now_ms=self._parts.now_ms,
        )


def _first_epochs(new: NewLog) -> tuple[EpochEntry, ...]:
    return () if new.leader_epoch is None else (EpochEntry(new.leader_epoch, 0),)


def _as_log_error(storage: LogStorage, path: str, failure: FolderFailure) -> LogStorageError:
    """Raises DirectoryFailed where nothing in the directory is to be relied upon any more."""
    if is_wanting(failure.error):
        return NoSpaceLeft(f"no space left to make {path}: {failure.error}")
    reason = f"making {path} failed: {failure.error}"
    if failure.is_fsync:
        storage.fail(reason, failure.error)
    storage.fail_if_broken(reason, failure.error)
    return LogStorageError(reason)


def make_folders(
    disk: Disk, parent: str, folders: Sequence[NewFolder]
) -> tuple[tuple[FolderFailure | None, ...], FolderFailure | None]:
    """A job: makes the folders in `parent`, durably. What failed, for each; and for the folder above.

    A folder that failed does not have its path; what there is of it is to be removed. An fsync that failed is
    not tried again: the next attempt makes other files.
    """
    failures: list[FolderFailure | None] = []
    opened: list[list[File]] = []
    for folder in folders:
        files: list[File] = []
        opened.append(files)
        failures.append(_failure(error_of(_write_files, disk, folder, files), is_fsync=False))
    for number, files in enumerate(opened):
        for file in files:
            failures[number] = _failure(error_of(sync_and_close, file), is_fsync=True) or failures[number]
    for number, folder in enumerate(folders):
        if failures[number] is None:
            failures[number] = _failure(error_of(disk.sync_dir, folder.building), is_fsync=True)
        if failures[number] is None:
            renaming = error_of(disk.rename, folder.building, folder.path)
            failures[number] = _failure(renaming, is_fsync=False)
    parent_error = error_of(disk.sync_dir, parent) if None in failures else None
    return tuple(failures), _failure(parent_error, is_fsync=True)


def _failure(error: OSError | None, *, is_fsync: bool) -> FolderFailure | None:
    return None if error is None else FolderFailure(error, is_fsync)


def _write_files(disk: Disk, folder: NewFolder, opened: list[File]) -> None:
    """Those with content are left open, for their fsync. Raises OSError."""
    disk.make_dirs(folder.building)
    for name, content in folder.files:
        file = disk.open(f"{folder.building}/{name}", create=True)
        opened.append(file)
        if name.endswith(LOG_SUFFIX) and folder.reserved_bytes:
            file.reserve(folder.reserved_bytes)
        if content:
            file.append([content])
        else:
            opened.pop().close()
