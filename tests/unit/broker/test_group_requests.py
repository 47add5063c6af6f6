"""What members are told where their coordinator cannot answer: errors that their clients know how to go on from."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

import pytest

from kraft.broker.coordinators.shard_log import PartitionShardLog
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schema import Message
from kraft.protocol.schemas.classic_groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
)
from kraft.protocol.schemas.group_admin import DescribeGroupsRequest, ListGroupsRequest
from kraft.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from partitions.topic_partition import TopicPartition
from quorum.metadata.records import Config
from tests.support.broker_world import BrokerWorld, topic

OFFSETS = topic("__consumer_offsets", 9, (1,))
T = topic("t", 1, (1,))


async def ask(world: BrokerWorld, body: Message, version: int) -> Any:
    answer = world.handle(body, version)
    return await answer if isinstance(answer, Awaitable) else answer


def commit(group_id: str, offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(0, offset, committed_metadata="")
    return OffsetCommitRequest(group_id, topics=[OffsetCommitRequestTopic("t", partitions=[partition])])


def fetch(group_id: str) -> OffsetFetchRequest:
    wanted = OffsetFetchRequestTopics("t", partition_indexes=[0])
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id, topics=[wanted])])


@pytest.fixture
async def loaded(world: BrokerWorld) -> BrokerWorld:
    """Broker 1 coordinates all groups."""
    world.replicas.leaderships.add(world.groups.runtime)
    await world.start(*OFFSETS, *T)
    await until_loaded(world)
    return world


async def until_loaded(world: BrokerWorld) -> None:
    for _ in range(10_000):
        if not world.groups.runtime.is_loading:
            return
        await asyncio.sleep(0)
    pytest.fail("the shard is not loaded")


def elect_anew(world: BrokerWorld) -> None:
    """Until the loop has its next turn the log is not read."""
    key, runtime = TopicPartition("__consumer_offsets", 0), world.groups.runtime
    runtime.on_resigned(key, 0)
    runtime.on_elected(key, 0)


async def test_who_syncs_while_the_group_is_loaded_joins_anew(loaded: BrokerWorld) -> None:
    elect_anew(loaded)
    answer = await ask(loaded, SyncGroupRequest("g", 1, "m"), 3)
    assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS


async def test_who_joins_while_the_group_is_loaded_asks_again(loaded: BrokerWorld) -> None:
    elect_anew(loaded)
    answer = await ask(loaded, JoinGroupRequest("g", 10_000, 10_000), 4)
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_who_lives_on_while_the_group_is_loaded_goes_on(loaded: BrokerWorld) -> None:
    elect_anew(loaded)
    answer = await ask(loaded, HeartbeatRequest("g", 1, "m"), 3)
    assert answer.error_code == ErrorCode.NONE


async def test_offsets_whose_commit_does_not_come_about_are_looked_for_elsewhere(
    loaded: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java's consumers before 3.9 fail for COORDINATOR_NOT_AVAILABLE."""
    monkeypatch.setattr("kraft.coordinator.runtime.WAITING_MAX", 0)
    answer = await ask(loaded, fetch("g"), 8)
    assert answer.groups[0].error_code == ErrorCode.NOT_COORDINATOR
    answer = await ask(loaded, commit("g", 1), 9)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_the_only_replica_takes_more_commits_than_may_be_uncommitted(
    loaded: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraft.coordinator.runtime.UNCOMMITTED_MAX", 3)
    for offset in range(10):
        answer = await ask(loaded, commit("g", offset), 9)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    answer = await ask(loaded, fetch("g"), 8)
    assert answer.groups[0].topics[0].partitions[0].committed_offset == 9


async def test_offsets_of_no_group_are_not_deleted(loaded: BrokerWorld) -> None:
    answer = await ask(loaded, OffsetDeleteRequest(""), 0)
    assert answer.error_code == ErrorCode.INVALID_GROUP_ID


async def test_what_the_offsets_topic_does_not_take_any_more_is_refused_and_costs_no_shard(
    loaded: BrokerWorld,
) -> None:
    await ask(loaded, commit("other", 5), 9)
    await loaded.publish(Config("topic", "__consumer_offsets", "max.message.bytes", "2000"))
    large = [JoinGroupRequestProtocol("range", bytes(3_000))]
    request = JoinGroupRequest("g", 10_000, 10_000, protocol_type="consumer", protocols=large)
    answer = await ask(loaded, request, 4)
    assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    many = [OffsetCommitRequestPartition(0, n, committed_metadata="m" * 1_000) for n in range(3)]
    body = OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", partitions=many)])
    answer = await ask(loaded, body, 9)
    assert {one.error_code for one in answer.topics[0].partitions} == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    await loaded.publish(Config("topic", "__consumer_offsets", "max.message.bytes", "10000"))
    answer = await ask(loaded, request, 4)
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert not loaded.groups.runtime.is_loading


async def test_a_group_of_offsets_is_known_though_nothing_can_be_appended(
    loaded: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ask(loaded, commit("g", 5), 9)
    monkeypatch.setattr(
        PartitionShardLog,
        "refusal",
        lambda self, *, appends: ErrorCode.COORDINATOR_NOT_AVAILABLE if appends else None,
    )
    elect_anew(loaded)
    await until_loaded(loaded)
    answer = await ask(loaded, ListGroupsRequest(), 4)
    assert [group.group_id for group in answer.groups] == ["g"]
    answer = await ask(loaded, DescribeGroupsRequest(groups=["g"]), 6)
    assert [(group.error_code, group.group_state) for group in answer.groups] == [(ErrorCode.NONE, "Empty")]


async def test_a_shard_takes_no_more_groups_than_it_may_have(world: BrokerWorld) -> None:
    world.groups.settings = replace(world.groups.settings, groups_max=1)
    world.replicas.leaderships.add(world.groups.runtime)
    await world.start(*OFFSETS, *T)
    await until_loaded(world)

    async def committed(group_id: str) -> int:
        answer = await ask(world, commit(group_id, 1), 8)
        return int(answer.topics[0].partitions[0].error_code)

    assert await committed("a") == ErrorCode.NONE
    assert await committed("b") == ErrorCode.GROUP_MAX_SIZE_REACHED
    join = JoinGroupRequest(
        "b", 10_000, 10_000, protocol_type="consumer", protocols=[JoinGroupRequestProtocol("range", b"")]
    )
    assert (await ask(world, join, 3)).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert await committed("a") == ErrorCode.NONE, "those that are there go on"
