"""What is known of a segment's content, and of the indexes that say where things are in it.

Guarantees: indexes are hints. A missing or short one costs time, one that is wrong is made anew from the headers,
of a large segment beside the event loop, and neither is a wrong answer. `SearchedSegment` looks things up in them,
`Segment` adds what changes the files.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, TypeAlias

import structlog

from partitions.log.config_values import INT_MAX
from partitions.log.errors import IndexesLost, LogCorruptError
from partitions.log.index import (
    OffsetIndex,
    OffsetIndexView,
    RebuiltIndexes,
    SegmentExtent,
    TimeIndex,
    TimeIndexView,
)
from partitions.log.scan import SEEK_CHUNK_BYTES, walk
from partitions.log.segment_indexes import SegmentIndexes
from partitions.log.storage import LogStorage

logger = structlog.get_logger(__name__)

LOG_SUFFIX: Final = ".log"
REBUILD_AT_ONCE_BYTES: Final = 512 * 1024
"""Of small batches, so much is read in ten milliseconds."""
_UNKNOWN: Final = -1
NO_TIMESTAMP: Final = -1


def file_name(base_offset: int, suffix: str) -> str:
    """Kafka's name of a segment's file: the base offset with 20 digits."""
    return f"{base_offset:020d}{suffix}"


Placed: TypeAlias = tuple[int, int, int]
"""What a segment must know of a batch that is appended to it: last offset, bytes, largest timestamp."""


_ENDS: Final = struct.Struct(">q15xi8xq")
"""Base offset, last offset delta and largest timestamp of a batch, and nothing else of its header."""
TimeEntry: TypeAlias = tuple[int, int]
"""Timestamp (ms), and the relative offset of the last record of the batch that carries it."""


class IndexedSegment:
    """A data file and its indexes, opened and loaded when they are needed."""

    __slots__ = (
        "_bytes_since_index",
        "_first_timestamp",
        "_indexes",
        "_is_rebuilt",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_size_bytes",
        "_storage",
        "base_offset",
        "created_ms",
        "index_interval_bytes",
        "is_being_rebuilt",
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
        self.is_being_rebuilt = False
        """Whether a job makes the indexes anew, of data that are still those that it was given."""
        self._is_rebuilt = False
        """Whether it has: if a lookup goes astray now, it is not for the indexes' sake."""

    def reset(self) -> None:
        """Forgets everything about the content: the segment is empty (or about to be rebuilt)."""
        self.is_being_rebuilt = False
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
    def newest_ms(self) -> int:
        """The time by which the segment is old: its largest timestamp (ms), or, as in Kafka, when its file was last
        changed, where no record has a timestamp. Raises LogCorruptError, OSError."""
        newest = self.max_timestamp
        return newest if newest >= 0 else self._storage.disk.modified_ms(self.log_path)

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
        last = self._newest_entry()
        timestamp, relative = last if last is not None else (NO_TIMESTAMP, 0)
        offset = self.base_offset + relative
        start = self.offset_index.floor(relative)
        if self.sealed:  # sealing wrote the final entry; a loaded index passed its checks
            start = max(start, self.offset_index.last_position)
        for _, header in walk(self._storage.file(self.log_path), start, self.size_bytes):
            if header.max_timestamp > timestamp:
                timestamp, offset = header.max_timestamp, header.last_offset
        self._max_timestamp, self._max_timestamp_offset = timestamp, offset

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
            self._is_rebuilt = False

    def _load_indexes(self) -> None:
        indexes = self._indexes
        if not (indexes.map_files() and self._is_plausible()):
            is_there = bool(indexes.offsets or indexes.times)
            indexes.forget()
            self._require_small()
            if is_there:
                self.remake_indexes()
            else:  # missing or empty: given up on purpose, or cut off by a crash
                self._make_indexes()
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

    def rebuild(self) -> int:
        """Indexes and timestamps anew, from the headers of the batches; returns the last offset, or the one before
        the segment's. Raises LogCorruptError."""
        size_bytes, last_offset = self.size_bytes, self.base_offset - 1
        indexes, kept = (
            self._indexes,
            (self._max_timestamp, self._max_timestamp_offset, self._bytes_since_index),
        )
        first_timestamp, growing = self._first_timestamp, self._indexes.growing
        try:
            self.reset()
            for position, header in walk(self._storage.file(self.log_path), 0, size_bytes):
                last_offset = header.last_offset
                if not 0 <= last_offset - self.base_offset <= INT_MAX:
                    reason = f"no segment that begins at {self.base_offset} holds offset {last_offset}"
                    raise LogCorruptError(self.log_path, position, reason)
                self.index(((last_offset, header.size_bytes, header.max_timestamp),))
        except BaseException:
            # Half of it would be taken for the whole: readers would go on in the next segment.
            self._size_bytes, self._first_timestamp = size_bytes, first_timestamp
            self._max_timestamp, self._max_timestamp_offset, self._bytes_since_index = kept
            indexes.forget()
            if growing is not None:
                indexes.offsets, indexes.times = indexes.growing = growing
            raise
        self._append_final_time_entry()
        return last_offset

    def mend_indexes(self) -> None:
        """As `remake_indexes`, for a lookup that went astray, which is to be tried once more then. Raises IndexesLost
        where it is to be tried later."""
        if not self._is_rebuilt:
            self._require_small()
            self.remake_indexes()
            self.unload_indexes()

    def _require_small(self) -> None:
        """Raises IndexesLost where somebody makes the indexes of large segments anew, and has begun with these."""
        rebuild_beside = self._storage.rebuild_beside
        if rebuild_beside is not None and self.size_bytes > REBUILD_AT_ONCE_BYTES:
            rebuild_beside(self)
            raise IndexesLost(f"the indexes of {self.log_path} are being made anew; ask again")

    def begin_rebuild(self) -> SegmentExtent:
        """What a job has to read, to make the indexes anew."""
        self.is_being_rebuilt = True
        return SegmentExtent(self.log_path, self.base_offset, self.size_bytes, self.index_interval_bytes)

    def read_whole(self, size_bytes: int) -> RebuiltIndexes:
        """The job, in a segment object of its own. Raises LogCorruptError, OSError."""
        self._size_bytes = size_bytes
        last_offset = self.rebuild()
        growing = self._indexes.growing
        assert growing is not None
        assert self._max_timestamp is not None
        return RebuiltIndexes(
            size_bytes,
            growing[0].encode_from(0),
            growing[1].encode_from(0),
            last_offset,
            self._max_timestamp,
            self._max_timestamp_offset,
        )

    def give_up_rebuild(self) -> None:
        """The job has come to nothing: the next lookup that goes astray asks for another one."""
        self.is_being_rebuilt = False

    def end_rebuild(self, rebuilt: RebuiltIndexes) -> None:
        """Takes the indexes that the job has made, if they are of use. Raises OSError."""
        was_cut, self.is_being_rebuilt = not self.is_being_rebuilt, False
        if was_cut or (self.sealed and self.size_bytes != rebuilt.size_bytes):
            return  # or closed meanwhile, with more in it: the next lookup that goes astray begins anew
        offsets, times = OffsetIndex(rebuilt.offsets), TimeIndex(rebuilt.times)
        if self._indexes.growing is not None:
            last_offset = rebuilt.last_offset - self.base_offset
            offsets.extend_above(last_offset, self._indexes.growing[0])
            times.extend_above(last_offset, self._indexes.growing[1])
        self._indexes.replace(offsets, times)
        if self._max_timestamp is None or self._max_timestamp <= rebuilt.max_timestamp:
            self._max_timestamp = rebuilt.max_timestamp
            self._max_timestamp_offset = rebuilt.max_timestamp_offset
        self._is_rebuilt = True
        if self.sealed:
            self._indexes.map_files()
            self._storage.index_used(self.log_path, self)

    def remake_indexes(self) -> None:
        """Rebuilds the indexes and their files, because they are wrong. Raises LogCorruptError, OSError."""
        logger.warning("the indexes of a segment are wrong: they are made anew", segment=self.log_path)
        self._make_indexes()

    def make_indexes(self) -> None:
        """As `remake_indexes`, where there are none. Reads the headers of the whole segment."""
        self._make_indexes()
        self._indexes.sync()
        self.unload_indexes()

    def _make_indexes(self) -> None:
        self.rebuild()
        self._indexes.rewrite()

    def _newest_entry(self) -> TimeEntry | None:
        """The last one of the time index."""
        entry = self.time_index.last
        if entry is not None and not self._is_sound(entry, self.offset_index.floor(entry[1])):
            self.mend_indexes()
            entry = self.time_index.last
        return entry

    def _is_sound(self, entry: TimeEntry, position: int) -> bool:
        """Whether a batch ends with the entry's offset and carries its timestamp: mostly the one at `position`,
        to which the offset index leads, else one of the next."""
        timestamp, relative_offset = entry
        if not 0 <= position < self.size_bytes or relative_offset < 0:
            return False
        offset = self.base_offset + relative_offset
        file = self._storage.file(self.log_path)
        base_offset, last_delta, newest = _ENDS.unpack(file.read(position, _ENDS.size).ljust(_ENDS.size))
        if base_offset + last_delta == offset:
            return bool(newest == timestamp)
        try:
            for _, header in walk(file, position, self.size_bytes, first_read_bytes=SEEK_CHUNK_BYTES):
                if header.last_offset >= offset:
                    return header.last_offset == offset and header.max_timestamp == timestamp
        except LogCorruptError:
            return False  # the offset index leads to no batch; if the data are damaged, the rebuild finds it
        return False

    def _append_final_time_entry(self) -> None:
        growing = self._indexes.growing
        if growing is not None and self._size_bytes:
            assert self._max_timestamp is not None
            growing[1].append(self._max_timestamp, self._max_timestamp_offset - self.base_offset)
