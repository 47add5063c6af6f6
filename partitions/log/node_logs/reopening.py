"""Opening a log again that a full disk has kept from being opened, or from going on, once there is room.

Guarantees: the recovery runs beside the event loop and shares no open file with the logs in use; it ends with a log
that is closed and durable, so that the event loop has no more to do than at a clean start. What it cuts on the way, in
this attempt or in an earlier one that found no room, is remembered until the owner has told the controller. A failure
of the log's directory meanwhile wins. While the disk is full no byte of the log is read. Owned by the log manager; a
partition is not deleted while its log is opened again.
"""

from __future__ import annotations

from collections.abc import Set
from contextlib import suppress
from typing import Final

import structlog

from partitions.log.cleaner.schedule import LogCleaner
from partitions.log.errors import DirectoryFailed, LogError, LogStorageError, NoSpaceLeft
from partitions.log.node_logs.data_directory import DataDirectory
from partitions.log.node_logs.parts import LogParts
from partitions.log.node_logs.stored_log import StoredLog
from partitions.log.opening.recovery import RecoveryReport
from partitions.log.storage import LogStorage, is_wanting
from partitions.ports import Halt
from partitions.topic_partition import TopicPartition

logger = structlog.get_logger(__name__)

_ROOM_BYTES: Final = 4096
"""A block of most file systems: without one, no recovery comes to its end."""
_ROOM_FILE: Final = "room.tmp"
"""Removed by the next open if a crash leaves it."""


class LogReopener:
    """Takes logs out of `FoundLogs.failed` that wait for room. All methods run on the event loop."""

    def __init__(self, parts: LogParts, cleaner: LogCleaner) -> None:
        self._parts = parts
        self._cleaner = cleaner
        self._shortened: set[TopicPartition] = set()

    def may_reopen(self, partition: TopicPartition) -> bool:
        """Whether the partition's log cannot be used for want of room alone."""
        error = self._parts.found.failed.get(partition)
        return error is not None and error.needs_room

    @property
    def shortened(self) -> Set[TopicPartition]:
        """Logs that lost records when they were opened again: the cluster may think that these are here."""
        return self._shortened

    def forget_shortened(self, partition: TopicPartition) -> None:
        """The controller does not count on those records any more, or the log is gone."""
        self._shortened.discard(partition)

    async def reopen(self, partition: TopicPartition) -> LogError | None:
        """Opens the log, for which `may_reopen` is true; returns why it cannot be used, None if it can."""
        found = self._parts.found
        known, directory = found.failed[partition], found.home[partition]
        await self._cleaner.abort(partition)  # nothing of an earlier life touches the folder any more
        try:
            error = await self._open(partition, directory)
        finally:
            self._cleaner.allow(partition)
        if error is None:
            del found.failed[partition]
            logger.info("a log was opened again", partition=str(partition))
        elif found.failed[partition] is known:
            found.failed[partition] = error
        return found.failed.get(partition)

    async def _open(self, partition: TopicPartition, directory: DataDirectory) -> LogError | None:
        """Recovers the log beside the loop, then takes it up; returns the error."""
        parts, storage = self._parts, directory.storage
        # What was measured before the log was given up may say more than is left, and only now reach the file.
        await parts.checkpoints.settled()
        stored = StoredLog.of(directory, partition, parts.default_config)
        apart = storage.apart()
        try:
            storage.ensure_usable()
            report = await parts.executor.run(recover, stored, apart, parts.now_ms(), parts.halt)
            parts.found.logs[partition] = stored.open(storage, parts.now_ms, parts.halt, clean_shutdown=True)
        except LogError as error:
            if apart.failure is not None:
                with suppress(DirectoryFailed):
                    storage.fail(apart.failure, error)
            return error
        finally:
            if apart.has_cut_records:
                self._shortened.add(partition)
        if report.is_notable:
            logger.warning("a log was recovered", partition=str(partition), recovery=str(report))
        return None


def recover(stored: StoredLog, storage: LogStorage, now_ms: int, halt: Halt) -> RecoveryReport:
    """A job: opens the log as after a crash, and closes it durably. Raises LogError."""
    try:
        _ensure_room(storage, stored.folder)
        log = stored.open(storage, lambda: now_ms, halt, clean_shutdown=False)
        try:
            log.close()
        finally:
            log.abandon()
        return log.recovery
    finally:
        storage.close()


def _ensure_room(storage: LogStorage, folder: str) -> None:
    """Raises NoSpaceLeft on a full disk, LogStorageError for a folder that cannot be written to."""
    path = f"{folder}/{_ROOM_FILE}"
    try:
        try:
            storage.create_empty(path).append([bytes(_ROOM_BYTES)])
        finally:
            storage.remove(path)
    except OSError as error:
        if is_wanting(error):
            raise NoSpaceLeft(f"no space left to open the log {folder}: {error}") from error
        reason = f"the log {folder} cannot be opened: {error}"
        storage.fail_if_broken(reason, error)
        raise LogStorageError(reason) from error
