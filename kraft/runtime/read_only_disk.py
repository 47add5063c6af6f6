"""Files that tools look at while a node may be using them: nothing can be written through this.

Files are opened for reading alone, so that read-only file systems and files of another user will do. Sizes are those of
the moment. It does not wait for a file that is none (a pipe). Failures are OSErrors. It fits
`partitions.log.inspection.files.ReadableDisk`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable


class ReadOnlyFile:
    """An open file."""

    __slots__ = ("_fd", "_on_read", "path")

    def __init__(self, path: str, fd: int, on_read: Callable[[int], None]) -> None:
        self.path = path
        self._fd = fd
        self._on_read = on_read

    def size(self) -> int:
        """Length in bytes, now."""
        return os.fstat(self._fd).st_size

    def read(self, position: int, length: int) -> bytes:
        """Up to `length` bytes from `position`; shorter only at the end of the file."""
        data = os.pread(self._fd, length, position)
        if 0 < len(data) < length:  # the end, 2 GiB, or a signal
            parts = [data]
            done = len(data)
            while done < length and (part := os.pread(self._fd, length - done, position + done)):
                parts.append(part)
                done += len(part)
            data = b"".join(parts)
        self._on_read(len(data))
        return data

    def close(self) -> None:
        os.close(self._fd)


class ReadOnlyDisk:
    """The reading half of `partitions.disk.Disk`, over `os`."""

    def __init__(self, on_read: Callable[[int], None] = lambda length: None) -> None:
        """`on_read` is told how many bytes were read, for progress."""
        self._on_read = on_read

    def open(self, path: str) -> ReadOnlyFile:
        return ReadOnlyFile(path, _open(path), self._on_read)

    def read_bytes(self, path: str) -> bytes:
        with open(_open(path), "rb") as file:
            return file.read()

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list_dir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))


def _open(path: str) -> int:
    """Never waits, as opening a named pipe would for its writer. Raises OSError, also for what is no file."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, "it is no regular file", path)
