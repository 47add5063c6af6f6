"""The port to the disk: the synchronous file operations that a log needs, and nothing more.

`kraft.runtime.disk` implements it over the real file system, `kraft.chaos.world.disk` over a simulated one. All paths
are absolute strings with `/` separators. Every operation raises `OSError` (with a real `errno`) on failure; an
implementation never retries. Appended bytes are visible to readers at once, and durable only after `File.sync`. A
created, renamed or removed name is durable only after `Disk.sync_dir` on its folder.

Data files are never mapped, since a mapping whose file is cut kills the process. Reads return ranges of files
(`FileSlice`), and the network sends them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

Buffer = bytes | bytearray | memoryview


class FileSlice(Protocol):
    """A range of a file that was written before the slice was taken. A read returns it, the network sends it.

    The network lane sends it with sendfile when the slice has a real descriptor (`fileno() >= 0`),
    and with `read` otherwise. The file stays readable while a slice of it is held, even when its
    segment is deleted meanwhile.
    """

    @property
    def path(self) -> str:
        """The file's path when it was opened."""

    @property
    def position(self) -> int:
        """First byte of the range in the file."""

    @property
    def length(self) -> int:
        """Length of the range in bytes."""

    def fileno(self) -> int:
        """The descriptor to send from, or -1 where there is none (simulation)."""

    def read(self) -> bytes:
        """The bytes of the range. Raises OSError on an IO error, EOFError if the file became shorter."""


class File(Protocol):
    """An open file. Appends go to its end; reads are positional and share no cursor."""

    @property
    def path(self) -> str: ...

    def size(self) -> int:
        """Length in bytes, counting everything appended so far."""

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Appends the buffers in order, as one vectored write. On OSError a prefix may have been written."""

    def read(self, position: int, length: int) -> bytes:
        """Up to `length` bytes from `position`; shorter only at the end of the file."""

    def slice(self, position: int, length: int) -> FileSlice: ...

    def write_at(self, position: int, data: Buffer) -> None:
        """Overwrites or extends at `position` (indexes only; log data is append-only)."""

    def truncate(self, size: int) -> None:
        """Sets the length, and gives back the room reserved beyond it."""

    def reserve(self, size: int) -> None:
        """Takes room on the disk for the file to grow to `size` bytes. Its length stays, so that readers, recovery and
        tools never meet zeros. Raises OSError (ENOSPC) with nothing taken; does nothing on a file system that
        cannot."""

    def sync(self) -> None:
        """Makes all data written before the call durable (fdatasync). An error is never retried."""

    def close(self) -> None: ...


class DirLock(Protocol):
    """Held while a process uses a data directory; released by `release` or the end of the process."""

    def release(self) -> None: ...


class DiskSpace(NamedTuple):
    """The room of one file system, in bytes."""

    total_bytes: int
    usable_bytes: int
    """What is left for this process: some file systems keep a part for the operator."""


class Disk(Protocol):
    """The file system below one node."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Opens for reading and appending. Raises FileNotFoundError unless `create`."""

    def read_bytes(self, path: str) -> bytes: ...

    def map(self, path: str) -> Buffer:
        """The file's present bytes, not to be changed. Only the pages that the caller looks at are read.

        For indexes, which never become shorter while they are mapped: while the buffer is held, the file may be
        appended to, renamed or removed, but not cut; a look at a byte that was cut away ends the process. Data files
        are not mapped.
        """

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int:
        """Length of the file in bytes; it is not opened."""

    def modified_ms(self, path: str) -> int:
        """The time of the last change of the file's content, in wall-clock ms since the Unix epoch."""

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        """Sets the time that `modified_ms` returns until the file is changed again."""

    def list_dir(self, path: str) -> list[str]:
        """The names in a folder, sorted."""

    def make_dirs(self, path: str) -> None:
        """Creates the folder and its parents; an existing folder is fine."""

    def rename(self, source: str, target: str) -> None:
        """Atomically replaces `target`."""

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None:
        """Makes the folder's names durable."""

    def space(self, path: str) -> DiskSpace:
        """The room of the file system that the folder is on."""

    def lock(self, path: str) -> DirLock:
        """Takes the exclusive lock file `path`. Raises BlockingIOError if another process holds it."""


def write_atomically(disk: Disk, path: str, data: bytes) -> None:
    """Replaces the file at `path` with `data`, durably: temporary file, fsync, rename, folder fsync."""
    finish_replacement(disk, path, begin_replacement(disk, path, data))


def begin_replacement(disk: Disk, path: str, data: bytes) -> File:
    """The half of `write_atomically` that needs room and a descriptor. It may be begun anew after any failure: nothing
    has been fsynced, and the file at `path` is as it was. Returns the temporary file."""
    temporary = path + ".tmp"
    if disk.exists(temporary):
        disk.remove(temporary)
    file = disk.open(temporary, create=True)
    try:
        file.append([data])
    except OSError:
        file.close()
        raise
    return file


def finish_replacement(disk: Disk, path: str, file: File) -> None:
    """The other half: makes the temporary file durable, and puts it in the place of the file at `path`."""
    try:
        file.sync()
    finally:
        file.close()
    disk.rename(path + ".tmp", path)
    disk.sync_dir(path.rpartition("/")[0])
