"""Files and folders of the simulated disk, each with what is on the platter and what is only in memory.

A file remembers every write since its last fsync, with what it replaced. That is enough to say what a
power loss may leave of it (the rules stand in `kraft.chaos.world.disk`). Appending and syncing cost nothing
beyond the bytes written; only a power loss walks over the unsynced writes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

SECTOR_BYTES = 512


class Covered(NamedTuple):
    """The changes that an fsync covers: up to number `up_to`, and from `own_after` on those of its job."""

    up_to: int
    own_after: int

    def __contains__(self, sequence: object) -> bool:
        return isinstance(sequence, int) and (sequence <= self.up_to or sequence > self.own_after)


class Write(NamedTuple):
    """`data` written at `position`, over `replaced` (shorter where the file was extended)."""

    sequence: int
    position: int
    data: bytes
    replaced: bytes
    size_before: int


_new_tuple = tuple.__new__
"""What `Write(...)` does, less a Python frame."""


class Truncation(NamedTuple):
    """The size became `size`; `removed` was cut off, or zeros were added if the file grew."""

    sequence: int
    size: int
    removed: bytes
    size_before: int


class Inode:
    """A file's content, apart from its names."""

    __slots__ = ("cached", "data", "modified_ms", "pending", "reserved", "rotten", "serial", "sync_failed")

    def __init__(self, serial: int, modified_ms: int = 0) -> None:
        self.serial = serial
        self.modified_ms = modified_ms
        self.data = bytearray()
        self.pending: list[Write | Truncation] = []
        self.sync_failed = False
        """An fsync failed: none makes anything durable any more, until the machine boots again."""
        self.rotten: dict[int, int] = {}
        """The right byte at each position where a bit has flipped."""
        self.reserved = 0
        """Bytes of room that the file has beyond its end."""
        self.cached = (-1, 0, 0)
        """(life, start, end): what this life of the host has read or written lies in that range."""

    def touch(self, life: int, start: int, end: int) -> None:
        """The process of that life has read or written these bytes: they are in the page cache."""
        known_life, known_start, known_end = self.cached
        if known_life != life:
            self.cached = (life, start, end)
        elif start < known_start:
            self.cached = (life, start, end if end > known_end else known_end)
        elif end > known_end:
            self.cached = (life, known_start, end)

    def write(self, sequence: int, position: int, data: bytes) -> None:
        """Writes into the page cache; a gap before `position` reads as zeros."""
        size, end = len(self.data), position + len(data)
        if position > size:
            self.truncate(sequence, position)
            size = position
        if self.rotten:
            self._overwritten(position, end)
        if position == size:  # at the end, as nearly always
            self.pending.append(_new_tuple(Write, (sequence, position, data, b"", size)))
            self.data += data
            return
        replaced = bytes(memoryview(self.data)[position:end])
        self.pending.append(Write(sequence, position, data, replaced, size))
        self.data[position:end] = data

    def truncate(self, sequence: int, size: int) -> None:
        """Changes the size in the page cache."""
        size_before = len(self.data)
        if self.rotten:
            self._overwritten(size, size_before)
        removed = bytes(memoryview(self.data)[size:])
        self.pending.append(Truncation(sequence, size, removed, size_before))
        if size < size_before:
            del self.data[size:]
        else:
            self.data.extend(bytes(size - size_before))

    def sync(self, covered: Covered) -> None:
        """Makes durable what is covered. Changes build on each other: the last one stands for all."""
        pending = self.pending
        if self.sync_failed:
            return
        if not pending or pending[-1].sequence in covered:
            pending.clear()
        else:
            self.pending = [change for change in pending if change.sequence > covered.up_to]

    def durable_content(self) -> bytearray:
        """What an fsync has promised: the content without any pending change."""
        content = bytearray(self.data)
        for change in reversed(self.pending):
            if isinstance(change, Write):
                del content[change.size_before :]
                content[change.position : change.position + len(change.replaced)] = change.replaced
            else:
                del content[min(change.size, change.size_before) :]
                content.extend(change.removed)
        return content

    def rot(self, rng: random.Random, life: int | None = None, last_bytes: int | None = None) -> int | None:
        """Flips one bit of a byte that is on the platter. Returns its position; None if there is none.

        With `life`, of a byte that the page cache of that life does not hold; of the last so many, if given.
        """
        end = min([len(self.data), *(_first_byte(change) for change in self.pending)])
        held_from = held_to = 0
        if life is not None and self.cached[0] == life:
            held_from, held_to = min(self.cached[1], end), min(self.cached[2], end)
        bare = end - (held_to - held_from)
        if bare <= 0:
            return None
        position = rng.randrange(0 if last_bytes is None else max(0, bare - last_bytes), bare)
        if position >= held_from:
            position += held_to - held_from
        right = self.data[position]
        self.rotten.setdefault(position, right)
        self.data[position] = right ^ (1 << rng.randrange(8))
        return position

    def repair(self) -> bool:
        """Puts right what has rotted and was not overwritten since. False if there was nothing."""
        rotten, self.rotten = self.rotten, {}
        for position, right in rotten.items():
            self.data[position] = right
        return bool(rotten)

    def _overwritten(self, start: int, end: int) -> None:
        """What is overwritten has healed, also if a power loss undoes the overwriting."""
        for position in [position for position in self.rotten if start <= position < end]:
            self.data[position] = self.rotten.pop(position)

    def lose_power(self, rng: random.Random) -> None:
        """Replaces the content by one that a file system may leave."""
        self.sync_failed = False
        if self.pending:
            survivors = choose_survivors(self.pending, rng)
            content = self.durable_content()
            for change in survivors:
                apply_change(content, change)
            self.data = content
            self.pending = []


