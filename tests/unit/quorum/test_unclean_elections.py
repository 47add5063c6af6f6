"""Unclean elections are counted and told, and nothing else is."""

from __future__ import annotations

import structlog.testing

from quorum.metadata.image import MetadataImage, PartitionImage, TopicImage
from quorum.metadata.records import RECOVERED, RECOVERING, NoOp, PartitionChange
from quorum.unclean_elections import UncleanElections

ID = bytes(16)
BEFORE = MetadataImage(
    topics={
        ID: TopicImage(
            ID,
            "orders",
            (
                PartitionImage((1, 2), (), -1, 0, 0, last_known_elr=(2,)),
                PartitionImage((1, 2), (), -1, 0, 0, elr=(2,)),
            ),
        )
    }
)


def unclean(partition: int, leader: int) -> PartitionChange:
    return PartitionChange(ID, partition, isr=(leader,), leader=leader, leader_recovery_state=RECOVERING)


def test_each_is_told_with_what_was_known_of_the_partition() -> None:
    elections = UncleanElections()
    with structlog.testing.capture_logs() as logs:
        elections.committed(BEFORE, [unclean(0, 2), unclean(1, 1)])
    assert elections.count == 2
    assert [(line["log_level"], line["partition"], line["elected_as"], line["elr"]) for line in logs] == [
        ("error", "orders-0", "the last known leader", ()),
        ("error", "orders-1", "a replica that was not in sync", (2,)),
    ]


def test_what_is_clean_is_not_told() -> None:
    elections = UncleanElections()
    with structlog.testing.capture_logs() as logs:
        elections.committed(
            BEFORE,
            [
                NoOp(),
                PartitionChange(ID, 1, isr=(2,), leader=2, elr=()),
                PartitionChange(ID, 1, isr=(), leader=-1),
                PartitionChange(ID, 0, leader=2, leader_recovery_state=RECOVERED),
            ],
        )
    assert (elections.count, logs) == (0, [])
