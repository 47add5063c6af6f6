"""The leader epochs of a log in their checkpoint file, of many logs at once where many begin to lead.

Guarantees (KIP-101): when `EpochWriter.write` has returned without an error for a log, every epoch that the
log knew when it was called is durable; the file never goes back to older epochs, whatever changes them
meanwhile. When a broker dies, thousands of leaderships move to others in one step: so the files are
written by jobs beside the event loop, and a leader takes no appends until its file is there. Only names change
on the loop, one rename a log, because there it is known whether the epochs are still those that were
written. `partitions.partition` begins epochs, the replica manager has them written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from leader_epoch.checkpoint import CHECKPOINT_FILE_NAME, encode_checkpoint
from leader_epoch.epoch_cache import EpochCache
from partitions.disk import Disk, File
from partitions.log.config_values import LONG_MAX
from partitions.log.errors import LogStorageError
from partitions.log.storage import LogStorage, is_wanting
from partitions.ports import Executor
from partitions.topic_partition import TopicPartition

WRITE_BATCH: Final = 64
"""Files that one job writes, and has open."""
JOBS_AT_ONCE: Final = 4
"""A file system with a journal commits for all that wait for it at the same time."""
ROUND_LOGS: Final = JOBS_AT_ONCE * WRITE_BATCH
"""Logs whose files are written before other callers have their turn."""
_TEMPORARY_SUFFIX: Final = ".next.tmp"
"""Another name than that of `write_atomically`, which the log's own lane may use at the same moment."""


class EpochWrite(NamedTuple):
    """What a checkpoint file is to hold."""

    path: str
    temporary: str
    content: bytes


