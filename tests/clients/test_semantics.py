"""Acknowledgements, positions and offsets, as each client asks for them."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from tests.support.node_processes import NodeProcesses, until
from tests.support.raw_client import RawConnection
from tests.support.real_clients import CLIENTS, QUIET, Client, How, confluent_consumer, run_kcat

VALUES = [b"value %d" % number for number in range(300)]
FIRST_MS, STEP_MS = 1_700_000_000_000, 1000
"""The records of `timed_topic` carry these timestamps: record n was made at FIRST_MS + n * STEP_MS."""
TIMED = 50


def name_of(client: Client) -> str:
    return client.name


def end_offset(cluster: NodeProcesses, topic: str, partition: int = 0) -> int:
    wanted = TopicPartition(topic, partition)
    result = cluster.admin.list_offsets({wanted: OffsetSpec.latest()})[wanted].result(60)
    return int(result.offset)


# -- acknowledgements


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("client", CLIENTS, ids=name_of)
def test_acks(client: Client, acks: str, cluster: NodeProcesses) -> None:
    topic = cluster.create_topic("acks", 2, min_insync_replicas="2")
    lines = {0: VALUES, 1: VALUES[:7]}
    client.produce(cluster.bootstrap, topic, lines, How(acks=acks))
    # acks=0 has told nobody that the records arrived.
    until(lambda: (end_offset(cluster, topic, 0), end_offset(cluster, topic, 1)) == (300, 7), "all are there")
    assert client.consume(cluster.bootstrap, topic, {0: 300, 1: 7}) == lines


@pytest.mark.parametrize("client", CLIENTS, ids=name_of)
def test_an_idempotent_producer(client: Client, cluster: NodeProcesses) -> None:
    topic = cluster.create_topic("idempotent", min_insync_replicas="2")
    client.produce(cluster.bootstrap, topic, {0: VALUES}, How(idempotent=True))
    assert client.consume(cluster.bootstrap, topic, {0: len(VALUES)}) == {0: VALUES}
    batches = cluster.stored_batches(topic, 0)
    assert all(batch.producer_id >= 0 and batch.producer_epoch >= 0 for batch in batches)
    assert [batch.base_sequence for batch in batches] == [batch.base_offset for batch in batches]


def test_acks_all_is_refused_below_min_insync_replicas(fragile_cluster: NodeProcesses) -> None:
    """acks=1 goes on; acks=all fails, and works again when the replica is back."""
    cluster = fragile_cluster
    topic = cluster.create_topic("min-isr", min_insync_replicas="3")
    victim = next(node for node in cluster.node_ids if node != cluster.leader(topic))
    leader = cluster.leader(topic)
    cluster.local.stop_node(victim)
    with RawConnection(cluster.address(leader)) as connection:
        until(lambda: len(connection.in_sync(topic)) == 2, "the leader knows that a replica is gone")
    assert send_one(cluster, topic, {"acks": "1"}) is None
    error = send_one(cluster, topic, {"acks": "all", "message.timeout.ms": 1500})
    assert error is not None
    cluster.restore()
    assert send_one(cluster, topic, {"acks": "all"}) is None
    assert end_offset(cluster, topic) == 2, "what was refused was not appended"


def send_one(cluster: NodeProcesses, topic: str, settings: Mapping[str, Any]) -> Any:
    """Sends one record; returns the error or None."""
    outcomes: list[Any] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **QUIET, **settings})
    producer.produce(topic, b"x", partition=0, on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(90)
    (outcome,) = outcomes
    return outcome


# -- where consumers start


@pytest.fixture(scope="module")
def timed_topic(cluster: NodeProcesses) -> str:
    """A topic whose one partition has TIMED records, a second apart; several to a batch."""
    topic = cluster.create_topic("timed", partitions=2)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 50, **QUIET})
    for number in range(TIMED):
        producer.produce(topic, VALUES[number], partition=0, timestamp=FIRST_MS + number * STEP_MS)
        if number % 10 == 9:
            producer.flush(60)
    return topic


@pytest.mark.parametrize("client", CLIENTS, ids=name_of)
@pytest.mark.parametrize("start", [0, 1, 17, TIMED - 1])
def test_starting_at_an_offset(start: int, client: Client, cluster: NodeProcesses, timed_topic: str) -> None:
    """Also in the middle of a batch, which is then sent whole."""
    read = client.consume(cluster.bootstrap, timed_topic, {0: TIMED - start}, {0: start})
    assert read == {0: VALUES[start:TIMED]}


Offsets = tuple[dict[int, int | None], int, int]
"""Timestamp → offset (None: there is none), the first offset, the end."""


def confluent_offsets(bootstrap: str, topic: str, timestamps: list[int]) -> Offsets:
    consumer = confluent_consumer(bootstrap)
    try:
        found: dict[int, int | None] = {}
        for timestamp in timestamps:
            (answer,) = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp)], 60)
            found[timestamp] = answer.offset if answer.offset >= 0 else None
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), 60)
        return found, first, end
    finally:
        consumer.close()


def kafka_python_offsets(bootstrap: str, topic: str, timestamps: list[int]) -> Offsets:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap.split(","))
    key = TopicPartition(topic, 0)
    try:
        found = {t: consumer.offsets_for_times({key: t})[key] for t in timestamps}
        first, end = consumer.beginning_offsets([key])[key], consumer.end_offsets([key])[key]
        return {t: None if answer is None else answer.offset for t, answer in found.items()}, first, end
    finally:
        consumer.close()


def aiokafka_offsets(bootstrap: str, topic: str, timestamps: list[int]) -> Offsets:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def ask() -> Offsets:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
        key = TopicPartition(topic, 0)
        await consumer.start()
        try:
            found = {t: (await consumer.offsets_for_times({key: t}))[key] for t in timestamps}
            first = (await consumer.beginning_offsets([key]))[key]
            end = (await consumer.end_offsets([key]))[key]
            return {t: None if answer is None else answer.offset for t, answer in found.items()}, first, end
        finally:
            await consumer.stop()

    return asyncio.run(ask())


def kcat_offsets(bootstrap: str, topic: str, timestamps: list[int]) -> Offsets:
    def ask(timestamp: int) -> int:
        """kcat prints `topic [partition] offset N`; -1 is the end."""
        return int(run_kcat("-Q", "-b", bootstrap, "-t", f"{topic}:0:{timestamp}").split()[-1])

    found = {t: answer if (answer := ask(t)) >= 0 else None for t in timestamps}
    return found, ask(-2), ask(-1)


@pytest.mark.parametrize("ask", [confluent_offsets, kafka_python_offsets, aiokafka_offsets, kcat_offsets])
def test_offsets_by_timestamp(ask: Any, cluster: NodeProcesses, timed_topic: str) -> None:
    """The first record at or after the time; the beginning and the end."""
    expected = {
        FIRST_MS - 5 * STEP_MS: 0,
        FIRST_MS: 0,
        FIRST_MS + 1: 1,
        FIRST_MS + 17 * STEP_MS: 17,
        FIRST_MS + 17 * STEP_MS + 1: 18,
        FIRST_MS + (TIMED - 1) * STEP_MS: TIMED - 1,
        FIRST_MS + TIMED * STEP_MS: None,
    }
    found, first, end = ask(cluster.bootstrap, timed_topic, list(expected))
    assert found == expected
    assert (first, end) == (0, TIMED)


def test_the_offset_of_the_latest_timestamp(cluster: NodeProcesses) -> None:
    """It need not be the last record's."""
    topic = cluster.create_topic("max-timestamp")
    key = TopicPartition(topic, 0)
    empty = cluster.admin.list_offsets({key: OffsetSpec.max_timestamp()})[key].result(60)
    assert (empty.offset, empty.timestamp) == (-1, -1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **QUIET})
    for number, timestamp in enumerate((5, 9, 7, 9, 6)):
        producer.produce(topic, b"%d" % number, partition=0, timestamp=FIRST_MS + timestamp)
        if number in (0, 2):
            producer.flush(60)
    producer.flush(60)
    found = cluster.admin.list_offsets({key: OffsetSpec.max_timestamp()})[key].result(60)
    assert (found.offset, found.timestamp) == (1, FIRST_MS + 9)


