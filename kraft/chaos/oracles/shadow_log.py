"""The shadow of one replica's log: the batches that it must hold, known from the operations on it.

The same appends, truncations and deletions that change the log change its shadow, and so does injected damage. The
log is never read for it, except where damage or a crash in mid-operation left its content open. A batch is
identified by its offsets, leader epoch and CRC (which covers neither of the others). A compacted batch counts as
the original: see `compaction`. Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

BIT_ROT = "bit rot"
POWER_LOSS = "power loss"
"""The one kind of damage that takes a batch out of the middle of a log."""


class Batch(NamedTuple):
    """One record batch of one partition: its fingerprint."""

    base: int
    """Offset of its first record."""
    next: int
    """Offset after its last record."""
    epoch: int
    """Leader epoch stamped into it."""
    crc: int


class ShadowLog:
    """One replica's log. `end` is its log end offset, `start` its log start offset."""

    __slots__ = ("absent", "bases", "batches", "damaged_from", "damaged_kind", "directory", "end", "highest_start",
                 "lost", "start", "uncertain")  # fmt: skip

    def __init__(self, directory: str, start: int = 0, end: int = 0) -> None:
        self.directory = directory
        self.start = start
        self.end = end
        self.highest_start = start
        """The highest log start ever, here or in an earlier life of its disk."""
        self.batches: list[Batch] = []
        self.bases: list[int] = []
        self.lost: dict[Batch, str] = {}
        """Batches that injected damage took from this replica and that are not back, with the kind of damage."""
        self.absent: dict[Batch, None] = {}
        """Batches of the log that it need not have: compaction took all their records, here or at the leader that
        would have sent them."""
        self.damaged_from: int | None = None
        """The offset from which on the next opening may cut the log, because of injected damage; None: nowhere."""
        self.damaged_kind = ""
        self.uncertain = False
        """Whether an operation ended half-way: the next opening shows the content."""

    def append(self, batch: Batch) -> bool:
        """Appends a batch. Returns whether it had been lost to damage and is back."""
        self.batches.append(batch)
        self.bases.append(batch.base)
        self.end = batch.next
        return bool(self.lost) and self.lost.pop(batch, None) is not None

    def cut(self, offset: int) -> list[Batch]:
        """Gives up every batch that reaches `offset` or lies above it. Returns them."""
        first = bisect_left(self.bases, offset)
        if first and self.batches[first - 1].next > offset:
            first -= 1
        removed = self.batches[first:]
        del self.batches[first:], self.bases[first:]
        self.end = min(self.end, offset)
        if self.absent:
            self._stand_for_what_is_there()
        return removed

    def _stand_for_what_is_there(self) -> None:
        self.absent = {batch: None for batch in self.absent if self.contains(batch)}

    def restart_at(self, offset: int) -> list[Batch]:
        """Gives up everything; the log starts and ends at `offset`. Returns the batches that were in it."""
        removed = self.batches
        self.batches, self.bases, self.absent = [], [], {}
        self.start = self.end = offset
        self.highest_start = max(self.highest_start, offset)
        return removed

    def start_at(self, offset: int) -> None:
        """Moves the log start to `offset`: batches wholly below are no longer looked at."""
        self.start = offset
        self.highest_start = max(self.highest_start, offset)
        first = bisect_left(self.bases, offset)
        if first and self.batches[first - 1].next > offset:
            first -= 1
        del self.batches[:first], self.bases[:first]

    def replace(self, batches: Iterable[Batch], start: int, end: int) -> None:
        """Takes the content of a log that was read anew."""
        self.batches = list(batches)
        self.bases = [batch.base for batch in self.batches]
        self.start, self.end = start, end
        self.highest_start = max(self.highest_start, start)
        self._stand_for_what_is_there()

    def between(self, low: int, high: int) -> list[Batch]:
        """The batches that begin at `low` or later and below `high`."""
        bases = self.bases
        return self.batches[bisect_left(bases, low) : bisect_left(bases, high)]

    def contains(self, batch: Batch) -> bool:
        """Whether the batch is in the log, readable or not; a batch that retention took counts as there."""
        if batch.next <= self.start:
            return True
        index = bisect_left(self.bases, batch.base)
        return index < len(self.batches) and self.batches[index] == batch

    def holds(self, batch: Batch) -> bool:
        """Whether the batch can be read from this log."""
        return self.contains(batch) and batch not in self.lost

    def is_rotten(self, batch: Batch) -> bool:
        """Whether the batch is in the log with a flipped bit, which its reader will notice."""
        return self.lost.get(batch) == BIT_ROT and self.contains(batch)

    def missing(self, wanted: list[Batch]) -> list[Batch]:
        """The batches of `wanted` (in order) that the log lacks; costs next to nothing if it has them all."""
        if not wanted:
            return []
        if not self.lost:
            first = bisect_left(self.bases, wanted[0].base)
            if self.batches[first : first + len(wanted)] == wanted:
                return []
        return [batch for batch in wanted if not self.holds(batch)]


def shown(batches: Sequence[Batch]) -> str:
    """Some batches, for people."""
    if not batches:
        return "nothing"
    first = batches[0]
    more = f" and {len(batches) - 1} more up to {batches[-1].next - 1}" if len(batches) > 1 else ""
    return f"batch {first.base}-{first.next - 1} of epoch {first.epoch}{more}"
