"""The leader epochs of a log in their checkpoint file, of many logs at once where many begin to lead.

Guarantees (KIP-101): when `EpochWriter.write` has returned without an error for a log that stayed open, with the
epochs that it had and without writing their file itself, they are durable; the file never goes back to older epochs,
whatever changes them meanwhile. When a broker dies, thousands of leaderships move to others in one step: so the files
are written by jobs beside the event loop, and a leader takes no appends until its file is there. The names change in
jobs too, for a rename waits for the file system's journal: a log that writes or drops its file itself meanwhile, or
is let go, first takes that from the job (`NameChanges`). `partitions.partition` begins epochs, the replica manager
has them written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from leader_epoch.checkpoint import CHECKPOINT_FILE_NAME, encode_checkpoint
from leader_epoch.epoch_cache import EpochCache
from partitions.disk import Disk, File
from partitions.log.config_values import LONG_MAX
from partitions.log.errors import LogStorageError
from partitions.log.name_changes import NameChanges
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


class EpochInstall(NamedTuple):
    """What was written is to get its name, durably."""

    write: EpochWrite
    directory: str
    names: NameChanges


class CheckpointedEpochs:
    """The leader epochs of one log, and whether their file holds them."""

    __slots__ = ("_closed", "_epochs_agree_below", "_epochs_dirty", "_epochs_installing", "_epochs_only_lacking",
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
        self._epochs_installing: EpochInstall | None = None
        """What a job gives its name, or has given: not known to be durable."""
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
        self._take_install_over()
        self._storage.replace(self._epochs_path, encode_checkpoint(self.epochs.entries))
        self._epochs_are_written()

    def _drop_contradicted_epochs(self) -> bool:
        """Removes a file that says what is not so and cannot be replaced: batches tell more than none. Whether
        the folder has changed."""
        if self._epochs_only_lacking:
            return False
        self._take_install_over()
        try:
            self._storage.remove(self._epochs_path)
        except OSError as error:
            self._storage.fail(f"removing {self._epochs_path} failed: {error}", error)
        self._epochs_only_lacking = True
        return True

    def _take_install_over(self) -> None:
        """From here on no job gives the file its name: the log changes it itself, or is let go. Waits for the one
        rename that a job is about, if it is."""
        if self._epochs_installing is not None:
            self._epochs_installing.names.drop()
            self._epochs_installing = None

    @property
    def _epochs_path(self) -> str:
        return f"{self.directory}/{CHECKPOINT_FILE_NAME}"

    def prepare_epoch_write(self) -> EpochWrite | None:
        """What has to be written by `write_temporaries`; None if the file holds the epochs durably."""
        self._ensure_open()
        if not self._epochs_dirty:
            return None
        self._take_install_over()  # of a caller that is gone: its job would name what is not durable yet
        path = self._epochs_path
        return EpochWrite(path, path + _TEMPORARY_SUFFIX, encode_checkpoint(self.epochs.entries))

    def begin_epoch_install(self, write: EpochWrite) -> EpochInstall | None:
        """What `install_files` has to do once it is written; None if these are not the epochs any more."""
        if self._closed or not self._epochs_dirty or write.content != encode_checkpoint(self.epochs.entries):
            return None
        rename = partial(self._storage.disk.rename, write.temporary, write.path)
        self._epochs_installing = EpochInstall(write, self.directory, NameChanges([rename]))
        return self._epochs_installing

    def complete_epoch_install(self, install: EpochInstall) -> None:
        """The job has succeeded."""
        if self._epochs_installing is install:
            self._epochs_installing = None
            if install.write.content == encode_checkpoint(self.epochs.entries):
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

        That is NoSpaceLeft, after which it may be tried again, or DirectoryFailed. Logs that are gone, have other
        epochs when this returns, or have tried to write the file themselves meanwhile, are passed over: whoever needs
        those looks at `epochs_are_durable`, and asks again.
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
        written = []
        for writing, error in zip(prepared, errors, strict=True):
            if error is not None:
                _note_failure(writing, error, failed)
            elif (install := writing.log.begin_epoch_install(writing.write)) is not None:
                written.append((writing, install))
        if not written:
            return
        installs = tuple(install for _, install in written)
        errors = await self._executor.run(install_files, self._disk, installs)
        for (writing, install), error in zip(written, errors, strict=True):
            if error is not None:
                _note_failure(writing, error, failed)
            else:
                writing.log.complete_epoch_install(install)


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


def install_files(disk: Disk, installs: Sequence[EpochInstall]) -> tuple[OSError | None, ...]:
    """A job: gives all files their names, then makes those durable; what failed, in the order of `installs`.

    A name that its log has taken over meanwhile is left alone.
    """
    renamed = [_rename(install.names) for install in installs]
    return tuple(
        sync_folder(disk, install.directory) if error is None else error
        for install, error in zip(installs, renamed, strict=True)
    )


def _rename(names: NameChanges) -> OSError | None:
    try:
        names.make()
    except OSError as error:
        return error
    return None


def sync_folder(disk: Disk, folder: str) -> OSError | None:
    """Makes a folder's names durable; what failed, which must not be tried again."""
    try:
        disk.sync_dir(folder)
    except OSError as error:
        return error
    return None
