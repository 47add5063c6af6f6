"""Which transactions were aborted, and when their markers may go (KIP-98).

Guarantees: a transaction counts as aborted only when its marker was seen, and nothing at or after the
first record of an undecided one is cleaned. A marker may go only when no batch of its transaction was
passed on the way to it: as long as one is left, even an empty one, readers need the marker, and the
transaction index its entry. Also says which batches the memory of idempotent producers rests on. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple

from partitions.records.batch import BatchHeader
from partitions.records.control import ControlType


class ScannedAbort(NamedTuple):
    """Data of this producer from the first offset to its marker was given up."""

    producer_id: int
    first_offset: int
    marker_offset: int


class LastBatch(NamedTuple):
    """What tells the last batch of an active producer."""

    last_offset: int | None
    """Of its last data batch; None if there is none of its epoch, which a marker carries then."""
    producer_epoch: int


class ProducerScan:
    """Finds transactions and producers' last batches in the committed part of a log, taken in order.

    In the committed part: what lies above may be truncated, and takes what it says of a producer along.
    """

    __slots__ = ("_active", "_open", "aborted", "last_batches")

    def __init__(self, active: Set[int]) -> None:
        """`active`: the producers that the log remembers."""
        self._active = active
        self._open: dict[int, int] = {}
        self.aborted: list[ScannedAbort] = []
        """In the order of their markers."""
        self.last_batches: dict[int, LastBatch] = {}
        """By active producer, what its sequence and epoch are known from."""

    def _note_producer(self, header: BatchHeader) -> None:
        if header.producer_id in self._active:
            known = self.last_batches.get(header.producer_id)
            if not header.is_control:
                known = LastBatch(header.last_offset, header.producer_epoch)
            elif known is None or known.producer_epoch != header.producer_epoch:
                known = LastBatch(None, header.producer_epoch)
            self.last_batches[header.producer_id] = known

    def see_data(self, header: BatchHeader) -> None:
        self._note_producer(header)
        if header.is_transactional:
            self._open.setdefault(header.producer_id, header.base_offset)

    def see_marker(self, header: BatchHeader, kind: ControlType | None) -> None:
        """`kind` is None for a control batch that a cleaning has emptied."""
        self._note_producer(header)
        if kind in (None, ControlType.ABORT, ControlType.COMMIT):
            first = self._open.pop(header.producer_id, None)
            if kind is ControlType.ABORT and first is not None:
                self.aborted.append(ScannedAbort(header.producer_id, first, header.base_offset))

    @property
    def first_undecided(self) -> int | None:
        """The first offset of a transaction whose marker was not seen."""
        return min(self._open.values(), default=None)


class CleanedTransactions:
    """What is known at a place of one pass over the log, which goes from batch to batch in order."""

    __slots__ = ("_aborted", "_committed", "_needed", "_next", "_passed")

    def __init__(self, aborted: Sequence[ScannedAbort], *, from_offset: int = 0) -> None:
        """For a pass that begins at `from_offset`: what ended before is of no concern to it."""
        self._aborted = sorted(
            (transaction for transaction in aborted if transaction.marker_offset >= from_offset),
            key=lambda transaction: transaction.first_offset,
        )
        self._next = 0
        self._passed: dict[int, bool] = {}
        """Producers in an aborted transaction; whether a batch of it was passed."""
        self._committed: set[int] = set()
        """Producers of whose committed transaction a batch was passed."""
        self._needed: set[int] = set()

    def on_data(self, header: BatchHeader) -> bool:
        """Whether the batch's records are an aborted transaction's."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._passed:
            self._passed[header.producer_id] = True
            return True
        self._committed.add(header.producer_id)
        return False

    def on_control(self, header: BatchHeader, kind: ControlType | None) -> bool:
        """Whether nobody needs the control batch any more; `kind` None: it is empty already."""
        self._begin_up_to(header.last_offset)
        producer_id = header.producer_id
        if kind is None:
            return True
        if kind is ControlType.ABORT:
            needed = self._passed.pop(producer_id, False)
            if needed:
                self._needed.add(header.base_offset)
            return not needed
        if kind is ControlType.COMMIT:
            needed = producer_id in self._committed
            self._committed.discard(producer_id)
            return not needed
        return False

    def take_needed_aborts(self) -> set[int]:
        """Offsets of the abort markers passed since the last call of whose transactions a batch was there:
        readers have to know of these."""
        needed, self._needed = self._needed, set()
        return needed

    def _begin_up_to(self, offset: int) -> None:
        aborted = self._aborted
        while self._next < len(aborted) and aborted[self._next].first_offset <= offset:
            self._passed.setdefault(aborted[self._next].producer_id, False)
            self._next += 1
