"""One segment of a log: a data file of whole batches with its offset and time index.

Guarantees: `size_bytes` ends at a batch boundary, and the bytes below it never change. Indexes are
hints: a lookup starts at an index entry and goes on over batch headers, so a missing or short
index costs time, never a wrong answer; one that cannot be right is rebuilt from the headers. File
names and formats are Kafka's: `%020d` of the base offset, with `.log`, `.index`, `.timeindex`.
The partition log owns its segments and decides when to roll, cut and delete them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from partitions.disk import Buffer
from partitions.log.config import INT_MAX, LogConfig
from partitions.log.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex
from partitions.log.scan import Stop, seek, walk
from partitions.log.storage import LogStorage
from partitions.ports import NowMs

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
_UNKNOWN: Final = -1
NO_TIMESTAMP: Final = -1


def file_name(base_offset: int, suffix: str) -> str:
    """Kafka's name of a segment's file: the base offset with 20 digits."""
    return f"{base_offset:020d}{suffix}"


Placed: TypeAlias = tuple[int, int, int]
"""What a segment must know of a batch that is appended to it: last offset, bytes, largest timestamp."""


class Segment:
    """A data file and its indexes, opened and loaded when they are needed."""

    __slots__ = (
        "_bytes_since_index",
        "_first_timestamp",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_offset_index",
        "_size_bytes",
        "_stem",
        "_storage",
        "_time_index",
        "base_offset",
        "created_ms",
        "has_unsynced_indexes",
        "index_interval_bytes",
        "log_path",
        "sealed",
    )

    def __init__(
        self, storage: LogStorage, directory: str, base_offset: int, *, index_interval_bytes: int, now_ms: int
    ) -> None:
        self._storage = storage
        self.base_offset = base_offset
        self._stem = f"{directory}/{file_name(base_offset, '')}"
        self.log_path = self._stem + LOG_SUFFIX
        """The data file; has another suffix while the cleaner puts it in the place of older ones."""
        self.index_interval_bytes = index_interval_bytes
        self.created_ms = now_ms
        self.sealed = True
        self.has_unsynced_indexes = False
        self._size_bytes = _UNKNOWN
        self._first_timestamp: int | None = None
        self._max_timestamp: int | None = None
        self._max_timestamp_offset = _UNKNOWN
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._bytes_since_index = 0

    def create_files(self) -> None:
        """Makes this a new empty segment with its files, ready for appends. Raises OSError."""
        self._storage.create_empty(self.log_path)
        for path in self.index_paths:
            self._storage.create_empty(path)
            self._storage.release(path)
        self.reset()
        self.sealed = False

    def reset(self) -> None:
        """Forgets everything about the content: the segment is empty (or about to be rebuilt)."""
        self._size_bytes = 0
        self._first_timestamp = None
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = self.base_offset
        self._offset_index = OffsetIndex()
        self._time_index = TimeIndex()
        self._bytes_since_index = 0

    @property
    def index_paths(self) -> tuple[str, str]:
        """The offset index's and the time index's file."""
        return self._stem + INDEX_SUFFIX, self._stem + TIME_INDEX_SUFFIX

    @property
    def size_bytes(self) -> int:
        """Length of the data; asks the file system once for a segment that was found at start."""
        if self._size_bytes == _UNKNOWN:
            self._size_bytes = self._storage.file(self.log_path).size()
        return self._size_bytes

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp (ms) in the segment; -1 when it is empty."""
        return self.max_timestamp_and_offset[0]

    @property
    def max_timestamp_and_offset(self) -> tuple[int, int]:
        """The largest timestamp (ms) and the last offset of the first batch that carries it."""
        if self._max_timestamp is None:
            self._load_max_timestamp()
            assert self._max_timestamp is not None
        return self._max_timestamp, self._max_timestamp_offset

    def _load_max_timestamp(self) -> None:
        """From the newest time index entry and the batches after it."""
        last = self.time_index.last
        timestamp, relative = last if last is not None else (NO_TIMESTAMP, 0)
        offset = self.base_offset + relative
        start = self.offset_index.floor(relative)
        if self.sealed:  # sealing wrote the final entry; a loaded index passed its checks
            start = max(start, self.offset_index.last_position)
        for _, header in walk(self._storage.file(self.log_path), start, self.size_bytes):
            if header.max_timestamp > timestamp:
                timestamp, offset = header.max_timestamp, header.last_offset
        self._max_timestamp, self._max_timestamp_offset = timestamp, offset

    # ---- appending

    def should_roll(
        self, config: LogConfig, size_bytes: int, max_timestamp: int, last_offset: int, now_ms: NowMs
    ) -> bool:
        """Whether this active segment must be closed before `size_bytes` more go in (Kafka's rules)."""
        size = self._size_bytes
        if size == 0:
            return False
        assert self._offset_index is not None
        assert self._time_index is not None
        started = self.first_timestamp
        if started >= 0:
            age_ms = max_timestamp - started
        else:  # batches without timestamps: by the clock
            age_ms = now_ms() - self.created_ms
        return (
            size + size_bytes > config.segment_bytes
            or age_ms > config.max_segment_ms
            or last_offset - self.base_offset > INT_MAX
            or (len(self._offset_index) + 1) * OFFSET_ENTRY_BYTES > config.index_size_max_bytes
            or (len(self._time_index) + 1) * TIME_ENTRY_BYTES > config.index_size_max_bytes
        )

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp (ms) of the first batch; -1 if it has none, or there is no batch."""
        if self._first_timestamp is None:
            self._first_timestamp = self._load_first_timestamp()
        return self._first_timestamp

    def _load_first_timestamp(self) -> int:
        file = self._storage.file(self.log_path)
        for _, header in walk(file, 0, self.size_bytes):
            return header.max_timestamp
        return NO_TIMESTAMP

    def append(self, buffers: Sequence[Buffer], batches: Sequence[Placed]) -> None:
        """Writes the batches with one vectored write and indexes them. Raises OSError.

        On OSError nothing is indexed and `size_bytes` is as before; the file may be longer.
        """
        self._storage.file(self.log_path).append(buffers)
        self.index(batches)

    def index(self, batches: Sequence[Placed]) -> None:
        """Takes note of batches that are in the file from `size_bytes` on."""
        offset_index, time_index = self._offset_index, self._time_index
        assert offset_index is not None
        assert time_index is not None
        assert self._max_timestamp is not None
        position = self._size_bytes
        since = self._bytes_since_index
        if position == 0 and batches:
            self._first_timestamp = batches[0][2]
        for last_offset, size_bytes, max_timestamp in batches:
            if max_timestamp > self._max_timestamp:
                self._max_timestamp = max_timestamp
                self._max_timestamp_offset = last_offset
            if since > self.index_interval_bytes:
                offset_index.append(last_offset - self.base_offset, position)
                time_index.append(self._max_timestamp, self._max_timestamp_offset - self.base_offset)
                since = 0
            position += size_bytes
            since += size_bytes
        self._size_bytes = position
        self._bytes_since_index = since

    # ---- reading

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index, loaded or rebuilt if need be."""
        if self._offset_index is None:
            self._load_indexes()
            assert self._offset_index is not None
        elif self.sealed:
            self._storage.index_used(self.log_path, self)
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        """The time index, loaded or rebuilt if need be."""
        if self._time_index is None:
            self._load_indexes()
            assert self._time_index is not None
        return self._time_index

    def unload_indexes(self) -> None:
        """Gives the memory back; a sealed segment's indexes are in their files."""
        if self.sealed:
            self._offset_index = self._time_index = None

    def _load_indexes(self) -> None:
        offset_path, time_path = self.index_paths
        offset_index = OffsetIndex.decode(self._storage.read_optional(offset_path) or b"")
        time_index = TimeIndex.decode(self._storage.read_optional(time_path) or b"")
        if offset_index is None or time_index is None or not self._plausible(offset_index, time_index):
            self.rebuild()
            self.persist_indexes()
        else:
            self._offset_index, self._time_index = offset_index, time_index
            self._bytes_since_index = self.size_bytes - offset_index.last_position
        if self.sealed:
            self._storage.index_used(self.log_path, self)

    def _plausible(self, offset_index: OffsetIndex, time_index: TimeIndex) -> bool:
        """What can be told without reading data: does the newest entry lie inside the file, and is
        an index there at all where the data needs one? A closed segment has its final time entry."""
        if self.size_bytes and time_index.last is None:
            return False
        if len(offset_index):
            return offset_index.last_relative_offset > 0 and 0 < offset_index.last_position < self.size_bytes
        return self.size_bytes <= self.index_interval_bytes

    def rebuild(self) -> None:
        """Indexes and timestamps anew, from the headers of the batches. Raises LogCorruptError."""
        size_bytes = self.size_bytes
        self.reset()
        for _, header in walk(self._storage.file(self.log_path), 0, size_bytes):
            self.index(((header.last_offset, header.size_bytes, header.max_timestamp),))
        self._append_final_time_entry()

    def seek(self, position: int, *, stop_offset: int, stop_position: int | None = None) -> Stop:
        """`scan.seek` in this segment's file, from a known batch boundary."""
        return seek(
            self._storage.file(self.log_path),
            position,
            self.size_bytes,
            stop_offset=stop_offset,
            stop_position=self.size_bytes if stop_position is None else stop_position,
            passed_offset=self.base_offset,
        )

    def locate(self, offset: int) -> Stop:
        """The first batch whose last offset is >= `offset`; at the segment's end, 0 bytes.

        Starts at a batch that lies wholly below, so that `passed_offset` is always right.
        """
        return self.seek(self.offset_index.floor(offset - 1 - self.base_offset), stop_offset=offset)

    # ---- sealing, cutting, deleting

    def _append_final_time_entry(self) -> None:
        assert self._time_index is not None
        assert self._max_timestamp is not None
        if self._size_bytes:
            self._time_index.append(self._max_timestamp, self._max_timestamp_offset - self.base_offset)

    def persist_indexes(self, *, final: bool = False) -> None:
        """Writes the entries that are not in the files yet. Raises OSError.

        `final` adds the time index's last word, by which the largest timestamp is known at the next
        start without reading data: done when the segment is sealed or closed.
        """
        if self._offset_index is None or self._time_index is None:
            return
        if final:
            self._append_final_time_entry()
        for path, index, entry_bytes in (
            (self.index_paths[0], self._offset_index, OFFSET_ENTRY_BYTES),
            (self.index_paths[1], self._time_index, TIME_ENTRY_BYTES),
        ):
            if len(index) == index.persisted:
                continue
            file = self._storage.disk.open(path, create=True)
            try:
                if file.size() > index.persisted * entry_bytes:
                    file.truncate(index.persisted * entry_bytes)
                file.write_at(index.persisted * entry_bytes, index.encode_from(index.persisted))
            finally:
                file.close()
            index.persisted = len(index)
            self.has_unsynced_indexes = True

    def sync_indexes(self) -> None:
        """Makes the index files durable, or halts the node."""
        if not self.has_unsynced_indexes:
            return
        for path in self.index_paths:
            file = self._storage.disk.open(path, create=True)
            try:
                self._storage.sync(file)
            finally:
                file.close()
        self.has_unsynced_indexes = False

    def take_indexes(self) -> tuple[bytes, bytes]:
        """Whole offset and time index of a segment that is complete, for its files, which the caller writes."""
        assert self._offset_index is not None
        assert self._time_index is not None
        self._append_final_time_entry()
        self._offset_index.persisted, self._time_index.persisted = (
            len(self._offset_index),
            len(self._time_index),
        )
        return self._offset_index.encode_from(0), self._time_index.encode_from(0)

    def rewrite_indexes(self) -> None:
        """Writes the indexes anew after a rebuild, over whatever the files hold. Raises OSError."""
        assert self._offset_index is not None
        assert self._time_index is not None
        self._offset_index.persisted = self._time_index.persisted = 0
        for path in self.index_paths:
            self._cut_index_file(path, 0)
        self.persist_indexes()

    def seal(self) -> None:
        """No more appends: indexes go to their files. Raises OSError (and stays unsealed)."""
        self.persist_indexes(final=True)
        self.sealed = True
        self._storage.index_used(self.log_path, self)

    def unseal(self) -> None:
        """Becomes the active segment again: indexes are loaded and stay in memory."""
        if self._max_timestamp is None:
            self._load_max_timestamp()
        if self._offset_index is None or self._time_index is None:
            self._load_indexes()
        self.sealed = False
        self._storage.index_dropped(self.log_path)

    def truncate(self, position: int, offset: int) -> None:
        """Cuts data and indexes at the boundary `position`, where `offset` would be; durable for data."""
        offset_index, time_index = self.offset_index, self.time_index
        self._storage.truncate_durably(self.log_path, position)
        offset_index.truncate(offset - self.base_offset)
        time_index.truncate(offset - self.base_offset)
        for path, index, entry_bytes in (
            (self.index_paths[0], offset_index, OFFSET_ENTRY_BYTES),
            (self.index_paths[1], time_index, TIME_ENTRY_BYTES),
        ):
            self._cut_index_file(path, index.persisted * entry_bytes)
        self._size_bytes = position
        self._bytes_since_index = position - offset_index.last_position
        self.sealed = False
        self._storage.index_dropped(self.log_path)
        if position == 0:
            self.reset()
        else:
            self._max_timestamp = None
            self._load_max_timestamp()

    def _cut_index_file(self, path: str, size: int) -> None:
        file = self._storage.disk.open(path, create=True)
        try:
            if file.size() > size:
                file.truncate(size)
                self.has_unsynced_indexes = True
        finally:
            file.close()

    def remove(self) -> None:
        """Deletes the files; slices that are held stay readable. Raises OSError."""
        self._storage.index_dropped(self.log_path)
        self._storage.remove(self.log_path)
        for path in self.index_paths:
            self._storage.remove(path)

    def release(self) -> None:
        """Closes the file and forgets the indexes of a log that is closed."""
        self._storage.index_dropped(self.log_path)
        self._storage.release(self.log_path)
