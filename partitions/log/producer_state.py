"""What a log remembers of its idempotent producers, and the rules by which it judges them (KIP-98, KIP-360).

Guarantees: per (producer id, epoch) the last 5 batches are known by sequence range and offset. A
batch with a known range is a duplicate and answered with its old offset; a gap is refused; an older
epoch is fenced; a new epoch starts at sequence 0. A producer that the log does not know (its
records are gone, or it idled too long) may go on with any sequence, as in Kafka since 2.5. The
state follows from the log's batches alone, so that followers and a restarted replica agree with
the leader; `producer_snapshot` keeps it in files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from partitions.log.errors import AppendError
from partitions.records.batch import BatchHeader
from partitions.records.header import MAX_SEQUENCE, NO_SEQUENCE

BATCHES_RETAINED: Final = 5
"""As many as a producer may have in flight (max.in.flight.requests.per.connection)."""
NO_PRODUCER_EPOCH: Final = -1
NO_OFFSET: Final = -1


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
        self.coordinator_epoch = -1
        self.transaction_first_offset = NO_OFFSET
        """First offset of the open transaction, -1 if none is open."""

    def copy(self) -> ProducerEntry:
        other = ProducerEntry(self.epoch)
        other.batches = self.batches.copy()
        other.last_timestamp = self.last_timestamp
        other.coordinator_epoch = self.coordinator_epoch
        other.transaction_first_offset = self.transaction_first_offset
        return other

    def duplicate_of(self, header: BatchHeader) -> BatchRange | None:
        """The retained batch with the same epoch and sequence range."""
        if header.producer_epoch == self.epoch:
            last_sequence, delta = header.last_sequence, header.last_offset_delta
            for known in self.batches:
                if known.last_sequence == last_sequence and known.offset_delta == delta:
                    return known
        return None

    def record(self, header: BatchHeader, first_offset: int) -> None:
        """Takes note of a batch that is in the log from `first_offset` on."""
        if header.producer_epoch != self.epoch:
            self.epoch = header.producer_epoch
            self.batches = []
        self.last_timestamp = header.max_timestamp
        if header.is_control:
            self.transaction_first_offset = NO_OFFSET
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

    __slots__ = ("end_offset", "producers")

    def __init__(self, end_offset: int = 0) -> None:
        self.producers: dict[int, ProducerEntry] = {}
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

    def check(self, headers: Sequence[BatchHeader], *, sequences: bool) -> None:
        """Whether these batches, in this order, may be appended next. Changes nothing.

        `sequences` is False for batches of a coordinator, which have epochs only. Raises AppendError
        INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_TXN_STATE.
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
                if entry.transaction_first_offset != NO_OFFSET and not header.is_transactional:
                    raise AppendError(
                        "INVALID_TXN_STATE",
                        f"producer {producer_id} sent a plain batch while its transaction is open",
                    )
            if ahead is not None:
                following = entry.copy() if entry is not None else ProducerEntry()
                following.record(header, 0)
                ahead[producer_id] = following

    def record(self, header: BatchHeader, first_offset: int) -> None:
        """Takes note of a batch that is in the log from `first_offset` on."""
        if header.producer_id >= 0:
            entry = self.producers.get(header.producer_id)
            if entry is None:
                if header.is_control and header.record_count == 0:
                    return
                entry = self.producers[header.producer_id] = ProducerEntry()
            entry.record(header, first_offset)

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
        self.end_offset = end_offset


def _check_epoch(entry: ProducerEntry, header: BatchHeader) -> None:
    if header.producer_epoch < entry.epoch:
        raise AppendError(
            "INVALID_PRODUCER_EPOCH",
            f"epoch {header.producer_epoch} of producer {header.producer_id} is older than {entry.epoch},"
            " the last one seen",
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
