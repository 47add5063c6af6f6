"""Consumers that name their rack: where the leader sends them, and what they get at a follower (KIP-392)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kraft.protocol.errors import ErrorCode
from kraft.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from partitions.partition import FollowerFetch
from partitions.replica_selector import RACK_AWARE_SELECTOR
from partitions.topic_partition import TopicPartition
from quorum.metadata.records import BrokerChange, Listener, Record, RegisterBroker, UnregisterBroker
from tests.support.broker_world import BrokerWorld, batch, led_by, topic, topic_id

T0 = TopicPartition("t", 0)
VERSION, FIRST_WITH_RACKS = 16, 11
RACKS = {1: "a", 2: "b", 3: "c"}


@pytest.fixture
async def world() -> AsyncIterator[BrokerWorld]:
    """Broker 1 of three, each in a rack of its own, with Kafka's selector by rack."""
    world = BrokerWorld(properties=f"replica.selector.class={RACK_AWARE_SELECTOR}\n")
    await world.start()
    await world.publish(*(record for broker_id in RACKS for record in racked(broker_id)))
    yield world
    await world.close()


def racked(broker_id: int, listener: str = "PLAINTEXT") -> tuple[Record, ...]:
    """The broker is registered anew, in its rack."""
    listeners = (Listener(listener, f"broker-{broker_id}", 9092, "PLAINTEXT"),)
    identity = bytes([broker_id]) * 16
    return (
        UnregisterBroker(broker_id, broker_id),
        RegisterBroker(broker_id, identity, listeners, RACKS[broker_id], (identity,)),
        BrokerChange(broker_id, broker_id, fenced=False),
    )


def request(offset: int, *, rack: str = "", epoch: int = -1, **fields: Any) -> FetchRequest:
    wanted = FetchPartition(
        partition=0, fetch_offset=offset, current_leader_epoch=epoch, partition_max_bytes=1 << 20
    )
    topics = [FetchTopic(topic="t", topic_id=topic_id(1), partitions=[wanted])]
    body = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, rack_id=rack, topics=topics)
    for name, value in fields.items():
        setattr(body, name, value)
    return body


def data(response: FetchResponse) -> PartitionData:
    (found,) = response.responses
    (answer,) = found.partitions
    return answer


def size(answer: PartitionData) -> int:
    records: Any = answer.records
    return len(records) if isinstance(records, bytes) else sum(part.length for part in records)


def fetched_by(world: BrokerWorld, broker_id: int, offset: int) -> None:
    """The leader hears that a follower's log ends there."""
    world.replicas.partition(T0).fetch_as_follower(
        FollowerFetch(broker_id, broker_id, 0, offset), max_bytes=0, now_ms=1, min_one_batch=False
    )


async def led_with_three_records(world: BrokerWorld, *replicas: int, isr: tuple[int, ...] = ()) -> None:
    """This broker leads; the followers have everything."""
    await world.publish(*topic("t", 1, replicas, isr=isr or replicas))
    world.replicas.partition(T0).append_records(batch(b"a", b"b", b"c"), acks=1, now_ms=0)
    for broker_id in replicas[1:]:
        fetched_by(world, broker_id, 3)


# At the leader


async def test_a_consumer_is_sent_to_the_follower_in_its_rack(world: BrokerWorld) -> None:
    await led_with_three_records(world, 1, 2, 3)
    for rack, expected in (("b", 2), ("c", 3), ("a", -1), ("", -1), ("z", -1)):
        answer = data(world.handle(request(0, rack=rack), VERSION))
        assert (rack, answer.preferred_read_replica, answer.error_code) == (rack, expected, 0)
        assert (size(answer) > 0) == (expected == -1)
        assert answer.high_watermark == 3


async def test_it_is_sent_at_once_also_when_there_is_nothing_to_read(world: BrokerWorld) -> None:
    await led_with_three_records(world, 1, 2)
    answer = data(world.handle(request(3, rack="b", max_wait_ms=60_000), VERSION))
    assert answer.preferred_read_replica == 2


async def test_a_session_says_so_each_time(world: BrokerWorld) -> None:
    await led_with_three_records(world, 1, 2)
    first: FetchResponse = world.handle(request(0, rack="b", session_epoch=0), VERSION)
    assert data(first).preferred_read_replica == 2
    assert first.session_id > 0
    again = request(0, rack="b", session_id=first.session_id, session_epoch=1, topics=[], max_wait_ms=60_000)
    assert data(world.handle(again, VERSION)).preferred_read_replica == 2


async def test_older_clients_and_followers_are_not_sent_anywhere(world: BrokerWorld) -> None:
    await led_with_three_records(world, 1, 2, 3)
    for body, version in (
        (request(0), FIRST_WITH_RACKS - 1),
        (request(0, rack="b", epoch=0, replica_id=3, replica_epoch=3), VERSION),
    ):
        answer = data(world.handle(body, version))
        assert answer.preferred_read_replica == -1
        assert size(answer) > 0


async def test_nobody_is_sent_to_a_replica_out_of_sync_or_without_the_offset(world: BrokerWorld) -> None:
    await led_with_three_records(world, 1, 2, 3, isr=(1, 3))
    assert data(world.handle(request(0, rack="b"), VERSION)).preferred_read_replica == -1
    world.replicas.partition(T0).append_records(batch(b"d"), acks=1, now_ms=0)
    assert data(world.handle(request(3, rack="c"), VERSION)).preferred_read_replica == 3
    assert data(world.handle(request(4, rack="c"), VERSION)).preferred_read_replica == -1


