"""A segment's offset and time index, and their files: grown in memory, or mapped once they are complete.

Guarantees: while a file is mapped it is only ever replaced or removed, never cut: a segment that cuts or extends its
indexes takes them into memory first (`grow`), and the mapping is gone before the file becomes shorter. A mapped index
costs address space and two descriptors, not memory. Each segment owns one of these; which segments may keep theirs
mapped is up to the pool in `storage.py`.

A lookup touches a few pages of an index of any size; a mapping that became shorter would kill the process.
"""

from __future__ import annotations

from contextlib import closing
from typing import Final, NamedTuple

from partitions.disk import Buffer, write_atomically
from partitions.log.index import (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    GrowingIndex,
    OffsetIndex,
    OffsetIndexView,
    TimeIndex,
    TimeIndexView,
    is_whole,
)
from partitions.log.storage import LogStorage, is_passing

INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"


class HeldIndexes(NamedTuple):
    """The indexes of a segment before they are made anew."""

    growing: tuple[OffsetIndex, TimeIndex] | None
    files_unread: bool


class SegmentIndexes:
    """Both indexes of one segment."""

    __slots__ = ("_files_unread", "_stem", "_storage", "_were_durable", "growing", "offsets", "times",
                 "unsynced", "writes")  # fmt: skip

    def __init__(self, storage: LogStorage, stem: str) -> None:
        """`stem` is the path of the segment's files without their suffix."""
        self._storage = storage
        self._stem = stem
        self.offsets: OffsetIndexView | None = None
        """None: not loaded."""
        self.times: TimeIndexView | None = None
        self.growing: tuple[OffsetIndex, TimeIndex] | None = None
        """The same two, where they are in memory and may change."""
        self.unsynced: tuple[str, ...] = ()
        """The files that need an fsync, because something was written that none has covered."""
        self.writes = 0
        """How often either file was written to, so that an fsync is not taken to cover what came after it."""
        self._were_durable = False
        """Whether both were durable when `unsynced` was empty last: one that nobody writes to needs no fsync."""
        self._files_unread = False
        """Whether nobody knows what the files hold, because the indexes were made from the data."""

    @property
    def paths(self) -> tuple[str, str]:
        """The offset index's and the time index's file."""
        return self._stem + INDEX_SUFFIX, self._stem + TIME_INDEX_SUFFIX

    def create_files(self) -> None:
        """Empty files, where an earlier attempt may have left something. Raises OSError."""
        for path in self.paths:
            self._storage.create_empty(path)
            self._storage.release(path)

    # ---- in memory, mapped, or neither

    def begin(self) -> None:
        """Two empty indexes in memory, whatever there is in the files."""
        self._hold(OffsetIndex(), TimeIndex())
        self._files_unread = False

    def leave_files_unread(self) -> None:
        """What is in memory was made from the data, and the files, which were not looked into, are left alone
        until there is more to write, or all has to be in them."""
        for _, index, _ in self._files():
            index.persisted = len(index)
        self._files_unread = True

    def map_files(self) -> bool:
        """Looks into the files as they are from now on; False if they cannot be indexes. Raises OSError."""
        offset_data, time_data = map(self._map, self.paths)
        if not is_whole(offset_data, time_data):
            return False
        self.offsets, self.times = OffsetIndexView(offset_data), TimeIndexView(time_data)
        self.growing = None
        return True

    @property
    def offset_file_is_empty(self) -> bool:
        """Whether the offset index's file has no entry, or is not there. Raises OSError."""
        return not self._map(self.paths[0])

    def stored_last_position(self) -> int:
        """The position that the offset index's file names last: no more of it is read. 0 without an entry, or the
        file. Raises OSError."""
        try:
            file = self._storage.open(self.paths[0])
        except FileNotFoundError:
            return 0
        with closing(file):
            begin = file.size() // OFFSET_ENTRY_BYTES * OFFSET_ENTRY_BYTES - OFFSET_ENTRY_BYTES
            return OffsetIndexView(file.read(begin, OFFSET_ENTRY_BYTES)).last_position if begin >= 0 else 0

    def _map(self, path: str) -> Buffer:
        try:
            return self._storage.map(path)
        except FileNotFoundError:
            return b""

    def grow(self) -> tuple[OffsetIndex, TimeIndex]:
        """Takes indexes that are loaded into memory, if they are not there; the files may change then."""
        if self.growing is not None:
            return self.growing
        assert self.offsets is not None
        assert self.times is not None
        return self._hold(self.offsets.copy(), self.times.copy())

    def _hold(self, offsets: OffsetIndex, times: TimeIndex) -> tuple[OffsetIndex, TimeIndex]:
        self.offsets, self.times = self.growing = (offsets, times)
        return self.growing

    def forget(self) -> None:
        """Lets go of memory and mappings; what was not persisted is lost."""
        self.offsets = self.times = self.growing = None

    def held(self) -> HeldIndexes:
        """What is in memory, and what is known of the files, for `restore` if making them anew fails."""
        return HeldIndexes(self.growing, self._files_unread)

    def restore(self, held: HeldIndexes) -> None:
        """Goes back to what was in memory; to nothing if that was mapped, so that the files are looked at again."""
        self.forget()
        if held.growing is not None:
            self._hold(*held.growing)
        self._files_unread = held.files_unread

    # ---- the files

    def _files(self) -> tuple[tuple[str, GrowingIndex, int], ...]:
        """Path, content and entry size of both, if they are in memory: a mapped file is not touched."""
        if self.growing is None:
            return ()
        offset_path, time_path = self.paths
        offsets, times = self.growing
        return (offset_path, offsets, OFFSET_ENTRY_BYTES), (time_path, times, TIME_ENTRY_BYTES)

    def persist(self, *, only_news: bool = False) -> None:
        """Writes the entries that are not in the files yet. Raises OSError.

        Files that were not read are written whole; with `only_news` they stay as they are if nothing was added.
        """
        if self._files_unread:
            has_news = any(len(index) != index.persisted for _, index, _ in self._files())
            if has_news or not only_news:
                self.rewrite()
            return
        for path, index, entry_bytes in self._files():
            if len(index) == index.persisted:
                continue
            with closing(self._storage.open(path, create=True)) as file:
                if file.size() > index.persisted * entry_bytes:
                    file.truncate(index.persisted * entry_bytes)
                file.write_at(index.persisted * entry_bytes, index.encode_from(index.persisted))
            index.persisted = len(index)
            self._note_written(path)

    def rewrite(self) -> None:
        """Writes what is in memory over whatever the files hold. Raises OSError."""
        for path, index, _ in self._files():
            data = index.encode_from(0)
            with closing(self._storage.open(path, create=True)) as file:
                if data or file.size():
                    self._note_written(path)
                if file.size() > len(data):
                    file.truncate(len(data))
                if data:
                    file.write_at(0, data)
            index.persisted = len(index)
        self._files_unread = False

    def replace(self) -> None:
        """Has files that hold what is in memory, in the place of those that are there, durably: a power loss leaves
        the old file or the new one, whole. Raises OSError where descriptors or memory are wanting, else
        LogStorageError."""
        for path, index, _ in self._files():
            try:
                write_atomically(self._storage.disk, path, index.encode_from(0))
            except OSError as error:
                if is_passing(error):
                    raise
                self._storage.replace_failed(path, error)
            index.persisted = len(index)

    def cut_files(self) -> None:
        """Cuts away what the files hold beyond the persisted entries. Raises OSError."""
        for path, index, entry_bytes in self._files():
            with closing(self._storage.open(path, create=True)) as file:
                if file.size() > index.persisted * entry_bytes:
                    file.truncate(index.persisted * entry_bytes)
                    self._note_written(path)

    def take(self) -> tuple[bytes, bytes]:
        """The whole contents for the files, which the caller writes."""
        assert self.growing is not None
        offsets, times = self.growing
        offsets.persisted, times.persisted = len(offsets), len(times)
        return offsets.encode_from(0), times.encode_from(0)

    def _note_written(self, path: str) -> None:
        self.writes += 1
        if not self._were_durable:
            self.unsynced = self.paths  # nobody knows what else is in the page cache alone
        elif path not in self.unsynced:
            self.unsynced = (*self.unsynced, path)

    def are_durable(self, writes: int | None = None) -> None:
        """An fsync, of this process or of an earlier one, has covered all that is in the files; or all that was in
        them when `writes` was this."""
        if writes is None or writes == self.writes:
            self.unsynced = ()
            self._were_durable = True

    def sync(self) -> None:
        """Makes the files durable, or halts the node."""
        if not self.unsynced:
            return
        for path in self.unsynced:
            self._storage.sync_path(path, create=True)
        self.are_durable()
