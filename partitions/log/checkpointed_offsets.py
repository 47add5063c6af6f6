"""What the data directory's checkpoint files are to say of a log: recovery point, log start offset, clean offset.

Guarantees: whatever the files may say is capped by a file in the log's own folder before a truncation makes it
wrong; a log of which one of them has moved is on the list of those that the next checkpoints have to tell
(`LogStorage.offsets_moved`), so that nobody has to ask all others. `CheckpointWriter` calls the methods here.
"""

from __future__ import annotations

from partitions.log.epoch_checkpointing import CheckpointedEpochs
from partitions.log.opening import OpenedLog, OpenRequest
from partitions.log.partition_files import (
    TRUNCATION_CHECKPOINT,
    TruncationCheckpoint,
    encode_truncation_checkpoint,
)
from partitions.log.storage import LogStorage, storage_error
from partitions.topic_partition import TopicPartition


class CheckpointedOffsets(CheckpointedEpochs):
    """How far a log is durable and compacted, where it begins, and what the files say of that."""

    __slots__ = ("_checkpointed", "_clean_checkpointed", "_durable_to", "_limits", "clean_offset",
                 "log_start_offset", "recovery_point", "topic_partition")  # fmt: skip

    def __init__(
        self, storage: LogStorage, topic_partition: TopicPartition, request: OpenRequest, opened: OpenedLog
    ) -> None:
        super().__init__(
            storage,
            request.directory,
            opened.epochs,
            log_end_offset=opened.log_end_offset,
            is_dirty=opened.epochs_changed,
            only_lacking=opened.epochs_only_lacking,
            proven_from=opened.epochs_proven_from,
        )
        self.topic_partition = topic_partition
        self.log_start_offset = opened.log_start_offset
        self.recovery_point = self._durable_to = opened.recovery_point
        """Everything below is durable; `_durable_to` is higher while a full disk takes no new file of the epochs."""
        self._limits = opened.limits
        self._checkpointed = TruncationCheckpoint(request.recovery_point, request.log_start_offset)
        self._clean_checkpointed = request.clean_offset
        limit = opened.log_end_offset if opened.limits is None else opened.limits.recovery_point
        self.clean_offset = min(request.clean_offset, limit, opened.log_end_offset)
        """Up to here the log was compacted; not above the recovery point."""
        stored = (request.recovery_point, request.log_start_offset, request.clean_offset)
        is_stored = stored == (self.recovery_point, self.log_start_offset, self.clean_offset)
        if not is_stored or not self.recovery_point:  # what is 0 may be in no file yet
            self._offsets_moved()

    def _offsets_moved(self) -> None:
        self._storage.offsets_moved(self.topic_partition)

    def begin_checkpoint(self) -> TruncationCheckpoint:
        """Recovery point and log start offset for the checkpoint files, which are about to be written."""
        now = TruncationCheckpoint(self.recovery_point, self.log_start_offset)
        self._checkpointed = TruncationCheckpoint(*map(max, self._checkpointed, now))
        return now

    def begin_clean_checkpoint(self) -> int:
        """The clean offset for its checkpoint file, which is about to be written."""
        self._clean_checkpointed = max(self._clean_checkpointed, self.clean_offset)
        return self.clean_offset

    def complete_checkpoint(
        self,
        *,
        recovery_point: int | None = None,
        log_start_offset: int | None = None,
        clean_offset: int | None = None,
    ) -> None:
        """A checkpoint file holds this value, which `begin_checkpoint` gave, durably.

        The clean offset is written after a recovery point that is not below it, so that whatever caps
        the one caps the other. Raises LogStorageError.
        """
        if clean_offset is not None:
            self._clean_checkpointed = clean_offset
        known = self._checkpointed
        self._checkpointed = TruncationCheckpoint(
            known.recovery_point if recovery_point is None else recovery_point,
            known.log_start_offset if log_start_offset is None else log_start_offset,
        )
        self._lift_limits()

    def _lift_limits(self) -> None:
        """Removes the cap once what the checkpoint files say has become true again. Raises LogStorageError."""
        if (
            self._limits is not None
            and self._checkpointed.recovery_point <= self.recovery_point
            and self._checkpointed.log_start_offset <= self.log_start_offset
            and self._clean_checkpointed <= self.clean_offset
        ):
            path = f"{self.directory}/{TRUNCATION_CHECKPOINT}"
            try:
                self._storage.remove(path)
            except OSError as error:
                reason = f"{path} could not be removed: {error}"
                self._storage.fail_if_broken(reason, error)
                raise storage_error(reason, error) from error
            self._limits = None

    def _limit_checkpoints(self, recovery_point: int, log_start_offset: int) -> None:
        """Caps what the checkpoint files say, durably, if they say (or may soon say) more."""
        known = self._limits or self._checkpointed
        if recovery_point >= known.recovery_point and log_start_offset >= known.log_start_offset:
            return
        limits = TruncationCheckpoint(
            min(recovery_point, known.recovery_point), min(log_start_offset, known.log_start_offset)
        )
        self._storage.replace(
            f"{self.directory}/{TRUNCATION_CHECKPOINT}", encode_truncation_checkpoint(limits)
        )
        self._limits = limits
