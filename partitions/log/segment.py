"""One segment of a log: a data file of whole batches with its offset and time index.

Guarantees: `size_bytes` ends at a batch boundary, and the bytes below it never change. Indexes are hints: a lookup
starts at an index entry and goes on over batch headers, and what the entry says is compared with the batch that it
leads to. So a missing or short index costs time; one that is wrong is made anew from the headers; neither gives a
wrong answer. File names and formats are Kafka's: `%020d` of the base offset, with `.log`, `.index`, `.timeindex`.
`PartitionLog` owns its segments, and decides when to roll, cut and delete them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, TypeAlias
from zlib import crc32

import structlog

from partitions.log.config import LogConfig
from partitions.log.config_values import INT_MAX
from partitions.log.displaced import find_displaced
from partitions.log.errors import BatchDisplaced, LogCorruptError, NoSpaceLeft
from partitions.log.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndexView, TimeIndexView
from partitions.log.scan import SEEK_CHUNK_BYTES, Stop, ensure_end, ensure_sound, seek, walk
from partitions.log.segment_indexes import SegmentIndexes
from partitions.log.storage import LogStorage
from partitions.ports import NowMs
from partitions.records.header import HEADER_BYTES

logger = structlog.get_logger(__name__)

LOG_SUFFIX: Final = ".log"
_UNKNOWN: Final = -1
NO_TIMESTAMP: Final = -1


def file_name(base_offset: int, suffix: str) -> str:
    """Kafka's name of a segment's file: the base offset with 20 digits."""
    return f"{base_offset:020d}{suffix}"


def base_offsets(names: Sequence[str], suffix: str) -> list[int]:
    """The base offsets of the files with this suffix, in order; other names are not ours."""
    stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return sorted(int(stem) for stem in stems if len(stem) == 20 and stem.isdecimal())


Placed: TypeAlias = tuple[int, int, int]
"""What a segment must know of a batch that is appended to it: last offset, bytes, largest timestamp."""
Room: TypeAlias = tuple[int, int, int]
"""Of an active segment that may grow: up to how many bytes, which timestamp (ms) and which last offset."""
_NO_ROOM: Final[Room] = (0, 0, 0)
_ENDS: Final = struct.Struct(">q15xi8xq")
"""Base offset, last offset delta and largest timestamp of a batch, and nothing else of its header."""
TimeEntry: TypeAlias = tuple[int, int]
"""Timestamp (ms), and the relative offset of the last record of the batch that carries it."""


class Segment:
    """A data file and its indexes, opened and loaded when they are needed."""

    __slots__ = ("_bytes_since_index", "_first_timestamp", "_max_timestamp", "_max_timestamp_offset",
                 "_room", "_size_bytes", "_storage", "base_offset", "changed_ms", "created_ms", "index_interval_bytes",
                 "indexes", "log_path", "next_base", "sealed")  # fmt: skip

    def __init__(
        self, storage: LogStorage, directory: str, base_offset: int, config: LogConfig, *, now_ms: int
    ) -> None:
        self._storage = storage
        self.base_offset = base_offset
        stem = f"{directory}/{file_name(base_offset, '')}"
        self.log_path = stem + LOG_SUFFIX
        """The data file; has another suffix while the cleaner puts it in the place of older ones."""
        self.index_interval_bytes = config.index_interval_bytes
        self.created_ms = now_ms
        self.changed_ms: int | None = None
        """When the file was last changed, where that is known without a look at it."""
        self.sealed = True
        self.next_base: int | None = None
        """Where the segment behind it in its log begins, and where this one has to end; None for the last one."""
        self._size_bytes = _UNKNOWN
        self._first_timestamp: int | None = None
        self._max_timestamp: int | None = None
        self._max_timestamp_offset = _UNKNOWN
        self._room = _NO_ROOM
        """What goes in without a look at every reason for a roll; see `Segment.has_room`."""
        self.indexes = SegmentIndexes(storage, stem)
        """Its two indexes and their files."""
        self._bytes_since_index = 0

    def reset(self) -> None:
        """Forgets everything about the content: the segment is empty (or about to be rebuilt)."""
        self._size_bytes = 0
        self._room = _NO_ROOM
        self._first_timestamp = None
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = self.base_offset
        self.indexes.begin()
        self._bytes_since_index = 0

    def create_files(self) -> None:
        """Makes this a new empty segment with its files, ready for appends. Raises OSError."""
        self._storage.create_empty(self.log_path)
        self.indexes.create_files()
        self.reset()
        self.sealed = False

    # ---- its data

    @property
    def size_bytes(self) -> int:
        """Length of the data; asks the file system once for a segment that was found at start."""
        if self._size_bytes == _UNKNOWN:
            self._size_bytes = self._storage.file(self.log_path).size()
        return self._size_bytes

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

    @property
    def newest_ms(self) -> int:
        """The time by which the segment is old: its largest timestamp (ms), or, as in Kafka, when its file was last
        changed, where no record has a timestamp. Raises LogCorruptError, OSError."""
        newest = self.max_timestamp
        if newest >= 0:
            return newest
        return self._storage.disk.modified_ms(self.log_path) if self.changed_ms is None else self.changed_ms

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
        if self.sealed:  # sealing wrote the final entry, so that none of the batches passed over is younger
            start = max(start, self.offset_index.last_position)
        for _, header in walk(self._storage.file(self.log_path), start, self.size_bytes):
            if header.max_timestamp > timestamp:
                if self.sealed:
                    self._remake_short_index()
                    return
                timestamp, offset = header.max_timestamp, header.last_offset
        self._max_timestamp, self._max_timestamp_offset = timestamp, offset

    def _remake_short_index(self) -> None:
        """The time index of a closed segment lacks its end: a batch is younger than its last entry."""
        self._max_timestamp = None
        self.remake_indexes()
        assert self._max_timestamp is not None, "a rebuild looks at every batch"

    # ---- growing: an active segment

    def has_room(self, size_bytes: int, max_timestamp: int, last_offset: int) -> bool:
        """Whether `should_roll` is known to be False for this append, as it was not long ago; most are told so.

        What it said holds until the segment is cut or begun anew, or its log's configuration changes.
        """
        bytes_limit, timestamp_limit, offset_limit = self._room
        return (
            self._size_bytes + size_bytes <= bytes_limit
            and max_timestamp <= timestamp_limit
            and last_offset <= offset_limit
        )

    def should_roll(
        self, config: LogConfig, size_bytes: int, max_timestamp: int, last_offset: int, now_ms: NowMs
    ) -> bool:
        """Whether this active segment must be closed before `size_bytes` more go in (Kafka's rules)."""
        size = self._size_bytes
        if size == 0:
            return False
        growing = self.indexes.growing
        assert growing is not None
        entries_left = (
            config.index_size_max_bytes
            - max(len(growing[0].data) + OFFSET_ENTRY_BYTES, len(growing[1].data) + TIME_ENTRY_BYTES)
        ) // TIME_ENTRY_BYTES
        started = self._first_timestamp
        if started is None:
            started = self.first_timestamp
        if started >= 0:
            age_ms = max_timestamp - started
        else:  # batches without timestamps: by the clock
            age_ms = now_ms() - self.created_ms
        rolls = (
            size + size_bytes > config.segment_bytes
            or (age_ms > config.earliest_roll_ms and age_ms > self._roll_age_ms(config))
            or last_offset - self.base_offset > INT_MAX
            or entries_left < 0
        )
        if not rolls and started >= 0:
            # An entry of an index takes a batch at least, but for the time index's final one.
            self._room = (
                min(config.segment_bytes, size + (entries_left - 1) * HEADER_BYTES),
                started + config.earliest_roll_ms,
                self.base_offset + INT_MAX,
            )
        return rolls

    def _roll_age_ms(self, config: LogConfig) -> int:
        """The age at which this very segment is closed: segment.ms less a part of segment.jitter.ms.

        Which part its path decides, so that segments of many partitions that were begun at one time are
        not all closed at one time, and the same segment always at the same.
        """
        jitter_ms = config.max_segment_ms - config.earliest_roll_ms
        return config.max_segment_ms - crc32(self.log_path.encode()) % (jitter_ms + 1)

    def update_config(self, config: LogConfig) -> None:
        """Goes by another configuration from the next append on."""
        self.index_interval_bytes = config.index_interval_bytes
        self._room = _NO_ROOM

    def reserve(self, size_bytes: int) -> None:
        """Takes room on the disk for so much data. Raises OSError with nothing taken."""
        self._storage.file(self.log_path).reserve(size_bytes)

    def trim(self) -> None:
        """Gives back the room that was reserved and is not needed. Raises OSError."""
        self._storage.file(self.log_path).truncate(self.size_bytes)

    def index(self, batches: Sequence[Placed]) -> None:
        """Takes note of batches that are in the file from `size_bytes` on."""
        growing = self.indexes.growing
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

    # ---- its indexes, mapped or in memory

    @property
    def offset_index(self) -> OffsetIndexView:
        """The offset index, mapped or rebuilt if need be. Raises LogCorruptError, OSError."""
        indexes = self.indexes
        if indexes.offsets is None:
            self._load_indexes()
            assert indexes.offsets is not None
        elif self.sealed:
            self._storage.index_used(self.log_path, self)
        return indexes.offsets

    @property
    def time_index(self) -> TimeIndexView:
        """The time index, mapped or rebuilt if need be. Raises LogCorruptError, OSError."""
        indexes = self.indexes
        if indexes.times is None:
            self._load_indexes()
            assert indexes.times is not None
        return indexes.times

    def unload_indexes(self) -> None:
        """Gives memory and mappings back; a sealed segment's indexes are in their files."""
        if self.sealed:
            self.indexes.forget()

    def _load_indexes(self) -> None:
        indexes = self.indexes
        if not (indexes.map_files() and self._is_plausible()):
            if indexes.offsets or indexes.times:
                self.remake_indexes()
            else:  # missing or empty: given up on purpose, or cut off by a crash
                self._make_indexes()
        if self.sealed:
            self._storage.index_used(self.log_path, self)

    def _is_plausible(self) -> bool:
        """What can be told from a few headers at most: does the newest entry lie inside the file, and is
        an index there at all where the data needs one? A closed segment has its final time entry."""
        offset_index, time_index = self.indexes.offsets, self.indexes.times
        assert offset_index is not None
        assert time_index is not None
        if self.size_bytes and time_index.last is None:
            return False
        if len(offset_index):
            return offset_index.last_relative_offset > 0 and 0 < offset_index.last_position < self.size_bytes
        return not self._needs_offset_index()

    def _needs_offset_index(self) -> bool:
        """Whether a batch begins beyond the first interval, as `index` has it: not where one large batch ends the
        segment. Looks at the headers up to there. Raises OSError."""
        size_bytes, interval_bytes = self.size_bytes, self.index_interval_bytes
        if size_bytes <= interval_bytes:
            return False
        file = self._storage.file(self.log_path)
        try:
            batches = walk(file, 0, size_bytes, first_read_bytes=SEEK_CHUNK_BYTES)
            return any(position > interval_bytes for position, _ in batches)
        except LogCorruptError:
            return True  # making the index anew meets the damage

    @property
    def is_unindexed(self) -> bool:
        """Whether an active segment has no entry in its offset index, so that a start reads all of its headers."""
        growing = self.indexes.growing
        return growing is not None and not len(growing[0])

    def _grow_indexes(self) -> None:
        """Has the indexes in memory, where they can change."""
        if self.indexes.growing is None:
            self._bytes_since_index = self.size_bytes - self.offset_index.last_position
            self.indexes.grow()

    @property
    def is_cut_by_its_index(self) -> bool:
        """Whether the file is empty, or its index says that it was longer: one of the two is wrong. Raises OSError."""
        size_bytes = self._storage.disk.size(self.log_path)
        return not size_bytes or self.indexes.stored_last_position() >= size_bytes

    # ---- its indexes, made anew

    def rebuild(self) -> None:
        """Indexes and timestamps anew, from the headers of the batches. Raises LogCorruptError."""
        size_bytes = self.size_bytes
        kept = (self._max_timestamp, self._max_timestamp_offset, self._bytes_since_index)
        first_timestamp, held = self._first_timestamp, self.indexes.held()
        try:
            self.reset()
            due, last = self.base_offset, None
            for position, header in walk(self._storage.file(self.log_path), 0, size_bytes):
                if header.base_offset < due:
                    # An index made of that would lead readers past records.
                    reason = f"the batch goes back to offset {header.base_offset}, expected {due}"
                    raise LogCorruptError(self.log_path, position, reason)
                due, last = header.next_offset, (position, header)
                if not 0 <= header.last_offset - self.base_offset <= INT_MAX:
                    reason = f"no segment that begins at {self.base_offset} holds offset {header.last_offset}"
                    raise LogCorruptError(self.log_path, position, reason)
                self.index(((header.last_offset, header.size_bytes, header.max_timestamp),))
            file = self._storage.file(self.log_path)
            ensure_end(file, size_bytes, last, base_offset=self.base_offset, next_base=self.next_base)
        except BaseException:
            # Half of it would be taken for the whole: readers would go on in the next segment.
            self._size_bytes, self._first_timestamp = size_bytes, first_timestamp
            self._max_timestamp, self._max_timestamp_offset, self._bytes_since_index = kept
            self.indexes.restore(held)
            raise
        self._append_final_time_entry()

    def remake_indexes(self) -> None:
        """Rebuilds the indexes and their files, because they are wrong. Raises LogCorruptError (BatchDamaged where
        they are right), OSError, LogStorageError."""
        self._ensure_no_displaced()
        self.rebuild()
        logger.warning("the indexes of a segment are wrong: they are made anew", segment=self.log_path)
        self._write_indexes()

    def _ensure_no_displaced(self) -> None:
        """Raises BatchDisplaced; LogCorruptError, OSError."""
        offsets, times = self.indexes.offsets, self.indexes.times
        if not offsets or not times:
            return
        batches = walk(self._storage.file(self.log_path), 0, self.size_bytes)
        found = find_displaced(batches, self.base_offset, offsets, times)
        if found is not None:
            raise BatchDisplaced(self.log_path, *found)

    def make_indexes(self) -> None:
        """As `remake_indexes`, where there are none. Reads the headers of the whole segment."""
        self._make_indexes()
        self.unload_indexes()

    def _make_indexes(self) -> None:
        """Those of a closed segment durably, and in one go: no later flush covers them, and a power loss would leave
        a part of them that does not tell that there was more."""
        self.rebuild()
        self._write_indexes()

    def _write_indexes(self) -> None:
        if not self.sealed:
            self.indexes.rewrite()
            return
        try:
            self.indexes.replace()
        except NoSpaceLeft as error:
            # What is in memory is right; the next lookup after it has left makes it again.
            logger.warning("indexes made anew were not written", segment=self.log_path, reason=str(error))

    # ---- its indexes in their files

    def persist_indexes(self, *, is_closing: bool = False) -> None:
        """Writes the entries that are not in the files yet, of a segment that is sealed, or closed with its log.
        Raises OSError.

        The time index gets its last word, by which the largest timestamp is known at the next start without
        reading data.
        """
        self._append_final_time_entry()
        self.indexes.persist(only_news=is_closing)

    def _append_final_time_entry(self) -> None:
        growing = self.indexes.growing
        if growing is not None and self._size_bytes:
            assert self._max_timestamp is not None
            growing[1].append(self._max_timestamp, self._max_timestamp_offset - self.base_offset)

    @property
    def unsynced_index_paths(self) -> tuple[str, ...]:
        """What has to be made durable of the indexes of an active segment before its log counts as closed.

        Not a time index without an offset index beside it: the next start asks neither (`unseal`).
        """
        unsynced = self.indexes.unsynced
        return () if self.is_unindexed and unsynced == self.indexes.paths[1:] else unsynced

    def take_indexes(self) -> tuple[bytes, bytes]:
        """Whole offset and time index of a segment that is complete, for its files, which the caller writes."""
        self._append_final_time_entry()
        return self.indexes.take()

    # ---- finding batches

    def seek(self, position: int, *, stop_offset: int, stop_position: int | None = None) -> Stop:
        """`scan.seek` in this segment's file, from a known batch boundary. Raises LogCorruptError, also for a
        position that no batch can have: an index has named it."""
        if not 0 <= position <= self.size_bytes:
            raise LogCorruptError(self.log_path, position, "the file has no such place")
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

        Starts at a batch that lies wholly below, so that `passed_offset` is always right. Raises LogCorruptError
        where the data are what is wrong, not the index.
        """
        start = self.offset_index.floor(offset - 1 - self.base_offset)
        try:
            found = self.seek(start, stop_offset=offset)
        except LogCorruptError:
            if not start:
                raise
        else:
            if not start or found.position != start:
                return found
        # The entry leads to no batch; or to one that, by the entry's own offset, lies below: so it is wrong.
        self.remake_indexes()
        return self.seek(self.offset_index.floor(offset - 1 - self.base_offset), stop_offset=offset)

    def locate_time(self, timestamp: int) -> int:
        """Position of a batch before which every record is older than `timestamp` (ms)."""
        entry = self.time_index.floor(timestamp)
        if entry is None:
            return 0
        position = self.offset_index.floor(entry[1])
        if self._is_sound(entry, position):
            return position
        self.remake_indexes()
        entry = self.time_index.floor(timestamp)
        return 0 if entry is None else self.offset_index.floor(entry[1])

    def _newest_entry(self) -> TimeEntry | None:
        """The last one of the time index."""
        entry = self.time_index.last
        if entry is not None and not self._is_sound(entry, self.offset_index.floor(entry[1])):
            self.remake_indexes()
            entry = self.time_index.last
        return entry

    def _is_sound(self, entry: TimeEntry, position: int) -> bool:
        """Whether a batch ends with the entry's offset and carries its timestamp: mostly the one at `position`,
        to which the offset index leads, else one of the next.

        Raises BatchDamaged if that batch is what is wrong; OSError.
        """
        timestamp, relative_offset = entry
        if not 0 <= position < self.size_bytes or relative_offset < 0:
            return False
        offset = self.base_offset + relative_offset
        file = self._storage.file(self.log_path)
        base_offset, last_delta, newest = _ENDS.unpack(file.read(position, _ENDS.size).ljust(_ENDS.size))
        if base_offset + last_delta == offset and newest == timestamp:
            return True
        try:
            at, header = next(
                (at, header)
                for at, header in walk(file, position, self.size_bytes, first_read_bytes=SEEK_CHUNK_BYTES)
                if header.last_offset >= offset
            )
        except (LogCorruptError, StopIteration):
            return False  # the offset index leads to no batch; if the data are damaged, the rebuild finds it
        if header.last_offset != offset:
            return False
        if header.max_timestamp == timestamp:
            return True
        ensure_sound(
            file, at, header
        )  # an index made anew of a rotten timestamp would lead readers past the segment
        return False

    # ---- what its log does to it

    def seal(self) -> None:
        """No more appends: indexes go to their files, and are mapped when one is needed.

        Raises OSError (and stays unsealed).
        """
        self.persist_indexes()
        self.sealed = True
        self.unload_indexes()

    def unseal(self) -> None:
        """Becomes the active segment again: indexes are loaded and stay in memory.

        Where the offset index has no entry they are made from the headers, mostly very few: so the time index beside
        it need not be durable when a log is closed.
        """
        if self.indexes.growing is None and self.indexes.offset_file_is_empty:
            self.rebuild()
            self._first_timestamp = None  # the first append looks at the data once more
            self._room = _NO_ROOM
            if len(self.offset_index):
                self.indexes.rewrite()
            else:
                self.indexes.leave_files_unread()
        else:
            if self._max_timestamp is None:
                self._load_max_timestamp()
            self._grow_indexes()
        self.sealed = False
        self._storage.index_dropped(self.log_path)

    def truncate(self, position: int, offset: int) -> None:
        """Cuts data and indexes at the boundary `position`, where `offset` would be; durable for data."""
        self._grow_indexes()
        offset_index, time_index = self.indexes.grow()
        self._storage.truncate_durably(self.log_path, position)
        offset_index.truncate(offset - self.base_offset)
        time_index.truncate(offset - self.base_offset)
        self.indexes.cut_files()
        self._size_bytes = position
        self._room = _NO_ROOM
        self._bytes_since_index = position - offset_index.last_position
        self.sealed = False
        self._storage.index_dropped(self.log_path)
        if position == 0:
            self.reset()
        elif self._max_timestamp is None or self._max_timestamp_offset >= offset:
            self._max_timestamp = None
            self._load_max_timestamp()

    def remove(self) -> None:
        """Deletes the files; slices that are held stay readable. Raises OSError."""
        self._storage.index_dropped(self.log_path)
        self._storage.remove(self.log_path)
        for path in self.indexes.paths:
            self._storage.remove(path)

    def release(self) -> None:
        """Closes the file and lets go of the indexes, of a log that is closed or a segment that goes."""
        self._storage.index_dropped(self.log_path)
        self._storage.release(self.log_path)
        self.unload_indexes()
