"""The metrics of topics and partitions, as text; and that text in steps."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable

import pytest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families

from kraft.broker.metrics import REST, BrokerMetrics, TopicsMetrics
from kraft.http.exposition import SAMPLES_PER_STEP, exposition
from kraft.http.topic_metrics import PARTITIONS_PER_STEP, TopicsSnapshot, partition_families, topic_counters
from kraft.protocol.errors import ErrorCode
from kraft.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from quorum.metadata.image import EMPTY
from tests.support.broker_world import BrokerWorld, batch, gone, topic

SIZE, END, START = (
    "kafka_log_log_size",
    "kafka_topic_partition_current_offset",
    "kafka_topic_partition_oldest_offset",
)


@pytest.fixture
async def world() -> AsyncIterator[BrokerWorld]:
    made = BrokerWorld()
    yield made
    await made.close()


async def samples(families: Iterable[Metric | None]) -> dict[tuple[str, ...], float]:
    """By name, and the values of labels in the order of the labels' names."""
    text = (await exposition(families)).decode()
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def produced(world: BrokerWorld, name: str, *values: bytes) -> int:
    data = [PartitionProduceData(index=0, records=batch(*values))]
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name, data)])
    return int(world.handle(request, 9).responses[0].partition_responses[0].error_code)


async def test_traffic_is_counted_by_topic(world: BrokerWorld) -> None:
    await world.start(*topic("a", 1, (1,)), *topic("b", 2, (1,)))
    assert produced(world, "a", b"x", b"y") == ErrorCode.NONE
    assert produced(world, "b", b"z") == ErrorCode.NONE
    assert produced(world, "made-up", b"z") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    counters = dict(world.metrics.topics.items())
    assert {name: one.messages_in for name, one in counters.items()} == {"a": 2, "b": 1}
    assert sum(one.bytes_in for one in counters.values()) == world.metrics.bytes_in > 0
    assert world.metrics.failed_produce_requests == 1, "and no series for a name that a client made up"
    shown = await samples(topic_counters(world.metrics.topics, "messages_in", "in", "Records."))
    assert shown == {("in_total", "a"): 2, ("in_total", "b"): 1}


def test_topics_without_room_are_summed_and_deleted_ones_make_room() -> None:
    metrics = BrokerMetrics(TopicsMetrics(topics_max=2))
    for name in ("a", "b", "c", "d"):
        metrics.on_produced(name, 1, 10)
    assert [(name, one.bytes_in) for name, one in metrics.topics.items()] == [
        ("a", 10),
        ("b", 10),
        (REST, 20),
    ]
    metrics.on_fetched([("a", 5), ("c", 7)], is_follower=False)
    metrics.on_fetched([("a", 3)], is_follower=True)
    metrics.on_fetched([], is_follower=False)
    assert [(one.bytes_out, one.replication_bytes_out) for _, one in metrics.topics.items()] == [
        (5, 3), (0, 0), (7, 0)
    ]  # fmt: skip
    assert (metrics.bytes_out, metrics.replication_bytes_out, metrics.fetch_requests) == (12, 3, 3)
    assert metrics.topics.of("a").fetch_requests == 2
    metrics.on_fetch_failed("a")
    metrics.on_fetch_failed("made-up")
    metrics.on_fetch_failed(None)
    assert (metrics.failed_fetch_requests, metrics.topics.of("a").failed_fetch_requests) == (3, 1)
    metrics.on_produce_failed("a")
    metrics.on_produce_failed("e")
    assert (metrics.failed_produce_requests, metrics.topics.of("a").failed_produce_requests) == (2, 1)


async def test_a_topic_made_anew_begins_anew(world: BrokerWorld) -> None:
    await world.start(*topic("a", 1, (1,)))
    metrics = world.metrics.topics
    assert produced(world, "a", b"x") == ErrorCode.NONE
    await world.publish(gone(1))
    assert metrics.known("a") is None
    await world.publish(*topic("a", 2, (1,)))
    assert produced(world, "a", b"y", b"z") == ErrorCode.NONE
    assert metrics.of("a").messages_in == 2


