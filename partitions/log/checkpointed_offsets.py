"""What the data directory's checkpoint files say of one log: recovery point, log start offset, clean offset.

Guarantees: before a truncation makes wrong what the files say, or may soon say, a file in the log's own folder caps it,
durably; the cap goes when what they say has become true again. `PartitionLog` owns one and passes in the offsets;
`CheckpointWriter` writes the files, and tells the log before and after.
"""

from __future__ import annotations

from partitions.log.partition_files import (
    TRUNCATION_CHECKPOINT,
    TruncationCheckpoint,
    encode_truncation_checkpoint,
)
from partitions.log.storage import LogStorage, storage_error


class CheckpointedOffsets:
    """What the files say or are about to say, and the cap on it."""

    __slots__ = ("_cap", "_clean_offset", "_in_files", "_path", "_storage")

    def __init__(
        self,
        storage: LogStorage,
        directory: str,
        in_files: TruncationCheckpoint,
        clean_offset: int,
        cap: TruncationCheckpoint | None,
    ) -> None:
        """`in_files` and `clean_offset` are what the checkpoint files hold; `cap` what the log's folder holds."""
        self._storage = storage
        self._path = f"{directory}/{TRUNCATION_CHECKPOINT}"
        self._in_files = in_files
        self._clean_offset = clean_offset
        self._cap = cap

    def begin(self, now: TruncationCheckpoint) -> None:
        """These offsets are about to be written."""
        self._in_files = TruncationCheckpoint(*map(max, self._in_files, now))

    def begin_clean(self, clean_offset: int) -> None:
        """This clean offset is about to be written."""
        self._clean_offset = max(self._clean_offset, clean_offset)

    def complete(
        self, recovery_point: int | None, log_start_offset: int | None, clean_offset: int | None
    ) -> None:
        """A file holds the value that is given, durably."""
        if clean_offset is not None:
            self._clean_offset = clean_offset
        known = self._in_files
        self._in_files = TruncationCheckpoint(
            known.recovery_point if recovery_point is None else recovery_point,
            known.log_start_offset if log_start_offset is None else log_start_offset,
        )

    def limit(self, recovery_point: int, log_start_offset: int) -> None:
        """Caps what the checkpoint files say, durably, if they say (or may soon say) more. Raises LogStorageError."""
        known = self._cap or self._in_files
        if recovery_point >= known.recovery_point and log_start_offset >= known.log_start_offset:
            return
        cap = TruncationCheckpoint(
            min(recovery_point, known.recovery_point), min(log_start_offset, known.log_start_offset)
        )
        self._storage.replace(self._path, encode_truncation_checkpoint(cap))
        self._cap = cap

    def lift(self, recovery_point: int, log_start_offset: int, clean_offset: int) -> None:
        """Removes the cap once what the checkpoint files say is true: these are the log's offsets. Raises
        LogStorageError."""
        if (
            self._cap is not None
            and self._in_files.recovery_point <= recovery_point
            and self._in_files.log_start_offset <= log_start_offset
            and self._clean_offset <= clean_offset
        ):
            try:
                self._storage.remove(self._path)
            except OSError as error:
                reason = f"{self._path} could not be removed: {error}"
                self._storage.fail_if_broken(reason, error)
                raise storage_error(reason, error) from error
            self._cap = None

    def abandon(self) -> None:
        """The log lets go of its folder: the cap stays as it is."""
        self._cap = None
