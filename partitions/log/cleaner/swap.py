"""Putting a cleaned segment in the place of old ones, so that a crash leaves the old log or the new one.

Guarantees: the cleaned file is durable before it is called `.swap`, and that name decides: without it
the old segments are the log, with it the new one is, and whatever remains to be renamed is finished
here or, after a crash, by `recover_swaps` when the log is opened. An old segment's name is durably
gone before the new file takes its last name, because then nothing is left to tell the two apart. A
truncation or deletion in between first settles the swap. File names are Kafka's: `.cleaned`, `.swap`,
`.deleted`. Names change in jobs (`names`). What the log reads changes on its lane, and it needs none of the names
that are about to change: of the new segment the file is open and the indexes are in memory until all is done.

A rename waits for the file system's journal: 60 and 200 ms were seen. The kernel frees 1 GiB of page cache in a
quarter of a second when the last name and descriptor go. So the event loop opens what was cleaned, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from enum import Enum, auto
from typing import Final

from partitions.log.name_changes import Change, NameChanges
from partitions.log.producers.producer_snapshot import SNAPSHOT_SUFFIX
from partitions.log.producers.transaction_index import (
    TRANSACTION_INDEX_SUFFIX,
    decode_entries,
    encode_entries,
    transaction_index_path,
)
from partitions.log.scan import walk
from partitions.log.segment import LOG_SUFFIX, Segment, file_name
from partitions.log.segment_indexes import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from partitions.log.storage import LogStorage

CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
DELETED_SUFFIX: Final = ".deleted"
_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX, TRANSACTION_INDEX_SUFFIX)
"""Of a segment's files. Not every one has all of the others: after a crash an index is made when it is needed."""

_DELETED_TRANSACTION_INDEX: Final = TRANSACTION_INDEX_SUFFIX + DELETED_SUFFIX


class SwapState(Enum):
    """How far a swap has come."""

    DECIDED = auto()
    """The cleaned file is about to be called `.swap`, durably; the log reads the old segments."""
    REPLACED = auto()
    """It is; the log reads the new segment, and the other names are about to change."""
    DONE = auto()
    """All names are final, and durable."""
    UNDONE = auto()
    """The old segments stay, durably."""
    UNKNOWN = auto()
    """It could neither be finished nor undone. The next start does one of the two."""


