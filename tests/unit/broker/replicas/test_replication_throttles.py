"""Throttled replicas (KIP-73): who is held back, for how long, and what the configs make of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kraft.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from partitions.topic_partition import TopicPartition
from quorum.metadata.records import Config
from tests.support.broker_world import BrokerWorld, batch, gone, topic, topic_id

T0 = TopicPartition("t", 0)
VERSION = 16
LEADER_RATE, LEADERS = "leader.replication.throttled.rate", "leader.replication.throttled.replicas"
FOLLOWER_RATE, FOLLOWERS = "follower.replication.throttled.rate", "follower.replication.throttled.replicas"


@pytest.fixture
async def world() -> AsyncIterator[BrokerWorld]:
    world = BrokerWorld()
    await world.start()
    yield world
    await world.close()


def data(response: FetchResponse) -> PartitionData:
    (found,) = response.responses
    (answer,) = found.partitions
    return answer


def size(answer: PartitionData) -> int:
    records: Any = answer.records
    return len(records) if isinstance(records, bytes) else sum(part.length for part in records)


def fetch(
    world: BrokerWorld, follower: int, offset: int = 0, max_wait_ms: int = 0, session_epoch: int = -1
) -> Any:
    wanted = FetchPartition(
        partition=0,
        fetch_offset=offset,
        current_leader_epoch=0,
        last_fetched_epoch=0 if offset else -1,
        partition_max_bytes=1,
    )
    body = FetchRequest(
        replica_id=follower,
        replica_epoch=follower,
        max_wait_ms=max_wait_ms,
        session_epoch=session_epoch,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic="t", topic_id=topic_id(1), partitions=[wanted])],
    )
    return world.handle(body, VERSION)


async def led(world: BrokerWorld, *configs: Config) -> None:
    """This broker leads three replicas, of which the third is not in sync, and has two batches."""
    await world.publish(*topic("t", 1, (1, 2, 3), isr=(1, 2)), *configs)
    for value in (b"a" * 1000, b"b" * 1000):
        world.replicas.partition(T0).append_records(batch(value), acks=1, now_ms=0)


def limited(rate: int, replicas: str = "0:1", *, broker: str = "1") -> tuple[Config, Config]:
    return Config("broker", broker, LEADER_RATE, str(rate)), Config("topic", "t", LEADERS, replicas)


@pytest.mark.parametrize(
    "configs", [limited(100), limited(100, "*"), limited(100, broker=""), limited(100, "7:1,0:1")]
)
async def test_a_follower_out_of_sync_is_held_back_by_the_leader(
    world: BrokerWorld, configs: tuple[Config, Config]
) -> None:
    """Once the rate is reached; what reached it was sent."""
    await led(world, *configs)
    assert size(data(fetch(world, 3))) > 1000
    assert size(data(fetch(world, 3, 1))) == 0
    assert size(data(fetch(world, 2, 1))) > 1000  # in sync: never


@pytest.mark.parametrize(
    "configs",
    [
        (),
        limited(1_000_000),
        limited(100, "0:2"),
        limited(100, "1:1"),
        limited(100, broker="2"),
        (Config("broker", "1", LEADER_RATE, "1"),),
        (Config("broker", "1", FOLLOWER_RATE, "1"), Config("topic", "t", FOLLOWERS, "*")),
    ],
)
async def test_nobody_else_is(world: BrokerWorld, configs: tuple[Config, ...]) -> None:
    await led(world, *configs)
    assert size(data(fetch(world, 3))) > 1000
    assert size(data(fetch(world, 3, 1))) > 1000


async def test_what_replicas_in_sync_are_sent_counts(world: BrokerWorld) -> None:
    await led(world, *limited(100))
    assert size(data(fetch(world, 2))) > 1000
    assert size(data(fetch(world, 3))) == 0


async def test_a_held_back_fetch_tells_the_leader_how_far_the_follower_is(world: BrokerWorld) -> None:
    await led(world, *limited(0))
    fetch(world, 2)
    fetch(world, 3, 1)
    leading = world.replicas.partition(T0).leadership
    assert leading is not None
    follower = leading.follower(3)
    assert follower is not None
    assert follower.log_end_offset == 1


async def test_a_held_back_fetch_waits(world: BrokerWorld) -> None:
    """It is answered when its time is over, not in a circle."""
    await led(world, *limited(100))
    fetch(world, 2)
    answer = fetch(world, 3, max_wait_ms=200)
    async with asyncio.timeout(60):
        assert size(data(await answer)) == 0


@pytest.mark.parametrize("session_epoch", [-1, 0])
async def test_appends_do_not_wake_a_held_back_fetch(world: BrokerWorld, session_epoch: int) -> None:
    """It would go round in circles with a busy producer."""
    await led(world, *limited(100))
    fetch(world, 2)
    held_back = fetch(world, 3, max_wait_ms=60_000, session_epoch=session_epoch)
    waits = asyncio.ensure_future(_answered(held_back))
    await asyncio.sleep(0)
    world.replicas.partition(T0).append_records(batch(b"c" * 1000), acks=1, now_ms=0)
    await asyncio.sleep(0)
    assert not waits.done()
    await world.publish(Config("broker", "1", LEADER_RATE, None))
    world.replicas.partition(T0).append_records(batch(b"d" * 1000), acks=1, now_ms=0)
    async with asyncio.timeout(60):
        assert size(data(await waits)) > 1000


async def _answered(answer: Any) -> FetchResponse:
    found: FetchResponse = await answer
    return found


async def test_changes_count_at_once(world: BrokerWorld) -> None:
    await led(world, *limited(100))
    fetch(world, 2)
    assert size(data(fetch(world, 3))) == 0
    await world.publish(Config("broker", "1", LEADER_RATE, None))
    assert size(data(fetch(world, 3))) > 1000
    await world.publish(Config("broker", "", LEADER_RATE, "100"))
    assert size(data(fetch(world, 3))) == 0
    await world.publish(Config("topic", "t", LEADERS, None))
    assert size(data(fetch(world, 3))) > 1000


async def test_a_topic_takes_its_throttle_along(world: BrokerWorld) -> None:
    await led(world, *limited(100))
    fetch(world, 2)
    await world.publish(gone(1))
    await world.publish(*topic("t", 1, (1, 2, 3), isr=(1, 2)))
    world.replicas.partition(T0).append_records(batch(b"c" * 1000), acks=1, now_ms=0)
    assert size(data(fetch(world, 3))) > 1000


async def test_as_a_follower_only_what_is_out_of_sync_is_left_out(world: BrokerWorld) -> None:
    await world.publish(
        *topic("t", 1, (2, 1)),
        Config("broker", "1", FOLLOWER_RATE, "10"),
        Config("topic", "t", FOLLOWERS, "0:1"),
    )
    throttles = world.throttles
    assert not throttles.holds_back(T0, in_sync=False, now_ms=0)
    throttles.copied(T0, 1000, 0)
    throttles.copied(TopicPartition("other", 0), 1_000_000, 0)
    assert throttles.holds_back(T0, in_sync=False, now_ms=100)
    assert not throttles.holds_back(T0, in_sync=True, now_ms=100)
    assert not throttles.holds_back(TopicPartition("t", 1), in_sync=False, now_ms=100)
    assert throttles.rates(1000) == {"leader": 0.0, "follower": 1000.0}
