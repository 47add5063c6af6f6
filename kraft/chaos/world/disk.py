"""The disk port over a simulated disk, fenced by incarnation. Its durability rules:

1. What a process writes is visible at once to every reader of the host. `kill -9` keeps all of it.
2. A power loss keeps everything that an fsync covered: `File.sync` the content and size of a file,
   `Disk.sync_dir` the names in a folder (created, renamed, removed). Neither covers the other: a synced
   file whose name was not synced is gone.
3. An fsync covers exactly the changes made before it; within an executor job, those made before the
   job was submitted and those that the job itself has made.
4. Of the unsynced changes of one file a power loss leaves, at random: none; all; the first n, the last
   of them torn at a multiple of 512 bytes; or any subset of the 512-byte sectors written. A sector
   that was lost below a kept one is a hole of zeros, or what was there before. Changes of size are
   ordered, as in a journaling file system: if a truncation is lost, everything later in that file is.
5. Of the unsynced changes of names: none, all, the first n, or any subset that keeps the order of the
   changes of one name (a file renamed is not there if its creation was lost). A rename is atomic, and
   durable once either folder that it touches is synced.
6. Sectors are written whole or not at all. What was durable is never damaged by these rules.
7. A lock ends with its process. A removed file stays readable through what holds it open.
8. A process that ends in the middle of a write leaves any prefix of it in the page cache, and of a tree
   that it was removing, a part. Every other operation happens whole or not at all.
9. A failed fsync makes nothing durable, and the kernel forgets that anything was to be written: until
   the next power loss every fsync of that file or folder succeeds and makes nothing durable. What was
   written stays readable. Nobody can win by trying again.
10. A full disk takes the part of an append or a write that still fits, and fails with ENOSPC; so does
   whatever creates a name. Overwriting, cutting, renaming, removing and fsync need no room, and what is
   cut or removed is free at once. Room that a file has reserved is its own until the file is cut.
11. Bits rot only on the platter: a byte that an fsync covers (or a power loss left) and that nothing has
   been written over since. Reads return the wrong byte, without an error, until it is overwritten or
   repaired. A fault may leave out what the page cache hides: what the process that runs has read or
   written (of each file, all between the first and the last such byte) is in memory and stays there;
   a new process begins with nothing.
12. A wiped disk is empty, and durably so.

Every operation of a dead process raises IncarnationGoneError and does nothing. Blocking operations have
a virtual cost, which the executor and the Raft lane take from `accounting`; outside of those they stall
the event loop that called them, as they would in reality.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from kraft.chaos.world.incarnation import Incarnation
from kraft.chaos.world.inodes import Covered, Inode
from kraft.chaos.world.operations import TornOperation, os_error
from kraft.chaos.world.storage import Storage
from partitions.disk import Buffer, DiskSpace

DIVISIBLE = frozenset({"append", "write", "remove_tree"})
"""Operations of which a process may have done a part when it ends."""


class Account:
    """What one stretch of blocking work costs, and which changes its fsyncs cover."""

    __slots__ = ("covered", "seconds")

    def __init__(self, covered: Covered | None) -> None:
        """`covered` None is every change made before the fsync."""
        self.covered = covered
        self.seconds = 0.0


class SimulatedDisk:
    """Implements `partitions.disk.Disk` for one process incarnation over its host's storage."""

    def __init__(
        self, storage: Storage, incarnation: Incarnation, sync_rng: Callable[[float, float], float]
    ) -> None:
        """`sync_rng(min_s, max_s)` draws the duration of an fsync."""
        self._storage = storage
        self._incarnation = incarnation
        self._draw = sync_rng
        self._account: Account | None = None
        self.on_blocked: Callable[[float], None] | None = None
        storage.life += 1
        self.life = storage.life

    @property
    def write_sequence(self) -> int:
        """The number of the last change made so far; an fsync submitted now covers up to it."""
        return self._storage.sequence

    @contextlib.contextmanager
    def accounting(self, horizon: int | None = None) -> Iterator[Account]:
        """Collects the cost of blocking operations inside; limits fsyncs to changes up to `horizon` and
        to those made inside."""
        covered = None if horizon is None else Covered(horizon, self._storage.sequence)
        outer, account = self._account, Account(covered)
        self._account = account
        try:
            yield account
        finally:
            self._account = outer

    # -- the port

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        self._enter("open", path)
        node = self._storage.find(path)
        if isinstance(node, Inode):
            return SimulatedFile(self, path, node)
        inode = self._storage.create_file(path) if create and node is None else self._storage.inode(path)
        return SimulatedFile(self, path, inode)

    def read_bytes(self, path: str) -> bytes:
        self._enter("read", path)
        inode = self._storage.inode(path)
        inode.touch(self.life, 0, len(inode.data))
        return bytes(inode.data)

    def map(self, path: str) -> bytes:
        return self.read_bytes(path)

    def exists(self, path: str) -> bool:
        self._enter("exists", path)
        try:
            return self._storage.find(path) is not None
        except NotADirectoryError:
            return False

    def size(self, path: str) -> int:
        self._enter("size", path)
        return len(self._storage.inode(path).data)

    def modified_ms(self, path: str) -> int:
        self._enter("modified", path)
        return self._storage.inode(path).modified_ms

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        self._enter("set_modified", path)
        self._storage.inode(path).modified_ms = time_ms

    def list_dir(self, path: str) -> list[str]:
        self._enter("list", path)
        return sorted(self._storage.folder(path).names)

    def make_dirs(self, path: str) -> None:
        self._enter("make_dirs", path)
        self._storage.make_dirs(path)

    def rename(self, source: str, target: str) -> None:
        self._enter("rename", source)
        self._storage.rename(source, target)

    def remove(self, path: str) -> None:
        self._enter("remove", path)
        self._storage.remove_file(path)

    def remove_tree(self, path: str) -> None:
        try:
            self._enter("remove_tree", path)
        except TornOperation as torn:
            self._storage.remove_tree(path, fraction=torn.fraction)
            self._finish(torn)
        self._storage.remove_tree(path)

    def sync_dir(self, path: str) -> None:
        self._enter("sync_dir", path)
        self._storage.sync_folder(path, self._charge_sync())

    def space(self, path: str) -> DiskSpace:
        self._enter("space", path)
        return self._storage.space(path)

    def lock(self, path: str) -> SimulatedLock:
        self._enter("lock", path)
        holder = self._storage.locks.get(path)
        if isinstance(holder, SimulatedLock) and holder.held:
            raise BlockingIOError(errno.EAGAIN, "another process holds the lock", path)
        if self._storage.find(path) is None:
            self._storage.create_file(path)
        lock = SimulatedLock(self._storage, path, self._incarnation)
        self._storage.locks[path] = lock
        return lock

    # -- shared with files

    def _enter(self, operation: str, path: str) -> None:
        if self._storage.before_operation is None and self._incarnation.alive:
            return
        self._incarnation.check_alive()
        if self._storage.before_operation is not None:
            try:
                self._storage.before_operation(operation, path)
            except TornOperation as torn:
                if operation in DIVISIBLE:
                    raise
                torn.end()
            self._incarnation.check_alive()

    def _finish(self, torn: TornOperation) -> NoReturn:
        """Ends the process that has written a part."""
        torn.end()
        self._incarnation.check_alive()
        raise AssertionError("a torn operation ends its process")

    def _charge_sync(self) -> Covered:
        """Charges for one fsync and returns what it covers."""
        cost_s = self._storage.timing.draw_sync_s(self._draw)
        everything = Covered(self._storage.sequence, self._storage.sequence)
        if self._account is None:
            if self.on_blocked is not None:
                self.on_blocked(cost_s)
            return everything
        self._account.seconds += cost_s
        return self._account.covered or everything


