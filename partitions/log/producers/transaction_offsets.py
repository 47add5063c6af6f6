"""Where a log's transactions begin and end, as far as read_committed readers must wait for them (KIP-98).

Guarantees: the last stable offset never passes the first record of a transaction that is open, or whose
marker is not below the high watermark yet and could still be lost. A log that was opened from a snapshot does not know
which transactions ended before that: until the high watermark has come there, nothing is stable. Costs nothing while
there are no transactions, and a logarithm of their number else. `ProducerState` keeps it in step with its producers,
`PartitionLog` asks it. Pure.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import NamedTuple


class CompletedTransaction(NamedTuple):
    """A transaction with records in this log, and the marker that ended it."""

    producer_id: int
    first_offset: int
    marker_offset: int
    is_aborted: bool
    last_stable_offset: int
    """Below here everything was decided once the marker was in the log, replicated or not."""


class TransactionOffsets:
    """Open transactions, and ended ones whose markers may not be replicated yet."""

    __slots__ = ("_ended", "_known_from", "_open")

    def __init__(self) -> None:
        self._open: dict[int, None] = {}
        """First offsets, ascending: transactions begin at the log's end."""
        self._ended: list[tuple[int, int]] = []
        """(First offset, marker offset) as a heap. Markers below the high watermark go when they surface."""
        self._known_from = 0
        """Markers below this offset are in no list; 0 once the high watermark has passed them."""

    def __bool__(self) -> bool:
        """Whether the last stable offset may differ from the high watermark."""
        return bool(self._open or self._ended or self._known_from)

    @property
    def first_open(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return next(iter(self._open), None)

    def begin(self, first_offset: int) -> None:
        """A transaction's first record in this log is at `first_offset`."""
        self._open[first_offset] = None

    def end(self, first_offset: int, marker_offset: int) -> int:
        """The transaction that began at `first_offset` was ended by the marker. Returns where the next
        undecided one begins, the offset behind the marker if there is none."""
        del self._open[first_offset]
        heappush(self._ended, (first_offset, marker_offset))
        first_open = self.first_open
        return marker_offset + 1 if first_open is None else first_open

    def first_unstable(self, high_watermark: int) -> int | None:
        """Where the oldest transaction begins that is open or whose marker is not below the high watermark."""
        self.forget_replicated(high_watermark)
        if self._known_from:
            return 0
        first_open = self.first_open
        if not self._ended:
            return first_open
        first_ended = self._ended[0][0]
        return first_ended if first_open is None else min(first_open, first_ended)

    def forget_replicated(self, high_watermark: int) -> None:
        """Lets go of ended transactions whose markers cannot be lost any more."""
        if self._known_from <= high_watermark:
            self._known_from = 0
        ended = self._ended
        while ended and ended[0][1] < high_watermark:
            heappop(ended)

    def restore(self, first_offsets: list[int], known_from: int) -> None:
        """The open transactions, as a snapshot tells of them; `known_from`: its offset, if any ended before."""
        self._open = dict.fromkeys(sorted(first_offsets))
        self._known_from = known_from

    def adopt_ended(self, other: TransactionOffsets, end_offset: int) -> None:
        """Takes over what `other` knew of ended transactions with markers below `end_offset`, of the same log."""
        self._known_from = min(self._known_from, other._known_from)
        known = {*self._ended, *(entry for entry in other._ended if entry[1] < end_offset)}
        self._ended = list(known)
        heapify(self._ended)
