"""The metadata's part of `/api/cluster`."""

from __future__ import annotations

import json

from kraft.cluster_document import LEADERLESS_MAX, cluster_document
from quorum.metadata.image import EMPTY, BrokerImage, MetadataImage, PartitionImage, TopicImage
from quorum.metadata.records import Listener

ID, OTHER = b"a" * 16, b"b" * 16
LOST = PartitionImage((1, 2, 3), (), -1, 3, 9, elr=(2,), last_known_elr=(1,), offline_replicas=(2, 3))
WELL = PartitionImage((1, 2, 3), (1, 2), 1, 3, 9)


def test_partitions_without_a_leader_say_who_may_lead_them() -> None:
    broker = BrokerImage(1, 5, bytes(16), (Listener("A", "h", 1, "P"),), "a", (), True, False)
    image = MetadataImage(
        offset=40,
        brokers={1: broker},
        topics={ID: TopicImage(ID, "z", (WELL, LOST)), OTHER: TopicImage(OTHER, "a", (LOST,))},
        features={"b": 2, "a": 1},
    )
    document = cluster_document(image)
    assert (document["metadata_offset"], document["topics"], document["partitions"]) == (40, 2, 3)
    assert list(document["features"].items()) == [("a", 1), ("b", 2)]
    assert document["brokers"][0]["listeners"] == ["A://h:1"]
    assert [(entry["topic"], entry["partition"]) for entry in document["leaderless"]] == [("a", 0), ("z", 1)]
    assert document["leaderless"][1] == {
        "topic": "z",
        "partition": 1,
        "replicas": [1, 2, 3],
        "isr": [],
        "elr": [2],
        "last_known_elr": [1],
        "offline_replicas": [2, 3],
    }
    json.dumps(document)


def test_partitions_are_counted_that_lack_replicas_or_a_leader() -> None:
    whole = PartitionImage((1, 2), (1, 2), 1, 3, 9)
    growing = PartitionImage((1, 2, 3), (1, 2), 1, 3, 9, adding_replicas=(3,))
    image = MetadataImage(topics={ID: TopicImage(ID, "z", (WELL, LOST, whole, growing, WELL))})
    document = cluster_document(image)
    assert (document["partitions"], document["under_replicated"], document["leaderless_count"]) == (5, 3, 1)


def test_the_list_is_bounded() -> None:
    image = MetadataImage(topics={ID: TopicImage(ID, "z", (LOST,) * (LEADERLESS_MAX + 1))})
    assert len(cluster_document(image)["leaderless"]) == LEADERLESS_MAX
    assert cluster_document(image)["leaderless_count"] == LEADERLESS_MAX + 1
    assert cluster_document(EMPTY)["brokers"] == []
