"""The metrics of topics and of their partitions on this broker, as `kraft.http.metrics` shows them.

Traffic has Kafka's names (BrokerTopicMetrics) with the label `topic`, logs have those of its `Log` beans, offsets those
of kafka_exporter: only a partition's leader tells them, so that each is there once in a cluster. At most
`metrics.topics.max` topics have series of their own; the rest is summed under the topic `REST`. Families are yielded in
slices, see `exposition.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kraft.broker.metrics import REST, TopicsMetrics
from partitions.log.errors import LogError
from partitions.partition import Partition
from quorum.metadata.image import MetadataImage

PARTITIONS_PER_SLICE: Final = 250
_LOG = "kafka_log_log_"
_EXPORTER = "kafka_topic_partition_"


@dataclass(frozen=True, slots=True)
class TopicsSnapshot:
    """What a scrape shows of topics."""

    counters: TopicsMetrics
    replicas: Sequence[Partition]
    """On this broker."""
    image: MetadataImage


def topic_counters(topics: TopicsMetrics, field: str, name: str, text: str) -> Iterator[Metric]:
    """One counter of `TopicMetrics` by topic; `name` is that of the sum over all topics, too."""
    family = CounterMetricFamily(name, text, labels=["topic"])
    for topic, counters in topics.items():
        if count := getattr(counters, field):
            family.add_metric([topic], count)
    yield family


def partition_families(topics: TopicsSnapshot) -> Iterator[Metric]:
    """All metrics of partitions."""
    names = sorted({partition.topic_partition.topic for partition in topics.replicas})
    listed = set(names[: topics.counters.topics_max])
    replicas = sorted(topics.replicas, key=lambda partition: partition.topic_partition)
    shown = [partition for partition in replicas if partition.topic_partition.topic in listed]
    led = [partition for partition in shown if partition.is_leader]
    yield from _gauges(f"{_LOG}size", "Bytes of a log's segments.", shown, _size_bytes)
    rest = [_size_bytes(partition) for partition in replicas if partition.topic_partition.topic not in listed]
    if rest:
        family = GaugeMetricFamily(f"{_LOG}size", "Bytes of a log's segments.", labels=["topic"])
        family.add_metric([REST], sum(size for size in rest if size is not None))
        yield family
    counts = GaugeMetricFamily(
        "kafka_topic_partitions", "Partitions of a topic, told by the leader of the first.", labels=["topic"]
    )
    for partition in led:
        key = partition.topic_partition
        if key.partition == 0 and (topic_id := topics.image.topic_ids.get(key.topic)) is not None:
            counts.add_metric([key.topic], len(topics.image.topics[topic_id].partitions))
    yield counts
    yield from _gauges(
        f"{_EXPORTER}current_offset",
        "The high watermark of a partition led here: the end of what consumers see.",
        led,
        lambda partition: partition.high_watermark,
    )
    yield from _gauges(
        f"{_EXPORTER}oldest_offset",
        "The first offset of a partition led here.",
        led,
        lambda partition: partition.log_start_offset,
    )


def _gauges(
    name: str, text: str, partitions: Sequence[Partition], value: Callable[[Partition], int | None]
) -> Iterator[Metric]:
    for start in range(0, len(partitions), PARTITIONS_PER_SLICE):
        family = GaugeMetricFamily(name, text, labels=["topic", "partition"])
        for partition in partitions[start : start + PARTITIONS_PER_SLICE]:
            key, found = partition.topic_partition, value(partition)
            if found is not None:
                family.add_metric([key.topic, str(key.partition)], found)
        yield family


def _size_bytes(partition: Partition) -> int | None:
    """None while its disk does not tell."""
    try:
        return partition.log.size_bytes
    except (LogError, OSError):
        return None
