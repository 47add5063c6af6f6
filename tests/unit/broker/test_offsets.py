"""ListOffsets and OffsetForLeaderEpoch over real logs."""

from __future__ import annotations

import asyncio

import pytest

from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.offsets import (
    CONSUMER_REPLICA_ID,
    DEBUGGING_REPLICA_ID,
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from partitions.lookup_budget import RECORD_COST_BYTES
from partitions.records.builder import build_batch
from partitions.topic_partition import TopicPartition
from tests.support.broker_world import NOW_MS, BrokerWorld, batch, led_by, topic

T0 = TopicPartition("t", 0)
LATEST, EARLIEST, MAX, LOCAL, TIERED, PENDING = -1, -2, -3, -4, -5, -6


def ask(
    world: BrokerWorld,
    timestamp: int,
    *,
    version: int = 11,
    replica_id: int = CONSUMER_REPLICA_ID,
    epoch: int = -1,
    name: str = "t",
) -> ListOffsetsPartitionResponse:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=epoch)
    body = ListOffsetsRequest(
        replica_id=replica_id, topics=[ListOffsetsTopic(name=name, partitions=[wanted])]
    )
    answer: ListOffsetsPartitionResponse = world.handle(body, version).topics[0].partitions[0]
    assert answer.partition_index == 0
    return answer


def append(world: BrokerWorld, *values: bytes) -> None:
    world.replicas.partition(T0).append_records(batch(*values), acks=1, now_ms=0)


async def test_a_consumer_sees_the_high_watermark_and_a_replica_the_end(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    append(world, b"a", b"b")
    assert ask(world, LATEST).offset == 0
    assert ask(world, LATEST, replica_id=2).offset == 2
    assert ask(world, EARLIEST).offset == 0
    world.replicas.partition(T0).update_follower(2, 2, 2, 0, 2, 0)
    assert (ask(world, LATEST).offset, ask(world, LATEST).leader_epoch) == (2, 0)


async def test_special_timestamps(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    append(world, b"a", b"b")
    found = ask(world, MAX)
    assert (found.timestamp, found.offset) == (NOW_MS, 0)
    assert ask(world, LOCAL).offset == 0
    for tiered in (TIERED, PENDING):
        assert (ask(world, tiered).error_code, ask(world, tiered).offset) == (0, -1)
    assert ask(world, NOW_MS).offset == 0
    later = ask(world, NOW_MS + 1)
    assert (later.error_code, later.offset, later.timestamp, later.leader_epoch) == (0, -1, -1, -1)


@pytest.mark.parametrize(
    ("timestamp", "version"), [(MAX, 6), (LOCAL, 7), (TIERED, 8), (PENDING, 10), (-7, 11), (-(2**63), 1)]
)
async def test_a_timestamp_that_the_version_does_not_know(
    world: BrokerWorld, timestamp: int, version: int
) -> None:
    await world.start(*topic("t", 1, (1,)))
    append(world, b"a")
    answer = ask(world, timestamp, version=version)
    assert (answer.error_code, answer.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)


async def test_errors(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)), *topic("theirs", 2, (2, 1)))
    await world.publish(led_by(1, 0, 1))
    assert ask(world, LATEST, epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert ask(world, LATEST, epoch=9).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert ask(world, LATEST, name="theirs").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    missing = ask(world, LATEST, name="nowhere")
    assert (missing.error_code, missing.offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


@pytest.mark.parametrize("replica_id", [CONSUMER_REPLICA_ID, DEBUGGING_REPLICA_ID, 2])
async def test_a_partition_that_is_named_twice_is_refused(world: BrokerWorld, replica_id: int) -> None:
    await world.start(*topic("t", 1, (1, 2), (1, 2)))
    append(world, b"a")
    named = [("t", [(0, LATEST), (1, EARLIEST)]), ("nowhere", [(0, LATEST)]), ("t", [(0, -7)])]
    body = ListOffsetsRequest(
        replica_id=replica_id,
        topics=[
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                    for index, timestamp in partitions
                ],
            )
            for name, partitions in named
        ],
    )
    answers = world.handle(body, 11).topics
    assert [
        (
            answer.name,
            [(found.partition_index, found.error_code, found.offset) for found in answer.partitions],
        )
        for answer in answers
    ] == [
        ("t", [(0, ErrorCode.INVALID_REQUEST, -1), (1, 0, 0)]),
        ("nowhere", [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]),
        ("t", [(0, ErrorCode.INVALID_REQUEST, -1)]),
    ]