class CheckpointedEpochs:
    """The leader epochs of one log, and whether their file holds them."""

    __slots__ = ("_closed", "_epochs_agree_below", "_epochs_dirty", "_epochs_installed", "_epochs_only_lacking",
                 "_epochs_proven_at", "_epochs_proven_from", "_storage", "directory", "epochs",
                 "log_end_offset")  # fmt: skip

    def __init__(
        self,
        storage: LogStorage,
        directory: str,
        epochs: EpochCache,
        *,
        log_end_offset: int,
        is_dirty: bool,
        only_lacking: bool = True,
        proven_from: int = 0,
    ) -> None:
        """`is_dirty`: the file in `directory` does not hold these epochs, or not durably. `proven_from`: batches
        have confirmed them at this offset and above."""
        self.directory = directory
        self.epochs = epochs
        self.log_end_offset = log_end_offset
        self._storage = storage
        self._closed = False
        self._epochs_dirty = is_dirty
        self._epochs_agree_below = 0 if is_dirty else LONG_MAX
        """Of offsets in the log and below this, the file, however old it is, tells what the epochs tell."""
        self._epochs_only_lacking = only_lacking
        """Whether the file has no entry that these epochs contradict: it may lack the last ones."""
        self._epochs_installed: EpochWrite | None = None
        self._epochs_proven_from = proven_from
        self._epochs_proven_at: frozenset[tuple[int, bool]] = frozenset()
        """Offsets below at which batches have confirmed the epochs since; whether those on both sides have."""

    @property
    def is_closed(self) -> bool:
        return self._closed

    def _ensure_open(self) -> None:
        if self._closed:
            raise LogStorageError(f"the log {self.directory} is closed")
        if self._storage.failure is not None:
            self._storage.ensure_usable()

    def assign_epoch_start(self, epoch: int) -> bool:
        """KIP-101: this replica leads in `epoch`, from the log's end on. Whether that is durable already.

        Called on becoming leader. If it is not durable, `EpochWriter.write` has to come before the first
        append. Raises LogStorageError.
        """
        self._ensure_open()
        latest = self.epochs.latest_epoch
        if self.epochs.assign(epoch, self.log_end_offset):
            # An epoch that is not above all others (one of them has rotted) takes away earlier entries.
            is_later = latest is None or latest < epoch
            self._epochs_changed_from(self.log_end_offset if is_later else 0, cut=not is_later)
        return not self._epochs_dirty

    def _epochs_changed_from(self, offset: int, *, cut: bool = False) -> None:
        """The epochs are others from this offset on; `cut`: some are gone that the file may hold."""
        if cut:
            self._epochs_only_lacking = False
        self._epochs_dirty = True
        self._epochs_agree_below = min(self._epochs_agree_below, offset)

    def _epochs_are_written(self) -> None:
        """The file holds the epochs as they are, durably."""
        self._epochs_dirty = False
        self._epochs_agree_below = LONG_MAX
        self._epochs_only_lacking = True

    @property
    def epochs_are_durable(self) -> bool:
        """Whether the file holds the epochs as they are now."""
        return not self._epochs_dirty

    def _write_epochs(self) -> None:
        """Writes the file, durably on return: where the lane may wait, for a log that is closed or flushed."""
        self._epochs_installed = None
        self._storage.replace(self._epochs_path, encode_checkpoint(self.epochs.entries))
        self._epochs_are_written()

    def _drop_contradicted_epochs(self) -> bool:
        """Removes a file that says what is not so and cannot be replaced: batches tell more than none. Whether
        the folder has changed."""
        if self._epochs_only_lacking:
            return False
        try:
            self._storage.remove(self._epochs_path)
        except OSError as error:
            self._storage.fail(f"removing {self._epochs_path} failed: {error}", error)
        self._epochs_only_lacking = True
        return True

    @property
    def _epochs_path(self) -> str:
        return f"{self.directory}/{CHECKPOINT_FILE_NAME}"

    def prepare_epoch_write(self) -> EpochWrite | None:
        """What has to be written by `write_temporaries`; None if the file holds the epochs durably."""
        self._ensure_open()
        if not self._epochs_dirty:
            return None
        path = self._epochs_path
        return EpochWrite(path, path + _TEMPORARY_SUFFIX, encode_checkpoint(self.epochs.entries))

    def install_epochs(self, write: EpochWrite) -> bool:
        """Gives what was written its name, if these are still the epochs; the folder's fsync is due then.

        Raises DirectoryFailed.
        """
        if self._closed or not self._epochs_dirty or write.content != encode_checkpoint(self.epochs.entries):
            return False
        try:
            self._storage.disk.rename(write.temporary, write.path)
        except OSError as error:
            self._storage.fail(f"renaming {write.temporary} failed: {error}", error)
        self._epochs_installed = write
        return True

    def complete_epoch_write(self, write: EpochWrite) -> None:
        """The folder was fsynced since `install_epochs`."""
        if self._epochs_installed is write:
            self._epochs_installed = None
            if write.content == encode_checkpoint(self.epochs.entries):
                self._epochs_are_written()

    def epoch_write_failed(self, write: EpochWrite, error: OSError) -> LogStorageError | None:
        """What the failure means: NoSpaceLeft, or the end of the data directory; None for a closed log whose
        folder is gone, or that needs no room any more.

        What an fsync loses is lost for whoever has the folder next: that the log is closed excuses nothing.
        """
        if self._closed and (isinstance(error, FileNotFoundError) or is_wanting(error)):
            return None
        try:
            self._storage.replace_failed(write.path, error)
        except LogStorageError as failure:
            return failure


class _Writing(NamedTuple):
    partition: TopicPartition
    log: CheckpointedEpochs
    write: EpochWrite


_Failures: TypeAlias = dict[TopicPartition, LogStorageError]


