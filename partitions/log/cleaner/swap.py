"""Putting a cleaned segment in the place of old ones, so that a crash leaves the old log or the new one.

Guarantees: the cleaned file is durable before it is called `.swap`, and that name decides: without it
the old segments are the log, with it the new one is, and whatever remains to be renamed is finished
here or, after a crash, by `recover_swaps` when the log is opened. An old segment's name is durably
gone before the new file takes its last name, because then nothing is left to tell the two apart. A
truncation or deletion in between first settles the swap. File names are Kafka's: `.cleaned`, `.swap`,
`.deleted`. What changes a name runs on the log's lane; fsyncs of the folder may run elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final

from partitions.log.producer_snapshot import SNAPSHOT_SUFFIX
from partitions.log.scan import walk
from partitions.log.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, Segment, file_name
from partitions.log.segments import SegmentList
from partitions.log.storage import LogStorage
from partitions.log.transaction_index import TRANSACTION_INDEX_SUFFIX, transaction_index_path

CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
DELETED_SUFFIX: Final = ".deleted"
_OPTIONAL_SUFFIXES: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX, TRANSACTION_INDEX_SUFFIX)
"""Of files that not every segment has: after a crash an index is made when it is needed."""
_SUFFIXES: Final = (LOG_SUFFIX, *_OPTIONAL_SUFFIXES)


_DELETED_TRANSACTION_INDEX: Final = TRANSACTION_INDEX_SUFFIX + DELETED_SUFFIX


class SwapState(Enum):
    """How far a swap has come."""

    DECIDED = auto()
    """The cleaned file is called `.swap`; the name may not be durable yet."""
    REPLACED = auto()
    """The log reads the new segment; the old names may not be durably gone yet."""
    DONE = auto()
    """All names are final."""
    UNDONE = auto()
    """The old segments stay."""


class SegmentSwap:
    """One new segment for a run of old ones. Raises LogStorageError after halting where a rename fails."""

    def __init__(
        self,
        storage: LogStorage,
        directory: str,
        segments: SegmentList,
        old: Sequence[Segment],
        new: Segment,
        on_end: Callable[[], None],
    ) -> None:
        """Decides the swap: what was written for `new` is durable, under names that end in `.cleaned`."""
        assert old[0].base_offset == new.base_offset
        self._storage = storage
        self._directory = directory
        self._segments = segments
        self._old = tuple(old)
        self._new = new
        self._on_end = on_end
        self._final_path = new.log_path
        self._swap_path = new.log_path + SWAP_SUFFIX
        self.old_bases = tuple(segment.base_offset for segment in old)
        self.has_transaction_index = False
        """Whether the new segment has one, once it is in place."""
        self.deleted_paths: tuple[str, ...] = ()
        """What can be removed once the swap is done and durable."""
        self.state = SwapState.DECIDED
        self._rename(new.log_path + CLEANED_SUFFIX, self._swap_path)

    def replace(self) -> None:
        """The log reads the new segment from now on. The `.swap` name is durable."""
        assert self.state is SwapState.DECIDED
        for path in self._new.index_paths:
            self._rename(path + CLEANED_SUFFIX, path)
        self._replace_transaction_index()
        deleted: list[str] = []
        for segment in self._old:
            segment.release()
            if segment is self._old[0]:
                continue  # the new file takes its names
            for suffix in _SUFFIXES:
                path = f"{self._directory}/{file_name(segment.base_offset, suffix)}"
                if suffix not in _OPTIONAL_SUFFIXES or self._storage.disk.exists(path):
                    self._rename(path, path + DELETED_SUFFIX)
                    deleted.append(path + DELETED_SUFFIX)
        self.deleted_paths = tuple(deleted)
        self._new.log_path = self._swap_path
        self._segments.replace(self._old, self._new)
        self._storage.index_used(self._swap_path, self._new)
        self.state = SwapState.REPLACED

    def _replace_transaction_index(self) -> None:
        """An entry too many harms nobody, whereas one that is missing lets aborted records through: so the
        cleaned file was durable before the swap was decided, and here it replaces the old one at once."""
        path = transaction_index_path(self._directory, self._new.base_offset)
        self.has_transaction_index = self._storage.disk.exists(path + CLEANED_SUFFIX)
        if self.has_transaction_index:
            self._rename(path + CLEANED_SUFFIX, path)
            return
        try:
            self._storage.remove(path)
        except OSError as error:
            self._storage.fail(f"removing {path} failed: {error}", error)

    def finish(self) -> None:
        """Gives the new file its last name. That the old names are gone is durable."""
        assert self.state is SwapState.REPLACED
        self._new.release()
        self._rename(self._swap_path, self._final_path)
        self._new.log_path = self._final_path
        self._storage.index_used(self._final_path, self._new)
        self._end(SwapState.DONE)

    def settle(self) -> None:
        """Ends the swap at once, one way or the other, because the log is about to change otherwise."""
        if self.state is SwapState.DECIDED:
            self._storage.remove(self._swap_path)
            self._storage.sync_dir(self._directory)
            self._end(SwapState.UNDONE)
        elif self.state is SwapState.REPLACED:
            self._storage.sync_dir(self._directory)
            self.finish()
            self._storage.sync_dir(self._directory)

    def _end(self, state: SwapState) -> None:
        self.state = state
        self._on_end()

    def _rename(self, source: str, target: str) -> None:
        try:
            self._storage.disk.rename(source, target)
        except OSError as error:
            self._storage.fail(f"renaming {source} to {target} failed: {error}", error)


def recover_swaps(storage: LogStorage, directory: str, names: Sequence[str]) -> list[str]:
    """Finishes or undoes what a crash interrupted; returns the names that are there then.

    To be called before anything of the folder is used. Raises LogCorruptError, OSError.
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


def _complete(storage: LogStorage, directory: str, names: Sequence[str], swap_name: str) -> None:
    """Removes, durably, the segments whose offsets the file covers, and their indexes; then renames it."""
    swap_path = f"{directory}/{swap_name}"
    base_offset = int(swap_name.removesuffix(LOG_SUFFIX + SWAP_SUFFIX))
    file = storage.file(swap_path)
    next_offset = base_offset + 1
    for _, header in walk(file, 0, file.size()):
        next_offset = header.next_offset
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
    storage.sync_dir(directory)
    storage.release(swap_path)
    storage.disk.rename(swap_path, swap_path.removesuffix(SWAP_SUFFIX))
