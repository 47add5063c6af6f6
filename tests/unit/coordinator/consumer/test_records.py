"""The records of a group of KIP-848, byte by byte as Kafka's message definitions say; and foreign ones, replayed."""

from __future__ import annotations

import pytest

from kraft.coordinator.groups import consumer_records as r
from kraft.coordinator.groups.consumer import ConsumerGroup
from kraft.coordinator.groups.context import Group, GroupType
from kraft.coordinator.shard import Decisions, Record
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.consumer_groups import ConsumerGroupHeartbeatRequest
from tests.support.consumer_group_world import GROUP_ID, GroupWorld

TOPIC_ID = bytes(range(16))
TOPICS = [r.RecordedTopicPartitions(TOPIC_ID, [0, 2])]
TOPICS_BYTES = b"\x02" + TOPIC_ID + b"\x03\0\0\0\0\0\0\0\x02" + b"\0"
"""One topic, two partitions, no tagged fields of the topic."""

EXAMPLES: list[tuple[r.Change, bytes, bytes]] = [
    (
        (r.ConsumerGroupMetadataKey("g"), r.ConsumerGroupMetadataValue(5, -2)),
        b"\0\3\0\1g",
        b"\0\0" + b"\0\0\0\5" + b"\1\0\x08" + b"\xff" * 7 + b"\xfe",
    ),
    (
        (r.ConsumerGroupMetadataKey("g"), r.ConsumerGroupMetadataValue(5, 0)),
        b"\0\3\0\1g",
        b"\0\0" + b"\0\0\0\5" + b"\0",
    ),
    (
        (
            r.ConsumerGroupMemberMetadataKey("g", "m1"),
            r.ConsumerGroupMemberMetadataValue("i", None, "c", "/h", ["a", "b"], None, 300_000, "uniform"),
        ),
        b"\0\5\0\1g\0\2m1",
        b"\0\0"
        + b"\2i"
        + b"\0"
        + b"\2c"
        + b"\3/h"
        + b"\3\2a\2b"
        + b"\0"
        + b"\0\4\x93\xe0"
        + b"\x08uniform"
        + b"\0",
    ),
    (
        (
            r.ConsumerGroupTargetAssignmentMetadataKey("g"),
            r.ConsumerGroupTargetAssignmentMetadataValue(5, 258),
        ),
        b"\0\6\0\1g",
        b"\0\0" + b"\0\0\0\5" + b"\1\0\x08" + b"\0" * 6 + b"\1\2",
    ),
    (
        (
            r.ConsumerGroupTargetAssignmentMemberKey("g", "m1"),
            r.ConsumerGroupTargetAssignmentMemberValue(TOPICS),
        ),
        b"\0\7\0\1g\0\2m1",
        b"\0\0" + TOPICS_BYTES + b"\0",
    ),
    (
        (
            r.ConsumerGroupCurrentMemberAssignmentKey("g", "m1"),
            r.ConsumerGroupCurrentMemberAssignmentValue(5, 4, 1, TOPICS, []),
        ),
        b"\0\x08\0\1g\0\2m1",
        b"\0\0" + b"\0\0\0\5" + b"\0\0\0\4" + b"\1" + TOPICS_BYTES + b"\1" + b"\0",
    ),
    (
        (
            r.ConsumerGroupRegularExpressionKey("g", "a.*"),
            r.ConsumerGroupRegularExpressionValue(["ab"], 0, 3),
        ),
        b"\0\x10\0\1g\0\3a.*",
        b"\0\0" + b"\2\3ab" + b"\0" * 8 + b"\0" * 7 + b"\3" + b"\0",
    ),
]


@pytest.mark.parametrize(("change", "key", "value"), EXAMPLES)
def test_bytes_are_kafkas(change: r.Change, key: bytes, value: bytes) -> None:
    assert r.encode(change) == Record(key, value)
    assert r.decode(key, value) == change


def test_fields_of_later_versions_are_skipped() -> None:
    """AssignmentEpochs of a topic (KIP-1251), the creation time of a group (KIP-1282)."""
    topics = b"\x02" + TOPIC_ID + b"\x03\0\0\0\0\0\0\0\x02" + b"\1\0\x09\x03\0\0\0\4\0\0\0\5"
    value = b"\0\0" + b"\0\0\0\5" + b"\0\0\0\4" + b"\1" + topics + b"\1" + b"\0"
    assert r.decode(b"\0\x08\0\1g\0\2m1", value) == EXAMPLES[5][0]
    value = b"\0\0" + b"\0\0\0\5" + b"\2\0\x08" + b"\xff" * 7 + b"\xfe" + b"\1\x08" + b"\0" * 7 + b"\1"
    assert r.decode(b"\0\3\0\1g", value) == EXAMPLES[0][0]


