"""Which leader epoch wrote which offsets of one replica (KIP-101, KIP-279, KIP-320).

Epochs and start offsets both grow strictly from entry to entry, for every assignment. An entry says that the epoch's
first record is (or will be) at its start offset. The partition log owns one cache: it assigns on append and on becoming
leader, trims on truncation and deletion, and keeps the cache in a checkpoint file (`checkpoint.py`). Pure: no file is
touched here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1


class EpochEntry(NamedTuple):
    """A leader epoch and the offset of its first record."""

    epoch: int
    start_offset: int


class EpochCache:
    """The epoch entries of one replica's log, in order."""

    __slots__ = ("_epochs", "_starts", "latest_epoch")

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest_epoch: int | None = None
        """The epoch of the newest entry; None when nothing is known. Kept apart: each append asks for it."""
        self.replace(entries)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All entries, oldest first."""
        return tuple(map(EpochEntry, self._epochs, self._starts))

    @property
    def latest_entry(self) -> EpochEntry | None:
        return EpochEntry(self._epochs[-1], self._starts[-1]) if self._epochs else None

    @property
    def earliest_entry(self) -> EpochEntry | None:
        return EpochEntry(self._epochs[0], self._starts[0]) if self._epochs else None

    def __len__(self) -> int:
        return len(self._epochs)

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Records that `epoch` starts at `start_offset`; True if the cache changed.

        An epoch that has begun stays where it began. Entries that the new one contradicts (a later epoch, or
        a start not below) are dropped: they described records that no longer exist, or an epoch that ended
        without a record. Raises ValueError for negative values.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"a leader epoch entry cannot be negative: epoch {epoch}, offset {start_offset}")
        epochs, starts = self._epochs, self._starts
        if epochs and epochs[-1] == epoch and starts[-1] <= start_offset:
            return False
        while epochs and (epochs[-1] > epoch or starts[-1] >= start_offset):
            epochs.pop()
            starts.pop()
        if not epochs or epochs[-1] != epoch:
            epochs.append(epoch)
            starts.append(start_offset)
        self.latest_epoch = epoch
        return True

    def truncate_from_end(self, end_offset: int) -> bool:
        """Drops the entries that start at or after `end_offset`; True if there were any."""
        keep = bisect_left(self._starts, end_offset)
        changed = keep < len(self._starts)
        del self._epochs[keep:]
        del self._starts[keep:]
        self.latest_epoch = self._epochs[-1] if self._epochs else None
        return changed

    def truncate_from_start(self, start_offset: int) -> bool:
        """Drops what lies wholly below the new log start; the epoch in force there starts there now."""
        covering = bisect_right(self._starts, start_offset) - 1
        if covering < 0 or (covering == 0 and self._starts[0] == start_offset):
            return False
        del self._epochs[:covering]
        del self._starts[:covering]
        self._starts[0] = start_offset
        return True

    def clear(self) -> bool:
        """Forgets everything (the log starts anew elsewhere); True if there was anything."""
        changed = bool(self._epochs)
        self._epochs.clear()
        self._starts.clear()
        self.latest_epoch = None
        return changed

    def replace(self, entries: Iterable[EpochEntry]) -> None:
        """Forgets everything for these, oldest first."""
        self.clear()
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    def end_offset_for(self, requested_epoch: int, log_end_offset: int) -> tuple[int, int]:
        """KIP-279: the largest epoch <= the requested one, and the offset at which it ends.

        The newest epoch ends at the log's end. An epoch below all known ones is answered with
        itself and the start of the first known one: what was there has been deleted. (-1, -1) when
        the request is undefined (-1), above every known epoch, or nothing is known.
        """
        epochs, starts = self._epochs, self._starts
        if requested_epoch < 0 or not epochs or requested_epoch > epochs[-1]:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if requested_epoch == epochs[-1]:
            return requested_epoch, log_end_offset
        higher = bisect_right(epochs, requested_epoch)
        if higher == 0:
            return requested_epoch, starts[0]
        return epochs[higher - 1], starts[higher]

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch that wrote (or would write) the record at `offset`; None below the first entry."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else None

    def previous_epoch(self, epoch: int) -> int | None:
        """The largest known epoch below `epoch`."""
        index = bisect_left(self._epochs, epoch) - 1
        return self._epochs[index] if index >= 0 else None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EpochCache):
            return NotImplemented
        return self._epochs == other._epochs and self._starts == other._starts

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"EpochCache({list(self.entries)})"
