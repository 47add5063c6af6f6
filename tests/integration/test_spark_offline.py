"""The connector's reads of a real cluster's data directories, once its brokers are stopped; no JVM."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("pyspark")

from confluent_kafka import Producer

from kraft.spark.data_loss import LossPolicy
from kraft.spark.offline.cluster import plan_offline, read_offline
from kraft.spark.offline.directories import DirectoryInUseError
from kraft.spark.options import parse_options
from tests.support.real_clients import QUIET
from tests.support.threaded_cluster import ThreadedCluster

CALL_S = 90.0
PLAIN, PER_TRANSACTION, TRANSACTIONS = 3000, 20, 6


def read(directories: list[str], topic: str, level: str) -> list[str]:
    options = parse_options(
        {
            "path": ",".join(directories),
            "subscribe": topic,
            "kafka.isolation.level": level,
            "maxRecordsPerPartition": "500",
        }
    )
    slices = plan_offline(options, LossPolicy())
    batches = [batch for one in slices for batch in read_offline(options, LossPolicy(), one)]
    return sorted(value.as_py().decode() for batch in batches for value in batch["value"])


def test_everything_that_was_acknowledged_is_read_from_stopped_brokers(own_cluster: ThreadedCluster) -> None:
    topic = own_cluster.create_topic("stopped", 3, segment_bytes="100000", compression_type="producer")
    producer = Producer({"bootstrap.servers": own_cluster.bootstrap, "compression.type": "lz4", **QUIET})
    committed = {f"plain {number:05d}" + "x" * 100 for number in range(PLAIN)}
    for value in sorted(committed):
        producer.produce(topic, value, key=value)
    assert producer.flush(CALL_S) == 0
    aborted: set[str] = set()
    writer = Producer({"bootstrap.servers": own_cluster.bootstrap, "transactional.id": topic, **QUIET})
    writer.init_transactions(CALL_S)
    for transaction in range(TRANSACTIONS):
        writer.begin_transaction()
        values = {f"transaction {transaction}, {number}" for number in range(PER_TRANSACTION)}
        for value in sorted(values):
            writer.produce(topic, value, key=value)
        assert writer.flush(CALL_S) == 0
        if transaction % 2:
            writer.abort_transaction(CALL_S)
            aborted |= values
        else:
            writer.commit_transaction(CALL_S)
            committed |= values
    directories = [
        str(own_cluster.cluster.data_directory(node)) for node in sorted(own_cluster.cluster.nodes)
    ]

    with pytest.raises(DirectoryInUseError, match="a running broker uses"):
        read(directories[:1], topic, "read_committed")
    own_cluster.wait_in_sync(topic)
    own_cluster.kill(1)
    own_cluster.stop(2)
    own_cluster.stop(3)
    assert read(directories, topic, "read_committed") == sorted(committed)
    assert read(directories, topic, "read_uncommitted") == sorted(committed | aborted)
    for one in directories[1:]:
        assert read([one], topic, "read_committed") == sorted(committed)

    async def start_all() -> None:
        await asyncio.gather(*(own_cluster.cluster.start_node(node) for node in (1, 2, 3)))

    own_cluster.run(start_all())
    own_cluster.leader(topic)
    with pytest.raises(DirectoryInUseError, match="a running broker uses"):
        read(directories, topic, "read_committed")
