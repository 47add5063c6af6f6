"""What the coordinator knows of one transactional id: which incarnation of the producer has it, and its transaction.

The states and their transitions are Kafka's, as a table. Every transition is a method; none decides whether it may be
made, which is the shard's business. (KIP-98, KIP-360, KIP-890.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from kraft.coordinator.shard import ProducerIdAndEpoch
from kraft.coordinator.transactions.records import NO_PRODUCER_ID, PartitionsSchema, TransactionLogValue
from kraft.coordinator.transactions.requests import EndMarker
from partitions.topic_partition import TopicPartition

EPOCH_MAX: Final = 2**15 - 1
"""Only to fence with: no producer ever has this epoch."""
NO_TIMESTAMP: Final = -1
BUMPING_VERSION: Final = 2
"""From this transaction version on the end of every transaction raises the epoch (KIP-890)."""


class State(Enum):
    """Kafka's states, by their names and the numbers that they have in records."""

    EMPTY = (0, "Empty")
    ONGOING = (1, "Ongoing")
    PREPARE_COMMIT = (2, "PrepareCommit")
    PREPARE_ABORT = (3, "PrepareAbort")
    COMPLETE_COMMIT = (4, "CompleteCommit")
    COMPLETE_ABORT = (5, "CompleteAbort")
    DEAD = (6, "Dead")
    """Of an id that expires; here it is gone in the same turn."""
    PREPARE_EPOCH_FENCE = (7, "PrepareEpochFence")
    """Between a fence and the abort of what it fenced; here they are one decision: no fence fails halfway."""

    def __init__(self, number: int, kafka_name: str) -> None:
        self.number = number
        self.kafka_name = kafka_name


_AT_REST: Final = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
COMES_FROM: Final[Mapping[State, frozenset[State]]] = {
    State.EMPTY: _AT_REST,
    State.ONGOING: _AT_REST | {State.ONGOING},
    State.PREPARE_COMMIT: frozenset({State.ONGOING}),
    State.PREPARE_ABORT: _AT_REST | {State.ONGOING},
    State.COMPLETE_COMMIT: frozenset({State.PREPARE_COMMIT}),
    State.COMPLETE_ABORT: frozenset({State.PREPARE_ABORT}),
    State.DEAD: _AT_REST,
    State.PREPARE_EPOCH_FENCE: frozenset({State.ONGOING}),
}
"""From which states each is entered."""
PREPARED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
"""The outcome stands, and the markers are being written."""
STATES_BY_NAME: Final = {state.kafka_name: state for state in State}
_STORED: Final = {
    state.number: state for state in State if state not in (State.DEAD, State.PREPARE_EPOCH_FENCE)
}


