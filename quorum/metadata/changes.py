"""The changes between two images, whether records led from one to the other or a snapshot did.

`MetadataDelta` knows its changes from the records applied to it. A node that is too far behind gets a whole image
instead; `ImageDiff` finds the same changes by comparison. Publishers need not know which of the two happened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol, TypeVar

from quorum.metadata.acls import Acl
from quorum.metadata.image import (
    ConfigKey,
    MetadataImage,
    PartitionId,
    PartitionImage,
    ScramKey,
    TopicImage,
)
from quorum.metadata.records import QuotaEntity

_Key = TypeVar("_Key", int, str, ConfigKey, ScramKey, QuotaEntity)


class MetadataChanges(Protocol):
    """The changes as publishers read them; every collection is in ascending order."""

    @property
    def changed_brokers(self) -> tuple[int, ...]: ...

    @property
    def changed_topics(self) -> tuple[bytes, ...]: ...

    @property
    def created_topics(self) -> tuple[bytes, ...]: ...

    @property
    def deleted_topics(self) -> Mapping[bytes, TopicImage]: ...

    @property
    def changed_partitions(self) -> Mapping[PartitionId, PartitionImage | None]: ...

    @property
    def changed_configs(self) -> tuple[ConfigKey, ...]: ...

    @property
    def changed_features(self) -> tuple[str, ...]: ...

    @property
    def changed_voters(self) -> tuple[int, ...]: ...

    @property
    def changed_scram_credentials(self) -> tuple[ScramKey, ...]: ...

    @property
    def changed_acls(self) -> tuple[Acl, ...]: ...

    @property
    def changed_client_quotas(self) -> tuple[QuotaEntity, ...]: ...


class ImageDiff:
    """The changes from `base` to `image`, found by comparing them. O(size of both)."""

    def __init__(self, base: MetadataImage, image: MetadataImage) -> None:
        self.changed_brokers: tuple[int, ...] = _changed_keys(base.brokers, image.brokers)
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
        self.changed_partitions: Mapping[PartitionId, PartitionImage | None] = dict(
            self._partitions(base, image)
        )
        self.changed_configs: tuple[ConfigKey, ...] = _changed_keys(base.configs, image.configs)
        self.changed_features: tuple[str, ...] = _changed_keys(base.features, image.features)
        self.changed_voters: tuple[int, ...] = _changed_keys(base.voters, image.voters)
        self.changed_scram_credentials: tuple[ScramKey, ...] = _changed_keys(
            base.scram_credentials, image.scram_credentials
        )
        self.changed_acls: tuple[Acl, ...] = tuple(sorted(base.acls ^ image.acls))
        self.changed_client_quotas: tuple[QuotaEntity, ...] = _changed_keys(
            base.client_quotas, image.client_quotas
        )

    def _partitions(
        self, base: MetadataImage, image: MetadataImage
    ) -> Iterator[tuple[PartitionId, PartitionImage | None]]:
        for topic_id in self.changed_topics:
            for number, partition in enumerate(image.topics[topic_id].partitions):
                before = base.partition(topic_id, number)
                if before != partition:
                    yield (topic_id, number), before


def _changed_keys(before: Mapping[_Key, object], after: Mapping[_Key, object]) -> tuple[_Key, ...]:
    """Keys whose values differ, or that only one of the two has, ascending."""
    keys = before.keys() | after.keys()
    return tuple(key for key in sorted(keys) if before.get(key) != after.get(key))
