"""Faults of a node's disk and clock, imposed from outside on its ports: a full, failing or slow disk, a wrong clock.

`kraft server` puts `with_injected_faults` around its `Environment` if `chaos.enable=true`, and never otherwise. The
door is a file (`chaos.faults.file`) of the node's own user: `kraft chaos run` writes into it which faults there are
now, and the node counts in it what they did. So there is no port that anybody could reach, faults take effect while
the node's event loop stands still, and what was counted outlives a node that ends itself.

The file is 72 bytes: `MAGIC`, then 64-bit little-endian numbers, the settings (`Faults`) and the counts (`Counts`).
Each number is read and written whole; nothing depends on two of them being of the same moment.

No promise of durability is weakened: a fault refuses or delays an operation, and what succeeds was done. An fsync that
was refused was not made; what it should have made durable is still in the page cache, which a real failing disk may
have lost. Reads pass, as from the page cache.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from kraft.environment import Environment
from kraft.user_error import UserError
from partitions.disk import Buffer, DirLock, Disk, DiskSpace, File, FileSlice

MAGIC: Final = b"kraftch1"
_FAULTS: Final = struct.Struct("<4q")
_COUNTS: Final = struct.Struct("<4q")
_NUMBER: Final = struct.Struct("<q")
_FAULTS_AT: Final = len(MAGIC)
_COUNTS_AT: Final = _FAULTS_AT + _FAULTS.size
SIZE_BYTES: Final = _COUNTS_AT + _COUNTS.size
US_PER_S: Final = 1_000_000


class Faults(NamedTuple):
    """What is wrong now."""

    is_full: int = 0
    """1: the disk has no room (ENOSPC)."""
    is_failing: int = 0
    """1: writes and fsyncs fail (EIO)."""
    sync_us: int = 0
    """How much longer each fsync takes, in microseconds."""
    clock_offset_ms: int = 0
    """By how much the wall clock is wrong."""


NONE: Final = Faults()


class Counts(NamedTuple):
    """How often each fault has done something since the file was made."""

    refused: int = 0
    failed: int = 0
    slowed: int = 0
    told_wrong: int = 0


class FaultFile:
    """The door, open. One process imposes, one counts. Threads may share it."""

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd
        self._counting = threading.Lock()

    @classmethod
    def make(cls, path: str) -> FaultFile:
        """A new one, without faults, that only this user can read or write. Raises OSError."""
        made = cls(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        os.pwrite(made._fd, MAGIC + bytes(SIZE_BYTES - len(MAGIC)), 0)
        return made

    @classmethod
    def open(cls, path: str) -> FaultFile:
        """Raises UserError for a file that is none, or that somebody else could write to."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            raise UserError(
                f"chaos.faults.file={path} cannot be opened: {error.strerror}. `kraft chaos run` makes one for its"
                " nodes; any other node needs no chaos.enable"
            ) from error
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            os.close(fd)
            raise UserError(
                f"chaos.faults.file={path} is not a file that only this user can use: who can write to it could break"
                " this node; let `kraft chaos run` make it"
            )
        if found.st_size != SIZE_BYTES or os.pread(fd, len(MAGIC), 0) != MAGIC:
            os.close(fd)
            raise UserError(
                f"chaos.faults.file={path} is none of this version; let `kraft chaos run` make it"
            )
        return cls(path, fd)

    def close(self) -> None:
        os.close(self._fd)

    def impose(self, faults: Faults) -> None:
        """These are the faults from when this returns."""
        os.pwrite(self._fd, _FAULTS.pack(*faults), _FAULTS_AT)

    def faults(self) -> Faults:
        """Those of now."""
        return Faults(*_FAULTS.unpack(os.pread(self._fd, _FAULTS.size, _FAULTS_AT)))

    def counts(self) -> Counts:
        return Counts(*_COUNTS.unpack(os.pread(self._fd, _COUNTS.size, _COUNTS_AT)))

    def count(self, name: str) -> None:
        """One more of this field of `Counts`."""
        place = _COUNTS_AT + _NUMBER.size * Counts._fields.index(name)
        with self._counting:
            (before,) = _NUMBER.unpack(os.pread(self._fd, _NUMBER.size, place))
            os.pwrite(self._fd, _NUMBER.pack(before + 1), place)


