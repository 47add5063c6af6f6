"""What changed between two images, whether records led from one to the other or a snapshot did.

`MetadataDelta` knows its changes from the records applied to it. A node that was too far behind gets
a whole image instead; `ImageDiff` finds the same changes by comparison, so that publishers need not
know which of the two happened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from quorum.metadata.image import ConfigKey, MetadataImage, PartitionImage, TopicImage

PartitionKey = tuple[bytes, int]


class MetadataChanges(Protocol):
    """The changes that publishers read; every collection is in ascending order."""

    @property
    def changed_brokers(self) -> tuple[int, ...]: ...

    @property
    def changed_topics(self) -> tuple[bytes, ...]: ...

    @property
    def created_topics(self) -> tuple[bytes, ...]: ...

    @property
    def deleted_topics(self) -> Mapping[bytes, TopicImage]: ...

    @property
    def changed_partitions(self) -> Mapping[PartitionKey, PartitionImage | None]: ...

    @property
    def changed_configs(self) -> tuple[ConfigKey, ...]: ...


class ImageDiff:
    """The changes from `base` to `image`, found by comparing them. O(size of both)."""

    def __init__(self, base: MetadataImage, image: MetadataImage) -> None:
        self.changed_brokers: tuple[int, ...] = tuple(
            broker_id
            for broker_id in sorted({*base.brokers, *image.brokers})
            if base.brokers.get(broker_id) != image.brokers.get(broker_id)
        )
        self.changed_topics: tuple[bytes, ...] = tuple(
            topic_id
            for topic_id in sorted(image.topics)
            if image.topics[topic_id] != base.topics.get(topic_id)
        )
        self.created_topics: tuple[bytes, ...] = tuple(t for t in self.changed_topics if t not in base.topics)
        self.deleted_topics: Mapping[bytes, TopicImage] = {
            topic_id: base.topics[topic_id]
            for topic_id in sorted(base.topics)
            if topic_id not in image.topics
        }
        self.changed_partitions: Mapping[PartitionKey, PartitionImage | None] = dict(
            self._partitions(base, image)
        )
        self.changed_configs: tuple[ConfigKey, ...] = tuple(
            key
            for key in sorted({*base.configs, *image.configs})
            if base.configs.get(key) != image.configs.get(key)
        )

    def _partitions(
        self, base: MetadataImage, image: MetadataImage
    ) -> Iterator[tuple[PartitionKey, PartitionImage | None]]:
        for topic_id in self.changed_topics:
            for number, partition in enumerate(image.topics[topic_id].partitions):
                before = base.partition(topic_id, number)
                if before != partition:
                    yield (topic_id, number), before
