"""The metrics of transactions, as text."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from kraft.broker.replicas.undecided_partitions import StableLag
from kraft.coordinator.transactions.context import TransactionCounters
from kraft.http.transaction_metrics import TransactionsSnapshot, transaction_families
from partitions.topic_partition import TopicPartition

BEAN = "kafka_server_transaction_coordinator_metrics_"
LAG = "kafka_cluster_partition_laststableoffsetlag"


def samples(snapshot: TransactionsSnapshot) -> dict[str, float]:
    """By name, and the values of labels."""

    class One(Collector):
        def collect(self):  # type: ignore[no-untyped-def]
            return transaction_families(snapshot)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(One())
    return {
        sample.name + "".join(f"{{{value}}}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


def test_what_is_open_and_how_long_ends_take() -> None:
    counters = TransactionCounters(committed=3, aborted=1, timed_out=1, completion_ms=60)
    lag = StableLag([(TopicPartition("t", 2), 7)], 1, 7)
    found = samples(TransactionsSnapshot(counters, {"Ongoing": 2}, 9, 1_500, 4, 50, 1, lag))
    assert found[BEAN + "transaction_count{Ongoing}"] == 2
    assert found[BEAN + "transaction_count{PrepareCommit}"] == 0
    assert found[BEAN + "transactional_id_count"] == 9
    assert found[BEAN + "oldest_open_seconds"] == 1.5
    assert found[BEAN + "committed_total"] == 3
    assert found[BEAN + "completion_time_ms_count"] == 4
    assert found[BEAN + "completion_time_ms_sum"] == 60
    assert found["kafka_coordinator_transaction_transactionmarkerchannelmanager_queued"] == 4
    assert found[f"{LAG}{{2}}{{t}}"] == 7


def test_nothing_is_open() -> None:
    found = samples(TransactionsSnapshot(TransactionCounters(), {}, 0, None, 0, 50, 0, StableLag([], 0, 0)))
    assert BEAN + "oldest_open_seconds" not in found
    assert [name for name in found if name.startswith(LAG + "{")] == [], "only where it is above zero"
    assert found[LAG + "_partitions"] == found[LAG + "_max"] == 0
