"""The metrics of transactions, as `kraft.http.metrics` shows them: of those that a broker coordinates, and of what
waits for them in the partitions that it leads.

Names are Kafka's where Kafka tells the same. States are those of transactions that are open or end: a look at them
costs what they are, and not what there are transactional ids. At most `LISTED_MAX` partitions have a series.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

from kraft.broker.replicas.undecided_partitions import StableLag
from kraft.coordinator.transactions.context import TransactionCounters

_BEAN = "kafka_server_transaction_coordinator_metrics_"
_MARKERS = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
_PARTITION = "kafka_cluster_partition_"
_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")


@dataclass(frozen=True, slots=True)
class TransactionsSnapshot:
    """What a scrape shows of transactions on this broker."""

    counters: TransactionCounters
    states: Mapping[str, int]
    """How many transactions are open, and how many end, by their state."""
    transactional_ids: int
    oldest_open_ms: int | None
    """The age of the transaction that is open for longest, or ends; None if there is none."""
    queued_markers: int
    """Transactions whose markers are not all written."""
    active_shards: int
    """Partitions of __transaction_state that are led here, and read."""
    loading_shards: int
    stable_lag: StableLag


def transaction_families(transactions: TransactionsSnapshot) -> Iterator[Metric]:
    """All metrics of transactions."""
    yield from _state_families(transactions)
    yield from _counter_families(transactions.counters)
    yield from _lag_families(transactions.stable_lag)


def _state_families(transactions: TransactionsSnapshot) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        f"{_BEAN}num_partitions",
        "Partitions of __transaction_state that this broker leads.",
        labels=["state"],
    )
    family.add_metric(["active"], transactions.active_shards)
    family.add_metric(["loading"], transactions.loading_shards)
    yield family
    yield GaugeMetricFamily(
        f"{_BEAN}transactional_id_count",
        "Transactional ids that this broker coordinates.",
        value=transactions.transactional_ids,
    )
    family = GaugeMetricFamily(
        f"{_BEAN}transaction_count", "Transactions that are open or end, by their state.", labels=["state"]
    )
    for state in _STATES:
        family.add_metric([state], transactions.states.get(state, 0))
    yield family
    if transactions.oldest_open_ms is not None:
        yield GaugeMetricFamily(
            f"{_BEAN}oldest_open_seconds",
            "The age of the oldest transaction that is open or ends, in seconds.",
            value=transactions.oldest_open_ms / 1000,
        )
    yield GaugeMetricFamily(
        f"{_MARKERS}queued",
        "Transactions whose markers are not all written.",
        value=transactions.queued_markers,
    )


def _counter_families(counters: TransactionCounters) -> Iterator[Metric]:
    for name, text, value in (
        ("committed", "Transactions whose commit is complete.", counters.committed),
        ("aborted", "Transactions whose abort is complete.", counters.aborted),
        (
            "timed_out",
            "Transactions that were aborted since they were open for too long.",
            counters.timed_out,
        ),
        (
            "fenced",
            "Transactions that were aborted since another instance took their transactional id.",
            counters.fenced,
        ),
        ("expired_ids", "Transactional ids that expired.", counters.expired_ids),
        ("concurrent", "Requests that were told CONCURRENT_TRANSACTIONS.", counters.concurrent),
    ):
        yield CounterMetricFamily(_BEAN + name, text, value=value)
    family = SummaryMetricFamily(
        f"{_BEAN}completion_time_ms",
        "How long an end took, in ms: from its decision until all markers were written.",
    )
    family.add_metric([], counters.committed + counters.aborted, counters.completion_ms)
    yield family


def _lag_families(lag: StableLag) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        f"{_PARTITION}laststableoffsetlag",
        "Records that readers of what is committed wait for, in partitions led here where there are any.",
        labels=["topic", "partition"],
    )
    for key, records in lag.listed:
        family.add_metric([key.topic, str(key.partition)], records)
    yield family
    yield GaugeMetricFamily(
        f"{_PARTITION}laststableoffsetlag_partitions",
        "Partitions led here where there are any.",
        value=lag.partitions,
    )
    yield GaugeMetricFamily(
        f"{_PARTITION}laststableoffsetlag_max", "The most of one partition.", value=lag.max_records
    )
