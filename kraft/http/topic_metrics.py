"""The metrics of topics and of their partitions on this broker, as `kraft.http.metrics` shows them.

Traffic has Kafka's names (BrokerTopicMetrics) with the label `topic`, logs have those of its `Log` beans, offsets those
of kafka_exporter: only a partition's leader tells them, so that each is there once in a cluster. At most
`metrics.topics.max` topics have series of their own; the rest is summed under the topic `REST`. Families are yielded in
slices, see `exposition.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kraft.broker.metrics import REST, TopicsMetrics
from kraft.http.exposition import SAMPLES_PER_STEP, Families
from partitions.log.errors import LogError
from partitions.log.log import PartitionLog
from partitions.partition import Partition
from partitions.topic_partition import TopicPartition
from quorum.metadata.image import MetadataImage
from quorum.steps import Steps

PARTITIONS_PER_STEP: Final = 500
"""That are looked at before other work has its turn: some two milliseconds."""
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


def partition_families(topics: TopicsSnapshot) -> Families:
    """All metrics of logs and partitions."""
    logs = yield from _by_topic(topics.logs.items())
    names = sorted(logs)
    listed = names[: topics.counters.topics_max]
    yield from _size_families(logs, listed, names[len(listed) :])
    leaders = ((one.topic_partition, one) for one in topics.replicas if one.is_leader)
    found = yield from _by_topic(leaders)
    led = {name: found[name] for name in listed if name in found}
    yield from _topic_families(led, topics.image)
    yield from _gauges(
        "kafka_topic_partition_current_offset",
        "The high watermark of a partition led here: the end of what consumers see.",
        _in_order(led, led),
        lambda partition: partition.high_watermark,
    )
    yield from _gauges(
        "kafka_topic_partition_oldest_offset",
        "The first offset of a partition led here.",
        _in_order(led, led),
        lambda partition: partition.log_start_offset,
    )


def _by_topic(found: Iterable[tuple[TopicPartition, _Source]]) -> Steps[dict[str, dict[int, _Source]]]:
    """By topic and number."""
    by_topic: dict[str, dict[int, _Source]] = {}
    for count, ((topic, number), source) in enumerate(found, 1):
        by_topic.setdefault(topic, {})[number] = source
        if count % PARTITIONS_PER_STEP == 0:
            yield
    return by_topic


def _in_order(
    by_topic: Mapping[str, Mapping[int, _Source]], topics: Iterable[str]
) -> Iterator[tuple[str, int, _Source]]:
    """What these topics have, by number."""
    for topic in topics:
        for number, source in sorted(by_topic[topic].items()):
            yield topic, number, source


def _size_families(
    logs: Mapping[str, Mapping[int, PartitionLog]], listed: Sequence[str], others: Sequence[str]
) -> Families:
    name, text = "kafka_log_log_size", "Bytes of a log's segments."
    yield from _gauges(name, text, _in_order(logs, listed), _size_bytes)
    if others:
        sum_bytes = 0
        for count, (*_, log) in enumerate(_in_order(logs, others), 1):
            sum_bytes += _size_bytes(log) or 0
            if count % PARTITIONS_PER_STEP == 0:
                yield None
        family = GaugeMetricFamily(name, text, labels=["topic"])
        family.add_metric([REST], sum_bytes)
        yield family


def _topic_families(led: Mapping[str, Mapping[int, Partition]], image: MetadataImage) -> Families:
    """By topic, of what is led here."""
    at_min, under_min = dict.fromkeys(led, 0), dict.fromkeys(led, 0)
    for count, (topic, _, partition) in enumerate(_in_order(led, led), 1):
        at_min[topic] += partition.is_at_min_isr
        under_min[topic] += partition.is_under_min_isr
        if count % PARTITIONS_PER_STEP == 0:
            yield None
    counts = GaugeMetricFamily(
        "kafka_topic_partitions", "Partitions of a topic, told by the leader of the first.", labels=["topic"]
    )
    for topic, partitions in led.items():
        if 0 in partitions and (topic_id := image.topic_ids.get(topic)) is not None:
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
    found: Iterable[tuple[str, int, _Source]],
    value: Callable[[_Source], int | None],
) -> Iterator[Metric]:
    labels = ["topic", "partition"]
    family = GaugeMetricFamily(name, text, labels=labels)
    for topic, partition, source in found:
        number = value(source)
        if number is not None:
            family.add_metric([topic, str(partition)], number)
        if len(family.samples) == SAMPLES_PER_STEP:
            yield family
            family = GaugeMetricFamily(name, text, labels=labels)
    yield family


def _size_bytes(log: PartitionLog) -> int | None:
    """None while its disk does not tell."""
    try:
        return log.size_bytes
    except (LogError, OSError):
        return None