async def test_nobody_is_sent_to_a_broker_that_is_fenced_or_has_no_such_listener(world: BrokerWorld) -> None:
    await led_with_three_records(world, 1, 2, 3)
    await world.publish(BrokerChange(2, 2, fenced=True))
    assert data(world.handle(request(0, rack="b"), VERSION)).preferred_read_replica == -1
    await world.publish(*racked(3, "OTHER"))
    assert data(world.handle(request(0, rack="c"), VERSION)).preferred_read_replica == -1


async def test_the_epoch_is_checked_before_anybody_is_sent_away(world: BrokerWorld) -> None:
    await led_with_three_records(world, 1, 2)
    await world.publish(led_by(1, 0, 1))
    fetched_by_epoch = FollowerFetch(2, 2, 1, 3)
    world.replicas.partition(T0).fetch_as_follower(
        fetched_by_epoch, max_bytes=0, now_ms=1, min_one_batch=False
    )
    answer = data(world.handle(request(0, rack="b", epoch=0), VERSION))
    assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert data(world.handle(request(0, rack="b", epoch=1), VERSION)).preferred_read_replica == 2


async def test_with_kafkas_default_everybody_reads_from_the_leader() -> None:
    world = BrokerWorld()
    await world.start()
    await world.publish(*(record for broker_id in RACKS for record in racked(broker_id)))
    await led_with_three_records(world, 1, 2)
    answer = data(world.handle(request(0, rack="b"), VERSION))
    assert answer.preferred_read_replica == -1
    assert size(answer) > 0
    await world.close()


@pytest.mark.parametrize("session_epoch", [-1, 0])
async def test_who_waits_is_sent_as_soon_as_the_follower_qualifies(
    world: BrokerWorld, session_epoch: int
) -> None:
    """It has not fetched in this leader epoch yet when the consumer comes."""
    await world.publish(*topic("t", 1, (1, 2)))
    body = request(0, rack="b", max_wait_ms=60_000, session_epoch=session_epoch)
    answer = world.handle(body, VERSION)
    fetched_by(world, 2, 0)
    world.replicas.partition(T0).append_records(batch(b"a"), acks=1, now_ms=0)
    fetched_by(world, 2, 1)
    async with asyncio.timeout(60):
        found = data(await answer)
    assert (found.preferred_read_replica, found.high_watermark, size(found)) == (2, 1, 0)


# At a follower


async def following(world: BrokerWorld, *, high_watermark: int) -> None:
    """This broker follows broker 2, and has three records, so many of them committed."""
    await world.publish(*topic("t", 1, (2, 1)))
    copied(world, batch(b"a"), high_watermark=0)
    copied(world, batch(b"b", base_offset=1), high_watermark=0)
    copied(world, batch(b"c", base_offset=2), high_watermark=high_watermark)


def copied(world: BrokerWorld, records: Any, *, high_watermark: int) -> None:
    world.replicas.partition(T0).append_as_follower(
        records, leader_epoch=0, leader_high_watermark=high_watermark, leader_log_start_offset=0
    )


async def test_a_follower_serves_what_it_knows_to_be_committed(world: BrokerWorld) -> None:
    await following(world, high_watermark=2)
    answer = data(world.handle(request(0, epoch=0), FIRST_WITH_RACKS))
    assert answer.error_code == 0
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (2, 2, 0)
    assert size(answer) == 2 * len(batch(b"a"))


async def test_between_high_watermark_and_log_end_there_is_nothing_yet(world: BrokerWorld) -> None:
    await following(world, high_watermark=1)
    for offset in (1, 2, 3):
        answer = data(world.handle(request(offset, epoch=0), VERSION))
        assert (answer.error_code, size(answer)) == (0, 0)
    beyond = data(world.handle(request(4, epoch=0), VERSION))
    assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_client_that_cannot_read_from_followers_is_sent_to_the_leader(world: BrokerWorld) -> None:
    await following(world, high_watermark=3)
    answer = data(world.handle(request(0), FIRST_WITH_RACKS - 1))
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("epoch", "error"), [(0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
async def test_another_epoch_is_refused(world: BrokerWorld, epoch: int, error: ErrorCode) -> None:
    await following(world, high_watermark=3)
    await world.publish(led_by(1, 0, 2))
    assert data(world.handle(request(0, epoch=epoch), VERSION)).error_code == error
    assert data(world.handle(request(0, epoch=1), VERSION)).error_code == 0


@pytest.mark.parametrize("session_epoch", [-1, 0])
async def test_a_long_poll_is_woken_by_the_high_watermark(world: BrokerWorld, session_epoch: int) -> None:
    """By the one that a fetch brings without any records."""
    await following(world, high_watermark=1)
    body = request(1, epoch=0, max_wait_ms=60_000, session_epoch=session_epoch)
    answer = world.handle(body, VERSION)
    copied(world, b"", high_watermark=3)
    async with asyncio.timeout(60):
        found = data(await answer)
    assert found.high_watermark == 3
    assert size(found) == 2 * len(batch(b"a"))


async def test_a_long_poll_ends_with_the_epoch(world: BrokerWorld) -> None:
    await following(world, high_watermark=3)
    answer = world.handle(request(3, epoch=0, max_wait_ms=60_000), VERSION)
    await world.publish(led_by(1, 0, 2))
    async with asyncio.timeout(60):
        assert data(await answer).error_code == ErrorCode.FENCED_LEADER_EPOCH


async def test_a_replica_that_is_gone_serves_nobody(world: BrokerWorld) -> None:
    await following(world, high_watermark=3)
    partition = world.replicas.partition(T0)
    partition.take_offline(storage_failed=False)
    assert data(world.handle(request(0), VERSION)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
