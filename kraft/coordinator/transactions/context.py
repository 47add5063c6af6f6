"""What all transactions of a shard share: settings, timers, counters, the level of transaction.version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kraft.coordinator.shard import ShardTimers


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The keys of server.properties that transactions go by; names and defaults are Kafka's."""

    max_timeout_ms: int = 900_000
    """transaction.max.timeout.ms."""
    id_expiration_ms: int = 604_800_000
    """transactional.id.expiration.ms."""
    id_expiration_check_interval_ms: int = 3_600_000
    """transaction.remove.expired.transaction.cleanup.interval.ms."""
    ids_max: int = 100_000
    """transaction.coordinator.ids.max, of one shard."""
    markers_wait_ms: int = 100
    """How long a request waits for the markers of the transaction before it, until CONCURRENT_TRANSACTIONS."""
    waiting_per_id_max: int = 16
    """Requests of one transactional id that may wait so."""
    waiting_max: int = 10_000
    """Requests of one shard that may wait so."""
    record_max_bytes: int = 1_048_588
    """message.max.bytes, by which the internal topic goes unless it has a limit of its own."""


@dataclass(slots=True)
class TransactionCounters:
    """Counted since the start, for metrics; one object for all shards of a broker."""

    committed: int = 0
    """Transactions whose commit is complete."""
    aborted: int = 0
    """Transactions whose abort is complete, for whatever reason."""
    timed_out: int = 0
    """Transactions that were aborted because they were open for too long."""
    fenced: int = 0
    """Transactions that were aborted because another instance took their transactional id."""
    completion_ms: int = 0
    """The sum of the times from the decision to end a transaction until all its markers were written; of those of
    `committed` and `aborted`."""
    expired_ids: int = 0
    concurrent: int = 0
    """Requests that were told CONCURRENT_TRANSACTIONS."""


@dataclass(frozen=True, slots=True)
class TransactionContext:
    """One for each shard."""

    settings: TransactionSettings
    timers: ShardTimers
    counters: TransactionCounters
    serials: Iterator[int]
    """Counts up, never back; one for all shards of a broker."""
    transaction_version: Callable[[], int]
    """The finalized level of the feature transaction.version."""
    topic_max_bytes: Callable[[], int | None] = lambda: None
    """max.message.bytes of the internal topic as it is now; None where that is not known."""

    @property
    def record_max_bytes(self) -> int:
        """What would need a larger record is refused: an append that fails costs all ids their shard."""
        topic_max_bytes = self.topic_max_bytes()
        return self.settings.record_max_bytes if topic_max_bytes is None else topic_max_bytes