class EpochWriter:
    """Writes the checkpoint files of a node's logs; looks at the logs, which the log manager changes."""

    def __init__(
        self,
        disk: Disk,
        executor: Executor,
        logs: Mapping[TopicPartition, CheckpointedEpochs],
    ) -> None:
        self._disk = disk
        self._executor = executor
        self._logs = logs
        self._lock = asyncio.Lock()  # there is one temporary file a log

    async def write(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LogStorageError]:
        """Makes the epochs of these logs durable, as they are now; returns what kept it from that.

        That is NoSpaceLeft, and nothing has changed then, or DirectoryFailed. Logs that are gone, or have
        other epochs when this returns, are passed over: whoever needs those asks again.
        """
        failed: dict[TopicPartition, LogStorageError] = {}
        left = iter(dict.fromkeys(partitions))
        while turn := list(islice(left, ROUND_LOGS)):
            async with self._lock:
                batches = [turn[at : at + WRITE_BATCH] for at in range(0, len(turn), WRITE_BATCH)]
                if len(batches) > 1:
                    await asyncio.gather(*(self._write_batch(batch, failed) for batch in batches))
                else:
                    await self._write_batch(batches[0], failed)
        return failed

    def _prepare(self, batch: Sequence[TopicPartition], failed: _Failures) -> list[_Writing]:
        prepared = []
        for partition in batch:
            log = self._logs.get(partition)
            if log is None or log.is_closed:
                continue
            try:
                write = log.prepare_epoch_write()
            except LogStorageError as error:
                failed[partition] = error
                continue
            if write is not None:
                prepared.append(_Writing(partition, log, write))
        return prepared

    async def _write_batch(self, batch: Sequence[TopicPartition], failed: _Failures) -> None:
        prepared = self._prepare(batch, failed)
        if not prepared:
            return
        writes = tuple(writing.write for writing in prepared)
        errors = await self._executor.run(write_temporaries, self._disk, writes)
        installed = []
        for writing, error in zip(prepared, errors, strict=True):
            if error is not None:
                _note_failure(writing, error, failed)
                continue
            try:
                if writing.log.install_epochs(writing.write):
                    installed.append(writing)
            except LogStorageError as failure:
                failed[writing.partition] = failure
        if not installed:
            return
        folders = tuple(writing.log.directory for writing in installed)
        errors = await self._executor.run(sync_folders, self._disk, folders)
        for writing, error in zip(installed, errors, strict=True):
            if error is not None:
                _note_failure(writing, error, failed)
            else:
                writing.log.complete_epoch_write(writing.write)


def _note_failure(writing: _Writing, error: OSError, failed: _Failures) -> None:
    failure = writing.log.epoch_write_failed(writing.write, error)
    if failure is not None:
        failed[writing.partition] = failure


def write_temporaries(disk: Disk, writes: Sequence[EpochWrite]) -> tuple[OSError | None, ...]:
    """A job: writes all temporary files, then makes each durable; what failed, in the order of `writes`.

    All are written before the first fsync: that makes most of the rest durable as well, on a file system
    with a journal.
    """
    opened: list[File | OSError] = [_write_temporary(disk, write) for write in writes]
    return tuple(entry if isinstance(entry, OSError) else sync_and_close(entry) for entry in opened)


def _write_temporary(disk: Disk, write: EpochWrite) -> File | OSError:
    try:
        if disk.exists(write.temporary):
            disk.remove(write.temporary)
        file = disk.open(write.temporary, create=True)
    except OSError as error:
        return error
    try:
        file.append([write.content])
    except OSError as error:
        file.close()
        return error
    return file


def sync_and_close(file: File) -> OSError | None:
    """Makes a file durable and closes it; what failed, which must not be tried again."""
    try:
        file.sync()
    except OSError as error:
        return error
    finally:
        file.close()
    return None


def sync_folders(disk: Disk, folders: Sequence[str]) -> tuple[OSError | None, ...]:
    """A job: makes the names in each folder durable; what failed, in the order of `folders`."""
    return tuple(sync_folder(disk, folder) for folder in folders)


def sync_folder(disk: Disk, folder: str) -> OSError | None:
    """Makes a folder's names durable; what failed, which must not be tried again."""
    try:
        disk.sync_dir(folder)
    except OSError as error:
        return error
    return None
