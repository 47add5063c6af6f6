"""What a log remembers of its idempotent producers, and the rules by which it judges them (KIP-98, KIP-360).

Guarantees: per (producer id, epoch) the last 5 batches are known by sequence range and offset. A
batch with a known range is a duplicate and answered with its old offset; a gap is refused; an older
epoch is fenced; a new epoch starts at sequence 0. A producer that the log does not know (its
records are gone, or it idled too long) may go on with any sequence, as in Kafka since 2.5. The
state follows from the log's batches alone, so that followers and a restarted replica agree with
the leader; `producer_snapshot` keeps it in files. A transactional batch opens its producer's transaction
here, and a marker ends it; a marker of an older producer or coordinator epoch is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from partitions.log.errors import AppendError
from partitions.log.producers.transaction_offsets import CompletedTransaction, TransactionOffsets
from partitions.records.batch import BatchHeader
from partitions.records.header import MAX_SEQUENCE, NO_SEQUENCE
from partitions.records.markers import EndTransactionMarker

BATCHES_RETAINED: Final = 5
"""As many as a producer may have in flight (max.in.flight.requests.per.connection)."""
NO_PRODUCER_EPOCH: Final = -1
NO_COORDINATOR_EPOCH: Final = -1
NO_OFFSET: Final = -1


NO_MARKERS: Final[Mapping[BatchHeader, EndTransactionMarker]] = MappingProxyType({})


class BatchRange(NamedTuple):
    """One appended batch of a producer: its last sequence and offset, and how many records before it."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    """The batch's largest timestamp, ms."""

    @property
    def first_sequence(self) -> int:
        """-1 for a batch without sequences."""
        if self.last_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """One producer id in this log."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "transaction_first_offset")

    def __init__(self, epoch: int = NO_PRODUCER_EPOCH) -> None:
        self.epoch = epoch
        self.batches: list[BatchRange] = []
        """Oldest first, all of `epoch`."""
        self.last_timestamp = -1
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        """Of the newest marker, -1 before the first one."""
        self.transaction_first_offset = NO_OFFSET
        """First offset of the open transaction, -1 if none is open."""

    def copy(self) -> ProducerEntry:
        other = ProducerEntry(self.epoch)
        other.batches = self.batches.copy()
        other.last_timestamp = self.last_timestamp
        other.coordinator_epoch = self.coordinator_epoch
        other.transaction_first_offset = self.transaction_first_offset
        return other

    @property
    def last_sequence(self) -> int:
        """Of the newest batch, -1 where there is none of this epoch, or it has no sequences."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def duplicate_of(self, header: BatchHeader) -> BatchRange | None:
        """The retained batch with the same epoch and sequence range."""
        if header.producer_epoch == self.epoch:
            last_sequence, delta = header.last_sequence, header.last_offset_delta
            for known in self.batches:
                if known.last_sequence == last_sequence and known.offset_delta == delta:
                    return known
        return None

    def record(
        self, header: BatchHeader, first_offset: int, marker: EndTransactionMarker | None = None
    ) -> None:
        """Takes note of a batch that is in the log from `first_offset` on; `marker` is what it says, if it is one."""
        if header.producer_epoch != self.epoch:
            self.epoch = header.producer_epoch
            self.batches = []
        self.last_timestamp = header.max_timestamp
        if header.is_control:
            self.transaction_first_offset = NO_OFFSET
            if marker is not None:
                self.coordinator_epoch = marker.coordinator_epoch
            return
        if header.is_transactional and self.transaction_first_offset == NO_OFFSET:
            self.transaction_first_offset = first_offset
        delta = header.last_offset_delta
        batches = self.batches
        if len(batches) == BATCHES_RETAINED:
            del batches[0]
        batches.append(BatchRange(header.last_sequence, first_offset + delta, delta, header.max_timestamp))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProducerEntry):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"ProducerEntry({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"


