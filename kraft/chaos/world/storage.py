"""The disk of a simulated host: what survives its processes, and what survives a power loss.

Below `kraft.chaos.world.disk`, which gives each process its fenced view and states the rules. This module
keeps the tree of names, the numbered changes to it, the locks, and picks what a power loss leaves.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from typing import NoReturn

from kraft.chaos.world.disk_timing import DiskTiming
from kraft.chaos.world.inodes import Covered, Folder, Inode, NameChange, Node, Place
from kraft.chaos.world.operations import OperationHook, SyncFailure, os_error
from kraft.chaos.world.paths import is_below, parts_of
from partitions.disk import DiskSpace

NAME_BYTES = 256
"""A file or folder is not created on a disk that has less room than this."""
NOMINAL_BYTES = 1 << 40
"""The size of every simulated file system, and what is left where that is not counted."""


class Storage:
    """One file system. Its paths are absolute; its root exists."""

    def __init__(
        self, rng: random.Random, *, timing: DiskTiming | None = None, now_ms: Callable[[], int] = lambda: 0
    ) -> None:
        """`now_ms` is the host's wall clock."""
        self.now_ms = now_ms
        self.timing = timing or DiskTiming()
        self._healthy = self.timing
        self._slowness: list[DiskTiming] = []
        self.before_operation: OperationHook | None = None
        """All that is to be asked; `add_hook` keeps several side by side."""
        self.sync_failure: SyncFailure | None = None
        self.free_bytes: int | None = None
        """What is left of a disk that is almost full; None: enough."""
        self.full_below = "/"
        """The folder whose file system has so little room; others have enough."""
        self.life = 0
        """How many processes have used the disk: each begins with an empty page cache."""
        self.on_changed: Callable[[int, int, bytes], None] | None = None
        """Called with a file's serial, the position and the bytes of a write, or of a cut without bytes; or with the
        name that it gets or loses, and minus the folder's serial. After a power loss, a wipe or a repair, with all
        that is left: the path of each file and folder as a name in the root, and a file's content."""
        self.on_refused: Callable[[str], None] | None = None
        """Called with the path when something finds no room."""
        self.sequence = 0
        self.locks: dict[str, object] = {}
        self._rng = rng
        self._serial = 0
        self._changes: list[NameChange] = []
        self._hooks: list[OperationHook] = []
        self.root = self._new_folder()

    # -- paths

    def find(self, path: str) -> Node | None:
        """The file or folder at `path`, or None. Raises NotADirectoryError if the way leads through a file."""
        node: Node | None = self.root
        for name in parts_of(path):
            if type(node) is not Folder:
                if node is None:
                    return None
                raise os_error(errno.ENOTDIR, path)
            node = node.names.get(name)
        return node

    def folder(self, path: str) -> Folder:
        """The folder at `path`. Raises FileNotFoundError, NotADirectoryError."""
        node = self.find(path)
        if node is None:
            raise os_error(errno.ENOENT, path)
        if not isinstance(node, Folder):
            raise os_error(errno.ENOTDIR, path)
        return node

    def inode(self, path: str) -> Inode:
        """The file at `path`. Raises FileNotFoundError, IsADirectoryError."""
        node = self.find(path)
        if node is None:
            raise os_error(errno.ENOENT, path)
        if isinstance(node, Folder):
            raise os_error(errno.EISDIR, path)
        return node

    def place(self, path: str) -> tuple[Folder, str]:
        """The folder that holds the last name of `path`, and that name."""
        parts = parts_of(path)
        if not parts:
            raise os_error(errno.EBUSY, path)
        return self.folder("/" + "/".join(parts[:-1])), parts[-1]

    # -- changes of names

    def next_sequence(self) -> int:
        """Numbers every change; an fsync covers the changes up to a number."""
        self.sequence += 1
        return self.sequence

    def create_file(self, path: str) -> Inode:
        """A new empty file at a free name."""
        folder, name = self.place(path)
        self._take_room_for_name(path)
        self._serial += 1
        inode = Inode(self._serial, self.now_ms())
        folder.names[name] = inode
        self._changed(inode, None, (folder, name))
        return inode

    def make_dirs(self, path: str) -> None:
        """Every missing folder on the way to `path`, and itself."""
        folder = self.root
        parts = parts_of(path)
        for depth, name in enumerate(parts, start=1):
            node = folder.names.get(name)
            if node is None:
                self._take_room_for_name(path)
                node = self._new_folder()
                folder.names[name] = node
                self._changed(node, None, (folder, name))
            if not isinstance(node, Folder):
                raise os_error(errno.EEXIST if depth == len(parts) else errno.ENOTDIR, path)
            folder = node

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces a file (or an empty folder) at `target`."""
        source_place, target_place = self.place(source), self.place(target)
        node = source_place[0].names.get(source_place[1])
        if node is None:
            raise os_error(errno.ENOENT, source)
        if (target + "/").startswith(source + "/") and isinstance(node, Folder) and source != target:
            raise os_error(errno.EINVAL, target)
        if (source + "/").startswith(target + "/") and source != target:
            raise os_error(errno.ENOTEMPTY, target)  # at the least, the source is in it
        replaced = target_place[0].names.get(target_place[1])
        if replaced is node:
            return
        if isinstance(replaced, Folder):
            if not isinstance(node, Folder):
                raise os_error(errno.EISDIR, target)
            if replaced.names:
                raise os_error(errno.ENOTEMPTY, target)
        elif replaced is not None and isinstance(node, Folder):
            raise os_error(errno.ENOTDIR, target)
        if isinstance(replaced, Inode):
            self.grow(target, -len(replaced.data))
        del source_place[0].names[source_place[1]]
        target_place[0].names[target_place[1]] = node
        self._changed(node, source_place, target_place)

    def remove_file(self, path: str) -> None:
        """Takes the name away; open files and slices stay readable."""
        node = self.inode(path)
        self.grow(path, -len(node.data))
        self.give_back(path, node)
        self._unlink(self.place(path), node)

    def remove_tree(self, path: str, *, fraction: float = 1.0) -> None:
        """A folder and everything below it, names first of the deepest; or the first part of that."""
        doomed = [*self._tree(path, self.folder(path)), path]
        for name in doomed[: int(fraction * len(doomed))]:
            if isinstance(self.find(name), Folder):
                self._unlink(self.place(name), self.folder(name))
            else:
                self.remove_file(name)

    def _tree(self, path: str, folder: Folder) -> Iterator[str]:
        for name in sorted(folder.names):
            child, node = f"{path.rstrip('/')}/{name}", folder.names[name]
            if isinstance(node, Folder):
                yield from self._tree(child, node)
            yield child

    def _unlink(self, place: tuple[Folder, str], node: Node) -> None:
        del place[0].names[place[1]]
        self._changed(node, place, None)

    def _changed(self, node: Node, source: Place | None, target: Place | None) -> None:
        self._changes.append(NameChange(self.next_sequence(), node, source, target))
        for place in (source, target):
            if place is not None and self.on_changed is not None:
                self.on_changed(node.serial, -place[0].serial, place[1].encode())

    def _new_folder(self) -> Folder:
        self._serial += 1
        return Folder(self._serial)

    # -- space

    def _take_room_for_name(self, path: str) -> None:
        if self.free_bytes is not None and self.free_bytes < NAME_BYTES and self._is_full(path):
            self.refuse(path)

    def _is_full(self, path: str) -> bool:
        """Whether a path lies on the file system that has little room."""
        return is_below(path, self.full_below)

    def space(self, path: str) -> DiskSpace:
        """The room of the file system that a folder is on. Raises FileNotFoundError, NotADirectoryError."""
        self.folder(path)
        if self.free_bytes is None or not self._is_full(path):
            return DiskSpace(NOMINAL_BYTES, NOMINAL_BYTES)
        return DiskSpace(NOMINAL_BYTES, self.free_bytes)

    def grow(self, path: str, size_bytes: int) -> int:
        """Takes so much space, or gives it back if negative. Returns how much of it there was."""
        if self.free_bytes is None or not self._is_full(path):
            return size_bytes
        taken = min(size_bytes, self.free_bytes)
        self.free_bytes -= taken
        return taken

    def reserve(self, path: str, inode: Inode, size_bytes: int) -> None:
        """Takes room for a file of that size, all or nothing. Raises OSError ENOSPC."""
        needed = max(0, size_bytes - len(inode.data) - inode.reserved)
        if self.free_bytes is not None and self._is_full(path) and self.free_bytes < needed:
            self.refuse(path)
        inode.reserved += self.grow(path, needed)

    def give_back(self, path: str, inode: Inode) -> None:
        """Frees what a file has reserved beyond its end."""
        self.grow(path, -inode.reserved)
        inode.reserved = 0

    def refuse(self, path: str) -> NoReturn:
        """There is no room. Raises OSError ENOSPC."""
        if self.on_refused is not None:
            self.on_refused(path)
        raise os_error(errno.ENOSPC, path)

    # -- durability

    def sync_file(self, inode: Inode, path: str, covered: Covered) -> None:
        """Makes the covered changes of a file durable. Raises OSError as `sync_failure` says."""
        self._fail_sync(inode, path)
        inode.sync(covered)

    def _fail_sync(self, node: Node, path: str) -> None:
        number = 0 if self.sync_failure is None else self.sync_failure(path)
        if number:
            node.sync_failed = True
            raise os_error(number, path)

    def sync_folder(self, path: str, covered: Covered) -> None:
        """Makes the covered changes of this folder's names durable, with earlier ones that they build on.

        Raises OSError as `sync_failure` says.
        """
        folder = self.folder(path)
        self._fail_sync(folder, path)
        if folder.sync_failed:
            return
        chosen: set[int] = set()
        keys: set[tuple[int, str]] = set()
        for change in reversed(self._changes):
            sequence, _, source, target = change
            mine = (
                (source is not None and source[0] is folder) or (target is not None and target[0] is folder)
            ) and sequence in covered
            if mine or (keys and not keys.isdisjoint(change.keys())):
                chosen.add(sequence)
                keys.update(change.keys())
        self._settle(lambda change: change.sequence in chosen)

    def sync_everything(self) -> None:
        """As a clean shutdown of the host does; for setting up tests."""
        for _, inode in self.root.files():
            inode.sync(Covered(self.sequence, self.sequence))
        self._settle(lambda change: True)

    def lose_power(self) -> None:
        """Forgets the page cache: names and contents become what a file system may have kept."""
        self._settle(self._choose_names())
        self._changes.clear()
        self.root.restore()
        for _, inode in self.root.files():
            inode.lose_power(self._rng)
        self.locks.clear()
        self._tell_all()

    def wipe(self, spares: Callable[[str], bool] = lambda path: False) -> None:
        """A new disk is in the machine, with nothing on it but the files that were spared. Its processes must
        have ended before, as by a power loss."""
        self._changes.clear()
        self.root.empty(spares)
        self.locks.clear()
        self._tell_all()

    def _tell_all(self) -> None:
        if self.on_changed is None:
            return
        for path in self._tree("/", self.root):
            node = self.find(path)
            assert node is not None, "the tree has just named it"
            self.on_changed(node.serial, -self.root.serial, path.encode())
            if isinstance(node, Inode):
                self.on_changed(node.serial, 0, bytes(node.data))

    def _choose_names(self) -> Callable[[NameChange], bool]:
        way = self._rng.choice(("none", "all", "prefix", "subset"))
        if way in ("none", "all"):
            return lambda change: way == "all"
        if way == "prefix":
            end = self._rng.randrange(len(self._changes) + 1)
            kept = {change.sequence for change in self._changes[:end]}
            return lambda change: change.sequence in kept
        kept = set()
        lost_keys: set[tuple[int, str]] = set()
        odds = self._rng.random()
        for change in self._changes:
            if self._rng.random() < odds and lost_keys.isdisjoint(change.keys()):
                kept.add(change.sequence)
            else:
                lost_keys.update(change.keys())
        return lambda change: change.sequence in kept

    def _settle(self, is_durable: Callable[[NameChange], bool]) -> None:
        remaining = []
        for change in self._changes:
            if is_durable(change):
                change.make_durable()
            else:
                remaining.append(change)
        # What happened in a folder that is gone for good needs no fsync any more, and would pile up.
        self._changes = [change for change in remaining if not change.is_void]

    # -- for faults

    def slow_down(self, timing: DiskTiming) -> None:
        """The disk is as slow as `timing` says until `speed_up`; of several, the latest counts."""
        self._slowness.append(timing)
        self.timing = timing

    def speed_up(self, timing: DiskTiming) -> None:
        """Ends a `slow_down` with an equal timing."""
        if timing in self._slowness:
            self._slowness.remove(timing)
        self.timing = self._slowness[-1] if self._slowness else self._healthy

    def add_hook(self, hook: OperationHook) -> None:
        """`hook` is called before each operation, after those that were added before it."""
        self._hooks.append(hook)
        self.before_operation = self._call_hooks

    def remove_hook(self, hook: OperationHook) -> None:
        """Without effect if it is not there any more."""
        if hook in self._hooks:
            self._hooks.remove(hook)
        if not self._hooks:
            self.before_operation = None

    def _call_hooks(self, operation: str, path: str) -> None:
        for hook in tuple(self._hooks):
            hook(operation, path)

    def rot(
        self,
        rng: random.Random,
        may_rot: Callable[[str], bool],
        *,
        uncached: bool = False,
        last_bytes: int | None = None,
    ) -> tuple[str, int] | None:
        """Flips a bit on the platter, in a file whose path may rot. Returns path and position; None if there
        is none. `uncached`: only where the page cache does not hide it from the process that runs; `last_bytes`: so
        near to the end of a file."""
        inodes = [(path, inode) for path, inode in self.root.files() if inode.data and may_rot(path)]
        rng.shuffle(inodes)
        for path, inode in inodes:
            position = inode.rot(rng, self.life if uncached else None, last_bytes)
            if position is not None:
                if self.on_changed is not None:
                    self.on_changed(inode.serial, position, bytes(inode.data[position : position + 1]))
                return path, position
        return None

    def is_rotten(self, path: str) -> bool:
        """Whether a bit that was not put right lies below this folder; False if it is not there."""
        node = self.find(path)
        if node is None:
            return False
        if isinstance(node, Inode):
            return bool(node.rotten)
        return any(inode.rotten for _, inode in node.files())

    def repair(self, may_repair: Callable[[str], bool] = lambda path: True) -> bool:
        """Puts right whatever has rotted and was not overwritten. False if there was nothing."""
        repaired = [inode.repair() for path, inode in self.root.files() if may_repair(path)]
        if any(repaired):
            self._tell_all()
        return any(repaired)

    # -- for judges and tests

    def files(self) -> dict[str, bytes]:
        """Every file's content as processes see it, by path, in order."""
        return {path: bytes(inode.data) for path, inode in self.root.files()}

    def unsynced_names(self) -> int:
        """How many changes of names a power loss could still undo."""
        return len(self._changes)
