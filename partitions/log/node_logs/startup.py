"""Opens every log of a node, makes out which logs are missing, and reports what was found.

Guarantees: a log that cannot be opened is reported and left alone, and takes no other with it; a log whose
directory cannot be used is known for what it is and not taken for one that was never made; of two folders
of one partition the one that `placements.py` names is opened. Blocks; the log manager calls it once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

from partitions.log.errors import (
    DataDirectoryError,
    DirectoryFailed,
    DirectoryUnusable,
    LogError,
    LogStorageError,
)
from partitions.log.node_logs.data_directory import (
    CHECKPOINTS,
    CLEANER_OFFSETS,
    RECOVERY_POINTS,
    UNKNOWN_BROKER_EPOCH,
    DataDirectory,
)
from partitions.log.node_logs.parts import LogParts
from partitions.log.node_logs.placements import Placement
from partitions.log.node_logs.stored_log import StoredLog
from partitions.log.opening.open_log import stored_topic_id
from partitions.log.opening.recovery import RecoveryReport
from partitions.topic_partition import TopicPartition

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StartReport:
    """What was found at start, for the node's log and its registration."""

    clean_shutdown: bool
    """Every data directory was left by a process that closed its logs."""
    previous_broker_epoch: int
    """Of that process; -1 if it did not end cleanly, did not say, or left a log that cannot be used: then
    this broker may lack records that it once had."""
    logs: int
    recovered: Mapping[TopicPartition, RecoveryReport] = field(default_factory=dict)
    """Logs that lost a torn tail, or whose leader epochs were taken from their batches."""
    failed: Mapping[TopicPartition, LogError] = field(default_factory=dict)
    """Logs that could not be opened; the partitions are offline here."""
    failed_directories: Mapping[str, str] = field(default_factory=dict)
    """Path and reason of the data directories that cannot be used; the node goes on without them."""
    damaged_checkpoints: tuple[str, ...] = ()
    """Checkpoint files that counted as absent, one sentence each."""


def start_report(parts: LogParts, *, is_complete: bool) -> StartReport:
    """Of the logs that were opened; `is_complete`: all of them were looked at."""
    directories, found = parts.directories, parts.found
    clean = is_complete and all(directory.clean_shutdown for directory in directories)
    epochs = [directory.previous_broker_epoch for directory in directories]
    return StartReport(
        clean_shutdown=clean,
        previous_broker_epoch=min(epochs) if clean and not found.failed else UNKNOWN_BROKER_EPOCH,
        logs=len(found.logs),
        recovered={
            partition: log.recovery for partition, log in found.logs.items() if log.recovery.is_notable
        },
        failed=dict(found.failed),
        failed_directories=directories.failed,
        damaged_checkpoints=tuple(
            reason for directory in directories for reason in directory.damaged_checkpoints.values()
        ),
    )


