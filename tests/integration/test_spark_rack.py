"""The connector reads from the follower in its rack, exactly once over what happens to it; no JVM."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")
import pyarrow as pa
from confluent_kafka import Producer

from kraft.spark.data_loss import LossPolicy
from kraft.spark.options import ReadOptions, parse_options
from kraft.spark.plan import plan
from kraft.spark.reading import driver_client, read_slice
from partitions.replica_selector import RACK_AWARE_SELECTOR
from tests.support.real_clients import QUIET
from tests.support.threaded_cluster import ThreadedCluster, threaded_cluster

RACKS = {1: "left", 2: "middle", 3: "right"}
RECORDS, SIZE_BYTES = 300, 100_000


@pytest.fixture(scope="module")
def running() -> Iterator[ThreadedCluster]:
    with threaded_cluster(properties={"replica.selector.class": RACK_AWARE_SELECTOR}, racks=RACKS) as cluster:
        yield cluster


@pytest.fixture
def topic(running: ThreadedCluster) -> str:
    """About 30 MB in one partition, transactions among them, on all three nodes."""
    name = running.create_topic("near")
    settings = {"bootstrap.servers": running.bootstrap, "transactional.id": name, **QUIET}
    producer = Producer(settings)
    producer.init_transactions(90)
    for first in range(0, RECORDS, 100):
        for aborted in (True, False):
            producer.begin_transaction()
            for number in range(first, first + 100):
                value = b"%08d" % number if not aborted else b"aborted."
                producer.produce(name, value.ljust(SIZE_BYTES if not aborted else 100, b"."))
            if aborted:
                producer.flush(90)
                producer.abort_transaction(90)
            else:
                producer.commit_transaction(90)
    running.wait_in_sync(name)
    return name


def options_for(running: ThreadedCluster, topic: str, rack: str) -> ReadOptions:
    return parse_options(
        {
            "kafka.bootstrap.servers": running.bootstrap,
            "subscribe": topic,
            "columns": "value",
            "kafka.isolation.level": "read_committed",
            "kafka.client.rack": rack,
        }
    )


def batches(options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Of the one slice."""
    with driver_client(options) as client:
        (part,) = plan(client, options, LossPolicy())
    yield from read_slice(options, LossPolicy(), part)


def numbers(found: list[pa.RecordBatch]) -> list[int]:
    return [int(value[:8]) for batch in found for value in batch["value"].to_pylist()]


def bytes_out(running: ThreadedCluster) -> dict[int, int]:
    """What each broker has sent to consumers so far."""
    return {
        node_id: node.broker.metrics.bytes_out
        for node_id, node in running.cluster.nodes.items()
        if node.broker is not None
    }


def test_every_rack_reads_from_its_own_node(running: ThreadedCluster, topic: str) -> None:
    for node_id, rack in RACKS.items():
        before = bytes_out(running)
        assert numbers(list(batches(options_for(running, topic, rack)))) == list(range(RECORDS))
        sent = {other: size - before[other] for other, size in bytes_out(running).items()}
        assert sent[node_id] >= RECORDS * SIZE_BYTES
        assert sum(sent.values()) - sent[node_id] < 2 * 4_200_000  # at most a fetch where the follower lagged


def test_exactly_once_when_the_node_of_the_rack_goes_and_when_the_leader_does(
    running: ThreadedCluster, topic: str
) -> None:
    leader = running.leader(topic)
    near = next(node_id for node_id in RACKS if node_id != leader)
    for gone in (near, leader):
        reading = batches(options_for(running, topic, RACKS[near]))
        found = [next(reading)]
        running.kill(gone)
        found += reading
        assert numbers(found) == list(range(RECORDS))
        running.start(gone)
        running.wait_in_sync(topic)
