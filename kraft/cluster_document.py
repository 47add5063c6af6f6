"""What a metadata image says of its cluster, as JSON values for `/api/cluster`.

It holds brokers, finalized features, the numbers of topics and of partitions, and of those that lack replicas or a
leader; and, named one by one up to a bound, the partitions that nobody can use, with who is eligible to lead them
(KIP-966) and whose brokers cannot serve their logs.
It costs O(partitions), and is made when somebody asks.
"""

from __future__ import annotations

from typing import Any, Final

from quorum.metadata.image import BrokerImage, MetadataImage, PartitionImage

LEADERLESS_MAX: Final = 100
"""How many partitions without a leader are named."""


def cluster_document(image: MetadataImage) -> dict[str, Any]:
    """The image's part of the document."""
    leaderless = [
        (topic, number, partition)
        for topic in sorted(image.topics.values(), key=lambda topic: topic.name)
        for number, partition in enumerate(topic.partitions)
        if not partition.has_leader
    ]
    partitions = [partition for topic in image.topics.values() for partition in topic.partitions]
    return {
        "metadata_offset": image.offset,
        "features": dict(sorted(image.features.items())),
        "brokers": [_broker(image.brokers[broker_id]) for broker_id in sorted(image.brokers)],
        "topics": len(image.topics),
        "partitions": len(partitions),
        "under_replicated": sum(map(_is_under_replicated, partitions)),
        "leaderless_count": len(leaderless),
        "leaderless": [
            {
                "topic": topic.name,
                "partition": number,
                "replicas": list(partition.replicas),
                "isr": list(partition.isr),
                "elr": list(partition.elr),
                "last_known_elr": list(partition.last_known_elr),
                "offline_replicas": list(partition.offline_replicas),
            }
            for topic, number, partition in leaderless[:LEADERLESS_MAX]
        ],
    }


def _is_under_replicated(partition: PartitionImage) -> bool:
    """As in Kafka: replicas that are being added are not missing yet."""
    return len(partition.isr) < len(partition.replicas) - len(partition.adding_replicas)


def _broker(broker: BrokerImage) -> dict[str, Any]:
    return {
        "id": broker.broker_id,
        "epoch": broker.epoch,
        "fenced": broker.fenced,
        "in_controlled_shutdown": broker.in_controlled_shutdown,
        "rack": broker.rack,
        "listeners": [f"{e.name}://{e.host}:{e.port}" for e in broker.listeners],
    }
