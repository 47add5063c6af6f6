"""The topics that coordinators reckon with: this broker's metadata as `kraft.coordinator.groups` asks for them."""

from __future__ import annotations

from collections.abc import Iterable

from kraft.broker.membership.metadata_cache import MetadataCache
from kraft.coordinator.groups.context import TopicPartitions
from quorum.metadata.changes import MetadataChanges
from quorum.metadata.image import MetadataImage, TopicImage


class MetadataTopics:
    """A view of the newest metadata."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    def named(self, name: str) -> TopicPartitions | None:
        image = self._metadata.image
        topic = image.topic(name)
        return None if topic is None else _partitions(image, topic)

    def with_id(self, topic_id: bytes) -> TopicPartitions | None:
        image = self._metadata.image
        topic = image.topics.get(topic_id)
        return None if topic is None else _partitions(image, topic)

    def names(self) -> Iterable[str]:
        return self._metadata.image.topic_ids


def touched_topics(changes: MetadataChanges, image: MetadataImage) -> tuple[set[str], dict[bytes, str]]:
    """The names of all topics that changed, were made or deleted; and those that were deleted, by id."""
    deleted = {topic.topic_id: topic.name for topic in changes.deleted_topics.values()}
    changed = {image.topics[topic_id].name for topic_id in changes.changed_topics if topic_id in image.topics}
    return changed.union(deleted.values()), deleted


def _partitions(image: MetadataImage, topic: TopicImage) -> TopicPartitions:
    if not any(broker.rack for broker in image.brokers.values()):
        return TopicPartitions(topic.topic_id, topic.name, len(topic.partitions))
    racks = tuple(
        frozenset(
            broker.rack
            for replica in partition.replicas
            if (broker := image.brokers.get(replica)) is not None and broker.rack
        )
        for partition in topic.partitions
    )
    return TopicPartitions(topic.topic_id, topic.name, len(topic.partitions), racks)