def test_log_append_time(cluster: NodeProcesses) -> None:
    """The broker's clock replaces the client's, and the checksum still holds for every reader."""
    topic = cluster.create_topic("append-time", message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **QUIET})
    stamps: list[tuple[int, int]] = []
    producer.produce(
        topic, b"x", timestamp=1000, on_delivery=lambda _, message: stamps.append(message.timestamp())
    )
    producer.flush(60)
    after_ms = int(time.time() * 1000)
    ((kind, stamp),) = stamps
    assert kind == 2, "log append time"
    assert before_ms <= stamp <= after_ms
    consumer = confluent_consumer(cluster.bootstrap, **{"check.crcs": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    (message,) = consumer.consume(1, 60)
    consumer.close()
    assert message.error() is None
    assert message.timestamp() == (2, stamp)


def test_starting_at_the_end_sees_only_what_comes_later(cluster: NodeProcesses, timed_topic: str) -> None:
    topic = cluster.create_topic("end")
    CLIENTS[0].produce(cluster.bootstrap, topic, {0: VALUES[:10]})
    consumer = confluent_consumer(cluster.bootstrap)
    try:
        consumer.assign([TopicPartition(topic, 0, end_offset(cluster, topic))])
        assert consumer.consume(1, 0.5) == []
        CLIENTS[0].produce(cluster.bootstrap, topic, {0: [b"later"]})
        (message,) = consumer.consume(1, 60)
        assert (message.value(), message.offset()) == (b"later", 10)
    finally:
        consumer.close()


def test_kcat_starts_at_timestamps_and_before_the_end(cluster: NodeProcesses, timed_topic: str) -> None:
    def read(start: str) -> list[bytes]:
        arguments = "-C", "-q", "-e", "-b", cluster.bootstrap, "-t", timed_topic, "-p", "0", "-o", start
        return run_kcat(*arguments).splitlines()

    assert read(f"s@{FIRST_MS + 40 * STEP_MS}") == VALUES[40:TIMED]
    assert read("-3") == VALUES[TIMED - 3 : TIMED]
    assert read("end") == []


def test_an_offset_out_of_range(cluster: NodeProcesses, timed_topic: str) -> None:
    """The client is told, and goes where its own setting sends it."""
    strict = confluent_consumer(cluster.bootstrap, **{"auto.offset.reset": "error"})
    lenient = confluent_consumer(cluster.bootstrap, **{"auto.offset.reset": "earliest"})
    try:
        for consumer in (strict, lenient):
            consumer.assign([TopicPartition(timed_topic, 0, TIMED + 1000)])
        (error,) = strict.consume(1, 60)
        assert error.error() is not None
        (first,) = lenient.consume(1, 60)
        assert (first.offset(), first.value()) == (0, VALUES[0])
    finally:
        strict.close()
        lenient.close()


# -- topics that make themselves


@pytest.mark.parametrize("client", CLIENTS, ids=name_of)
def test_producing_creates_the_topic(client: Client, cluster: NodeProcesses) -> None:
    topic = f"made-by-itself-{uuid.uuid4().hex[:8]}"
    client.produce(cluster.bootstrap, topic, {0: VALUES[:5]})
    assert client.consume(cluster.bootstrap, topic, {0: 5}) == {0: VALUES[:5]}
    assert sorted(cluster.partitions(topic)) == [0]


def test_asking_alone_creates_nothing(cluster: NodeProcesses) -> None:
    """Admin clients and consumers that forbid it leave no topic behind."""
    topic = f"never-made-{uuid.uuid4().hex[:8]}"
    consumer = confluent_consumer(cluster.bootstrap)
    assert consumer.list_topics(topic, timeout=60).topics[topic].error is not None
    consumer.close()
    assert topic not in cluster.admin.list_topics(timeout=60).topics
