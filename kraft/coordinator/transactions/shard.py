"""The shard of transactions: one partition of __transaction_state as a state machine.

Pure; hosted by `kraft.coordinator.runtime`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Set

from kraft.coordinator.shard import Decisions, Moment, ShardTimers, StoredMarker, StoredRecord
from kraft.coordinator.transactions.context import TransactionContext
from kraft.coordinator.transactions.requests import (
    AddPartitions as AddPartitions,
)
from kraft.coordinator.transactions.requests import (
    DescribeTransaction as DescribeTransaction,
)
from kraft.coordinator.transactions.requests import (
    EndTransaction as EndTransaction,
)
from kraft.coordinator.transactions.requests import (
    InitProducer as InitProducer,
)
from kraft.coordinator.transactions.requests import (
    ListTransactions as ListTransactions,
)
from kraft.coordinator.transactions.requests import (
    ProducerIdNeeded as ProducerIdNeeded,
)
from kraft.coordinator.transactions.requests import (
    SendMarkers as SendMarkers,
)
from kraft.coordinator.transactions.requests import TransactionRequest as TransactionRequest
from partitions.topic_partition import TopicPartition


class TransactionShard:
    """The transactional ids of one partition. (A `Shard` of the runtime.)"""

    def __init__(self, context: TransactionContext) -> None:
        self._context = context
        self.timers: ShardTimers = context.timers

    def replay(self, record: StoredRecord) -> None:
        """Takes in a record of the log. One that cannot be read is left out, and logged."""

    def replay_marker(self, marker: StoredMarker) -> None:
        """There are none in this log."""

    def on_replayed(self) -> None:
        """There is nothing to be done before records can be appended."""

    def on_loaded(self, now: Moment, decisions: Decisions) -> None:
        """Issues the markers of transactions that end, and sets the timers of open ones."""

    def handle(self, token: int, request: TransactionRequest, now: Moment, decisions: Decisions) -> None:
        """Decides on one request."""

    def on_markers_written(
        self, sent: SendMarkers, partitions: Set[TopicPartition], now: Moment, decisions: Decisions
    ) -> None:
        """The marker of `sent` is written into these of its partitions, or they need none any more."""

    def on_topics_deleted(self, names: Collection[str], now: Moment, decisions: Decisions) -> None:
        """Their partitions leave all transactions."""

    def states(self) -> Iterator[str]:
        """The state of each transactional id by Kafka's name, for metrics."""
        return iter(())

    @property
    def oldest_open_since_ms(self) -> int | None:
        """Wall time when the oldest transaction that is open or ends was begun; None where there is none."""
        return None
