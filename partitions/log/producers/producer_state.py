"""What a log remembers of its idempotent producers, and the rules by which it judges them (KIP-98, KIP-360).

Guarantees: per (producer id, epoch) the last 5 batches are known by sequence range and offset. A
batch with a known range is a duplicate and answered with its old offset; a gap is refused; an older
epoch is fenced; a new epoch starts at sequence 0. A producer that the log does not know (its
records are gone, or it idled too long) may go on with any sequence, as in Kafka since 2.5. The
state follows from the log's batches alone, so that followers and a restarted replica agree with
the leader; `producer_snapshot` keeps it in files. A transactional batch opens its producer's transaction
here, and a marker ends it; a marker of an older producer or coordinator epoch is refused. A client's batch opens one
only under a guard that no marker has voided (KIP-890).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from partitions.log.errors import AppendError, NotVerified
from partitions.log.producers.transaction_offsets import CompletedTransaction, TransactionOffsets
from partitions.log.producers.verifications import VerificationGuard, Verifications
from partitions.records.batch import BatchHeader
from partitions.records.header import CONTROL_BIT, MAX_SEQUENCE, NO_SEQUENCE, TRANSACTIONAL_BIT
from partitions.records.markers import EndTransactionMarker

BATCHES_RETAINED: Final = 5
"""As many as a producer may have in flight (max.in.flight.requests.per.connection)."""
NO_PRODUCER_EPOCH: Final = -1
NO_COORDINATOR_EPOCH: Final = -1
NO_OFFSET: Final = -1
EPOCH_FOR_EACH_TRANSACTION: Final = 2
"""From this transaction.version on a marker's epoch is higher than that of the transaction that it ends (KIP-890)."""


