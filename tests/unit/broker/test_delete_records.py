"""DeleteRecords over real logs: what goes, who is waited for, who is answered what."""

from __future__ import annotations

import asyncio

import pytest

from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from partitions.log.errors import OffsetOutOfRange
from partitions.topic_partition import TopicPartition
from quorum.metadata.records import BrokerChange, Config
from tests.support.broker_world import BrokerWorld, batch, gone, led_by, topic

T0 = TopicPartition("t", 0)
VERSION = 2


def request(*offsets: tuple[str, int, int], timeout_ms: int = 60_000) -> DeleteRecordsRequest:
    return DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(name, [DeleteRecordsPartition(partition_index=number, offset=offset)])
            for name, number, offset in offsets
        ],
        timeout_ms=timeout_ms,
    )


def results(response: DeleteRecordsResponse) -> list[tuple[int, int]]:
    """(error code, low watermark)"""
    found: list[DeleteRecordsPartitionResult] = [
        result for answered in response.topics for result in answered.partitions
    ]
    return [(result.error_code, result.low_watermark) for result in found]


async def filled(world: BrokerWorld, replicas: tuple[int, ...] = (1,), *, count: int = 10) -> None:
    await world.start(*topic("t", 1, replicas))
    for number in range(count):
        world.replicas.partition(T0).append_records(batch(b"%d" % number), acks=1, now_ms=0)


def follower_at(world: BrokerWorld, broker_id: int, offset: int, start: int) -> None:
    partition = world.replicas.partition(T0)
    now_ms = world.replicas.monotonic_ms()
    partition.update_follower(broker_id, broker_id, offset, start, partition.log_end_offset, now_ms)


async def test_a_leader_alone_answers_at_once(world: BrokerWorld) -> None:
    await filled(world)
    assert results(world.handle(request(("t", 0, 4)), VERSION)) == [(0, 4)]
    partition = world.replicas.partition(T0)
    assert partition.log_start_offset == 4
    with pytest.raises(OffsetOutOfRange):
        partition.read_for_consumer(3, max_bytes=100)
    assert partition.read_for_consumer(4, max_bytes=100).log_start_offset == 4
    assert results(world.handle(request(("t", 0, 2)), VERSION)) == [(0, 4)], "it never goes back"
    assert results(world.handle(request(("t", 0, -1)), VERSION)) == [(0, 10)]
    assert (partition.log_start_offset, partition.log_end_offset) == (10, 10)


async def test_what_is_not_there_or_not_committed_is_out_of_range(world: BrokerWorld) -> None:
    await filled(world, (1, 2))
    follower_at(world, 2, 6, 0)
    wrong = [(ErrorCode.OFFSET_OUT_OF_RANGE, -1)]
    for offset in (7, 11, -2):
        assert results(world.handle(request(("t", 0, offset)), VERSION)) == wrong
    assert world.replicas.partition(T0).log_start_offset == 0


async def test_what_cannot_be_deleted_here(world: BrokerWorld) -> None:
    await filled(world)
    await world.publish(
        *topic("followed", 2, (2, 1)), *topic("elsewhere", 3, (2,)), *topic("__consumer_offsets", 4, (1,))
    )
    asked = request(
        ("followed", 0, 0), ("elsewhere", 0, 0), ("none", 0, 0), ("t", 1, 0), ("__consumer_offsets", 0, 0)
    )
    assert [ErrorCode(code) for code, _ in results(world.handle(asked, VERSION))] == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]


@pytest.mark.parametrize(("policy", "code"), [("compact", 44), ("compact,delete", 0), ("", 0)])
async def test_a_topic_that_only_compacts_deletes_nothing(world: BrokerWorld, policy: str, code: int) -> None:
    await filled(world)
    await world.publish(Config("topic", "t", "cleanup.policy", policy))
    ((found, _),) = results(world.handle(request(("t", 0, 5)), VERSION))
    assert found == code
    assert world.replicas.partition(T0).log_start_offset == (0 if code else 5)


async def test_the_answer_waits_until_every_live_replica_starts_there(world: BrokerWorld) -> None:
    await filled(world, (1, 2, 3))
    for broker_id in (2, 3):
        follower_at(world, broker_id, 10, 0)
    waiting = asyncio.ensure_future(world.handle(request(("t", 0, 5)), VERSION))
    follower_at(world, 2, 10, 5)
    await asyncio.sleep(0)
    assert not waiting.done()
    follower_at(world, 3, 10, 7)
    assert results(await waiting) == [(0, 5)]
    assert world.replicas.delete_records_purgatory.count == 0


async def test_a_replica_that_has_not_fetched_yet_is_waited_for_and_a_dead_one_is_not(
    world: BrokerWorld,
) -> None:
    await filled(world, (1, 2, 3), count=0)
    await world.publish(led_by(1, 0, 1, isr=(1,)))
    world.replicas.partition(T0).append_records(batch(b"a", b"b"), acks=1, now_ms=0)
    waiting = asyncio.ensure_future(world.handle(request(("t", 0, 1)), VERSION))
    follower_at(world, 2, 2, 1)
    await asyncio.sleep(0)
    assert not waiting.done()
    await world.publish(BrokerChange(3, 3, fenced=True))
    assert results(await waiting) == [(0, 1)]


async def test_time_runs_out_but_the_leader_has_deleted(world: BrokerWorld) -> None:
    await filled(world, (1, 2))
    follower_at(world, 2, 10, 0)
    answer = await world.handle(request(("t", 0, 5), timeout_ms=1), VERSION)
    assert results(answer) == [(ErrorCode.REQUEST_TIMED_OUT, -1)]
    assert world.replicas.partition(T0).log_start_offset == 5


@pytest.mark.parametrize("deleted", [False, True])
async def test_a_leader_that_loses_its_role_says_so(world: BrokerWorld, deleted: bool) -> None:
    await filled(world, (1, 2))
    follower_at(world, 2, 10, 0)
    waiting = asyncio.ensure_future(world.handle(request(("t", 0, 5)), VERSION))
    await asyncio.sleep(0)
    await world.publish(gone(1) if deleted else led_by(1, 0, 2))
    assert results(await waiting) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]


async def test_a_follower_takes_the_start_over(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (2, 1)))
    partition = world.replicas.partition(T0)
    partition.append_as_follower(
        batch(b"a", b"b", leader_epoch=0), leader_epoch=0, leader_high_watermark=2, leader_log_start_offset=0
    )
    partition.append_as_follower(b"", leader_epoch=0, leader_high_watermark=2, leader_log_start_offset=1)
    assert partition.log_start_offset == 1


async def test_the_start_survives_a_restart_and_files_go_with_retention(world: BrokerWorld) -> None:
    await filled(world, count=0)
    await world.publish(Config("topic", "t", "segment.bytes", "200"))
    for number in range(10):
        world.replicas.partition(T0).append_records(batch(b"%d" % number), acks=1, now_ms=0)
    before = [name for name in world.disk.list_dir("/data/t-0") if name.endswith(".log")]
    world.handle(request(("t", 0, 6)), VERSION)
    await world.logs.retention.step(world.replicas.high_watermark, max_logs=10)
    await world.logs.removals.remove_due()
    left = [name for name in world.disk.list_dir("/data/t-0") if name.endswith((".log", ".deleted"))]
    assert left == [name for name in before if name > f"{5:020d}"]
    await world.logs.checkpoints.write_log_start_offsets()
    await world.close()
    again = BrokerWorld(world.disk)
    await again.start(*topic("t", 1, (1,)))
    assert again.replicas.partition(T0).log_start_offset == 6
    await again.close()