class SimulatedLock:
    """A lock file held by one incarnation."""

    def __init__(self, storage: Storage, path: str, incarnation: Incarnation) -> None:
        self._storage = storage
        self._path = path
        self._incarnation = incarnation

    @property
    def held(self) -> bool:
        return self._incarnation.alive and self._storage.locks.get(self._path) is self

    def release(self) -> None:
        if self._storage.locks.get(self._path) is self:
            del self._storage.locks[self._path]


class SimulatedFile:
    """An open file of one process."""

    def __init__(self, disk: SimulatedDisk, path: str, inode: Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._closed = False

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        return len(self._inode.data)

    def append(self, buffers: Sequence[Buffer]) -> None:
        data = b"".join(buffers)
        try:
            self._enter("append")
        except TornOperation as torn:
            self._write(len(self._inode.data), data[: int(torn.fraction * len(data))])
            self._disk._finish(torn)
        self._write(len(self._inode.data), data)

    def _write(self, position: int, data: bytes) -> None:
        storage, inode = self._disk._storage, self._inode
        if storage.free_bytes is not None:
            growth = max(0, position + len(data) - len(inode.data))
            reserved = min(growth, inode.reserved)
            inode.reserved -= reserved
            taken = reserved + storage.grow(self._path, growth - reserved)
            if taken < growth:
                fits = data[: max(0, len(inode.data) + taken - position)]
                if fits:
                    self._put(position, fits)
                storage.refuse(self._path)
        if data:
            self._put(position, data)

    def _put(self, position: int, data: bytes) -> None:
        inode, disk = self._inode, self._disk
        storage = disk._storage
        inode.write(storage.next_sequence(), position, data)
        if storage.on_changed is not None:
            storage.on_changed(inode.serial, position, data)
        inode.modified_ms = storage.now_ms()
        inode.touch(disk.life, position, position + len(data))

    def read(self, position: int, length: int) -> bytes:
        self._enter("read")
        if position < 0 or length < 0:
            raise os_error(errno.EINVAL, self._path)
        self._inode.touch(self._disk.life, position, position + length)
        return bytes(memoryview(self._inode.data)[position : position + length])

    def slice(self, position: int, length: int) -> SimulatedSlice:
        return SimulatedSlice(self._disk, self._inode, self._path, position, length)

    def write_at(self, position: int, data: Buffer) -> None:
        if position < 0:
            raise os_error(errno.EINVAL, self._path)
        try:
            self._enter("write")
        except TornOperation as torn:
            self._write(position, bytes(data)[: int(torn.fraction * len(data))])
            self._disk._finish(torn)
        self._write(position, bytes(data))

    def truncate(self, size: int) -> None:
        self._enter("truncate")
        if size < 0:
            raise os_error(errno.EINVAL, self._path)
        storage = self._disk._storage
        if size != len(self._inode.data):
            storage.grow(self._path, min(0, size - len(self._inode.data)))
            self._inode.truncate(storage.next_sequence(), size)
            self._inode.modified_ms = storage.now_ms()
            if storage.on_changed is not None:
                storage.on_changed(self._inode.serial, size, b"")
        storage.give_back(self._path, self._inode)

    def reserve(self, size: int) -> None:
        self._enter("reserve")
        self._disk._storage.reserve(self._path, self._inode, size)

    def sync(self) -> None:
        self._enter("sync")
        self._disk._storage.sync_file(self._inode, self._path, self._disk._charge_sync())

    def close(self) -> None:
        self._closed = True

    def _enter(self, operation: str) -> None:
        if self._closed:
            raise os_error(errno.EBADF, self._path)
        self._disk._enter(operation, self._path)


class SimulatedSlice:
    """A range of a file; holds the file, not its name."""

    __slots__ = ("_disk", "_inode", "length", "path", "position")

    def __init__(self, disk: SimulatedDisk, inode: Inode, path: str, position: int, length: int) -> None:
        self._disk = disk
        self._inode = inode
        self.path = path
        self.position = position
        self.length = length

    def fileno(self) -> int:
        return -1

    def read(self) -> bytes:
        self._disk._enter("read", self.path)
        self._inode.touch(self._disk.life, self.position, self.position + self.length)
        data = bytes(memoryview(self._inode.data)[self.position : self.position + self.length])
        if len(data) < self.length:
            raise EOFError(f"{self.path} became shorter than {self.position + self.length} bytes")
        return data