class SegmentSwap:
    """One new segment for a run of old ones: `names.make()` in a job, `replace`, `names.make()` once more, `finish`."""

    def __init__(
        self,
        storage: LogStorage,
        directory: str,
        old: Sequence[Segment],
        new: Segment,
        *,
        has_transaction_index: bool,
        on_end: Callable[[], None],
    ) -> None:
        """What was written for `new` is durable, under names that end in `.cleaned`. Raises OSError."""
        assert old[0].base_offset == new.base_offset
        self._storage = storage
        self._directory = directory
        self.old = tuple(old)
        self.new = new
        self._on_end = on_end
        self._final_path = new.log_path
        self._swap_path = new.log_path + SWAP_SUFFIX
        self._deleted: list[str] = []
        cleaned_path = new.log_path + CLEANED_SUFFIX
        self._file = storage.open(cleaned_path)
        self.old_bases = tuple(segment.base_offset for segment in old)
        self.has_transaction_index = has_transaction_index
        """Whether the new segment has one."""
        self.state = SwapState.DECIDED
        self.names = NameChanges((self._renaming(cleaned_path, self._swap_path), self._syncing))
        """What is to be done before the next step, or by `settle`. Raises OSError, and what is on disk is not known
        then."""

    @property
    def deleted_paths(self) -> tuple[str, ...]:
        """What can be removed once the swap is done."""
        return tuple(self._deleted)

    def replace(self) -> None:
        """The log is about to put `new` in the place of `old` in its list. The `.swap` name is durable."""
        assert self.state is SwapState.DECIDED
        for segment in self.old:
            segment.release()
        self.new.log_path = self._swap_path
        self._storage.hold(self._swap_path, self._file)
        self.new.sealed = False  # and so its indexes stay in memory
        self.names = NameChanges(self._last_changes())
        self.state = SwapState.REPLACED

    def _last_changes(self) -> Iterator[Change]:
        for path in self.new.indexes.paths:
            yield self._renaming(path + CLEANED_SUFFIX, path)
        # Without an entry of it aborted records are read, so that the cleaned one was durable before the swap was
        # decided; the entries of the old one that are too many `recover_swaps` takes out.
        transaction_index = transaction_index_path(self._directory, self.new.base_offset)
        if self.has_transaction_index:
            yield self._renaming(transaction_index + CLEANED_SUFFIX, transaction_index)
        else:
            yield lambda: self._remove(transaction_index)
        for base_offset in self.old_bases[1:]:  # the new file takes the first one's names
            for suffix in _SUFFIXES:
                yield self._setting_aside(f"{self._directory}/{file_name(base_offset, suffix)}")
        yield self._syncing
        yield self._renaming(self._swap_path, self._final_path)
        yield self._syncing

    def finish(self) -> None:
        """The new file has its last name, durably, and is read by that."""
        assert self.state is SwapState.REPLACED
        self.new.sealed = True
        self.new.release()
        self.new.log_path = self._final_path
        self.new.changed_ms = None
        self._end(SwapState.DONE)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to be done, here or at the next start."""
        return self.state in (SwapState.DONE, SwapState.UNDONE)

    def settle(self) -> None:
        """Ends the swap at once, one way or the other, because the log is about to change otherwise. Raises
        LogStorageError after halting."""
        try:
            self.names.take_over()
            if self.state is SwapState.DECIDED:
                self._undo()
            elif self.state is SwapState.REPLACED:
                self._storage.with_descriptor(self.names.make_rest)
                self.finish()
        except OSError as error:
            self._end(SwapState.UNKNOWN)
            self._storage.fail(f"ending a swap of segments of {self._directory} failed: {error}", error)

    def _undo(self) -> None:
        self.names.drop()
        self._file.close()
        self._remove(self._swap_path)
        self._storage.with_descriptor(self._syncing)
        self._end(SwapState.UNDONE)

    def abandon(self) -> None:
        """The log lets go of its files: no name is changed any more."""
        self.names.drop()

    def _end(self, state: SwapState) -> None:
        self.state = state
        self._on_end()

    # ---- changes of names, which a job may make

    def _renaming(self, source: str, target: str) -> Change:
        return lambda: self._storage.disk.rename(source, target)

    def _setting_aside(self, path: str) -> Change:
        def set_aside() -> None:
            try:
                self._storage.disk.rename(path, path + DELETED_SUFFIX)
            except FileNotFoundError:
                if path.endswith(LOG_SUFFIX):
                    raise
                return  # not every segment has one
            self._deleted.append(path + DELETED_SUFFIX)

        return set_aside

    def _remove(self, path: str) -> None:
        try:
            self._storage.disk.remove(path)
        except FileNotFoundError:
            return

    def _syncing(self) -> None:
        self._storage.disk.sync_dir(self._directory)


def recover_swaps(storage: LogStorage, directory: str, names: Sequence[str]) -> list[str]:
    """Finishes or undoes what a crash interrupted; returns the names that are there then.

    To be called before anything of the folder is used. Raises LogCorruptError, LogStorageError, OSError.
    """
    left = [name for name in names if name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX))]
    if not left:
        return list(names)
    for name in left:
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            _complete(storage, directory, names, name)
    for name in left:
        path = f"{directory}/{name}"
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            continue
        if name.endswith(_DELETED_TRANSACTION_INDEX) and _is_still_there(name, names):
            storage.disk.rename(path, path.removesuffix(DELETED_SUFFIX))
        else:
            storage.remove(path)
    storage.sync_dir(directory)
    return storage.disk.list_dir(directory)


def _is_still_there(deleted_name: str, names: Sequence[str]) -> bool:
    """Whether the crash undid the deletion of the segment, and not that of its transaction index."""
    stem = deleted_name.removesuffix(_DELETED_TRANSACTION_INDEX)
    return stem + LOG_SUFFIX in names and stem + TRANSACTION_INDEX_SUFFIX not in names


def _forget_cleaned_aborts(storage: LogStorage, path: str, base_offset: int, markers: Set[int]) -> None:
    """Takes entries out whose markers the cleaning took. Nothing would tell a reader where what they hide ends, and
    it would pass over what the same producer committed behind it. Raises LogStorageError."""
    entries = decode_entries(storage.read_optional(path) or b"", base_offset) or []
    kept = [entry for entry in entries if entry.last_offset in markers]
    if not kept and entries:
        storage.remove(path)
    elif kept != entries:
        storage.replace(path, encode_entries(kept))


def _complete(storage: LogStorage, directory: str, names: Sequence[str], swap_name: str) -> None:
    """Removes, durably, the segments whose offsets the file covers, and their indexes; then renames it."""
    swap_path = f"{directory}/{swap_name}"
    base_offset = int(swap_name.removesuffix(LOG_SUFFIX + SWAP_SUFFIX))
    file = storage.file(swap_path)
    next_offset, markers = base_offset + 1, set[int]()
    for _, header in walk(file, 0, file.size()):
        next_offset = header.next_offset
        if header.is_control and header.record_count:  # of one that was taken, an empty batch may stay
            markers.add(header.last_offset)
    for name in names:
        stem, dot, suffix = name.partition(".")
        if dot + suffix not in _SUFFIXES or not stem.isdecimal():
            continue
        covered = base_offset < int(stem) < next_offset
        if covered or (int(stem) == base_offset and suffix in ("index", "timeindex")):
            storage.remove(f"{directory}/{name}")
    transaction_index = transaction_index_path(directory, base_offset)
    if storage.disk.exists(transaction_index + CLEANED_SUFFIX):
        storage.disk.rename(transaction_index + CLEANED_SUFFIX, transaction_index)
    else:
        _forget_cleaned_aborts(storage, transaction_index, base_offset, markers)
    storage.sync_dir(directory)
    storage.release(swap_path)
    storage.disk.rename(swap_path, swap_path.removesuffix(SWAP_SUFFIX))
