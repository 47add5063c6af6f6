"""Fetch over real logs: consumers up to the high watermark, followers to the end, and the long poll."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kraft.protocol.errors import ErrorCode
from kraft.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from partitions.topic_partition import TopicPartition
from tests.support.broker_world import BrokerWorld, batch, gone, led_by, topic, topic_id

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
VERSION = 16


def request(
    *partitions: FetchPartition, topic_number: int = 1, follower: bool = False, **fields: Any
) -> FetchRequest:
    body = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic="t", topic_id=topic_id(topic_number), partitions=list(partitions))],
    )
    if follower:
        body.replica_id, body.replica_epoch = 2, 2
    for name, value in fields.items():
        setattr(body, name, value)
    return body


def at(offset: int, partition: int = 0, **fields: int) -> FetchPartition:
    return FetchPartition(
        partition=partition, fetch_offset=offset, **{"partition_max_bytes": 1 << 20, **fields}
    )


def data(response: FetchResponse) -> list[PartitionData]:
    return [answer for topic_ in response.responses for answer in topic_.partitions]


def size(answer: PartitionData) -> int:
    records: Any = answer.records
    return sum(part.length for part in records) if not isinstance(records, bytes) else len(records)


def append(world: BrokerWorld, key: TopicPartition, *values: bytes, epoch: int = -1) -> int:
    records = batch(*values)
    world.replicas.partition(key).append_records(records, acks=1, now_ms=world.replicas.monotonic_ms())
    return len(records)


async def test_a_consumer_reads_below_the_high_watermark(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    size_bytes = append(world, T0, b"a")
    append(world, T0, b"b")
    (nothing,) = data(world.handle(request(at(0)), VERSION))
    assert (size(nothing), nothing.high_watermark, nothing.error_code) == (0, 0, 0)
    world.handle(request(at(1, current_leader_epoch=0, last_fetched_epoch=0), follower=True), VERSION)
    (one,) = data(world.handle(request(at(0)), VERSION))
    assert (size(one), one.high_watermark, one.last_stable_offset) == (size_bytes, 1, 1)


async def test_a_followers_fetch_tells_how_far_it_is(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    append(world, T0, b"a", b"b")
    (first,) = data(world.handle(request(at(0, current_leader_epoch=0), follower=True), VERSION))
    assert size(first) > 0
    body = request(at(2, current_leader_epoch=0, last_fetched_epoch=0), follower=True)
    (second,) = data(world.handle(body, VERSION))
    assert second.high_watermark == 2
    assert world.replicas.partition(T0).high_watermark == 2


@pytest.mark.parametrize(
    ("replica_epoch", "leader_epoch", "code"),
    [
        (1, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),  # an earlier registration (KIP-903)
        (-1, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (2, -1, ErrorCode.FENCED_LEADER_EPOCH),
        (2, 5, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
async def test_a_follower_is_fenced(
    world: BrokerWorld, replica_epoch: int, leader_epoch: int, code: ErrorCode
) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    append(world, T0, b"a")
    body = request(at(1, current_leader_epoch=leader_epoch), follower=True, replica_epoch=replica_epoch)
    (answer,) = data(world.handle(body, VERSION))
    assert answer.error_code == code
    assert answer.partition_index == 0
    assert world.replicas.partition(T0).high_watermark == 0


async def test_a_diverging_follower_is_told_where_and_waits_for_nothing(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    append(world, T0, b"a")
    await world.publish(led_by(1, 0, 1))
    append(world, T0, b"b")
    asked = at(3, current_leader_epoch=1, last_fetched_epoch=0)
    (answer,) = data(world.handle(request(asked, follower=True, max_wait_ms=60_000), VERSION))
    assert answer.diverging_epoch is not None
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 1)
    assert size(answer) == 0


async def test_errors_carry_the_partition_and_who_leads(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (2, 3), (1,)))
    body = request(at(0, 0), at(0, 7), at(99, 1), max_wait_ms=60_000)
    first, second, third = data(world.handle(body, VERSION))
    assert first.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert first.current_leader is not None
    assert first.current_leader.leader_id == 2
    assert second.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert third.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert [answer.partition_index for answer in (first, second, third)] == [0, 7, 1]
    assert {answer.high_watermark for answer in (first, second)} == {-1}


async def test_a_topic_is_named_by_id_and_not_by_what_it_was_called(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    await world.publish(gone(1), *topic("t", 2, (1,)))
    await world.replicas.settled()
    (old,) = data(world.handle(request(at(0)), VERSION))
    assert old.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    (new,) = data(world.handle(request(at(0), topic_number=2), VERSION))
    assert new.error_code == 0
    (by_name,) = data(world.handle(request(at(0)), 12))
    assert by_name.error_code == 0


async def test_a_long_poll_ends_with_what_comes(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    answer = world.handle(request(at(0), max_wait_ms=60_000), VERSION)
    size_bytes = append(world, T0, b"a")  # before the task has begun
    async with asyncio.timeout(60):
        (found,) = data(await answer)
    assert size(found) == size_bytes
    await asyncio.sleep(0)
    assert world.replicas.fetch_purgatory.count == 0


async def test_a_followers_long_poll_ends_with_an_append(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    body = request(at(0, current_leader_epoch=0), follower=True, max_wait_ms=60_000)
    waiting = asyncio.ensure_future(world.handle(body, VERSION))
    await asyncio.sleep(0)
    append(world, T0, b"a")
    async with asyncio.timeout(60):
        (found,) = data(await waiting)
    assert size(found) > 0


async def test_a_long_poll_adds_partitions_up(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,), (1,)))
    first = append(world, T0, b"a")
    body = request(at(0, 0), at(0, 1), max_wait_ms=60_000, min_bytes=2 * first)
    waiting = asyncio.ensure_future(world.handle(body, VERSION))
    await asyncio.sleep(0)
    assert not waiting.done()
    append(world, T1, b"b")
    async with asyncio.timeout(60):
        assert [size(answer) for answer in data(await waiting)] == [first, first]


async def test_a_long_poll_ends_with_the_leadership(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    answer = world.handle(request(at(0, current_leader_epoch=0), max_wait_ms=60_000), VERSION)
    await world.publish(led_by(1, 0, 2))
    async with asyncio.timeout(60):
        (found,) = data(await answer)
    assert found.error_code == ErrorCode.FENCED_LEADER_EPOCH


async def test_a_long_poll_ends_with_the_topic(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    answer = world.handle(request(at(0), max_wait_ms=60_000), VERSION)
    await world.publish(gone(1))
    async with asyncio.timeout(60):
        (found,) = data(await answer)
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_the_first_batch_comes_whole_and_limits_hold_after_it(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,), (1,)))
    size_bytes = append(world, T0, b"x" * 500)
    append(world, T0, b"x" * 500)
    append(world, T1, b"x" * 500)
    body = request(at(0, 0, partition_max_bytes=1), at(0, 1), max_bytes=size_bytes + 10)
    assert [size(answer) for answer in data(world.handle(body, VERSION))] == [size_bytes, 0]


async def test_a_client_that_leaves_leaves_no_wait(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    waiting = asyncio.ensure_future(world.handle(request(at(0), max_wait_ms=60_000), VERSION))
    await asyncio.sleep(0)
    assert world.replicas.fetch_purgatory.count == 1
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await asyncio.sleep(0)
    assert world.replicas.fetch_purgatory.count == 0