class LogOpener:
    """Fills the parts' `FoundLogs`, which may lose the logs of a directory again that fails meanwhile."""

    def __init__(self, parts: LogParts) -> None:
        self._disk = parts.disk
        self._directories = parts.directories
        self._placements = parts.placements
        self._found = parts.found
        self._removals = parts.removals
        self._parts = parts

    def open_all(self) -> bool:
        """Opens what there is. Returns whether nothing is missing: every directory that ever held a log of
        this node can be used. Raises DataDirectoryError, LogStorageError."""
        try:
            listed = self._placements.load()
        except OSError as error:
            raise DataDirectoryError(f"the list of partitions cannot be read: {error}") from error
        for directory in self._directories.usable:
            try:
                self._look_into(directory, listed)
            except OSError as error:
                reason = f"the data directory {directory.path} cannot be used: {error}"
                self._directories.leave_out(directory, DirectoryUnusable(reason))
                self._lose(directory, reason)
        is_complete = self._find_missing(listed)
        for partition, home in self._found.home.items():
            if partition not in self._found.failed:
                self._open(partition, home)
        for directory in self._directories.usable:
            self._prune_checkpoints(directory)
        self._placements.restate(self._placed(listed))
        return is_complete and not self._directories.failed

    def _look_into(self, directory: DataDirectory, listed: Mapping[TopicPartition, Placement]) -> None:
        for folder in directory.deleted_folders():
            self._removals.add_folder(folder, 0)
        for partition, _ in directory.partition_folders():
            other = self._found.home.get(partition)
            if other is None:
                self._found.home[partition] = directory
                continue
            known = listed.get(partition)
            if known is None or known.directory_id not in (other.directory_id, directory.directory_id):
                raise LogStorageError(
                    f"{partition} has a folder in {other.path} and in {directory.path}; remove the older one"
                )
            stale = directory
            if known.directory_id == directory.directory_id:
                self._found.home[partition], stale = directory, other
            self._set_aside(partition, stale)

    def _set_aside(self, partition: TopicPartition, directory: DataDirectory) -> None:
        """A folder that a directory kept which was away when the partition was made anew elsewhere."""
        logger.warning("a folder is older than another of its partition", partition=str(partition))
        target = directory.deleted_folder(partition, f"{self._parts.rng.getrandbits(128):032x}")
        self._disk.rename(directory.folder(partition), target)
        self._disk.sync_dir(directory.path)
        self._removals.add_folder(target, 0)

    def _lose(self, directory: DataDirectory, reason: str) -> None:
        for partition, home in self._found.home.items():
            if home is directory:
                self._found.failed[partition] = DirectoryFailed(reason)

    def _find_missing(self, listed: Mapping[TopicPartition, Placement]) -> bool:
        """Reports partitions whose directory cannot be used; False if there are some of a directory that
        is not this node's any more."""
        found = self._found
        alive = {directory.directory_id for directory in self._directories.usable}
        lost = [directory for directory in self._directories if directory.storage.failure is not None]
        missing = {
            partition: placement
            for partition, placement in listed.items()
            if partition not in found.home and placement.directory_id not in alive
        }
        if not missing:
            return True
        if not lost:
            logger.warning("logs were in a directory that is not in log.dirs any more", logs=len(missing))
            return False
        for partition, placement in missing.items():
            home = next((d for d in lost if d.directory_id == placement.directory_id), lost[0])
            found.home[partition] = home
            found.failed[partition] = DirectoryFailed(
                f"{partition} is in the data directory {placement.directory_id}, which cannot be used:"
                f" {home.storage.failure}"
            )
        return True

    def _open(self, partition: TopicPartition, directory: DataDirectory) -> None:
        parts = self._parts
        stored = StoredLog.of(directory, partition, parts.default_config)
        try:
            self._found.logs[partition] = stored.open(
                directory.storage,
                parts.now_ms,
                parts.halt,
                clean_shutdown=directory.clean_shutdown,
                # A process that left the mark of a clean shutdown had written the ends of all logs before.
                closed_at=directory.checkpoints[RECOVERY_POINTS].get(partition),
            )
        except LogError as error:
            self._found.failed[partition] = error

    def _prune_checkpoints(self, directory: DataDirectory) -> None:
        """Takes out what is left from partitions deleted just before a crash, or from lost files."""
        for name in CHECKPOINTS:
            known = directory.checkpoints[name]
            live = {
                partition: self._clean_offset(partition, offset) if name == CLEANER_OFFSETS else offset
                for partition, offset in known.items()
                if self._found.home.get(partition) is directory
            }
            if live != known:
                try:
                    directory.write_checkpoint(name, live)
                except OSError as error:
                    try:
                        directory.storage.replace_failed(directory.checkpoint_path(name), error)
                    except LogStorageError as failure:
                        logger.error("a checkpoint file keeps old entries", file=name, reason=str(failure))

    def _clean_offset(self, partition: TopicPartition, checkpointed: int) -> int:
        """How far a log found at start is compacted: not beyond what is left of it."""
        log = self._found.logs.get(partition)
        return checkpointed if log is None else log.clean_offset

    def _placed(self, listed: Mapping[TopicPartition, Placement]) -> dict[TopicPartition, Placement]:
        """Where every partition is, as far as that is known."""
        placed: dict[TopicPartition, Placement] = {}
        if len(self._directories.all) == 1:
            return placed
        for partition, home in self._found.home.items():
            log = self._found.logs.get(partition)
            if log is not None:
                placed[partition] = Placement(log.topic_id, home.directory_id)
            elif home.storage.failure is None:
                topic_id = stored_topic_id(home.storage, home.folder(partition))
                placed[partition] = Placement(topic_id, home.directory_id)
            elif partition in listed:
                placed[partition] = listed[partition]
        return placed
