"""How fast this broker copies, and lets others copy, the replicas that topics name as throttled (KIP-73).

Guarantees: over the measured windows the throttled replicas that are out of sync get no more than the rate of
their direction, but for the one answer that reaches it; replicas known to be in sync are not held back, since
that would only drive them out of the ISR, though their bytes count (one whose lag is not known yet, at the first
fetch of an epoch, is held back); nothing is done for topics that name no replicas. The leader's side is asked by
the fetch handler, the follower's by the fetchers (`fetcher.throttle`). Rates and replicas follow the metadata: a
publisher of the loader, O(what changed). Times are monotonic ms.
"""

from __future__ import annotations

from collections.abc import Iterable

from fetcher.leader_endpoint import PartitionKey
from kraft.dynamic_configs import run_time_limit
from partitions.partition import Partition
from partitions.quota import RateQuota
from partitions.quota_replicas import NOTHING_THROTTLED, ThrottledReplicas, parse_throttled_replicas
from quorum.metadata.changes import MetadataChanges
from quorum.metadata.image import MetadataImage
from quorum.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE

LEADER = "leader"
FOLLOWER = "follower"


class _Direction:
    """What is sent as leader, or copied as follower."""

    def __init__(self, name: str, broker_id: int, quota: RateQuota) -> None:
        self.name = name
        self._rate_key = f"{name}.replication.throttled.rate"
        self._replicas_key = f"{name}.replication.throttled.replicas"
        self._broker_id = broker_id
        self._replicas: dict[str, ThrottledReplicas] = {}
        self.quota = quota

    def covers(self, topic: str, partition: int) -> bool:
        """Whether this broker's replica is throttled."""
        replicas = self._replicas.get(topic)
        return replicas is not None and replicas.covers(partition, self._broker_id)

    def is_exceeded(self, topic: str, partition: int, now_ms: int) -> bool:
        return self.covers(topic, partition) and self.quota.is_exceeded(now_ms)

    def record(self, topic: str, partition: int, size_bytes: int, now_ms: int) -> None:
        if size_bytes and self.covers(topic, partition):
            self.quota.record(size_bytes, now_ms)

    def update_topics(self, names: Iterable[str], image: MetadataImage) -> None:
        for name in names:
            text = image.config(TOPIC_RESOURCE, name).get(self._replicas_key, "")
            replicas = parse_throttled_replicas(text)
            if replicas == NOTHING_THROTTLED:
                self._replicas.pop(name, None)
            else:
                self._replicas[name] = replicas

    def update_rate(self, image: MetadataImage) -> None:
        self.quota.bytes_per_s = run_time_limit(image, self._broker_id, self._rate_key)

    @property
    def names_nothing(self) -> bool:
        return not self._replicas


class ReplicationThrottles:
    """Both directions of one broker."""

    def __init__(self, broker_id: int, *, windows: int, window_s: int) -> None:
        """Rates are measured over so many windows of so many seconds (`replication.quota.window.*`)."""
        self._leader, self._follower = (
            _Direction(name, broker_id, RateQuota(windows=windows, window_ms=1000 * window_s))
            for name in (LEADER, FOLLOWER)
        )

    def on_metadata(self, changes: MetadataChanges, image: MetadataImage) -> None:
        """Takes over rates and replicas that changed."""
        names = {topic.name for topic in changes.deleted_topics.values()}
        names.update(name for kind, name in changes.changed_configs if kind == TOPIC_RESOURCE)
        for direction in (self._leader, self._follower):
            direction.update_topics(names, image)
            if any(kind == BROKER_RESOURCE for kind, _ in changes.changed_configs):
                direction.update_rate(image)

    # -- as leader

    def holds_back_sending(self, partition: Partition, follower_id: int, now_ms: int) -> bool:
        """Whether a follower's fetch of this partition gets no records for now."""
        if self._leader.names_nothing or follower_id in partition.isr:
            return False
        key = partition.topic_partition
        return self._leader.is_exceeded(key.topic, key.partition, now_ms)

    def sent(self, sizes: Iterable[tuple[PartitionKey, int]], now_ms: int) -> None:
        """An answer to a follower leaves, with so many bytes of records of each partition."""
        if self._leader.names_nothing:
            return
        for (topic, partition), size_bytes in sizes:
            self._leader.record(topic, partition, size_bytes, now_ms)

    # -- as follower: `fetcher.throttle.ReplicationThrottle`

    def holds_back(self, key: PartitionKey, *, in_sync: bool, now_ms: int) -> bool:
        """Whether the partition is left out of the next fetch."""
        return not in_sync and self._follower.is_exceeded(key[0], key[1], now_ms)

    def copied(self, key: PartitionKey, size_bytes: int, now_ms: int) -> None:
        """So many bytes of records came from the leader."""
        self._follower.record(key[0], key[1], size_bytes, now_ms)

    # -- what is so

    def rates(self, now_ms: int) -> dict[str, float]:
        """Bytes a second of throttled replicas by direction, as measured."""
        return {LEADER: self._leader.quota.rate(now_ms), FOLLOWER: self._follower.quota.rate(now_ms)}