class ProducerState:
    """All producers of one log, up to `end_offset`."""

    __slots__ = ("end_offset", "producers", "transactions")

    def __init__(self, end_offset: int = 0) -> None:
        self.producers: dict[int, ProducerEntry] = {}
        self.transactions = TransactionOffsets()
        self.end_offset = end_offset
        """The offset up to which batches have been recorded."""

    def find_duplicate(self, headers: Sequence[BatchHeader]) -> tuple[BatchRange, BatchRange] | None:
        """The old (first, last) ranges if a client's append repeats retained batches, else None.

        Raises AppendError when only some of the batches are repeated: one answer cannot say that.
        """
        producers = self.producers
        known: list[BatchRange] = []
        for header in headers:
            entry = producers.get(header.producer_id)
            duplicate = entry.duplicate_of(header) if entry is not None else None
            if duplicate is not None:
                known.append(duplicate)
        if not known:
            return None
        if len(known) != len(headers):
            raise AppendError(
                "INVALID_RECORD", "a produce request mixes batches that are in the log with new ones"
            )
        return known[0], known[-1]

    def check(
        self,
        headers: Sequence[BatchHeader],
        *,
        sequences: bool,
        markers: Mapping[BatchHeader, EndTransactionMarker] = NO_MARKERS,
    ) -> None:
        """Whether these batches, in this order, may be appended next. Changes nothing.

        `sequences` is False for batches of a coordinator, which have epochs only; `markers` are those among
        them. Raises AppendError INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE or
        TRANSACTION_COORDINATOR_FENCED.
        """
        ahead: dict[int, ProducerEntry] | None = {} if len(headers) > 1 else None
        for header in headers:
            if header.producer_id < 0:
                continue
            producer_id = header.producer_id
            entry = self.producers.get(producer_id)
            if ahead is not None:
                entry = ahead.get(producer_id, entry)
            if entry is not None:
                _check_epoch(entry, header)
                if sequences:
                    _check_sequence(entry, header)
                elif markers:
                    _check_coordinator(entry, header, markers.get(header))
                if entry.transaction_first_offset != NO_OFFSET and not header.is_transactional:
                    raise AppendError(
                        "INVALID_TXN_STATE",
                        f"producer {producer_id} sent a plain batch while its transaction is open",
                    )
            elif header.producer_epoch < NO_PRODUCER_EPOCH:
                raise AppendError(
                    "INVALID_PRODUCER_EPOCH",
                    f"producer {producer_id} sent a batch with the epoch {header.producer_epoch}",
                )
            if ahead is not None:
                following = entry.copy() if entry is not None else ProducerEntry()
                following.record(header, 0, markers.get(header))
                ahead[producer_id] = following

    def record(
        self, header: BatchHeader, first_offset: int, marker: EndTransactionMarker | None = None
    ) -> CompletedTransaction | None:
        """Takes note of a batch that is in the log from `first_offset` on; `marker` is what it says, if it is one.

        Returns the transaction that ended with it. A marker of a transaction without records here ends none.
        """
        producer_id = header.producer_id
        if producer_id < 0:
            return None
        entry = self.producers.get(producer_id)
        if entry is None:
            if header.is_control and header.record_count == 0:
                return None
            entry = self.producers[producer_id] = ProducerEntry()
        before = entry.transaction_first_offset
        entry.record(header, first_offset, marker)
        if entry.transaction_first_offset == before:
            return None
        if before == NO_OFFSET:
            self.transactions.begin(first_offset)
            return None
        stable = self.transactions.end(before, first_offset)
        is_aborted = marker is not None and marker.is_abort
        return CompletedTransaction(producer_id, before, first_offset, is_aborted, stable)

    def restore(self, producers: dict[int, ProducerEntry], end_offset: int) -> None:
        """Takes over what a snapshot at `end_offset` holds."""
        self.producers = producers
        self.end_offset = end_offset
        self.transactions = TransactionOffsets()
        self.transactions.restore(
            [
                entry.transaction_first_offset
                for entry in producers.values()
                if entry.transaction_first_offset != NO_OFFSET
            ]
        )

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forgets producers that were idle for `expiration_ms` and have no open transaction."""
        idle = [
            producer_id
            for producer_id, entry in self.producers.items()
            if now_ms - entry.last_timestamp >= expiration_ms and entry.transaction_first_offset == NO_OFFSET
        ]
        for producer_id in idle:
            del self.producers[producer_id]
        return len(idle)

    def clear(self, end_offset: int) -> None:
        self.producers.clear()
        self.transactions = TransactionOffsets()
        self.end_offset = end_offset


def _check_epoch(entry: ProducerEntry, header: BatchHeader) -> None:
    if header.producer_epoch < entry.epoch:
        raise AppendError(
            "INVALID_PRODUCER_EPOCH",
            f"epoch {header.producer_epoch} of producer {header.producer_id} is older than {entry.epoch},"
            " the last one seen",
        )


def _check_coordinator(
    entry: ProducerEntry, header: BatchHeader, marker: EndTransactionMarker | None
) -> None:
    if marker is not None and marker.coordinator_epoch < entry.coordinator_epoch:
        raise AppendError(
            "TRANSACTION_COORDINATOR_FENCED",
            f"a coordinator of epoch {marker.coordinator_epoch} ended a transaction of producer"
            f" {header.producer_id}, and one of epoch {entry.coordinator_epoch} has taken over since",
        )


def _check_sequence(entry: ProducerEntry, header: BatchHeader) -> None:
    sequence = header.base_sequence
    if header.producer_epoch != entry.epoch:
        if sequence != 0 and entry.epoch != NO_PRODUCER_EPOCH:
            raise AppendError(
                "OUT_OF_ORDER_SEQUENCE_NUMBER",
                f"the new epoch {header.producer_epoch} of producer {header.producer_id} starts with sequence"
                f" {sequence} instead of 0",
            )
        return
    last = entry.batches[-1].last_sequence if entry.batches else NO_SEQUENCE
    if sequence != last + 1 and not (sequence == 0 and last == MAX_SEQUENCE):
        raise AppendError(
            "OUT_OF_ORDER_SEQUENCE_NUMBER",
            f"sequence {sequence} of producer {header.producer_id} does not follow {last}, the last one seen",
        )