def _first_byte(change: Write | Truncation) -> int:
    """The first position that a change touches."""
    return change.position if isinstance(change, Write) else min(change.size, change.size_before)


def apply_change(content: bytearray, change: Write | Truncation) -> None:
    """Does to `content` what the change did; holes read as zeros."""
    if isinstance(change, Write):
        if change.position > len(content):
            content.extend(bytes(change.position - len(content)))
        content[change.position : change.position + len(change.data)] = change.data
    elif change.size <= len(content):
        del content[change.size :]
    else:
        content.extend(bytes(change.size - len(content)))


def choose_survivors(pending: list[Write | Truncation], rng: random.Random) -> list[Write | Truncation]:
    """Which unsynced changes reached the platter: none, all, a torn prefix, or any subset of sectors."""
    way = rng.choice(("none", "all", "prefix", "prefix", "sectors"))
    if way == "none":
        return []
    if way == "all":
        return list(pending)
    if way == "prefix":
        kept = pending[: rng.randrange(len(pending) + 1)]
        if kept and isinstance(last := kept[-1], Write):
            sectors = split_into_sectors(last)
            kept = kept[:-1] + list(sectors[: rng.randrange(len(sectors) + 1)])
        return list(kept)
    survivors: list[Write | Truncation] = []
    odds = rng.random()
    for change in pending:
        if isinstance(change, Write):
            survivors.extend(part for part in split_into_sectors(change) if rng.random() < odds)
        elif rng.random() < odds:
            survivors.append(change)
        else:
            break
    return survivors


def split_into_sectors(write: Write) -> list[Write]:
    """The write as the disk sees it: pieces that end at multiples of 512 bytes of the file."""
    parts = []
    position, end = write.position, write.position + len(write.data)
    while position < end:
        cut = min(end, (position // SECTOR_BYTES + 1) * SECTOR_BYTES)
        start = position - write.position
        data = write.data[start : start + cut - position]
        parts.append(Write(write.sequence, position, data, b"", 0))
        position = cut
    return parts


@dataclass(eq=False, slots=True)
class Folder:
    """A folder: its names as processes see them, and as they are on the platter."""

    serial: int
    names: dict[str, Inode | Folder] = field(default_factory=dict)
    durable: dict[str, Inode | Folder] = field(default_factory=dict)
    sync_failed: bool = False
    """As of a file."""
    is_gone: bool = False
    """Its removal is durable: nothing brings it back."""

    def files(self, path: str = "") -> Iterator[tuple[str, Inode]]:
        """All files in it and below, as processes see them, by path, in order."""
        for name in sorted(self.names):
            node = self.names[name]
            if isinstance(node, Folder):
                yield from node.files(f"{path}/{name}")
            else:
                yield f"{path}/{name}", node

    def restore(self) -> None:
        """Forgets the names that are not on the platter, here and below."""
        self.names = dict(self.durable)
        self.sync_failed = False
        for name in sorted(self.names):
            node = self.names[name]
            if isinstance(node, Folder):
                node.restore()

    def empty(self, spares: Callable[[str], bool], path: str = "") -> None:
        """Everything in it is gone, from the platter too, but the files whose path is spared. Nothing may be
        under way."""
        for name, node in list(self.names.items()):
            below = f"{path}/{name}"
            if isinstance(node, Folder):
                node.empty(spares, below)
            if not (node.names if isinstance(node, Folder) else spares(below)):
                del self.names[name]
        self.durable = dict(self.names)

    def vanish(self) -> None:
        """Its last name is gone from the platter."""
        self.is_gone = True
        for node in self.durable.values():
            if isinstance(node, Folder):
                node.vanish()


Node = Inode | Folder
Place = tuple[Folder, str]
"""A name in a folder."""


class NameChange(NamedTuple):
    """One unsynced operation on names. `target` None removes `source`; `source` None creates `target`."""

    sequence: int
    node: Node
    source: Place | None
    target: Place | None

    def keys(self) -> list[tuple[int, str]]:
        """The names that it touches; changes of one name keep their order."""
        return [(place[0].serial, place[1]) for place in (self.source, self.target) if place is not None]

    @property
    def is_void(self) -> bool:
        """Whether it touches only folders that are gone for good."""
        return all(place is None or place[0].is_gone for place in (self.source, self.target))

    def make_durable(self) -> None:
        """Applies the change to the names on the platter."""
        if self.target is None and isinstance(self.node, Folder):
            self.node.vanish()
        if self.source is not None:
            self.source[0].durable.pop(self.source[1], None)
        if self.target is not None:
            self.target[0].durable[self.target[1]] = self.node
