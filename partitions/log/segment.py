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
from zlib import crc32

from partitions.disk import Buffer
from partitions.log.config import LogConfig
from partitions.log.config_values import INT_MAX
from partitions.log.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndexView, TimeIndexView
from partitions.log.scan import Stop, seek, walk
from partitions.log.segment_indexes import INDEX_SUFFIX, TIME_INDEX_SUFFIX, SegmentIndexes
from partitions.log.storage import LogStorage
from partitions.ports import NowMs

__all__ = [
    "INDEX_SUFFIX",
    "LOG_SUFFIX",
    "NO_TIMESTAMP",
    "TIME_INDEX_SUFFIX",
    "Placed",
    "Segment",
    "file_name",
]

LOG_SUFFIX: Final = ".log"
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
        "_indexes",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_size_bytes",
        "_storage",
        "base_offset",
        "created_ms",
        "index_interval_bytes",
        "log_path",
        "sealed",
    )

    def __init__(
        self, storage: LogStorage, directory: str, base_offset: int, *, index_interval_bytes: int, now_ms: int
    ) -> None:
        self._storage = storage
        self.base_offset = base_offset
        stem = f"{directory}/{file_name(base_offset, '')}"
        self.log_path = stem + LOG_SUFFIX
        """The data file; has another suffix while the cleaner puts it in the place of older ones."""
        self.index_interval_bytes = index_interval_bytes
        self.created_ms = now_ms
        self.sealed = True
        self._size_bytes = _UNKNOWN
        self._first_timestamp: int | None = None
        self._max_timestamp: int | None = None
        self._max_timestamp_offset = _UNKNOWN
        self._indexes = SegmentIndexes(storage, stem)
        self._bytes_since_index = 0

    def create_files(self) -> None:
        """Makes this a new empty segment with its files, ready for appends. Raises OSError."""
        self._storage.create_empty(self.log_path)
        self._indexes.create_files()
        self.reset()
        self.sealed = False

    def reset(self) -> None:
        """Forgets everything about the content: the segment is empty (or about to be rebuilt)."""
        self._size_bytes = 0
        self._first_timestamp = None
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = self.base_offset
        self._indexes.begin()
        self._bytes_since_index = 0

    @property
    def index_paths(self) -> tuple[str, str]:
        """The offset index's and the time index's file."""
        return self._indexes.paths

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
        growing = self._indexes.growing
        assert growing is not None
        started = self._first_timestamp
        if started is None:
            started = self.first_timestamp
        if started >= 0:
            age_ms = max_timestamp - started
        else:  # batches without timestamps: by the clock
            age_ms = now_ms() - self.created_ms
        return (
            size + size_bytes > config.segment_bytes
            or (age_ms > config.earliest_roll_ms and age_ms > self._roll_age_ms(config))
            or last_offset - self.base_offset > INT_MAX
            or len(growing[0].data) + OFFSET_ENTRY_BYTES > config.index_size_max_bytes
            or len(growing[1].data) + TIME_ENTRY_BYTES > config.index_size_max_bytes
        )

    def _roll_age_ms(self, config: LogConfig) -> int:
        """The age at which this very segment is closed: segment.ms less a part of segment.jitter.ms.

        Which part its path decides, so that segments of many partitions that were begun at one time are
        not all closed at one time, and the same segment always at the same.
        """
        jitter_ms = config.max_segment_ms - config.earliest_roll_ms
        return config.max_segment_ms - crc32(self.log_path.encode()) % (jitter_ms + 1)

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
        growing = self._indexes.growing
        assert growing is not None
        assert self._max_timestamp is not None
        offset_index, time_index = growing
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
    def offset_index(self) -> OffsetIndexView:
        """The offset index, mapped or rebuilt if need be. Raises LogCorruptError, OSError."""
        indexes = self._indexes
        if indexes.offsets is None:
            self._load_indexes()
            assert indexes.offsets is not None
        elif self.sealed:
            self._storage.index_used(self.log_path, self)
        return indexes.offsets

    @property
    def time_index(self) -> TimeIndexView:
        """The time index, mapped or rebuilt if need be. Raises LogCorruptError, OSError."""
        indexes = self._indexes
        if indexes.times is None:
            self._load_indexes()
            assert indexes.times is not None
        return indexes.times

    def unload_indexes(self) -> None:
        """Gives memory and mappings back; a sealed segment's indexes are in their files."""
        if self.sealed:
            self._indexes.forget()

    def _load_indexes(self) -> None:
        indexes = self._indexes
        if not (indexes.map_files() and self._is_plausible()):
            self.rebuild()
            indexes.rewrite()
        if self.sealed:
            self._storage.index_used(self.log_path, self)

    def _is_plausible(self) -> bool:
        """What can be told without reading data: does the newest entry lie inside the file, and is
        an index there at all where the data needs one? A closed segment has its final time entry."""
        offset_index, time_index = self._indexes.offsets, self._indexes.times
        assert offset_index is not None
        assert time_index is not None
        if self.size_bytes and time_index.last is None:
            return False
        if len(offset_index):
            return offset_index.last_relative_offset > 0 and 0 < offset_index.last_position < self.size_bytes
        return self.size_bytes <= self.index_interval_bytes

    def rebuild(self) -> None:
        """Indexes and timestamps anew, from the headers of the batches. Raises LogCorruptError."""
        size_bytes = self.size_bytes
        indexes, kept = (
            self._indexes,
            (self._max_timestamp, self._max_timestamp_offset, self._bytes_since_index),
        )
        first_timestamp, growing = self._first_timestamp, self._indexes.growing
        try:
            self.reset()
            for _, header in walk(self._storage.file(self.log_path), 0, size_bytes):
                self.index(((header.last_offset, header.size_bytes, header.max_timestamp),))
        except BaseException:
            # Half of it would be taken for the whole: readers would go on in the next segment.
            self._size_bytes, self._first_timestamp = size_bytes, first_timestamp
            self._max_timestamp, self._max_timestamp_offset, self._bytes_since_index = kept
            indexes.forget()
            if growing is not None:
                indexes.offsets, indexes.times = indexes.growing = growing
            raise
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
        start = self.offset_index.floor(offset - 1 - self.base_offset)
        found = self.seek(start, stop_offset=offset)
        if start and found.position == start:
            # The entry's batch lies below, by the entry's own offset: so the entry is wrong.
            self.rebuild()
            self._indexes.rewrite()
            found = self.seek(0, stop_offset=offset)
        return found

    def locate_time(self, timestamp: int) -> int:
        """Position of a batch before which every record is older than `timestamp` (ms)."""
        floor = self.time_index.floor(timestamp)
        return 0 if floor is None else self.offset_index.floor(floor)

    # ---- sealing, cutting, deleting

    def _append_final_time_entry(self) -> None:
        growing = self._indexes.growing
        if growing is not None and self._size_bytes:
            assert self._max_timestamp is not None
            growing[1].append(self._max_timestamp, self._max_timestamp_offset - self.base_offset)

    def persist_indexes(self, *, final: bool = False) -> None:
        """Writes the entries that are not in the files yet. Raises OSError.

        `final` adds the time index's last word, by which the largest timestamp is known at the next
        start without reading data: done when the segment is sealed or closed.
        """
        if final:
            self._append_final_time_entry()
        self._indexes.persist()

    def sync_indexes(self) -> None:
        """Makes the index files durable, or halts the node."""
        self._indexes.sync()

    def take_indexes(self) -> tuple[bytes, bytes]:
        """Whole offset and time index of a segment that is complete, for its files, which the caller writes."""
        self._append_final_time_entry()
        return self._indexes.take()

    def rewrite_indexes(self) -> None:
        """Writes the indexes anew after a rebuild, over whatever the files hold. Raises OSError."""
        self._indexes.rewrite()

    def seal(self) -> None:
        """No more appends: indexes go to their files, and are mapped when one is needed.

        Raises OSError (and stays unsealed).
        """
        self.persist_indexes(final=True)
        self.sealed = True
        self.unload_indexes()

    def unseal(self) -> None:
        """Becomes the active segment again: indexes are loaded and stay in memory."""
        if self._max_timestamp is None:
            self._load_max_timestamp()
        self._grow_indexes()
        self.sealed = False
        self._storage.index_dropped(self.log_path)

    def _grow_indexes(self) -> None:
        """Has the indexes in memory, where they can change."""
        if self._indexes.growing is None:
            self._bytes_since_index = self.size_bytes - self.offset_index.last_position
            self._indexes.grow()

    def truncate(self, position: int, offset: int) -> None:
        """Cuts data and indexes at the boundary `position`, where `offset` would be; durable for data."""
        self._grow_indexes()
        offset_index, time_index = self._indexes.grow()
        self._storage.truncate_durably(self.log_path, position)
        offset_index.truncate(offset - self.base_offset)
        time_index.truncate(offset - self.base_offset)
        self._indexes.cut_files()
        self._size_bytes = position
        self._bytes_since_index = position - offset_index.last_position
        self.sealed = False
        self._storage.index_dropped(self.log_path)
        if position == 0:
            self.reset()
        else:
            self._max_timestamp = None
            self._load_max_timestamp()

    def remove(self) -> None:
        """Deletes the files; slices that are held stay readable. Raises OSError."""
        self._storage.index_dropped(self.log_path)
        self._storage.remove(self.log_path)
        for path in self.index_paths:
            self._storage.remove(path)

    def release(self) -> None:
        """Closes the file and lets go of the indexes, of a log that is closed or a segment that goes."""
        self._storage.index_dropped(self.log_path)
        self._storage.release(self.log_path)
        self.unload_indexes()
