"""How a broker's partitions are, for its metrics: replicas out of sync, and how far followers lag.

Guarantees: counts follow the metadata, at O(what changed); `follower_lags` looks only at partitions with a
follower out of sync, or that lags or lagged during the last `replica.lag.time.max.ms` (the lag schedule has
those), so that a scrape of an idle cluster costs nothing however many partitions there are. Lag is shown by
follower broker, largest and sum, and not by partition: that many series would outlive the lag, and
`kraft topics describe` shows each log's end. A publisher of the metadata loader; `kraft.http` reads it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from partitions.partition import Partition
from partitions.replica import NEVER_MS, Replica
from quorum.controller.topic_configs import TopicConfigSchema
from quorum.metadata.changes import MetadataChanges
from quorum.metadata.image import MetadataImage, PartitionId
from quorum.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE
from quorum.metadata.tally import LedPartitions
from quorum.steps import ROWS_PER_STEP, Steps

ALL_BROKERS = ""
PARTITIONS_PER_STEP: Final = 500
"""Whose lags are looked at before other work has its turn."""


@dataclass(slots=True)
class FollowerLag:
    """One follower broker's lag in the partitions that this broker leads."""

    max_records: int = 0
    sum_records: int = 0
    max_ms: float = 0.0
    """Since it was caught up, at most; infinite if it never was while this broker led."""
    partitions: int = 0
    """In how many partitions it lags."""

    def add(self, records: int, lag_ms: float) -> None:
        """One partition more."""
        self.max_records = max(self.max_records, records)
        self.sum_records += records
        self.max_ms = max(self.max_ms, lag_ms)
        self.partitions += 1


class PartitionHealth:
    """The partitions that one broker leads, as the committed metadata has them."""

    def __init__(self, broker_id: int, topic_configs: TopicConfigSchema) -> None:
        self.led = LedPartitions(broker_id)
        self._topic_configs = topic_configs

    def on_metadata(self, changes: MetadataChanges, image: MetadataImage) -> Steps[None]:
        """Takes over what changed, `ROWS_PER_STEP` at a time; min.insync.replicas of all brokers concerns every
        partition."""
        for topic in changes.deleted_topics.values():
            for number in range(len(topic.partitions)):
                self.led.update((topic.topic_id, number), None, 0)
        keys = dict.fromkeys(changes.changed_partitions)
        for kind, name in changes.changed_configs:
            if kind == TOPIC_RESOURCE:
                keys.update(dict.fromkeys(_keys_of(image, (name,))))
            elif (kind, name) == (BROKER_RESOURCE, ALL_BROKERS):
                keys.update(dict.fromkeys(_keys_of(image, image.topic_ids)))
        min_isr: dict[bytes, int] = {}
        for count, key in enumerate(keys, 1):
            topic_id = key[0]
            if topic_id not in min_isr:
                min_isr[topic_id] = self._min_isr(image, image.topics[topic_id].name)
            self.led.update(key, image.partition(*key), min_isr[topic_id])
            if count % ROWS_PER_STEP == 0:
                yield

    def _min_isr(self, image: MetadataImage, topic: str) -> int:
        return self._topic_configs.min_insync_replicas(
            image.config(TOPIC_RESOURCE, topic), image.config(BROKER_RESOURCE, ALL_BROKERS)
        )


def follower_lags(
    lagging: Iterable[Partition], followers: Iterable[int], now_ms: int
) -> Steps[Mapping[int, FollowerLag]]:
    """By follower broker, those named in `followers` also where they lag nowhere. O(lagging): all that this broker
    leads, while another is down."""
    lags = {broker_id: FollowerLag() for broker_id in followers}
    for count, partition in enumerate(lagging, 1):
        if count % PARTITIONS_PER_STEP == 0:
            yield
        leading = partition.leadership
        if leading is None:
            continue
        end_offset = partition.log_end_offset
        for follower in leading.followers:
            records, lag_ms = _lag(follower, partition.log_start_offset, end_offset, now_ms)
            if records > 0:
                lags.setdefault(follower.broker_id, FollowerLag()).add(records, lag_ms)
    return lags


def _lag(follower: Replica, start_offset: int, end_offset: int, now_ms: int) -> tuple[int, float]:
    """Records and ms; one that has not fetched yet lacks all there is."""
    records = end_offset - max(follower.log_end_offset, start_offset)
    if follower.seen_caught_up_ms == NEVER_MS:
        return records, math.inf
    return records, max(0, now_ms - follower.seen_caught_up_ms)


def _keys_of(image: MetadataImage, names: Iterable[str]) -> list[PartitionId]:
    topics = (topic for name in names if (topic := image.topic(name)) is not None)
    return [(topic.topic_id, number) for topic in topics for number in range(len(topic.partitions))]
