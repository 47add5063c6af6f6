"""Which replicas the metadata gives to a broker, and whose the logs are that it has.

Guarantees: a log is a partition's only if its topic id is that of the topic which has the name now. Pure;
`ReplicaManager` asks at the first metadata after a start, and whenever something was done beside the loop.
"""

from __future__ import annotations

from collections.abc import Iterable

from partitions.partition import NO_LEADER
from partitions.topic_partition import TopicPartition
from quorum.metadata.image import MetadataImage, PartitionImage


def assigned(
    image: MetadataImage, broker_id: int, key: TopicPartition
) -> tuple[bytes, PartitionImage] | None:
    """Topic id and state of the partition, if the broker has a replica of it."""
    topic = image.topic(key.topic)
    state = None if topic is None else image.partition(topic.topic_id, key.partition)
    if topic is None or state is None or broker_id not in state.replicas:
        return None
    return topic.topic_id, state


def owns_log(image: MetadataImage, broker_id: int, key: TopicPartition, topic_id: bytes | None) -> bool:
    """Whether a log with this topic id is that of the broker's replica; one without an id may be."""
    found = assigned(image, broker_id, key)
    return found is not None and topic_id in (None, found[0])


def partition_ids(
    image: MetadataImage, broker_id: int, keys: Iterable[TopicPartition]
) -> list[tuple[bytes, int]]:
    """(topic id, partition) of those that the broker has a replica of."""
    found = ((assigned(image, broker_id, key), key.partition) for key in keys)
    return [(entry[0], number) for entry, number in found if entry is not None]


def can_be_made_anew(state: PartitionImage, broker_id: int) -> bool:
    """Whether a replica's records are needed by nobody: the controller counts it among neither ISR nor
    eligible leaders, and another broker leads, from which they can be copied."""
    return state.leader not in (NO_LEADER, broker_id) and broker_id not in (*state.isr, *state.elr)


def strays(
    image: MetadataImage, broker_id: int, stored: Iterable[tuple[TopicPartition, bytes | None]]
) -> list[TopicPartition]:
    """Of the logs on a broker's disks, with their topic ids, those of topics that were deleted, made anew, or
    moved elsewhere while it was away.
    """
    return [key for key, topic_id in stored if not owns_log(image, broker_id, key, topic_id)]
