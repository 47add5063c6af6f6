"""The connector's reads of topics with transactions of a real client, on real nodes; no JVM."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")
from confluent_kafka import Producer

from kraft.spark.data_loss import RESTART_STREAM, LossPolicy
from kraft.spark.options import parse_options
from kraft.spark.plan import plan
from kraft.spark.reading import driver_client, read_slice
from kraft.spark.stream_plan import StreamPlanner
from tests.support.node_processes import until
from tests.support.threaded_cluster import ThreadedCluster

CALL_S = 90.0


def transactional(cluster: ThreadedCluster, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(CALL_S)
    return producer


def write(producer: Producer, topic: str, *values: str) -> None:
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(CALL_S) == 0


def test_read_committed_reads_what_was_committed_up_to_the_first_open_transaction(
    shared_cluster: ThreadedCluster,
) -> None:
    topic = shared_cluster.create_topic("transactions")
    one, two = transactional(shared_cluster, f"{topic}-1"), transactional(shared_cluster, f"{topic}-2")
    one.begin_transaction()
    two.begin_transaction()
    write(one, topic, "a1", "a2")
    write(two, topic, "c1")
    write(one, topic, "a3")
    one.abort_transaction(CALL_S)
    write(two, topic, "c2")
    two.commit_transaction(CALL_S)
    one.begin_transaction()
    write(one, topic, "c3")
    one.commit_transaction(CALL_S)
    two.begin_transaction()
    write(two, topic, "open")

    def read(level: str) -> list[str]:
        options = parse_options(
            {
                "kafka.bootstrap.servers": shared_cluster.bootstrap,
                "subscribe": topic,
                "columns": "value",
                "kafka.isolation.level": level,
            }
        )
        with driver_client(options) as client:
            parts = plan(client, options, LossPolicy())
        batches = (batch for part in parts for batch in read_slice(options, LossPolicy(), part))
        return [value.as_py().decode() for batch in batches for value in batch["value"]]

    until(lambda: read("read_committed") == ["c1", "c2", "c3"], "the markers are written")
    assert read("read_uncommitted") == ["a1", "a2", "c1", "a3", "c2", "c3", "open"]
    two.commit_transaction(CALL_S)
    until(lambda: read("read_committed") == ["c1", "c2", "c3", "open"], "the last marker is written")


def test_a_stream_of_committed_records_waits_at_an_open_transaction(shared_cluster: ThreadedCluster) -> None:
    topic = shared_cluster.create_topic("transactions")
    producer = transactional(shared_cluster, topic)
    options = parse_options(
        {
            "kafka.bootstrap.servers": shared_cluster.bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "kafka.isolation.level": "read_committed",
        },
        streaming=True,
    )
    with driver_client(options) as client:
        planner = StreamPlanner(client, options, LossPolicy(advice=RESTART_STREAM))
        start = planner.initial()
        producer.begin_transaction()
        write(producer, topic, "one", "two")
        assert planner.next(start, unlimited=True) is start
        producer.commit_transaction(CALL_S)
        until(lambda: planner.next(start, unlimited=True) is not start, "the marker is written")
        end = planner.next(start, unlimited=True)
        (part,) = planner.slices(start, end)
        assert (part.start, part.end) == (0, 3)  # two records and the marker
        batches = read_slice(options, LossPolicy(), part)
        assert [value.as_py() for batch in batches for value in batch["value"]] == [b"one", b"two"]
        assert planner.next(end, unlimited=True) is end
