"""A data directory as its logs use it: a bounded set of open files, and durability without second tries.

Guarantees: at most `max_open_files` segment files are open at a time (slices keep theirs open while they are held); an
fsync that fails is never repeated, because the kernel drops the pages it could not write and the next fsync would lie:
the directory has failed then, nothing in it is used any more, and `on_failure` decides what that means for the node.
One instance serves all logs of one data directory; the Raft journal has its own.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Callable
from contextlib import closing
from typing import Final, NoReturn, Protocol, TypeVar

from partitions.disk import Buffer, Disk, File, write_atomically
from partitions.log.errors import DirectoryFailed, LogError, LogStorageError, NoSpaceLeft
from partitions.ports import Executor
from partitions.topic_partition import TopicPartition

T = TypeVar("T")

DEFAULT_MAX_OPEN_FILES: Final = 1000
DEFAULT_MAX_LOADED_INDEXES: Final = 1000
"""Sealed segments whose indexes stay mapped: each takes two descriptors and no memory of its own."""
_GIVEN_BACK: Final = 16
"""So many idle files are closed at once when the process has no descriptor left."""
OPEN_ATTEMPTS: Final = 10
"""Of what an executor opens: while it tries, the loop may use up what was given back."""
_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)
_BROKEN: Final = (
    errno.EIO,
    errno.EROFS,
    errno.ENXIO,
    errno.ENODEV,
    errno.ESTALE,
    errno.EUCLEAN,
    errno.ENOTCONN,
)
"""What a device or a file system answers that is not to be relied upon any more."""

_NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)
_SCARCE: Final = (*_NO_DESCRIPTOR, errno.ENOMEM, errno.ENOBUFS)
"""What the process or the machine has run out of for now; it says nothing of the device."""


def is_disk_full(error: OSError) -> bool:
    """Whether there is no room: nothing is broken, and there may be room again."""
    return error.errno in _NO_SPACE


def is_passing(error: OSError) -> bool:
    """Whether descriptors or memory are wanting: nothing is wrong with the disk, and the same may succeed soon."""
    return error.errno in _SCARCE


def is_out_of_descriptors(error: OSError) -> bool:
    """Whether a file could not be opened for want of a descriptor. An open that fails has changed nothing, and
    nothing else answers so: an fsync never does."""
    return error.errno in _NO_DESCRIPTOR


def is_wanting(error: OSError) -> bool:
    """Whether room or a descriptor is wanting: nothing is broken, and there may be some again."""
    return error.errno in _NO_SPACE or error.errno in _NO_DESCRIPTOR


def is_broken(error: OSError) -> bool:
    """Whether the device or the file system is not to be relied upon any more."""
    return error.errno in _BROKEN


def storage_error(reason: str, error: OSError) -> LogStorageError:
    """What a failed operation is to the caller that changed nothing: NoSpaceLeft where room, or a
    descriptor, is wanting."""
    return NoSpaceLeft(reason) if is_wanting(error) else LogStorageError(reason)


class IndexOwner(Protocol):
    """A sealed segment, which can read its indexes again."""

    def unload_indexes(self) -> None: ...


def _nobody(_partition: TopicPartition, _error: LogError) -> None:
    """A log that stands alone: who meets its end gets the error, and there is nobody else to tell."""


def _note_only(_reason: str) -> None:
    """`LogStorage.failure` says it."""


class LogStorage:
    """Disk, failure state and the pools of open files and loaded indexes, for the logs of one directory."""

    def __init__(
        self,
        disk: Disk,
        on_failure: Callable[[str], None],
        *,
        max_open_files: int = DEFAULT_MAX_OPEN_FILES,
        max_loaded_indexes: int = DEFAULT_MAX_LOADED_INDEXES,
        fails_on_io_errors: bool = False,
        on_lost: Callable[[TopicPartition, LogError], None] = _nobody,
    ) -> None:
        """`on_failure` is told the reason, once: it halts the node, or has it go on without the directory.

        `fails_on_io_errors`: a read or an append that the device refuses is a failure as well; for
        directories that are not the only one. `on_lost` is told of a log that was found damaged, left half
        changed, or cannot be written to, and is not to be used as it is.
        """
        assert max_open_files >= 1
        assert max_loaded_indexes >= 1
        self.disk = disk
        self._on_failure = on_failure
        self._fails_on_io_errors = fails_on_io_errors
        self.on_lost = on_lost
        self.moved_recovery_points: dict[TopicPartition, None] = {}
        """Logs whose recovery point in the directory's checkpoint file may be out of date, in order."""
        self.moved_log_starts: dict[TopicPartition, None] = {}
        """The same for log start offsets."""
        self._max_open_files = max_open_files
        self._max_loaded_indexes = max_loaded_indexes
        self._loaded: OrderedDict[str, IndexOwner] = OrderedDict()
        self._open: OrderedDict[str, File] = OrderedDict()
        self._held: dict[str, File] = {}
        self.failure: str | None = None
        """Why nothing here can be used any more; None while it can. Set here alone (`fail`, `rule_out`)."""
        self.has_cut_records = False
        """Whether a recovery has cut anything, for a job that opens a single log through this (`apart`)."""

    def offsets_moved(self, partition: TopicPartition) -> None:
        """A log's recovery point, or its start, is another one: the next checkpoints are to tell it."""
        self.moved_recovery_points[partition] = None
        self.moved_log_starts[partition] = None

    def apart(self) -> LogStorage:
        """The same disk for a job beside the loop: it shares no file and no state with this one. A failure is noted
        in the new one alone, where the caller that waits for the job looks; where this one has failed, so has that."""
        storage = LogStorage(
            self.disk,
            _note_only,
            max_open_files=self._max_open_files,
            max_loaded_indexes=self._max_loaded_indexes,
            fails_on_io_errors=self._fails_on_io_errors,
        )
        storage.failure = self.failure
        return storage

    @property
    def open_files(self) -> int:
        return len(self._open)

    def file(self, path: str) -> File:
        """The open file at `path`, most recently used from now on. Raises OSError."""
        pool = self._open
        file = pool.get(path)
        if file is not None:
            pool.move_to_end(path)
            return file
        held = self._held.get(path)
        return self._admit(path, self.open(path)) if held is None else held

    def hold(self, path: str, file: File) -> None:
        """Has an open file stand for the path, whatever the name leads to, until it is released."""
        self._held[path] = file

    def create_empty(self, path: str) -> File:
        """A new, empty, open file; what an earlier attempt may have left there is cut away."""
        file = self.open(path, create=True)
        if file.size():
            file.truncate(0)
        return self._admit(path, file)

    def _admit(self, path: str, file: File) -> File:
        self._open[path] = file
        if len(self._open) > self._max_open_files:
            _, idle = self._open.popitem(last=False)
            idle.close()
        return file

    def open(self, path: str, *, create: bool = False) -> File:
        """A file that the caller closes; idle ones give their descriptors for it. Raises OSError."""
        return self.with_descriptor(lambda: self.disk.open(path, create=create))

    def map(self, path: str) -> Buffer:
        """As `Disk.map`; idle files give their descriptors for it. Raises OSError."""
        return self.with_descriptor(lambda: self.disk.map(path))

    def give_back(self) -> bool:
        """Closes some of the files that were used longest ago, so that another can be opened; False if there are
        none but the last one used."""
        count = min(len(self._open) - 1, _GIVEN_BACK)
        for _ in range(count):
            self._open.popitem(last=False)[1].close()
        return count > 0

    def with_descriptor(self, operation: Callable[[], T]) -> T:
        """What the operation returns, for which idle files are closed while it cannot open its own. Raises
        OSError."""
        while True:
            try:
                return operation()
            except OSError as error:
                if not is_out_of_descriptors(error) or not self.give_back():
                    raise

    def release(self, path: str) -> None:
        """Closes the file if it is open: it is idle, or its name is about to change."""
        for file in (self._open.pop(path, None), self._held.pop(path, None)):
            if file is not None:
                file.close()

    def release_folder(self, path: str) -> None:
        """Closes what is open in a folder, whose names may soon mean other files."""
        for name in [name for name in (*self._open, *self._held) if name.startswith(f"{path}/")]:
            self.release(name)
        for name in [name for name in self._loaded if name.startswith(f"{path}/")]:
            del self._loaded[name]

    def remove(self, path: str) -> None:
        """Removes a file; one that is not there is fine."""
        self.release(path)
        try:
            self.disk.remove(path)
        except FileNotFoundError:
            return

    def set_aside(self, path: str, target: str) -> bool:
        """Renames a file that is given up; False if it is not there. Raises OSError."""
        self.release(path)
        try:
            self.disk.rename(path, target)
        except FileNotFoundError:
            return False
        return True

    def close(self) -> None:
        for path in (*self._open, *self._held):
            self.release(path)
        self._loaded.clear()

    def index_used(self, path: str, owner: IndexOwner) -> None:
        """Notes that a sealed segment's indexes are loaded; the least used ones are given back."""
        self._loaded[path] = owner
        self._loaded.move_to_end(path)
        if len(self._loaded) > self._max_loaded_indexes:
            self._loaded.popitem(last=False)[1].unload_indexes()

    def index_dropped(self, path: str) -> None:
        self._loaded.pop(path, None)

    def ensure_usable(self) -> None:
        """Raises DirectoryFailed once the directory has failed."""
        if self.failure is not None:
            raise DirectoryFailed(self.failure)

    def fail(self, reason: str, cause: BaseException | None = None) -> NoReturn:
        """Gives the directory up, because what is on disk is no longer known. Raises DirectoryFailed."""
        if self.failure is None:
            self.failure = reason
            self._on_failure(reason)
        raise DirectoryFailed(self.failure) from cause

    def rule_out(self, reason: str) -> None:
        """Notes at start that the directory cannot be used; nobody else is told."""
        self.failure = reason

    def fail_if_broken(self, reason: str, error: OSError) -> None:
        """After a failed operation that changed nothing unknown: gives the directory up, and raises
        DirectoryFailed, if the error says that the device is broken and there are other directories."""
        if self._fails_on_io_errors and is_broken(error):
            self.fail(reason, error)

    def sync(self, file: File) -> None:
        """Makes the file's data durable, or gives the directory up."""
        self._or_fail(file.sync, f"fsync of {file.path} failed")

    def sync_path(self, path: str, *, create: bool = False) -> None:
        """As `sync`, for a file that is opened for it alone."""
        try:
            file = self.open(path, create=create)
        except OSError as error:
            self.fail(f"{path} cannot be opened for its fsync: {error}", error)
        with closing(file):
            self.sync(file)

    def sync_dir(self, path: str) -> None:
        """Makes the folder's names durable, or gives the directory up."""
        self._or_fail(
            lambda: self.with_descriptor(lambda: self.disk.sync_dir(path)),
            f"fsync of the folder {path} failed",
        )

    async def sync_dir_beside(self, executor: Executor, path: str) -> None:
        """As `sync_dir`, waited for by the executor; a folder that is gone needs no fsync."""
        self.ensure_usable()
        try:
            await self.run_with_descriptors(executor, self.disk.sync_dir, path)
        except FileNotFoundError:
            return
        except OSError as error:
            self.fail(f"fsync of the folder {path} failed: {error}", error)

    async def run_with_descriptors(
        self, executor: Executor, job: Callable[..., object], *args: object
    ) -> None:
        """Runs a job again and again while it cannot open its file, and idle files give their descriptors for it.
        Raises OSError."""
        for _ in range(OPEN_ATTEMPTS - 1):
            try:
                await executor.run(job, *args)
                return
            except OSError as error:
                if not is_out_of_descriptors(error) or not self.give_back():
                    raise
        await executor.run(job, *args)

    def truncate_durably(self, path: str, size: int) -> None:
        """Cuts the file and makes that durable, so that no old byte can come back below a new append. Raises
        NoSpaceLeft, with nothing cut, where there is no descriptor to open it with; else gives the directory up."""
        try:
            file = self.file(path)
            file.truncate(size)
        except OSError as error:
            if is_out_of_descriptors(error):
                raise NoSpaceLeft(f"no descriptor left to cut {path}") from error
            self.fail(f"cutting {path} to {size} bytes failed: {error}", error)
        self.sync(file)

    def replace(self, path: str, data: bytes) -> None:
        """Replaces a small file durably. Raises NoSpaceLeft when room or descriptors are wanting, else
        gives the directory up.

        A full disk leaves the old content in place and the next attempt writes a new file from the
        start, so that trying again is safe, and so it is where a file or the folder could not be opened;
        nothing else that fails here is.
        """
        try:
            self.with_descriptor(lambda: write_atomically(self.disk, path, data))
        except OSError as error:
            self.replace_failed(path, error)

    def replace_failed(self, path: str, error: OSError) -> NoReturn:
        """What `replace` does about an error; for those who let an executor do the writing."""
        if is_disk_full(error):
            raise NoSpaceLeft(f"no space left to write {path}") from error
        if is_out_of_descriptors(error):
            self.give_back()
            raise NoSpaceLeft(f"no descriptor left to write {path}") from error
        self.fail(f"writing {path} failed: {error}", error)

    def read_optional(self, path: str) -> bytes | None:
        """The file's content, None if there is no such file."""
        try:
            return self.disk.read_bytes(path)
        except FileNotFoundError:
            return None

    def _or_fail(self, operation: Callable[[], None], what: str) -> None:
        self.ensure_usable()
        try:
            operation()
        except OSError as error:
            self.fail(f"{what}: {error}", error)
