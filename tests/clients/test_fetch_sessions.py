"""A real consumer with fetch sessions: kafka-python keeps one a broker (KIP-227)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.support.node_processes import NodeProcesses, until
from tests.support.real_clients import QUIET

PARTITIONS = 12


class Reading:
    """A kafka-python consumer of all partitions of a topic, and what it got."""

    def __init__(self, cluster: NodeProcesses, topic: str) -> None:
        from kafka import KafkaConsumer

        self.topic = topic
        self.got: dict[int, list[bytes]] = defaultdict(list)
        self.consumer: Any = KafkaConsumer(
            bootstrap_servers=cluster.bootstrap.split(","),
            enable_auto_commit=False,
            group_id=None,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=200,
        )
        self.consumer.assign(self.partitions(range(PARTITIONS)))

    def partitions(self, numbers: Iterator[int] | range) -> list[Any]:
        from kafka import TopicPartition

        return [TopicPartition(self.topic, number) for number in numbers]

    def poll(self) -> None:
        for records in self.consumer.poll(timeout_ms=200).values():
            for record in records:
                assert record.offset == len(self.got[record.partition]), "a record lost or doubled"
                self.got[record.partition].append(record.value)

    def has(self, expected: dict[int, list[bytes]]) -> bool:
        self.poll()
        return all(self.got[number] == values for number, values in expected.items())

    def session_epochs(self) -> list[int]:
        """How far the sessions with all brokers are."""
        handlers = self.consumer._fetcher._session_handlers.values()
        return [handler.next_metadata.epoch for handler in handlers]


@pytest.fixture
def topic(cluster: NodeProcesses) -> str:
    return cluster.create_topic("sessions", PARTITIONS, min_insync_replicas="2")


@pytest.fixture
def reading(cluster: NodeProcesses, topic: str) -> Iterator[Reading]:
    made = Reading(cluster, topic)
    yield made
    made.consumer.close()


def produce(cluster: NodeProcesses, topic: str, values: dict[int, bytes]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **QUIET})
    for number, value in values.items():
        producer.produce(topic, value, partition=number)
    assert producer.flush(90) == 0


def test_a_consumer_reads_everything_through_its_sessions(
    cluster: NodeProcesses, topic: str, reading: Reading
) -> None:
    expected: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
    for round_ in range(6):
        values = {number: b"%d/%d" % (number, round_) for number in range(round_ % 3, PARTITIONS, 1 + round_)}
        produce(cluster, topic, values)
        for number, value in values.items():
            expected[number].append(value)
        until(lambda: reading.has(expected), "all that was produced is read")
    assert min(reading.session_epochs()) > 2, "each of them went on, request by request"


def test_a_partition_that_was_paused_is_read_on(cluster: NodeProcesses, topic: str, reading: Reading) -> None:
    produce(cluster, topic, dict.fromkeys(range(PARTITIONS), b"before"))
    until(lambda: reading.has({key: [b"before"] for key in range(PARTITIONS)}), "the first is read")
    paused = reading.partitions(range(0, PARTITIONS, 2))
    reading.consumer.pause(*paused)
    produce(cluster, topic, dict.fromkeys(range(PARTITIONS), b"meanwhile"))
    others = {key: [b"before", b"meanwhile"] for key in range(1, PARTITIONS, 2)}
    until(lambda: reading.has(others), "the others go on")
    assert all(reading.got[partition.partition] == [b"before"] for partition in paused)
    reading.consumer.resume(*paused)
    everything = {key: [b"before", b"meanwhile"] for key in range(PARTITIONS)}
    until(lambda: reading.has(everything), "all is read")