def with_injected_faults(environment: Environment, file: FaultFile) -> Environment:
    """The environment, whose disk and wall clock have the faults of the file at each moment. Monotonic time is
    right."""
    right_ms = environment.now_ms

    def now_ms() -> int:
        offset_ms = file.faults().clock_offset_ms
        if offset_ms:
            file.count("told_wrong")
        return right_ms() + offset_ms

    return replace(environment, disk=FaultyDisk(environment.disk, file), now_ms=now_ms)


class FaultyDisk:
    """`partitions.disk.Disk` over another one. What it refuses was not done, not even in part."""

    def __init__(self, inner: Disk, file: FaultFile) -> None:
        self._inner = inner
        self._file = file

    # -- what its files ask, too

    def write(self, path: str, *, needs_room: bool) -> None:
        """Before anything is written. Raises OSError."""
        faults = self._file.faults()
        if faults.is_failing:
            self._fail(path)
        if needs_room and faults.is_full:
            self._file.count("refused")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def sync(self, path: str) -> None:
        """Before an fsync; takes as long as that is slow. Raises OSError."""
        faults = self._file.faults()
        if faults.is_failing:
            self._fail(path)
        if faults.sync_us:
            self._file.count("slowed")
            time.sleep(faults.sync_us / US_PER_S)

    def _fail(self, path: str) -> None:
        self._file.count("failed")
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    # -- the port

    def open(self, path: str, *, create: bool = False) -> File:
        if create and not self._inner.exists(path):
            self.write(path, needs_room=True)
        return FaultyFile(self._inner.open(path, create=create), self)

    def read_bytes(self, path: str) -> bytes:
        return self._inner.read_bytes(path)

    def map(self, path: str) -> Buffer:
        return self._inner.map(path)

    def exists(self, path: str) -> bool:
        return self._inner.exists(path)

    def size(self, path: str) -> int:
        return self._inner.size(path)

    def modified_ms(self, path: str) -> int:
        return self._inner.modified_ms(path)

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        self.write(path, needs_room=False)
        self._inner.set_modified_ms(path, time_ms)

    def list_dir(self, path: str) -> list[str]:
        return self._inner.list_dir(path)

    def make_dirs(self, path: str) -> None:
        if not self._inner.exists(path):
            self.write(path, needs_room=True)
        self._inner.make_dirs(path)

    def rename(self, source: str, target: str) -> None:
        self.write(source, needs_room=False)
        self._inner.rename(source, target)

    def remove(self, path: str) -> None:
        self.write(path, needs_room=False)
        self._inner.remove(path)

    def remove_tree(self, path: str) -> None:
        self.write(path, needs_room=False)
        self._inner.remove_tree(path)

    def sync_dir(self, path: str) -> None:
        self.sync(path)
        self._inner.sync_dir(path)

    def space(self, path: str) -> DiskSpace:
        found = self._inner.space(path)
        return found._replace(usable_bytes=0) if self._file.faults().is_full else found

    def lock(self, path: str) -> DirLock:
        return self._inner.lock(path)


class FaultyFile:
    """An open file of such a disk. Room that it has reserved since it was opened is its own."""

    __slots__ = ("_disk", "_inner", "_reserved")

    def __init__(self, inner: File, disk: FaultyDisk) -> None:
        self._inner = inner
        self._disk = disk
        self._reserved = 0

    @property
    def path(self) -> str:
        return self._inner.path

    def size(self) -> int:
        return self._inner.size()

    def append(self, buffers: Sequence[Buffer]) -> None:
        self._before_growth(self._inner.size() + sum(len(memoryview(one).cast("B")) for one in buffers))
        self._inner.append(buffers)

    def _before_growth(self, size: int) -> None:
        needs_room = size > max(self._inner.size(), self._reserved)
        self._disk.write(self._inner.path, needs_room=needs_room)

    def read(self, position: int, length: int) -> bytes:
        return self._inner.read(position, length)

    def slice(self, position: int, length: int) -> FileSlice:
        return self._inner.slice(position, length)

    def write_at(self, position: int, data: Buffer) -> None:
        self._before_growth(position + len(memoryview(data).cast("B")))
        self._inner.write_at(position, data)

    def truncate(self, size: int) -> None:
        self._disk.write(self._inner.path, needs_room=False)
        self._inner.truncate(size)
        self._reserved = 0

    def reserve(self, size: int) -> None:
        self._before_growth(size)
        self._inner.reserve(size)
        self._reserved = max(self._reserved, size)

    def sync(self) -> None:
        self._disk.sync(self._inner.path)
        self._inner.sync()

    def close(self) -> None:
        self._inner.close()
