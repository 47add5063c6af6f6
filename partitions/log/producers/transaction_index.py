"""Which transactions were aborted, in Kafka's `.txnindex` files: one a segment, only where there are any.

Guarantees: an abort is known from the moment its marker is in the log, and stays known as long as the marker does;
`collect` misses none that overlaps the range asked for (KIP-98). Entries of the active segment are in memory and go to
the file when the segment is sealed or the log is closed: recovery makes them anew from the batches. An index is
durable, name included, before its segment leaves recovery's reach: a missing offset index is noticed and made anew, a
missing transaction index would let aborted records through. A log without aborted transactions has no such file and
pays an empty dict. Layout, big endian, 34 bytes an entry: version int16 (0), producer id, first offset, last offset
(the marker's), last stable offset int64. `PartitionLog` owns one `AbortedTransactions` and tells it what becomes of
segments.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Final, NamedTuple

from partitions.log.segment import file_name
from partitions.log.storage import LogStorage

TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
_ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0
ENTRY_BYTES: Final = _ENTRY.size


class AbortedTransaction(NamedTuple):
    """A producer's records from the first to the last offset, which is the marker's, were given up."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    """What the last stable offset became with the marker, replicated or not."""


Rebuild = Callable[[int], Sequence[AbortedTransaction]]
"""Takes a segment's base offset, and finds its aborted transactions in the batches."""


def transaction_index_path(directory: str, base_offset: int) -> str:
    """Where a segment's index is, if it has one."""
    return f"{directory}/{file_name(base_offset, TRANSACTION_INDEX_SUFFIX)}"


def encode_entries(entries: Iterable[AbortedTransaction]) -> bytes:
    """The bytes of an index file."""
    return b"".join([_ENTRY.pack(_VERSION, *entry) for entry in entries])


def decode_entries(data: bytes, base_offset: int) -> list[AbortedTransaction] | None:
    """The entries in an index file; None if its bytes cannot be the index of this segment."""
    if len(data) % ENTRY_BYTES:
        return None
    entries: list[AbortedTransaction] = []
    before = base_offset - 1
    for version, *fields in _ENTRY.iter_unpack(data):
        entry = AbortedTransaction(*fields)
        if version != _VERSION or entry.last_offset <= before or entry.first_offset > entry.last_offset:
            return None
        entries.append(entry)
        before = entry.last_offset
    return entries


class TransactionIndex:
    """The aborted transactions whose markers are in one segment, by marker."""

    __slots__ = ("_entries", "_has_new_name", "_is_active", "_is_unsynced", "_persisted", "_storage", "base_offset",
                 "path")  # fmt: skip

    def __init__(self, storage: LogStorage, directory: str, base_offset: int) -> None:
        self._storage = storage
        self.base_offset = base_offset
        self.path = transaction_index_path(directory, base_offset)
        self._entries: list[AbortedTransaction] | None = None
        """None while they are in the file only."""
        self._persisted = 0
        """Entries in the file, as far as it was loaded or written."""
        self._is_unsynced = self._has_new_name = self._is_active = False

    def load(self, rebuild: Rebuild) -> list[AbortedTransaction]:
        """The entries; from the batches if the file's bytes cannot be right. Raises OSError, LogError."""
        entries = self._entries
        if entries is None:
            data = self._storage.read_optional(self.path) or b""
            entries = decode_entries(data, self.base_offset)
            if entries is None:
                entries = list(rebuild(self.base_offset))
                # Durably, and in one go: nothing would make a file anew that is missing after a crash.
                self._storage.replace(self.path, encode_entries(entries))
            self._entries, self._persisted = entries, len(entries)
        if not self._is_active:
            self._storage.index_used(self.path, self)
        return entries

    def replace(self, entries: Sequence[AbortedTransaction]) -> None:
        """Has these entries, whatever the file holds; they are not in it yet."""
        self._entries, self._persisted = list(entries), 0

    def append(self, entry: AbortedTransaction) -> None:
        """An abort in the active segment, whose entries are in memory."""
        assert self._entries is not None
        assert not self._entries or self._entries[-1].last_offset < entry.last_offset
        self._entries.append(entry)

    def activate(self) -> None:
        """The segment is the active one: its entries, once loaded, stay in memory."""
        self._storage.index_dropped(self.path)
        self._is_active = True

    def seal(self) -> None:
        """The segment takes no more: from now on the entries may leave the memory."""
        self._is_active = False
        self._storage.index_used(self.path, self)

    def unload_indexes(self) -> None:
        """Gives the memory back, where the file has everything."""
        if self._entries is not None and self._persisted == len(self._entries):
            self._entries = None

    def persist(self) -> None:
        """Writes what is not in the file yet. Raises OSError, and may then be tried again."""
        if self._entries is None or self._persisted == len(self._entries):
            return
        position = self._persisted * ENTRY_BYTES
        with closing(self._storage.open(self.path, create=True)) as file:
            self._has_new_name |= self._persisted == 0
            self._is_unsynced = True
            if file.size() > position:
                file.truncate(position)
            file.write_at(position, encode_entries(self._entries[self._persisted :]))
        self._persisted = len(self._entries)

    def sync(self) -> None:
        """Makes what was persisted durable, the file's name included, or halts the node."""
        if not self._is_unsynced:
            return
        self._storage.sync_path(self.path)
        if self._has_new_name:
            self._storage.sync_dir(self.path.rpartition("/")[0])
        self._is_unsynced = self._has_new_name = False

    def truncate(self, offset: int) -> bool:
        """Forgets markers at or above the offset; whether any are left. Entries are loaded. Raises OSError."""
        assert self._entries is not None
        keep = bisect_left(self._entries, offset, key=_last_offset)
        del self._entries[keep:]
        if not keep:
            return False
        if self._persisted > keep:
            self._persisted = keep
            with closing(self._storage.open(self.path, create=True)) as file:
                file.truncate(keep * ENTRY_BYTES)
            self._is_unsynced = True
        return True


