"""The shard of transactions: one partition of __transaction_state as a state machine.

A transactional id belongs to one incarnation of a producer at a time. What the shard decides is in its state at once,
and is told when its record is committed; a fence and the abort that it makes necessary are one decision. When the
record that prepares the end of a transaction is committed its markers are sent, as an effect, and when all are written
it is complete. Until then the producer's next request waits, for `markers_wait_ms` at most. Where a shard loads, or can
append again, all markers that it does not know to be written are sent anew. (KIP-98, KIP-360, KIP-890.) Pure; hosted by
`kraft.coordinator.runtime`. `transaction.py` has the states, `ending.py` what EndTxn comes to in which of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Set
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

import structlog

from kraft.coordinator.groups.topic_patterns import InvalidPattern, check_pattern, matching
from kraft.coordinator.record_schema import type_of_key
from kraft.coordinator.shard import (
    Decisions,
    Moment,
    ProducerIdAndEpoch,
    Record,
    ShardTimers,
    StoredMarker,
    StoredRecord,
)
from kraft.coordinator.transactions import records
from kraft.coordinator.transactions.context import TransactionContext
from kraft.coordinator.transactions.ending import (
    Claim,
    Ending,
    ending_that_bumps_epoch,
    ending_that_keeps_epoch,
)
from kraft.coordinator.transactions.requests import (
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    InitProducer,
    ListTransactions,
    ProducerIdNeeded,
    SendMarkers,
    TransactionRequest,
)
from kraft.coordinator.transactions.transaction import (
    BUMPING_VERSION,
    COMES_FROM,
    EPOCH_MAX,
    PREPARED,
    STATES_BY_NAME,
    State,
    Transaction,
    by_topic,
)
from kraft.coordinator.transactions.waiting import Held, WaitingRequests
from kraft.protocol.errors import ErrorCode, ProtocolError
from kraft.protocol.schemas.producers import InitProducerIdResponse
from kraft.protocol.schemas.transactions import (
    DescribedTransaction,
    DescribedTransactionTopic,
    EndTxnResponse,
    ListedTransaction,
)
from partitions.topic_partition import TopicPartition

log = structlog.get_logger(__name__)

Listed: TypeAlias = tuple[list[ListedTransaction], list[str]]
"""What ListTransactions is replied to with: the transactions, and the filters that name no state."""

ID_MAX_BYTES: Final = 32_767
"""What the key of a record can carry."""
EXPIRY_STEP: Final = 1_000
"""Transactional ids that are looked at in one turn for their expiry."""
_RECORD_OVERHEAD_BYTES: Final = 128
"""Of a batch with one record; and what the record of its end may be larger than that of an open transaction."""
_EXPIRY: Final = "transactional ids that expire"


class TransactionShard:
    """The transactional ids of one partition. (A `Shard` of the runtime.)"""

    def __init__(self, context: TransactionContext) -> None:
        self._context = context
        self.timers: ShardTimers = context.timers
        self._transactions: dict[str, Transaction] = {}
        self._unfinished: dict[str, None] = {}
        """The ids whose transaction is open or ends."""
        self._waiting = WaitingRequests(context.settings, context.timers, self._give_up)
        self._to_look_at: list[str] = []
        """Ids that this round of expiry has not come to yet."""

    @property
    def transactions(self) -> Mapping[str, Transaction]:
        """By transactional id, to look at."""
        return self._transactions

    def unfinished(self) -> Iterator[Transaction]:
        """The transactions that are open or end."""
        return (self._transactions[one] for one in self._unfinished)

    # -- loading

    def replay(self, record: StoredRecord) -> None:
        """Takes in a record of the log. One that cannot be read is left out, and logged."""
        try:
            if type_of_key(record.key) != records.KEY_TYPE:
                raise ProtocolError(f"type {type_of_key(record.key)} of a key is not known here")
            transactional_id = records.KEY.decode(record.key).transactional_id
            if record.value is None:
                self._transactions.pop(transactional_id, None)
                self._unfinished.pop(transactional_id, None)
                return
            value = records.VALUE.decode(record.value)
            self._keep(Transaction.of_value(transactional_id, value))
        except (ProtocolError, ValueError) as error:
            log.warning("a record of a transaction is left out", offset=record.offset, reason=str(error))

    def replay_marker(self, marker: StoredMarker) -> None:
        """This log has none."""

    def on_replayed(self) -> None:
        """What was replayed is whole as it is."""

    def on_loaded(self, now: Moment, decisions: Decisions) -> None:
        """Sends all markers that are not known to be written, and sets the timers of open transactions. Also where the
        runtime could not tell the shard for a while what was written."""
        for transactional_id in list(self._unfinished):
            transaction = self._transactions[transactional_id]
            if transaction.state is State.ONGOING:
                self._set_timeout(transaction, now)
                continue
            if not transaction.serial:
                self._begin_end(transaction, now)
            self._go_on(transaction, now, decisions)
        if _EXPIRY not in self.timers:
            self._set_expiry(self._context.settings.id_expiration_check_interval_ms, now)

    # -- requests

    def handle(self, token: int, request: TransactionRequest, now: Moment, decisions: Decisions) -> None:
        """Decides on one request."""
        self._decide(token, request, None, now, decisions)

    def _decide(
        self, token: int, request: TransactionRequest, until_ms: int | None, now: Moment, decisions: Decisions
    ) -> None:
        """`until_ms` is how long the request may still wait, if it waited before."""
        if isinstance(request, ListTransactions):
            decisions.reply(None, token, self._list(request, now))
            return
        if isinstance(request, DescribeTransaction):
            decisions.reply(request.transactional_id, token, self._describe(request))
            return
        answer = _DECISIONS[type(request)](self, token, request, until_ms, now, decisions)
        if isinstance(answer, ErrorCode):
            answer = _refused(request, answer)
        if answer is not None:
            decisions.reply(request.transactional_id, token, answer)

    def _initialize(
        self, token: int, asked: InitProducer, until_ms: int | None, now: Moment, decisions: Decisions
    ) -> Any:
        """Returns an answer, or None if there will be one; so do the others below."""
        if not 0 < len(asked.transactional_id.encode()) <= ID_MAX_BYTES:
            return ErrorCode.INVALID_REQUEST
        if not 0 < asked.timeout_ms <= self._context.settings.max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        transaction = self._transactions.get(asked.transactional_id)
        if transaction is None:
            return self._make(asked, now, decisions)
        if transaction.state in PREPARED:
            return self._wait(token, asked, until_ms, now)
        if transaction.state is State.ONGOING:
            if asked.expected not in (None, transaction.producer):
                return ErrorCode.PRODUCER_FENCED
            self._context.counters.fenced += 1
            self._fence(transaction, asked.expected, now, decisions)
            refusal = self._wait(token, asked, until_ms, now)
            self._go_on(transaction, now, decisions)
            return refusal
        return self._initialize_again(transaction, asked, now, decisions)

    def _make(self, asked: InitProducer, now: Moment, decisions: Decisions) -> Any:
        if len(self._transactions) >= self._context.settings.ids_max:
            log.warning(
                "a transactional id is refused: transaction.coordinator.ids.max is reached; old ids go after "
                "transactional.id.expiration.ms", transactional_id=asked.transactional_id,
            )  # fmt: skip
            return ErrorCode.POLICY_VIOLATION
        if asked.new_producer_id is None:
            return ProducerIdNeeded()
        transaction = Transaction(asked.transactional_id, asked.new_producer_id, -1, asked.timeout_ms)
        transaction.initialize(
            ProducerIdAndEpoch(asked.new_producer_id, 0), None, asked.timeout_ms, now.wall_ms
        )
        record = self._record(transaction)
        if not self._fits(record):
            return ErrorCode.INVALID_REQUEST
        self._keep(transaction)
        decisions.write(transaction.transactional_id, record)
        return _initialized(transaction)

    def _initialize_again(
        self, transaction: Transaction, asked: InitProducer, now: Moment, decisions: Decisions
    ) -> Any:
        """No transaction is open: the epoch is raised, or the producer id rotates; but not for a retry."""
        current, last = transaction.producer, transaction.last
        is_retry = asked.expected is not None and asked.expected == last and current.epoch < EPOCH_MAX
        if is_retry:
            producer = current
        elif asked.expected not in (None, current, last):
            return ErrorCode.PRODUCER_FENCED
        elif not transaction.is_exhausted:
            producer, last = ProducerIdAndEpoch(current.producer_id, current.epoch + 1), asked.expected
        elif asked.new_producer_id is None:
            return ProducerIdNeeded()
        else:
            producer, last = ProducerIdAndEpoch(asked.new_producer_id, 0), asked.expected
        transaction.initialize(producer, last, asked.timeout_ms, now.wall_ms)
        self._write(transaction, decisions)
        return _initialized(transaction)

    def _add(
        self, token: int, asked: AddPartitions, until_ms: int | None, now: Moment, decisions: Decisions
    ) -> Any:
        transaction = self._transactions.get(asked.transactional_id)
        if transaction is None:
            return _unknown(asked.transactional_id)
        if transaction.state in PREPARED and not asked.verify_only:
            # first of all: the producer may have what it goes on with, which is nobody's yet
            return self._wait(token, asked, until_ms, now) if asked.waits else self._concurrent()
        if asked.producer.producer_id != transaction.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if asked.producer.epoch != transaction.epoch:
            return ErrorCode.PRODUCER_FENCED
        if transaction.state in PREPARED:
            return self._concurrent()
        if asked.verify_only:
            return {
                partition: ErrorCode.NONE if partition in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE
                for partition in sorted(asked.partitions)
            }  # fmt: skip
        if not asked.partitions or (
            transaction.state is State.ONGOING and asked.partitions <= transaction.partitions
        ):
            return dict.fromkeys(sorted(asked.partitions), ErrorCode.NONE)
        larger = replace(transaction, partitions=transaction.partitions | asked.partitions)
        larger.add((), asked.transaction_version, now.wall_ms)
        record = self._record(larger)
        if not self._fits(record):
            return ErrorCode.UNKNOWN_SERVER_ERROR
        if transaction.state is not State.ONGOING:
            self._set_timeout(larger, now)
        self._keep(larger)
        decisions.write(larger.transactional_id, record)
        return dict.fromkeys(sorted(asked.partitions), ErrorCode.NONE)

    def _end(
        self, token: int, asked: EndTransaction, until_ms: int | None, now: Moment, decisions: Decisions
    ) -> Any:
        transaction = self._transactions.get(asked.transactional_id)
        if transaction is None:
            return _unknown(asked.transactional_id)
        ending = _ending(transaction, asked)
        if isinstance(ending, ErrorCode):
            return ending
        if ending is Ending.INVALID_TXN_STATE:
            return ErrorCode.INVALID_TXN_STATE
        if ending is Ending.WAIT:
            return self._wait(token, asked, until_ms, now)
        if ending is Ending.DONE:
            return _ended(transaction)
        next_producer_id = None
        if asked.transaction_version >= BUMPING_VERSION and transaction.is_exhausted:
            next_producer_id = asked.new_producer_id
            if next_producer_id is None:
                return ProducerIdNeeded()
        state = State.PREPARE_COMMIT if asked.is_commit else State.PREPARE_ABORT
        transaction.prepare(state, asked.transaction_version, next_producer_id, now.wall_ms)
        self._begin_end(transaction, now)
        self._write(transaction, decisions)
        answer = _ended(transaction)
        self._go_on(transaction, now, decisions)
        return answer

    def _describe(self, asked: DescribeTransaction) -> DescribedTransaction:
        transaction = self._transactions.get(asked.transactional_id)
        if transaction is None:
            code = (
                ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if asked.transactional_id else ErrorCode.INVALID_REQUEST
            )
            return DescribedTransaction(error_code=code, transactional_id=asked.transactional_id)
        return DescribedTransaction(
            transactional_id=transaction.transactional_id,
            transaction_state=transaction.state.kafka_name,
            transaction_timeout_ms=transaction.timeout_ms,
            transaction_start_time_ms=transaction.started_ms,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.epoch,
            topics=[
                DescribedTransactionTopic(topic, numbers)
                for topic, numbers in by_topic(transaction.partitions)
            ],
        )

    def _list(self, asked: ListTransactions, now: Moment) -> Listed | ErrorCode:
        if asked.pattern:
            try:
                check_pattern(asked.pattern)
            except InvalidPattern:
                return ErrorCode.INVALID_REGULAR_EXPRESSION
        states = {STATES_BY_NAME[name] for name in asked.states if name in STATES_BY_NAME}
        found = [
            transaction
            for transaction in self._transactions.values()
            if (not asked.states or transaction.state in states)
            and (not asked.producer_ids or transaction.producer_id in asked.producer_ids)
            and (asked.duration_ms < 0 or _open_ms(transaction, now) > asked.duration_ms)
        ]
        if asked.pattern:
            ids = matching(asked.pattern, (transaction.transactional_id for transaction in found))
            found = [transaction for transaction in found if transaction.transactional_id in ids]
        listed = [
            ListedTransaction(one.transactional_id, one.producer_id, one.state.kafka_name) for one in found
        ]
        return listed, [name for name in asked.states if name not in STATES_BY_NAME]

    # -- waiting

    def _wait(
        self,
        token: int,
        asked: InitProducer | AddPartitions | EndTransaction,
        until_ms: int | None,
        now: Moment,
    ) -> ErrorCode | None:
        return None if self._waiting.hold(token, asked, until_ms, now) else self._concurrent()

    def _give_up(self, held: Held, now: Moment, decisions: Decisions) -> None:
        refused = _refused(held.request, self._concurrent())
        decisions.reply(held.request.transactional_id, held.token, refused)

    def _concurrent(self) -> ErrorCode:
        self._context.counters.concurrent += 1
        return ErrorCode.CONCURRENT_TRANSACTIONS

    # -- the ends of transactions

    def _fence(
        self, transaction: Transaction, expected: ProducerIdAndEpoch | None, now: Moment, decisions: Decisions
    ) -> None:
        """Aborts an open transaction without its producer; `_go_on` is to follow."""
        transaction.fence(expected, self._context.transaction_version(), now.wall_ms)
        self._begin_end(transaction, now)
        self._write(transaction, decisions)

    def _begin_end(self, transaction: Transaction, now: Moment) -> None:
        transaction.serial = next(self._context.serials)
        transaction.prepared_ms = now.monotonic_ms
        self._unfinished[transaction.transactional_id] = None
        self.timers.cancel(_timeout(transaction.transactional_id))

    def _go_on(self, transaction: Transaction, now: Moment, decisions: Decisions) -> None:
        """Has the markers written of a transaction that ends; one that needs none is complete."""
        transactional_id = transaction.transactional_id
        if transaction.partitions:
            partitions = frozenset(transaction.partitions)
            what = SendMarkers(transactional_id, transaction.marker, partitions, transaction.serial)
            decisions.then(transactional_id, what)
            return
        counters = self._context.counters
        if transaction.state is State.PREPARE_COMMIT:
            counters.committed += 1
        else:
            counters.aborted += 1
        counters.completion_ms += now.monotonic_ms - transaction.prepared_ms
        transaction.complete(now.wall_ms)
        del self._unfinished[transactional_id]
        self._write(transaction, decisions)
        for held in self._waiting.release(transactional_id):
            self._decide(held.token, held.request, held.until_ms, now, decisions)

    def on_markers_written(
        self,
        sent: SendMarkers,
        partitions: Set[TopicPartition],
        now: Moment,
        decisions: Decisions,
        *,
        is_overtaken: bool = False,
    ) -> None:
        """The marker of `sent` is written into these of its partitions, or they need none any more. What is told too
        late, of another transaction, is ignored.

        `is_overtaken`: they have seen a later epoch of the producer, which only this shard could have given it. What
        it wrote then is lost, as all replicas together may lose what is not flushed. The next instance gets a new
        producer id: with this one it would be refused until its epoch has come there again. (Kafka's id stays in its
        Prepare state.)
        """
        transaction = self._transactions.get(sent.transactional_id)
        if transaction is None or transaction.state not in PREPARED or transaction.serial != sent.serial:
            return
        if is_overtaken:
            log.warning("partitions know a later epoch of a producer than its coordinator, whose log has lost records:"
                        " the transactional id gets a new producer id", transactional_id=sent.transactional_id,
                        epoch=transaction.epoch, partitions=[str(one) for one in sorted(partitions)])  # fmt: skip
            transaction.is_overtaken = True
        transaction.partitions -= partitions
        if not transaction.partitions:
            self._go_on(transaction, now, decisions)

    def on_topics_deleted(self, names: Collection[str], now: Moment, decisions: Decisions) -> None:
        """Their partitions leave all open transactions. Of one that ends, who writes its markers tells that they need
        none: as long as one may be on its way, to a new topic of the name too, no other transaction begins."""
        for transactional_id in self._unfinished:
            transaction = self._transactions[transactional_id]
            if transaction.state is not State.ONGOING:
                continue
            gone = {partition for partition in transaction.partitions if partition.topic in names}
            if gone:
                transaction.partitions -= gone
                self._write(transaction, decisions)

    # -- time

    def _set_timeout(self, transaction: Transaction, now: Moment) -> None:
        transactional_id = transaction.transactional_id
        left_ms = min(_left_ms(transaction, now), transaction.timeout_ms)  # clocks of coordinators differ
        at_ms = now.monotonic_ms + max(left_ms, 0)
        self.timers.set(_timeout(transactional_id), at_ms, partial(self._on_timeout, transactional_id))

    def _on_timeout(self, transactional_id: str, now: Moment, decisions: Decisions) -> None:
        """Its producer may go on with InitProducerId, since nobody took the id from it (KIP-588)."""
        transaction = self._transactions[transactional_id]
        self._context.counters.timed_out += 1
        self._fence(transaction, transaction.producer, now, decisions)
        self._go_on(transaction, now, decisions)

    def _set_expiry(self, after_ms: int, now: Moment) -> None:
        self.timers.set(_EXPIRY, now.monotonic_ms + after_ms, self._expire)

    def _expire(self, now: Moment, decisions: Decisions) -> None:
        """One step of a round over all ids: those that were not used for long are forgotten."""
        if not self._to_look_at:
            self._to_look_at = list(self._transactions)
        before_ms = now.wall_ms - self._context.settings.id_expiration_ms
        step, self._to_look_at = self._to_look_at[-EXPIRY_STEP:], self._to_look_at[:-EXPIRY_STEP]
        for transactional_id in step:
            transaction = self._transactions.get(transactional_id)
            if (
                transaction is not None
                and transaction.state in COMES_FROM[State.DEAD]
                and transaction.updated_ms <= before_ms
            ):
                del self._transactions[transactional_id]
                self._context.counters.expired_ids += 1
                decisions.write(transactional_id, records.tombstone(transactional_id))
        interval_ms = self._context.settings.id_expiration_check_interval_ms
        self._set_expiry(0 if self._to_look_at else interval_ms, now)

    # -- the table

    def _keep(self, transaction: Transaction) -> None:
        self._transactions[transaction.transactional_id] = transaction
        if transaction.is_at_rest:
            self._unfinished.pop(transaction.transactional_id, None)
        else:
            self._unfinished[transaction.transactional_id] = None

    def _record(self, transaction: Transaction) -> Record:
        version = self._context.transaction_version()
        return records.encode(transaction.transactional_id, transaction.to_value(), version)

    def _fits(self, record: Record) -> bool:
        """Whether the largest batch that this transaction needs can be appended."""
        size_bytes = _RECORD_OVERHEAD_BYTES + len(record.key) + len(record.value or b"")
        return size_bytes <= self._context.record_max_bytes

    def _write(self, transaction: Transaction, decisions: Decisions) -> None:
        decisions.write(transaction.transactional_id, self._record(transaction))

    def states(self) -> Iterator[str]:
        """The state of each transactional id by Kafka's name, for metrics. Who reads them may stop in between, though
        ids come and go."""
        return (transaction.state.kafka_name for transaction in list(self._transactions.values()))

    @property
    def waiting(self) -> int:
        """Requests that wait for the markers of the transaction before them."""
        return len(self._waiting)

    @property
    def oldest_open_since_ms(self) -> int | None:
        """Wall time when the oldest transaction that is open or ends was begun; None where there is none."""
        return min((self._transactions[one].started_ms for one in self._unfinished), default=None)


def _ending(transaction: Transaction, asked: EndTransaction) -> Ending | ErrorCode:
    """What EndTxn comes to, or why its sender is refused."""
    bumps = asked.transaction_version >= BUMPING_VERSION
    if asked.producer == transaction.continues_as:
        if bumps or (transaction.state in PREPARED and transaction.client_version >= BUMPING_VERSION):
            return ending_that_bumps_epoch(transaction.state, asked.is_commit, Claim.CURRENT)
        return ending_that_keeps_epoch(transaction.state, asked.is_commit)
    if bumps and asked.producer == transaction.ended_by:
        return ending_that_bumps_epoch(transaction.state, asked.is_commit, Claim.RETRY)
    if asked.producer.producer_id != transaction.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.PRODUCER_FENCED


def _refused(asked: InitProducer | AddPartitions | EndTransaction, code: ErrorCode) -> Any:
    if isinstance(asked, InitProducer):
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    if isinstance(asked, EndTransaction):
        return EndTxnResponse(error_code=code)
    return dict.fromkeys(sorted(asked.partitions), code)


def _unknown(transactional_id: str) -> ErrorCode:
    return ErrorCode.INVALID_PRODUCER_ID_MAPPING if transactional_id else ErrorCode.INVALID_REQUEST


def _initialized(transaction: Transaction) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=transaction.producer_id, producer_epoch=transaction.epoch)


def _ended(transaction: Transaction) -> EndTxnResponse:
    producer_id, epoch = transaction.continues_as
    return EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)


def _open_ms(transaction: Transaction, now: Moment) -> int:
    """How long a transaction has been open, ending included; -1 where there is none."""
    return -1 if transaction.is_at_rest else max(now.wall_ms - transaction.started_ms, 0)


def _left_ms(transaction: Transaction, now: Moment) -> int:
    return transaction.started_ms + transaction.timeout_ms - now.wall_ms


def _timeout(transactional_id: str) -> tuple[str, str]:
    return "a transaction is open", transactional_id


_DECISIONS: Final[Mapping[type, Callable[..., Any]]] = {
    InitProducer: TransactionShard._initialize,
    AddPartitions: TransactionShard._add,
    EndTransaction: TransactionShard._end,
}
"""Who decides on what."""
