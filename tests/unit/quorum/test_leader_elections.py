"""Every election counts once, by its kind; unclean ones are told, and nothing else is."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import structlog.testing

from quorum.leader_elections import ElectionKind, LeaderElections
from quorum.metadata.image import MetadataImage, PartitionImage, TopicImage
from quorum.metadata.records import (
    RECOVERED,
    RECOVERING,
    Listener,
    NoOp,
    Partition,
    PartitionChange,
    Record,
    RegisterBroker,
    RemoveTopic,
)

ID = bytes(16)
LAST_KNOWN, ELIGIBLE, LED, BY_ANOTHER = range(4)
BEFORE = MetadataImage(
    topics={
        ID: TopicImage(
            ID,
            "orders",
            (
                PartitionImage((1, 2), (), -1, 0, 0, last_known_elr=(2,)),
                PartitionImage((1, 2), (), -1, 0, 0, elr=(2,)),
                PartitionImage((1, 2, 3), (1, 2), 1, 0, 0),
                PartitionImage((1, 2, 3), (1, 2, 3), 2, 0, 0),
            ),
        )
    }
)


def unclean(partition: int, leader: int) -> PartitionChange:
    return PartitionChange(ID, partition, isr=(leader,), leader=leader, leader_recovery_state=RECOVERING)


def counted(records: Sequence[Record]) -> dict[str, int]:
    elections = LeaderElections()
    elections.committed(BEFORE, records)
    return {kind.value: count for kind, count in elections.counts.items() if count}


def test_each_unclean_one_is_told_with_what_was_known_of_the_partition() -> None:
    elections = LeaderElections()
    with structlog.testing.capture_logs() as logs:
        elections.committed(BEFORE, [unclean(LAST_KNOWN, 2), unclean(ELIGIBLE, 1)])
    assert elections.unclean == 2
    assert elections.counts[ElectionKind.LAST_KNOWN_LEADER] == 1
    assert elections.counts[ElectionKind.UNCLEAN] == 1
    assert [(line["log_level"], line["partition"], line["elected_as"], line["elr"]) for line in logs] == [
        ("error", "orders-0", "the last known leader", ()),
        ("error", "orders-1", "a replica that was not in sync", (2,)),
    ]


def test_what_is_clean_is_not_told() -> None:
    elections = LeaderElections()
    with structlog.testing.capture_logs() as logs:
        elections.committed(
            BEFORE,
            [
                NoOp(),
                PartitionChange(ID, ELIGIBLE, isr=(2,), leader=2, elr=()),
                PartitionChange(ID, ELIGIBLE, isr=(), leader=-1),
                PartitionChange(ID, LAST_KNOWN, leader=2, leader_recovery_state=RECOVERED),
            ],
        )
    assert (elections.unclean, logs) == (0, [])


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([PartitionChange(ID, ELIGIBLE, isr=(2,), leader=2, elr=())], {"elr": 1}),
        ([PartitionChange(ID, LED, isr=(2,), leader=2)], {"clean": 1}),  # its leader is gone
        ([PartitionChange(ID, LED, leader=2)], {"clean": 1}),  # handed over, but not to the preferred one
        ([PartitionChange(ID, BY_ANOTHER, leader=1)], {"preferred": 1}),
        ([PartitionChange(ID, BY_ANOTHER, isr=(1, 3), leader=1)], {"clean": 1}),  # broker 2 has left
        ([PartitionChange(ID, LED, leader=1)], {}),  # the same leader in a new epoch
        ([PartitionChange(ID, LED, isr=(1,))], {}),
        ([PartitionChange(ID, LED, isr=(), leader=-1, elr=(1,))], {}),
        ([Partition(ID, 4, (3,), (3,), 3), PartitionChange(ID, 4, leader=3)], {"clean": 1}),
    ],
)
def test_kinds(records: list[Record], expected: dict[str, int]) -> None:
    assert counted(records) == expected


def test_a_step_of_several_records_is_judged_in_order() -> None:
    """What the second one changes is the partition as the first has left it."""
    records = [
        PartitionChange(ID, LED, isr=(), leader=-1, elr=(2,)),
        PartitionChange(ID, LED, isr=(2,), leader=2, elr=()),
        PartitionChange(ID, LED, isr=(1, 2)),
        PartitionChange(ID, LED, leader=1),
    ]
    assert counted(records) == {"elr": 1, "preferred": 1}


def test_the_last_eligible_one_that_comes_back_uncleanly_leaves_the_last_known_leader() -> None:
    """It leaves the ELR by the step that registers it, and the same record elects."""
    last_known = PartitionImage((1, 2), (), -1, 0, 0, elr=(1,), last_known_elr=(2,))
    before = MetadataImage(topics={ID: TopicImage(ID, "orders", (last_known,))})
    register = RegisterBroker(1, bytes(16), (Listener("PLAINTEXT", "h", 9092, "PLAINTEXT"),), None, ())
    for records, kind in (
        ([unclean(0, 2), register], ElectionKind.LAST_KNOWN_LEADER),
        ([unclean(0, 2)], ElectionKind.UNCLEAN),
    ):
        elections = LeaderElections()
        elections.committed(before, records)
        assert elections.counts[kind] == 1


def test_topics_that_go_do_not_cost_what_has_changed_in_others() -> None:
    """A broker dies, and many topics are deleted, in one step."""
    comparisons = 0

    class Watched(bytes):
        def __eq__(self, other: object) -> bool:
            nonlocal comparisons
            comparisons += 1
            return bytes(self) == other

        def __ne__(self, other: object) -> bool:
            return not self == other

        __hash__ = bytes.__hash__

    state = PartitionImage((1, 2), (1, 2), 1, 0, 0)
    ids = [Watched(number.to_bytes(16, "big")) for number in range(100)]
    before = MetadataImage(topics={one: TopicImage(one, one.hex(), (state,)) for one in ids})
    records: list[Record] = [PartitionChange(one, 0, isr=(2,), leader=2) for one in ids]
    records += map(RemoveTopic, ids)
    elections = LeaderElections()
    elections.committed(before, records)
    assert elections.counts[ElectionKind.CLEAN] == len(ids)
    assert comparisons <= len(ids)