@dataclass(slots=True)
class Transaction:
    """One transactional id. Times are wall time in ms, but for `prepared_ms`."""

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: State = State.EMPTY
    partitions: set[TopicPartition] = field(default_factory=set)
    """While it ends: those whose markers are not written yet."""
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    started_ms: int = NO_TIMESTAMP
    updated_ms: int = NO_TIMESTAMP
    client_version: int = 0
    """The transaction version by which the producer added partitions or ended the transaction last."""
    last: ProducerIdAndEpoch | None = None
    """What a retry of the last InitProducerId says it has (KIP-360). The log does not tell it."""
    serial: int = 0
    """Of the end of its transaction, in this process."""
    prepared_ms: int = 0
    """Monotonic time when the outcome was decided, or the shard loaded."""
    is_overtaken: bool = False
    """While it ends: a partition has seen a later epoch of the producer. The log does not tell it."""

    # -- what it tells

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.epoch)

    @property
    def is_at_rest(self) -> bool:
        """Whether there is no transaction."""
        return self.state in _AT_REST

    @property
    def is_exhausted(self) -> bool:
        """Whether the epoch can only be raised once more, to fence."""
        return self.epoch >= EPOCH_MAX - 1

    @property
    def continues_as(self) -> ProducerIdAndEpoch:
        """What its producer has once the transaction, if there is one that ends, has ended."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdAndEpoch(self.next_producer_id, 0)
        return self.producer

    @property
    def ended_by(self) -> ProducerIdAndEpoch | None:
        """The incarnation whose EndTxn is a retry, since the end of its transaction raised the epoch (KIP-890). None
        where there is none: after a lower version, and where an exhausted producer was fenced."""
        if self.client_version < BUMPING_VERSION or self.state in (State.EMPTY, State.ONGOING):
            return None
        if self.state not in PREPARED and self.epoch == 0:
            return ProducerIdAndEpoch(self.previous_producer_id, EPOCH_MAX - 1)
        if self.continues_as.epoch == EPOCH_MAX:
            return None
        return ProducerIdAndEpoch(self.producer_id, self.epoch - 1)

    @property
    def marker(self) -> EndMarker:
        """Of the transaction that ends."""
        return EndMarker(self.producer, self.state is State.PREPARE_COMMIT, self.client_version)

    # -- transitions

    def initialize(
        self, producer: ProducerIdAndEpoch, last: ProducerIdAndEpoch | None, timeout_ms: int, wall_ms: int
    ) -> None:
        """An instance of the producer begins, or goes on with another epoch."""
        self._enter(State.EMPTY, wall_ms)
        self.producer_id, self.epoch = producer
        self.last = last
        self.timeout_ms = timeout_ms
        self.started_ms = NO_TIMESTAMP

    def add(self, partitions: Iterable[TopicPartition], transaction_version: int, wall_ms: int) -> None:
        """Opens a transaction where none is open."""
        if self.state is not State.ONGOING:
            self.started_ms = wall_ms
        self._enter(State.ONGOING, wall_ms)
        self.partitions.update(partitions)
        self.client_version = transaction_version

    def prepare(
        self, state: State, transaction_version: int, next_producer_id: int | None, wall_ms: int
    ) -> None:
        """The producer ends its transaction; where none is open it is an abort, of nothing."""
        if self.state is not State.ONGOING:
            self.started_ms = wall_ms
        self._enter(state, wall_ms)
        if transaction_version >= BUMPING_VERSION:
            self.last = self.producer
            self.epoch += 1
            self.next_producer_id = NO_PRODUCER_ID if next_producer_id is None else next_producer_id
        self.client_version = transaction_version

    def fence(self, expected: ProducerIdAndEpoch | None, transaction_version: int, wall_ms: int) -> None:
        """Aborts the open transaction with an epoch that nobody has; `expected` is who asked for it, if that is the
        producer that has it open, and may go on afterwards."""
        self._enter(State.PREPARE_ABORT, wall_ms)
        self.last = expected
        self.epoch = min(self.epoch + 1, EPOCH_MAX)
        self.client_version = transaction_version

    def complete(self, wall_ms: int) -> None:
        """All markers are written."""
        is_commit = self.state is State.PREPARE_COMMIT
        producer = self.continues_as
        self._enter(State.COMPLETE_COMMIT if is_commit else State.COMPLETE_ABORT, wall_ms)
        self.producer_id, self.epoch = producer
        if self.is_overtaken and self.next_producer_id == NO_PRODUCER_ID:
            self.last, self.epoch = producer, EPOCH_MAX
        self.is_overtaken = False
        self.next_producer_id = NO_PRODUCER_ID
        self.partitions.clear()

    def _enter(self, state: State, wall_ms: int) -> None:
        assert self.state in COMES_FROM[state], f"{self.state.kafka_name} does not lead to {state.kafka_name}"
        self.previous_producer_id = self.producer_id
        self.state = state
        self.updated_ms = wall_ms

    # -- records

    def to_value(self) -> TransactionLogValue:
        """What is recorded of it."""
        return TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=self.next_producer_id,
            producer_epoch=self.epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state.number,
            transaction_partitions=None
            if self.state is State.EMPTY
            else [PartitionsSchema(topic, numbers) for topic, numbers in by_topic(self.partitions)],
            transaction_last_update_timestamp_ms=self.updated_ms,
            transaction_start_timestamp_ms=self.started_ms,
            client_transaction_version=self.client_version,
        )

    @classmethod
    def of_value(cls, transactional_id: str, value: TransactionLogValue) -> Transaction:
        """Raises ValueError for a state that no record has."""
        state = _STORED.get(value.transaction_status)
        if state is None:
            raise ValueError(f"{value.transaction_status} is not the state of a transaction")
        return cls(
            transactional_id=transactional_id,
            producer_id=value.producer_id,
            epoch=value.producer_epoch,
            timeout_ms=value.transaction_timeout_ms,
            state=state,
            partitions={
                TopicPartition(listed.topic, number)
                for listed in value.transaction_partitions or ()
                for number in listed.partition_ids
            },
            previous_producer_id=value.previous_producer_id,
            next_producer_id=value.next_producer_id,
            started_ms=value.transaction_start_timestamp_ms,
            updated_ms=value.transaction_last_update_timestamp_ms,
            client_version=value.client_transaction_version,
        )


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    """The partitions' numbers by topic, in order."""
    grouped: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        grouped.setdefault(topic, []).append(number)
    return list(grouped.items())
