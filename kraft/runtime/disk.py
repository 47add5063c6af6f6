"""The disk port (`partitions.disk`) over the real file system of a POSIX host.

Every failure is an OSError with its errno; nothing is retried here. Writes are positional (no shared cursor, no
O_APPEND), so a truncated-back append leaves no hole. A descriptor stays open while its file or any slice of it is held:
a reader can finish sending a segment that was deleted or closed meanwhile. Only indexes are mapped, never data files: a
mapping of a file that became shorter kills the process. An instance holds no state: threads may share it, though not
one open file.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import shutil
from collections.abc import Callable, Sequence
from typing import Final

from partitions.disk import Buffer, DiskSpace

_IOV_MAX: Final = 1024
"""Buffers that one vectored write takes on Linux."""
_FILE_MODE: Final = 0o644
_MAPPED_FROM_BYTES: Final = mmap.PAGESIZE + 1
"""A file that fits into one page is read: a mapping would take as much memory, and two descriptors."""


_FALLOC_FL_KEEP_SIZE: Final = 1


def _find_fallocate() -> Callable[[int, int, int, int], int] | None:
    """Linux's fallocate, of which Python knows only the half that makes a file longer."""
    found = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
    if found is None:
        return None
    found.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    found.restype = ctypes.c_int
    function: Callable[[int, int, int, int], int] = found
    return function


_fallocate: Final = _find_fallocate()


class _Descriptor:
    """An open descriptor, closed when the last file or slice that refers to it is gone."""

    __slots__ = ("fd", "path")

    def __init__(self, fd: int, path: str = "") -> None:
        self.fd = fd
        self.path = path

    def __del__(self, _close=os.close) -> None:  # type: ignore[no-untyped-def]  # alive at interpreter exit
        _close(self.fd)


class RealFileSlice:
    """A range of a file that the network lane sends with sendfile (`fileno`) or reads."""

    __slots__ = ("_descriptor", "length", "position")

    def __init__(self, descriptor: _Descriptor, position: int, length: int) -> None:
        self._descriptor = descriptor
        self.position: int = position
        self.length: int = length

    @property
    def path(self) -> str:
        return self._descriptor.path

    def fileno(self) -> int:
        return self._descriptor.fd

    def read(self) -> bytes:
        data = os.pread(self._descriptor.fd, self.length, self.position)
        if len(data) == self.length:
            return data
        return self._read_rest(data)

    def _read_rest(self, data: bytes) -> bytes:
        """pread stops short at 2 GiB, on some file systems at a signal, and at the end of the file."""
        parts = [data]
        done = len(data)
        while done < self.length:
            part = os.pread(self._descriptor.fd, self.length - done, self.position + done)
            if not part:
                raise EOFError(
                    f"the file ends {self.length - done} bytes before the range {self.position}+{self.length}"
                )
            parts.append(part)
            done += len(part)
        return b"".join(parts)


class RealFile:
    """An open file. Not shared between threads; after `close` only its slices work."""

    __slots__ = ("_descriptor", "_size", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path: str = path
        self._descriptor: _Descriptor | None = _Descriptor(fd, path)
        self._size = os.fstat(fd).st_size

    @property
    def _fd(self) -> int:
        if self._descriptor is None:
            raise ValueError(f"{self.path} is closed")
        return self._descriptor.fd

    def size(self) -> int:
        return self._size

    def append(self, buffers: Sequence[Buffer]) -> None:
        descriptor = self._descriptor
        if descriptor is None:
            raise ValueError(f"{self.path} is closed")
        written = 0
        if len(buffers) <= _IOV_MAX:
            size = self._size
            written = os.pwritev(descriptor.fd, buffers, size)
            self._size = size + written
            left = written
            for buffer in buffers:  # mostly two: a sum over a map costs twice as much to begin with
                left -= len(buffer)
            if not left:
                return
        self._append_rest(descriptor.fd, buffers, written)

    def _append_rest(self, fd: int, buffers: Sequence[Buffer], written: int) -> None:
        """Goes on after a short write, and beyond the number of buffers that one call takes."""
        views = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
        first = 0
        while True:
            while first < len(views) and written >= len(views[first]):
                written -= len(views[first])
                first += 1
            if first == len(views):
                return
            views[first] = views[first][written:]
            written = os.pwritev(fd, views[first : first + _IOV_MAX], self._size)
            if written == 0:
                raise OSError(errno.EIO, "the file system wrote nothing", self.path)
            self._size += written

    def read(self, position: int, length: int) -> bytes:
        return os.pread(self._fd, length, position)

    def slice(self, position: int, length: int) -> RealFileSlice:
        if self._descriptor is None:
            raise ValueError(f"{self.path} is closed")
        return RealFileSlice(self._descriptor, position, length)

    def write_at(self, position: int, data: Buffer) -> None:
        fd = self._fd
        view = memoryview(data).cast("B")
        while view:
            written = os.pwrite(fd, view, position)
            if written == 0:
                raise OSError(errno.EIO, "the file system wrote nothing", self.path)
            position += written
            view = view[written:]
            self._size = max(self._size, position)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self._size = size

    def reserve(self, size: int) -> None:
        if _fallocate is None:
            return
        while _fallocate(self._fd, _FALLOC_FL_KEEP_SIZE, 0, size) != 0:
            number = ctypes.get_errno()
            if number == errno.EOPNOTSUPP:
                return
            if number != errno.EINTR:
                os.ftruncate(self._fd, self._size)  # some file systems keep what they had found
                raise OSError(number, os.strerror(number), self.path)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def close(self) -> None:
        self._descriptor = None


class RealDirLock:
    """An flock on a lock file; the kernel releases it when the process ends."""

    def __init__(self, descriptor: _Descriptor) -> None:
        self._descriptor: _Descriptor | None = descriptor

    def release(self) -> None:
        self._descriptor = None


class RealDisk:
    """`partitions.disk.Disk` over `os`."""

    def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(path, os.open(path, flags, _FILE_MODE))

    def read_bytes(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def map(self, path: str) -> Buffer:
        descriptor = _Descriptor(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        data = os.pread(descriptor.fd, _MAPPED_FROM_BYTES, 0)
        if len(data) < _MAPPED_FROM_BYTES:
            return data
        return memoryview(mmap.mmap(descriptor.fd, 0, access=mmap.ACCESS_READ))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    def list_dir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def sync_dir(self, path: str) -> None:
        descriptor = _Descriptor(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        os.fsync(descriptor.fd)

    def space(self, path: str) -> DiskSpace:
        found = os.statvfs(path)
        return DiskSpace(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def lock(self, path: str) -> RealDirLock:
        descriptor = _Descriptor(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE))
        fcntl.flock(descriptor.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return RealDirLock(descriptor)
