"""The checkpoint file of one log's leader epochs: what it holds, and how it comes to hold what the log knows.

Guarantees (KIP-101): while the file lacks an epoch, or says what is not so, the log knows that, and its recovery point
stays below; the file never goes back to older epochs. A job beside the loop may write the file and give it its name
(`EpochWriter`): before the log writes or drops its file itself, or lets it go, it takes that rename from the job
(`NameChanges`). `PartitionLog` owns the file and tells it what becomes of the epochs.

A rename over an older file waits for the file system's journal: with thousands of leaderships that moved it was half
of what the loop did. A full disk takes no new file, and must still be freed: a segment may go without one if a durable
batch behind it tells its epoch.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

from leader_epoch.checkpoint import CHECKPOINT_FILE_NAME, encode_checkpoint
from leader_epoch.epoch_cache import EpochCache
from partitions.log.config_values import LONG_MAX
from partitions.log.errors import LogStorageError
from partitions.log.name_changes import NameChanges
from partitions.log.storage import LogStorage, is_wanting

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


class EpochFile:
    """Whether the file holds the epochs of its log, and the steps that make it so."""

    __slots__ = ("_directory", "_epochs", "_installing", "_only_lacking", "_storage", "agrees_below", "is_closed",
                 "is_durable", "path")  # fmt: skip

    def __init__(
        self, storage: LogStorage, directory: str, epochs: EpochCache, is_dirty: bool, *, only_lacking: bool
    ) -> None:
        """`epochs` is the log's cache; `is_dirty`: the file in `directory` does not hold it, or not durably."""
        self.path = f"{directory}/{CHECKPOINT_FILE_NAME}"
        self._directory = directory
        self._epochs = epochs
        self._storage = storage
        self.is_closed = False
        """Whether the log was closed or let go."""
        self.is_durable = not is_dirty
        """Whether the file holds the epochs as they are now."""
        self.agrees_below = 0 if is_dirty else LONG_MAX
        """Of offsets in the log and below this, the file, however old it is, tells what the epochs tell."""
        self._only_lacking = only_lacking
        """Whether the file has no entry that these epochs contradict: it may lack the last ones."""
        self._installing: EpochInstall | None = None
        """What a job gives its name, or has given: not known to be durable."""

    # ---- what becomes of the epochs

    def begin(self, epoch: int, log_end_offset: int) -> bool:
        """KIP-101: this replica leads in `epoch`, from the log's end on. Whether that is durable already."""
        latest = self._epochs.latest_epoch
        if self._epochs.assign(epoch, log_end_offset):
            # An epoch that is not above all others (one of them has rotted) takes away earlier entries.
            is_later = latest is None or latest < epoch
            self.changed_from(log_end_offset if is_later else 0, cut=not is_later)
        return self.is_durable

    def changed_from(self, offset: int, *, cut: bool = False) -> None:
        """The epochs are others from this offset on; `cut`: some are gone that the file may hold."""
        if cut:
            self._only_lacking = False
        self.is_durable = False
        self.agrees_below = min(self.agrees_below, offset)

    def truncate_from_start(self, offset: int) -> None:
        """The log's first segment begins at this offset: of epochs below, the file may go on to tell."""
        if self._epochs.truncate_from_start(offset):
            self.is_durable = False

    def tells_without_batches_below(self, offset: int, *, durable_to: int, is_compacted: bool) -> bool:
        """Whether a recovery would know the epochs of what stays if all batches below the offset were gone.

        It takes them from the file, which may be older (a full disk takes no new one), and from batches: the
        first durable one that stays tells what the file does not, unless there is a hole before it.
        """
        return offset <= self.agrees_below or (
            self._only_lacking and offset < durable_to and not is_compacted
        )

    # ---- on the log's own lane

    def write(self) -> None:
        """Writes the file, durably on return: where the lane may wait, for a log that is closed or flushed.

        Raises LogStorageError."""
        self._take_install_over()
        self._storage.replace(self.path, encode_checkpoint(self._epochs.entries))
        self._is_written()

    def drop_contradicted(self) -> bool:
        """Removes a file that says what is not so and cannot be replaced: batches tell more than none. Whether
        the folder has changed. Raises DirectoryFailed."""
        if self._only_lacking:
            return False
        try:
            self.remove()
        except OSError as error:
            self._storage.fail(f"removing {self.path} failed: {error}", error)
        self._only_lacking = True
        return True

    def remove(self) -> None:
        """Removes the file; no job brings it back. Raises OSError."""
        self._take_install_over()
        self._storage.remove(self.path)

    def close(self) -> None:
        """The log is let go: no job gives the file its name any more."""
        self.is_closed = True
        self._take_install_over()

    def _take_install_over(self) -> None:
        """From here on no job gives the file its name. Waits for the one rename that a job is about, if it is."""
        if self._installing is not None:
            self._installing.names.drop()
            self._installing = None

    def _is_written(self) -> None:
        """The file holds the epochs as they are, durably."""
        self.is_durable = True
        self.agrees_below = LONG_MAX
        self._only_lacking = True

    # ---- by jobs

    def prepare_write(self) -> EpochWrite | None:
        """What a job has to write (`write_temporaries`); None if the file holds the epochs durably. Raises
        DirectoryFailed."""
        self._storage.ensure_usable()
        if self.is_durable:
            return None
        self._take_install_over()  # of a caller that is gone: its job would name what is not durable yet
        return EpochWrite(self.path, self.path + _TEMPORARY_SUFFIX, encode_checkpoint(self._epochs.entries))

    def begin_install(self, write: EpochWrite) -> EpochInstall | None:
        """What `install_files` has to do once it is written; None if these are not the epochs any more."""
        if self.is_closed or self.is_durable or write.content != encode_checkpoint(self._epochs.entries):
            return None
        rename = partial(self._storage.disk.rename, write.temporary, write.path)
        self._installing = EpochInstall(write, self._directory, NameChanges([rename]))
        return self._installing

    def complete_install(self, install: EpochInstall) -> None:
        """The job has succeeded."""
        if self._installing is install:
            self._installing = None
            if install.write.content == encode_checkpoint(self._epochs.entries):
                self._is_written()

    def write_failed(self, write: EpochWrite, error: OSError) -> LogStorageError | None:
        """What the failure means: NoSpaceLeft, or the end of the data directory; None for a closed log that has no
        folder, or needs no room, any more.

        What an fsync loses is lost for the folder's next owner: that the log is closed excuses nothing.
        """
        if self.is_closed and (isinstance(error, FileNotFoundError) or is_wanting(error)):
            return None
        try:
            self._storage.replace_failed(write.path, error)
        except LogStorageError as failure:
            return failure
