"""The replicas that a broker has, and those it should have and cannot use.

Guarantees: whoever asks gets the replica, or the error that Kafka answers for a partition that is nowhere,
elsewhere, not made yet, or on a disk that failed. Handlers find replicas here; the checkpoints of high
watermarks are taken from here. `ReplicaManager` adds what changes the replicas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kraft.broker.metadata_cache import MetadataCache
from partitions.errors import NotLeaderOrFollower, PartitionError, ReplicaOffline
from partitions.log.errors import LogError
from partitions.log_manager import LogManager
from partitions.partition import Partition
from partitions.topic_partition import TopicPartition


class UnknownTopicOrPartition(PartitionError):
    """No such topic or partition in this broker's metadata."""

    code = "UNKNOWN_TOPIC_OR_PARTITION"


class LocalReplicas:
    """The replicas of one broker by partition. All methods run on its event loop."""

    def __init__(self, broker_id: int, logs: LogManager, metadata: MetadataCache) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._metadata = metadata
        self._partitions: dict[TopicPartition, Partition] = {}
        self._offline: dict[TopicPartition, LogError] = {}
        self._moved: dict[TopicPartition, None] = {}

    def partition(self, key: TopicPartition) -> Partition:
        """The local replica.

        Raises UnknownTopicOrPartition, NotLeaderOrFollower if it is elsewhere, or ReplicaOffline if its
        log cannot be used.
        """
        partition = self._partitions.get(key)
        if partition is not None:
            return partition
        if key in self._offline:
            raise ReplicaOffline(f"the log of {key} cannot be used: {self._offline[key]}")
        topic = self._metadata.image.topic(key.topic)
        if topic is None or not 0 <= key.partition < len(topic.partitions):
            raise UnknownTopicOrPartition(f"this broker knows no partition {key}")
        raise NotLeaderOrFollower(f"broker {self._broker_id} has no replica of {key}")

    @property
    def partition_count(self) -> int:
        return len(self._partitions)

    def partitions(self) -> Iterator[Partition]:
        """All local replicas."""
        return iter(self._partitions.values())

    def high_watermark(self, key: TopicPartition) -> int:
        """A log's high watermark: the replica's, else the checkpointed one."""
        partition = self._partitions.get(key)
        return self._logs.high_watermark(key) if partition is None else partition.high_watermark

    @property
    def offline_partitions(self) -> Mapping[TopicPartition, LogError]:
        """Replicas that are assigned here and whose logs cannot be used, with the reason."""
        return self._offline

    def on_unreadable(self, path: str) -> None:
        """A range of a log's file could not be sent as it was read: it became shorter, or the disk refuses it. The
        log checks what there is at its next reads, and is given up if they find it damaged."""
        folder = path.rpartition("/")[0]
        for replica_log in self._logs.logs.values():
            is_usable = not replica_log.is_closed and replica_log.storage.failure is None
            if replica_log.directory == folder and is_usable:
                replica_log.distrust()

    def take_changed_high_watermarks(self) -> dict[TopicPartition, int]:
        """Those that rose, or were cut back with the log, since the last call."""
        changed, self._moved = self._moved, {}
        return {key: self.high_watermark(key) for key in changed if key in self._partitions}

    def note_changed_high_watermarks(self, keys: Iterable[TopicPartition]) -> None:
        """Puts back what was taken and could not be written."""
        self._moved.update(dict.fromkeys(keys))

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """What the high watermark checkpoint holds."""
        return {key: partition.high_watermark for key, partition in self._partitions.items()}
