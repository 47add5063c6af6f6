"""What the shard of transactions is asked, what it answers, and what it has done elsewhere."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from kraft.coordinator.shard import ProducerIdAndEpoch
from partitions.topic_partition import TopicPartition


class InitProducer(NamedTuple):
    """Replied to with an InitProducerIdResponse, or with ProducerIdNeeded."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdAndEpoch | None
    """The incarnation that the producer says it has (KIP-360); None for a new instance, which fences older ones."""
    new_producer_id: int | None
    """A producer id that nobody has, in case one is needed."""


class AddPartitions(NamedTuple):
    """Replied to with a dict[TopicPartition, ErrorCode] of all partitions asked for."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]
    verify_only: bool
    """Whether the partitions are only looked for in the open transaction."""
    transaction_version: int
    waits: bool = True
    """Whether it is held while markers are written. Brokers that ask for several transactions in one request are
    told CONCURRENT_TRANSACTIONS instead: one that ends slowly must not hold up the others."""


class EndTransaction(NamedTuple):
    """Replied to with an EndTxnResponse, or with ProducerIdNeeded."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    is_commit: bool
    transaction_version: int
    """2 bumps the epoch (EndTxn from version 5), lower ones keep it."""
    new_producer_id: int | None


class DescribeTransaction(NamedTuple):
    """Replied to with a DescribedTransaction."""

    transactional_id: str


class ListTransactions(NamedTuple):
    """Replied to with Listed, or with INVALID_REGULAR_EXPRESSION; an empty filter lets all through."""

    states: tuple[str, ...]
    producer_ids: frozenset[int]
    duration_ms: int
    """Only those that have been open for longer; below zero for all."""
    pattern: str | None
    """RE2; a whole transactional id must match (KIP-1152)."""


TransactionRequest: TypeAlias = (
    InitProducer | AddPartitions | EndTransaction | DescribeTransaction | ListTransactions
)


class ProducerIdNeeded(NamedTuple):
    """The answer to a request that needs a fresh producer id and brought none: it is to be asked again with one."""


class EndMarker(NamedTuple):
    """A marker without the coordinator's epoch, which is that of the leadership that sends it."""

    producer: ProducerIdAndEpoch
    is_commit: bool
    transaction_version: int
    """By which rules the marker's epoch is judged (KIP-1228)."""


class SendMarkers(NamedTuple):
    """Effect: the marker is to be written into the partitions, however long it takes. It may be issued anew for
    partitions that it was issued for before; what is there already is success.

    Who wrote markers hands the effect back to `TransactionShard.on_markers_written`, which tells by `serial` whether
    it still is about the transaction that ends now.
    """

    transactional_id: str
    marker: EndMarker
    partitions: frozenset[TopicPartition]
    serial: int
    """Of this transaction's end, in this shard and this process: the same when issued anew by the same loaded shard.
    A larger one of the same transactional id replaces all smaller ones."""