_VOIDING: Final = TRANSACTIONAL_BIT | CONTROL_BIT
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

    def has_open_transaction(self, producer_epoch: int) -> bool:
        """Whether a batch of this epoch goes on with an open transaction."""
        return self.transaction_first_offset != NO_OFFSET and self.epoch == producer_epoch

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

    __slots__ = ("end_offset", "producers", "transactions", "verifications")

    def __init__(self, end_offset: int = 0) -> None:
        self.producers: dict[int, ProducerEntry] = {}
        self.transactions = TransactionOffsets()
        self.end_offset = end_offset
        """The offset up to which batches have been recorded."""
        self.verifications = Verifications()

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
        guard: VerificationGuard | None = None,
    ) -> None:
        """Whether these batches, in this order, may be appended next. Changes nothing.

        `sequences` is False for batches of a coordinator, which have epochs only; `markers` are those among
        them. `guard`: under which a client's batch may open a transaction. Raises AppendError
        INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE (NotVerified: for want of a guard
        that holds) or TRANSACTION_COORDINATOR_FENCED.
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
                _check_epoch(entry, header.producer_id, header.producer_epoch)
            if sequences and header.attributes & TRANSACTIONAL_BIT:
                self._check_verified(entry, header, guard)
            if entry is not None:
                if sequences:
                    _check_sequence(entry, header)
                elif markers:
                    _check_coordinator(entry, header.producer_id, markers.get(header))
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

    def _check_verified(
        self, entry: ProducerEntry | None, header: BatchHeader, guard: VerificationGuard | None
    ) -> None:
        """Whether a client's transactional batch goes on with a transaction, or may open one here."""
        if entry is not None and entry.has_open_transaction(header.producer_epoch):
            return
        producer_id, sequence = header.producer_id, header.base_sequence
        if guard is None or not self.verifications.holds(guard, producer_id):
            raise NotVerified(producer_id)
        if guard.supports_epoch_bump and sequence != 0 and (entry is None or not entry.batches):
            raise AppendError(
                "OUT_OF_ORDER_SEQUENCE_NUMBER",
                f"a transaction of producer {producer_id} begins here with sequence {sequence} instead of 0",
            )
        if sequence > guard.lowest_sequence and guard.lowest_sequence != NO_SEQUENCE:
            raise AppendError(
                "OUT_OF_ORDER_SEQUENCE_NUMBER",
                f"sequence {sequence} of producer {producer_id} is to open a transaction, and"
                f" {guard.lowest_sequence}, which came before it, is not in the log",
            )

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, *, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard | None:
        """The guard under which a batch of the producer is to be verified and appended; None if it goes on with a
        transaction that is open here, and needs neither."""
        entry = self.producers.get(producer_id)
        if entry is not None and entry.has_open_transaction(epoch):
            return None
        return self.verifications.begin(
            producer_id, epoch, sequence, supports_epoch_bump=supports_epoch_bump, now_ms=now_ms
        )

    def check_transactional(self, producer_id: int, epoch: int) -> None:
        """Whether a coordinator's transactional batch could be appended. Raises AppendError INVALID_REQUEST (nobody has
        such an id or epoch), INVALID_PRODUCER_EPOCH."""
        _check_possible(producer_id, epoch)
        entry = self.producers.get(producer_id)
        if entry is not None:
            _check_epoch(entry, producer_id, epoch)

    def judge_marker(
        self, producer_id: int, epoch: int, marker: EndTransactionMarker, transaction_version: int
    ) -> bool:
        """Whether the marker is to be written; False: it was before, and there is nothing left that it could end.

        Since version 2 a marker's epoch is above that of the producer's transaction: one that comes again, late,
        does not end the next transaction (KIP-1228). Before, a marker may come again and is written again. A
        producer that is not known here may be ended by any. Raises AppendError INVALID_REQUEST (nobody has such an id
        or epoch), INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        _check_possible(producer_id, epoch)
        entry = self.producers.get(producer_id)
        if entry is None:
            return True
        _check_epoch(entry, producer_id, epoch)
        is_open = entry.transaction_first_offset != NO_OFFSET
        is_same = transaction_version >= EPOCH_FOR_EACH_TRANSACTION and epoch == entry.epoch
        if is_same and is_open:
            raise AppendError(
                "INVALID_PRODUCER_EPOCH",
                f"a marker of epoch {epoch} does not end the transaction of producer {producer_id} in that same"
                " epoch",
            )
        _check_coordinator(entry, producer_id, marker)
        return not is_same

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
        if header.attributes & _VOIDING:
            self.verifications.void(producer_id)
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
        self.verifications.void_all()
        self.producers = producers
        self.end_offset = end_offset
        self.transactions = TransactionOffsets()
        self.transactions.restore(
            [
                entry.transaction_first_offset
                for entry in producers.values()
                if entry.transaction_first_offset != NO_OFFSET
            ],
            known_from=end_offset
            if any(entry.coordinator_epoch != NO_COORDINATOR_EPOCH for entry in producers.values())
            else 0,
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
        self.verifications.expire(now_ms, expiration_ms)
        return len(idle)

    def clear(self, end_offset: int) -> None:
        self.producers.clear()
        self.verifications.void_all()
        self.transactions = TransactionOffsets()
        self.end_offset = end_offset


def _check_possible(producer_id: int, epoch: int) -> None:
    if producer_id < 0 or epoch < 0:
        raise AppendError("INVALID_REQUEST", f"no producer has the id {producer_id} and the epoch {epoch}")


def _check_epoch(entry: ProducerEntry, producer_id: int, epoch: int) -> None:
    if epoch < entry.epoch:
        raise AppendError(
            "INVALID_PRODUCER_EPOCH",
            f"epoch {epoch} of producer {producer_id} is older than {entry.epoch}, the last one seen",
        )


def _check_coordinator(entry: ProducerEntry, producer_id: int, marker: EndTransactionMarker | None) -> None:
    if marker is not None and marker.coordinator_epoch < entry.coordinator_epoch:
        raise AppendError(
            "TRANSACTION_COORDINATOR_FENCED",
            f"a coordinator of epoch {marker.coordinator_epoch} ended a transaction of producer"
            f" {producer_id}, and one of epoch {entry.coordinator_epoch} has taken over since",
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
