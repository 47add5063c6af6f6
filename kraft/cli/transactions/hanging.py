"""Transactions that hang: open in a partition, and no coordinator will end them there (KIP-664).

Such a transaction stops the last stable offset for good. It comes of a batch that arrived after its transaction's end,
from a producer whose batches are not verified (KIP-890).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kraft.cli.transactions.transaction_client import ProducersOf, Transaction
from kraft.protocol.schemas.producers import ProducerState
from partitions.topic_partition import TopicPartition


class Open(NamedTuple):
    """A transaction that is open in one partition, as the partition's log has it."""

    key: TopicPartition
    producer: ProducerState

    def age_ms(self, now_ms: int) -> int:
        """Since the producer's last record there."""
        return max(now_ms - self.producer.last_timestamp, 0)


class Hanging(NamedTuple):
    """With what the coordinator of its producer knows, if there is one."""

    open: Open
    holder: Transaction | None


def open_for(producers: ProducersOf, now_ms: int, longer_than_ms: int) -> list[Open]:
    """The open transactions whose last record is older, by partition and start offset."""
    found = [
        Open(key, producer)
        for key, active in producers.found.items()
        for producer in active
        if producer.current_txn_start_offset >= 0
    ]
    return sorted(
        (one for one in found if one.age_ms(now_ms) > longer_than_ms),
        key=lambda one: (one.key, one.producer.current_txn_start_offset),
    )


def hanging(candidates: Iterable[Open], transactions: Mapping[int, Sequence[Transaction]]) -> list[Hanging]:
    """Those that no coordinator ends: it does not know the producer, or not the partition in its transaction.
    `transactions` are by producer id."""
    found = []
    for one in candidates:
        held = transactions.get(one.producer.producer_id, ())
        if not any(one.key in transaction.partitions for transaction in held):
            found.append(Hanging(one, held[0] if held else None))
    return found


def still_open(found: Iterable[Hanging], producers: ProducersOf) -> list[Hanging]:
    """Those that are in the logs at a later look: the coordinator may have ended one between the first look and what it
    said of it."""
    now = {
        (one.key, one.producer.producer_id, one.producer.current_txn_start_offset)
        for one in open_for(producers, 0, -1)
    }
    return [
        one
        for one in found
        if (one.open.key, one.open.producer.producer_id, one.open.producer.current_txn_start_offset) in now
    ]