def _last_offset(entry: AbortedTransaction) -> int:
    return entry.last_offset


class AbortedTransactions:
    """The transaction indexes of one log."""

    __slots__ = ("_directory", "_indexes", "_rebuild", "_storage")

    def __init__(
        self, storage: LogStorage, directory: str, base_offsets: Iterable[int], rebuild: Rebuild
    ) -> None:
        """`base_offsets`: segments that have an index file, in order."""
        self._storage = storage
        self._directory = directory
        self._rebuild = rebuild
        self._indexes = {base: TransactionIndex(storage, directory, base) for base in base_offsets}

    def __bool__(self) -> bool:
        """Whether any is known."""
        return bool(self._indexes)

    @property
    def base_offsets(self) -> tuple[int, ...]:
        """The segments that have aborted transactions, in order."""
        return tuple(self._indexes)

    # ---- the active segment

    def activate(self, base_offset: int) -> None:
        """This segment is the active one: what it has is loaded, so that no append has to read a file.

        Raises OSError, LogError.
        """
        index = self._indexes.get(base_offset)
        if index is not None:
            index.activate()
            index.load(self._rebuild)

    def append(self, base_offset: int, entry: AbortedTransaction) -> None:
        """An abort marker is in the log, in its active segment, which begins at `base_offset`."""
        index = self._indexes.get(base_offset)
        if index is None:
            index = TransactionIndex(self._storage, self._directory, base_offset)
            index.replace(())
            index.activate()
            self._indexes[base_offset] = index
        index.append(entry)

    # ---- what becomes of segments

    def persist(self, base_offset: int, *, sealed: bool = False) -> None:
        """Writes a segment's entries, which is closed; `sealed` for good. Raises OSError."""
        index = self._indexes.get(base_offset)
        if index is not None:
            index.persist()
            if sealed:
                index.seal()

    def sync(self, base_offset: int) -> None:
        """Makes a closed segment's entries durable, or halts the node."""
        index = self._indexes.get(base_offset)
        if index is not None:
            index.sync()

    def paths(self, base_offset: int) -> tuple[str, ...]:
        """The segment's index file, if it has one."""
        index = self._indexes.get(base_offset)
        return () if index is None else (index.path,)

    def truncate(self, offset: int, active_base: int) -> None:
        """The log was cut at `offset`, in the segment that begins at `active_base`. Raises OSError."""
        for base in [base for base in self._indexes if base > active_base]:
            self.remove(base)
        index = self._indexes.get(active_base)
        if index is not None:
            self.activate(active_base)
            if not index.truncate(offset):
                self.remove(active_base)

    def replace(self, base_offsets: Sequence[int], entries: Sequence[AbortedTransaction]) -> None:
        """These segments have become one, of which these entries are known; no file is asked until `reload`."""
        for base_offset in base_offsets:
            self.forget(base_offset)
        if entries:
            self.reload(base_offsets[0])
            self._indexes[base_offsets[0]].replace(entries)

    def reload(self, base_offset: int) -> None:
        """The segment has another index file than before."""
        self.forget(base_offset)
        self._indexes[base_offset] = TransactionIndex(self._storage, self._directory, base_offset)
        self._indexes = dict(sorted(self._indexes.items()))

    def forget(self, base_offset: int) -> None:
        """The segment is no part of the log any more, or has no aborted transaction left."""
        index = self._indexes.pop(base_offset, None)
        if index is not None:
            self._storage.index_dropped(index.path)

    def remove(self, base_offset: int) -> None:
        """As `forget`, and removes the file. Raises OSError."""
        for path in self.paths(base_offset):
            self._storage.remove(path)
        self.forget(base_offset)

    def clear(self) -> None:
        """Removes all files. Raises OSError."""
        for base in list(self._indexes):
            self.remove(base)

    def release(self) -> None:
        """The log is closed."""
        for base in list(self._indexes):
            self.forget(base)

    # ---- reading

    def collect(self, first_base: int, fetch_offset: int, up_to_offset: int) -> list[AbortedTransaction]:
        """What overlaps [`fetch_offset`, `up_to_offset`), by marker; `first_base` is the base offset of the
        segment that holds `fetch_offset`. Raises OSError, LogError.
        """
        found: list[AbortedTransaction] = []
        if not self._indexes:
            return found
        for entry in self._from(first_base, fetch_offset):
            if entry.first_offset < up_to_offset:
                found.append(entry)
            if entry.last_stable_offset >= up_to_offset:
                break  # whatever was aborted later began at or above that offset
        return found

    def _from(self, first_base: int, fetch_offset: int) -> Iterator[AbortedTransaction]:
        """Entries with markers at or above the offset, in order."""
        for base, index in self._indexes.items():
            if base < first_base:
                continue
            entries = index.load(self._rebuild)
            yield from entries[bisect_left(entries, fetch_offset, key=_last_offset) :]

    def entries(self, base_offset: int) -> Sequence[AbortedTransaction]:
        """A segment's entries. Raises OSError, LogError."""
        index = self._indexes.get(base_offset)
        return () if index is None else tuple(index.load(self._rebuild))