async def test_logs_and_offsets_of_what_is_led_here(world: BrokerWorld) -> None:
    await world.start(*topic("led", 1, (1,)), *topic("followed", 2, (2, 1)), *topic("more", 3, (1,)))
    assert produced(world, "led", b"x", b"y") == ErrorCode.NONE
    assert produced(world, "more", b"z") == ErrorCode.NONE
    replicas, logs = tuple(world.replicas.partitions()), dict(world.logs.logs)
    shown = await samples(partition_families(TopicsSnapshot(TopicsMetrics(), replicas, logs, world.image)))
    assert shown[SIZE, "0", "led"] > shown[SIZE, "0", "more"] > shown[SIZE, "0", "followed"] == 0
    assert (shown[END, "0", "led"], shown[START, "0", "led"]) == (2, 0)
    assert (END, "0", "followed") not in shown, "its leader tells"
    assert shown["kafka_topic_partitions", "led"] == 1
    assert shown["kafka_cluster_partition_atminisr", "led"] == 1, "one replica of one that is needed"
    assert shown["kafka_cluster_partition_underminisr", "led"] == 0
    size = shown[SIZE, "0", "more"]
    shown = await samples(partition_families(TopicsSnapshot(TopicsMetrics(2), replicas, logs, world.image)))
    assert (shown[SIZE, REST], (END, "0", "more") in shown) == (size, False)


class Turns:
    """What other work had its turn at, while something else ran."""

    def __init__(self) -> None:
        self.count = 0
        self._other = asyncio.create_task(self._turn())

    async def _turn(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)

    def end(self) -> None:
        self._other.cancel()


async def test_a_large_family_is_one_and_leaves_others_their_turn(world: BrokerWorld) -> None:
    partitions = SAMPLES_PER_STEP * 2 + 2
    await world.start(*topic("t", 1, *([(1,)] * partitions)))
    turns = Turns()
    replicas, logs = tuple(world.replicas.partitions()), dict(world.logs.logs)
    text = await exposition(partition_families(TopicsSnapshot(TopicsMetrics(), replicas, logs, world.image)))
    turns.end()
    numbers = re.findall(rb'\nkafka_log_log_size{partition="(\d+)",topic="t"} ', text)
    assert [int(number) for number in numbers] == list(range(partitions))
    assert text.count(b"# TYPE kafka_log_log_size gauge") == 1
    assert turns.count >= 3 * 2, "sizes, ends and starts, two whole steps each"
    assert await exposition(partition_families(TopicsSnapshot(TopicsMetrics(), (), {}, EMPTY)))


async def test_partitions_are_summed_by_topic_in_steps(world: BrokerWorld) -> None:
    """What it costs to find out does not show in the number of samples."""
    await world.start(*topic("t", 1, *([(1,)] * (PARTITIONS_PER_STEP * 2))), *topic("u", 2, (1,)))
    replicas, logs = tuple(world.replicas.partitions()), dict(world.logs.logs)
    families = list(partition_families(TopicsSnapshot(TopicsMetrics(1), replicas, logs, world.image)))
    assert families.count(None) == 3 * 2, "logs, leaders, and what is counted by topic"
    found = [one for one in families if one is not None and one.name == "kafka_cluster_partition_atminisr"]
    assert [sample.value for one in found for sample in one.samples] == [PARTITIONS_PER_STEP * 2]


async def test_a_family_that_comes_whole_is_written_in_steps() -> None:
    family = GaugeMetricFamily("big", "Of many.", labels=["n"])
    for number in range(SAMPLES_PER_STEP * 3 + 1):
        family.add_metric([str(number)], number)
    turns = Turns()
    text = (await exposition([family, None, CounterMetricFamily("small", "Of one.", value=1)])).decode()
    turns.end()
    assert turns.count >= 4
    assert text.count("# HELP big Of many.") == text.count("# TYPE big gauge") == 1
    assert [int(value) for value in re.findall(r'big{n="(\d+)"}', text)] == list(
        range(SAMPLES_PER_STEP * 3 + 1)
    )
    assert text.endswith("small_total 1.0\n")