def joining(world: GroupWorld, member_id: str, epoch: int = 0, regex: str | None = None) -> ErrorCode:
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP_ID,
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["t"],
        subscribed_topic_regex=regex,
        topic_partitions=[] if epoch == 0 else None,
    )
    return ErrorCode(world.heartbeat(request).error_code)


@pytest.fixture
def world() -> GroupWorld:
    world = GroupWorld()
    world.topics.put("t", 2)
    assert joining(world, "m1") is ErrorCode.NONE
    return world


def test_metadata_of_partitions_is_ended_by_a_tombstone(world: GroupWorld) -> None:
    """Kafka wrote it before 4.1."""
    racks = [r.RecordedPartitionRacks(0, ["a"])]
    value = r.ConsumerGroupPartitionMetadataValue([r.RecordedTopicMetadata(TOPIC_ID, "t", 2, racks)])
    record = r.encode((r.ConsumerGroupPartitionMetadataKey(GROUP_ID), value))
    world.group.replay(*r.decode(*record))
    assert joining(world, "m2") is ErrorCode.NONE
    tombstone = r.encode((r.ConsumerGroupPartitionMetadataKey(GROUP_ID), None))
    assert [record for record, _ in world.log].count(tombstone) == 1
    assert joining(world, "m3") is ErrorCode.NONE
    assert [record for record, _ in world.log].count(tombstone) == 1


def test_a_member_in_a_state_of_a_later_version_has_to_join_again(world: GroupWorld) -> None:
    key = r.ConsumerGroupCurrentMemberAssignmentKey(GROUP_ID, "m1")
    world.group.replay(key, r.ConsumerGroupCurrentMemberAssignmentValue(1, 0, 3, [], []))
    assert joining(world, "m1", epoch=1) is ErrorCode.FENCED_MEMBER_EPOCH
    assert joining(world, "m1") is ErrorCode.NONE
    assert world.group.state == "Stable"


def test_an_expression_of_a_foreign_record_that_is_none_here_matches_nothing(world: GroupWorld) -> None:
    value = r.ConsumerGroupMemberMetadataValue("i", subscribed_topic_regex="(a)\\1")
    world.group.replay(r.ConsumerGroupMemberMetadataKey(GROUP_ID, "m2"), value)
    world.group.on_loaded(world.now, Decisions())
    assert joining(world, "m1", epoch=1) is ErrorCode.NONE
    world.change_topics("t")
    assert world.group.describe().members[1].subscribed_topic_regex == "(a)\\1"


def test_an_assignor_that_is_not_configured_any_more_has_no_vote(world: GroupWorld) -> None:
    for member_id in ("m2", "m3"):
        value = r.ConsumerGroupMemberMetadataValue(server_assignor="gone")
        world.group.replay(r.ConsumerGroupMemberMetadataKey(GROUP_ID, member_id), value)
    assert world.group.assignor == "uniform"


def test_it_is_what_the_shard_asks_groups_for(world: GroupWorld) -> None:
    group: Group = world.group
    assert (group.type, group.protocol_type, group.is_empty) == (GroupType.CONSUMER, "consumer", False)
    assert (group.is_subscribed_to("t"), group.is_subscribed_to("u")) == (True, False)


def test_tombstones_of_what_is_not_there_are_of_no_consequence() -> None:
    world = GroupWorld()
    group = ConsumerGroup(GROUP_ID, world.context())
    for change, _, _ in EXAMPLES:
        group.replay(change[0], None)
    assert not group.exists
    assert group.is_empty


def test_a_member_id_that_no_key_can_carry_is_refused(world: GroupWorld) -> None:
    before = len(world.log)
    assert joining(world, "m" * 40_000) is ErrorCode.INVALID_REQUEST
    assert joining(world, "m2", regex="a" * 40_000) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert len(world.log) == before
    assert [member.member_id for member in world.group.describe().members] == ["m1"]
