"""A log on disk as its data directory knows it, and how it is opened.

Guarantees: a log is opened by what the directory's checkpoint files say of it, at the start of the node and in a job
that opens it again (`reopening.py`).
"""

from __future__ import annotations

from typing import NamedTuple

from partitions.log.config import LogConfig
from partitions.log.errors import LogStorageError
from partitions.log.log import PartitionLog
from partitions.log.node_logs.data_directory import (
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    DataDirectory,
)
from partitions.log.opening.damage_note import check_damage_note
from partitions.log.storage import LogStorage
from partitions.ports import Halt, NowMs
from partitions.topic_partition import TopicPartition


class StoredLog(NamedTuple):
    """Immutable, so that a job can have it."""

    partition: TopicPartition
    folder: str
    config: LogConfig
    recovery_point: int
    log_start_offset: int
    clean_offset: int

    @classmethod
    def of(cls, directory: DataDirectory, partition: TopicPartition, config: LogConfig) -> StoredLog:
        """By what the checkpoint files of the directory hold now."""
        checkpoints = directory.checkpoints
        return cls(
            partition,
            directory.folder(partition),
            config,
            checkpoints[RECOVERY_POINTS].get(partition, 0),
            checkpoints[LOG_START_OFFSETS].get(partition, 0),
            checkpoints[CLEANER_OFFSETS].get(partition, 0),
        )

    def open(
        self,
        storage: LogStorage,
        now_ms: NowMs,
        halt: Halt,
        *,
        clean_shutdown: bool,
        closed_at: int | None = None,
    ) -> PartitionLog:
        """Opens it, recovered unless it was closed properly, at `closed_at` if that is known. Blocks.

        Raises LogError.
        """
        storage.ensure_usable()
        try:
            check_damage_note(storage, self.folder)
        except OSError as error:
            reason = f"opening the log {self.folder} failed: {error}"
            storage.fail_if_broken(reason, error)
            raise LogStorageError(reason) from error
        return PartitionLog.open(
            storage.disk,
            self.folder,
            self.partition,
            self.config,
            now_ms=now_ms,
            halt=halt,
            recovery_point=self.recovery_point,
            log_start_offset=self.log_start_offset,
            clean_offset=self.clean_offset,
            clean_shutdown=clean_shutdown,
            closed_at=closed_at,
            storage=storage,
        )
