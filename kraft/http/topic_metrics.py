"""The metrics of topics and of their partitions on this broker, as `kraft.http.metrics` shows them.

Traffic has Kafka's names (BrokerTopicMetrics) with the label `topic`, logs have those of its `Log` beans, offsets those
of kafka_exporter: only a partition's leader tells them, so that each is there once in a cluster. At most
`metrics.topics.max` topics have series of their own; the rest is summed under the topic `REST`. Families are yielded in
slices, see `exposition.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kraft.broker.metrics import REST, TopicsMetrics
from partitions.log.errors import LogError
from partitions.log.log import PartitionLog
from partitions.partition import Partition
from partitions.topic_partition import TopicPartition
from quorum.metadata.image import MetadataImage

PARTITIONS_PER_SLICE: Final = 250
_Source = TypeVar("_Source")


@dataclass(frozen=True, slots=True)
class TopicsSnapshot:
    """What a scrape shows of topics."""

    counters: TopicsMetrics
    replicas: Sequence[Partition]
    """On this broker."""
    logs: Mapping[TopicPartition, PartitionLog]
    image: MetadataImage


def topic_counters(topics: TopicsMetrics, field: str, name: str, text: str) -> Iterator[Metric]:
    """One counter of `TopicMetrics` by topic; `name` is that of the sum over all topics, too."""
    family = CounterMetricFamily(name, text, labels=["topic"])
    for topic, counters in topics.items():
        if count := getattr(counters, field):
            family.add_metric([topic], count)
    yield family


def partition_families(topics: TopicsSnapshot) -> Iterator[Metric]:
    """All metrics of logs and partitions."""
    names = sorted({key.topic for key in topics.logs})
    listed = set(names[: topics.counters.topics_max])
    yield from _size_families(topics.logs, listed)
    led = sorted(
        (one for one in topics.replicas if one.is_leader and one.topic_partition.topic in listed),
        key=lambda partition: partition.topic_partition,
    )
    yield from _topic_families(led, topics.image)
    yield from _gauges(
        "kafka_topic_partition_current_offset",
        "The high watermark of a partition led here: the end of what consumers see.",
        [(one.topic_partition, one) for one in led],
        lambda partition: partition.high_watermark,
    )
    yield from _gauges(
        "kafka_topic_partition_oldest_offset",
        "The first offset of a partition led here.",
        [(one.topic_partition, one) for one in led],
        lambda partition: partition.log_start_offset,
    )


def _size_families(logs: Mapping[TopicPartition, PartitionLog], listed: Container[str]) -> Iterator[Metric]:
    name, text = "kafka_log_log_size", "Bytes of a log's segments."
    shown = sorted((key, log) for key, log in logs.items() if key.topic in listed)
    yield from _gauges(name, text, shown, _size_bytes)
    if len(shown) < len(logs):
        sizes = [_size_bytes(log) for key, log in logs.items() if key.topic not in listed]
        family = GaugeMetricFamily(name, text, labels=["topic"])
        family.add_metric([REST], sum(size for size in sizes if size is not None))
        yield family


def _topic_families(led: Sequence[Partition], image: MetadataImage) -> Iterator[Metric]:
    """By topic, of what is led here."""
    at_min, under_min = dict[str, int](), dict[str, int]()
    counts = GaugeMetricFamily(
        "kafka_topic_partitions", "Partitions of a topic, told by the leader of the first.", labels=["topic"]
    )
    for partition in led:
        topic, number = partition.topic_partition
        at_min[topic] = at_min.get(topic, 0) + partition.is_at_min_isr
        under_min[topic] = under_min.get(topic, 0) + partition.is_under_min_isr
        if number == 0 and (topic_id := image.topic_ids.get(topic)) is not None:
            counts.add_metric([topic], len(image.topics[topic_id].partitions))
    yield counts
    for name, text, found in (
        ("atminisr", "Partitions led here whose ISR has as many members as min.insync.replicas.", at_min),
        ("underminisr", "Partitions led here whose ISR has fewer: acks=all is refused.", under_min),
    ):
        family = GaugeMetricFamily(f"kafka_cluster_partition_{name}", text, labels=["topic"])
        for topic, count in found.items():
            family.add_metric([topic], count)
        yield family


def _gauges(
    name: str,
    text: str,
    found: Sequence[tuple[TopicPartition, _Source]],
    value: Callable[[_Source], int | None],
) -> Iterator[Metric]:
    for start in range(0, max(1, len(found)), PARTITIONS_PER_SLICE):
        family = GaugeMetricFamily(name, text, labels=["topic", "partition"])
        for key, source in found[start : start + PARTITIONS_PER_SLICE]:
            number = value(source)
            if number is not None:
                family.add_metric([key.topic, str(key.partition)], number)
        yield family


def _size_bytes(log: PartitionLog) -> int | None:
    """None while its disk does not tell."""
    try:
        return log.size_bytes
    except (LogError, OSError):
        return None