async def test_lookups_that_cost_much_leave_turns_to_others(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.start(*topic("t", 1, *[(1,)] * 5))
    for number in range(5):
        world.replicas.partition(TopicPartition("t", number)).append_records(
            batch(b"x" * 1000), acks=1, now_ms=0
        )
    body = ListOffsetsRequest(
        replica_id=CONSUMER_REPLICA_ID,
        topics=[
            ListOffsetsTopic(
                name="t",
                partitions=[
                    ListOffsetsPartition(partition_index=number, timestamp=NOW_MS) for number in range(5)
                ],
            )
        ],
    )
    at_once = world.handle(body, 11)
    assert [found.offset for found in at_once.topics[0].partitions] == [0] * 5
    monkeypatch.setattr("kraft.broker.handlers.offsets.STEP_COST_BYTES", 1000)
    waiting = asyncio.ensure_future(world.handle(body, 11))
    turns = 0
    while not waiting.done():
        turns += 1
        await asyncio.sleep(0)
    assert waiting.result() == at_once
    assert turns >= 4, "one between any two partitions"


async def test_the_lookups_of_one_request_have_a_budget_together(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is spent, batches are answered by their headers."""
    await world.start(*topic("t", 1, (1,), (1,), (1,)))
    records = [(NOW_MS + number, None, b"x", ()) for number in range(10)]
    for number in range(3):
        world.replicas.partition(TopicPartition("t", number)).append_records(
            build_batch(records), acks=1, now_ms=0
        )
    wanted = [ListOffsetsPartition(partition_index=number, timestamp=NOW_MS + 5) for number in range(3)]
    body = ListOffsetsRequest(
        replica_id=CONSUMER_REPLICA_ID, topics=[ListOffsetsTopic(name="t", partitions=wanted)]
    )
    monkeypatch.setattr("kraft.broker.handlers.offsets.REQUEST_COST_BYTES", 10 * RECORD_COST_BYTES)
    answers = world.handle(body, 11).topics[0].partitions
    assert [(found.timestamp - NOW_MS, found.offset) for found in answers] == [(5, 5), (9, 0), (9, 0)]


async def test_a_new_leader_does_not_know_what_is_committed(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    append(world, b"a")
    await world.publish(led_by(1, 0, 1))
    assert ask(world, LATEST).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert ask(world, LATEST, version=5).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    for version in range(1, 5):
        assert ask(world, LATEST, version=version).error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert ask(world, EARLIEST).error_code == 0


async def test_tools_see_where_any_replica_ends(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (2, 1)))
    world.replicas.partition(T0).append_as_follower(
        batch(b"a", leader_epoch=0), leader_epoch=0, leader_high_watermark=0, leader_log_start_offset=0
    )
    assert ask(world, LATEST, replica_id=DEBUGGING_REPLICA_ID).offset == 1


async def test_the_end_of_an_epoch(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    append(world, b"a")
    await world.publish(led_by(1, 0, 1), led_by(1, 0, 1))
    append(world, b"b")

    def end_of(epoch: int, current: int = 2) -> EpochEndOffset:
        wanted = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
        body = OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic="t", partitions=[wanted])], replica_id=-1
        )
        answer: EpochEndOffset = world.handle(body, 4).topics[0].partitions[0]
        return answer

    assert (end_of(0).leader_epoch, end_of(0).end_offset) == (0, 1)
    assert (end_of(1).leader_epoch, end_of(1).end_offset) == (0, 1)
    assert (end_of(2).leader_epoch, end_of(2).end_offset) == (2, 2)
    assert (end_of(9).leader_epoch, end_of(9).end_offset) == (-1, -1)
    fenced = end_of(0, current=1)
    assert (fenced.error_code, fenced.end_offset) == (ErrorCode.FENCED_LEADER_EPOCH, -1)
