"""One segment of a log: a data file of whole batches with its offset and time index.

Guarantees: `size_bytes` ends at a batch boundary, and the bytes below it never change. File names and formats
are Kafka's: `%020d` of the base offset, with `.log`, `.index`, `.timeindex`. The partition log owns its
segments and decides when to roll, cut and delete them.
"""

from __future__ import annotations

from zlib import crc32

from partitions.log.config import LogConfig
from partitions.log.config_values import INT_MAX
from partitions.log.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from partitions.log.indexed_segment import (
    LOG_SUFFIX,
    NO_ROOM,
    NO_TIMESTAMP,
    IndexedSegment,
    Placed,
    file_name,
)
from partitions.log.scan import walk
from partitions.log.segment_indexes import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from partitions.ports import NowMs
from partitions.records.header import HEADER_BYTES

__all__ = [
    "INDEX_SUFFIX",
    "LOG_SUFFIX",
    "NO_TIMESTAMP",
    "TIME_INDEX_SUFFIX",
    "Placed",
    "Segment",
    "file_name",
]


class Segment(IndexedSegment):
    """A segment as its log changes it."""

    __slots__ = ()

    def create_files(self) -> None:
        """Makes this a new empty segment with its files, ready for appends. Raises OSError."""
        self._storage.create_empty(self.log_path)
        self._indexes.create_files()
        self.reset()
        self.sealed = False

    def reserve(self, size_bytes: int) -> None:
        """Takes room on the disk for so much data. Raises OSError with nothing taken."""
        self._storage.file(self.log_path).reserve(size_bytes)

    def trim(self) -> None:
        """Gives back the room that was reserved and is not needed. Raises OSError."""
        self._storage.file(self.log_path).truncate(self.size_bytes)

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

    def update_config(self, config: LogConfig) -> None:
        """Goes by another configuration from the next append on."""
        self.index_interval_bytes = config.index_interval_bytes
        self._room = NO_ROOM

    def should_roll(
        self, config: LogConfig, size_bytes: int, max_timestamp: int, last_offset: int, now_ms: NowMs
    ) -> bool:
        """Whether this active segment must be closed before `size_bytes` more go in (Kafka's rules)."""
        size = self._size_bytes
        if size == 0:
            return False
        growing = self._indexes.growing
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

    def persist_indexes(self, *, is_closing: bool = False) -> None:
        """Writes the entries that are not in the files yet, of a segment that is sealed, or closed with its log.
        Raises OSError.

        The time index gets its last word, by which the largest timestamp is known at the next start without
        reading data.
        """
        self._append_final_time_entry()
        self._indexes.persist(only_news=is_closing)

    def sync_indexes(self) -> None:
        """Makes the index files durable, or halts the node."""
        self._indexes.sync()

    @property
    def unsynced_index_paths(self) -> tuple[str, ...]:
        """What has to be made durable of the indexes of an active segment before its log counts as closed.

        Not a time index without an offset index beside it: the next start asks neither (`unseal`).
        """
        unsynced = self._indexes.unsynced
        return () if self.is_unindexed and unsynced == self._indexes.paths[1:] else unsynced

    @property
    def index_writes(self) -> int:
        """How often the index files were written to, for `indexes_are_durable`."""
        return self._indexes.writes

    def indexes_are_durable(self, writes: int | None = None) -> None:
        """All that is in both files is durable: fsyncs have covered it, of this process or of an earlier one.

        With `writes`, all that was in them when `index_writes` was that.
        """
        self._indexes.are_durable(writes)

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
        self.persist_indexes()
        self.sealed = True
        self.unload_indexes()

    def unseal(self) -> None:
        """Becomes the active segment again: indexes are loaded and stay in memory.

        Where the offset index has no entry they are made from the headers, mostly very few: so the time index beside
        it need not be durable when a log is closed.
        """
        if self._indexes.growing is None and self._indexes.offset_file_is_empty:
            self.rebuild()
            self._first_timestamp = None  # the first append looks at the data once more
            self._room = NO_ROOM
            if len(self.offset_index):
                self._indexes.rewrite()
            else:
                self._indexes.leave_files_unread()
        else:
            if self._max_timestamp is None:
                self._load_max_timestamp()
            self._grow_indexes()
        self.sealed = False
        self._storage.index_dropped(self.log_path)

    @property
    def is_unindexed(self) -> bool:
        """Whether an active segment has no entry in its offset index, so that a start reads all of its headers."""
        growing = self._indexes.growing
        return growing is not None and not len(growing[0])

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
        self._room = NO_ROOM
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
        for path in self.index_paths:
            self._storage.remove(path)

    def release(self) -> None:
        """Closes the file and lets go of the indexes, of a log that is closed or a segment that goes."""
        self._storage.index_dropped(self.log_path)
        self._storage.release(self.log_path)
        self.unload_indexes()
