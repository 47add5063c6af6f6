"""A compacted topic, written and read by a real client: in the end each key has one value."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ClientPartition

from tests.support.node_processes import until
from tests.support.real_clients import QUIET, confluent_consumer, is_passing
from tests.support.threaded_cluster import ThreadedCluster, threaded_cluster

KEYS = 40
ROUNDS = 25
DELETED = {b"k%d" % number for number in range(0, KEYS, 4)}
CLEANING = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.io.buffer.size": "4096",
    "log.cleaner.dedupe.buffer.size": "1048576",
}


@pytest.fixture
def cleaning_cluster() -> Iterator[ThreadedCluster]:
    with threaded_cluster(properties=CLEANING) as running:
        yield running


def produce(running: ThreadedCluster, topic: str, records: list[tuple[bytes, bytes | None]]) -> None:
    """Small batches, all acknowledged."""
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": running.bootstrap, "enable.idempotence": True, **QUIET})

    def on_delivery(error: object, _message: object) -> None:
        if error is not None:
            failures.append(error)

    for number, (key, value) in enumerate(records):
        producer.produce(topic, value, key, partition=0, on_delivery=on_delivery)
        if number % 20 == 19:
            producer.flush(60)
    assert producer.flush(60) == 0
    assert failures == []


def read_all(running: ThreadedCluster, topic: str) -> list[tuple[int, bytes, bytes | None]]:
    """Every record of the partition: offset, key, value."""
    consumer = confluent_consumer(running.bootstrap, **{"enable.partition.eof": True})
    try:
        _, end = consumer.get_watermark_offsets(ClientPartition(topic, 0), timeout=60)
        consumer.assign([ClientPartition(topic, 0, 0)])
        found: list[tuple[int, bytes, bytes | None]] = []
        while True:
            message = consumer.poll(90)
            assert message is not None
            if is_passing(message.error()):
                continue
            if message.error():
                assert message.offset() >= end
                return found
            found.append((message.offset(), message.key(), message.value()))
    finally:
        consumer.close()


def test_each_key_has_one_value_in_the_end(cleaning_cluster: ThreadedCluster) -> None:
    """On every replica, also on one that was away, and after a change of the leader."""
    running = cleaning_cluster
    topic = running.create_topic(
        "table",
        cleanup_policy="compact",
        segment_bytes="2000",
        min_cleanable_dirty_ratio="0.01",
        delete_retention_ms="0",
    )
    away = next(node for node in running.cluster.ports if node != running.leader(topic))
    running.stop(away)
    records: list[tuple[bytes, bytes | None]] = [
        (b"k%d" % key, b"%d of %d" % (number, key)) for number in range(ROUNDS) for key in range(KEYS)
    ]
    produce(running, topic, records + [(key, None) for key in sorted(DELETED)])
    running.start(away)
    expected = {key: value for key, value in records[-KEYS:] if key not in DELETED}
    written = 0

    def is_clean() -> bool:
        """What is not in the active segment; another record makes it a little longer each time."""
        nonlocal written
        produce(running, topic, [(b"filler", b"x" * 100)] * 15)
        written += 15
        found = [(key, value) for _, key, value in read_all(running, topic) if key != b"filler"]
        assert {key: value for key, value in dict(found).items() if value is not None} == expected
        return len(found) == len(expected)

    until(is_clean, "each key has one value")
    running.wait_in_sync(topic)
    last = len(records) + len(DELETED) + written - 1
    assert read_all(running, topic)[-1][0] == last
    running.stop(running.leader(topic))
    until(lambda: running.leader(topic), "there is a new leader")
    table = {
        key: value for _, key, value in read_all(running, topic) if value is not None and key != b"filler"
    }
    assert table == expected
