"""While a flush that flush.messages made due is outstanding: who waits, who does not, and what a power loss leaves."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kraft.coordinator.transactions.requests import InitProducer
from kraft.protocol.errors import ErrorCode
from kraft.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kraft.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kraft.protocol.schemas.producers import InitProducerIdResponse
from partitions.log.log import PartitionLog
from partitions.partition import Partition
from partitions.topic_partition import TopicPartition
from quorum.metadata.records import Config
from tests.support.broker_world import BrokerWorld, batch, led_by, topic
from tests.support.logs import FailingDisk, memory_disk, new_storage, simulated_disk

T0 = TopicPartition("t", 0)
ALONE, FOLLOWING = topic("t", 1, (1,)), topic("t", 1, (2, 1))
FLUSHED = Config("topic", "t", "flush.messages", "1")
VERSION = 12


def produce(world: BrokerWorld, value: bytes, acks: int, timeout_ms: int = 60_000) -> Any:
    data = [PartitionProduceData(index=0, records=batch(value))]
    topics = [TopicProduceData(name="t", partition_data=data)]
    return world.handle(ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics), VERSION)


async def code_of(answer: Any) -> ErrorCode:
    answered = await answer if isinstance(answer, Awaitable) else answer
    return ErrorCode(answered.responses[0].partition_responses[0].error_code)


def replica(world: BrokerWorld) -> Partition:
    return world.replicas.partition(T0)


def log_of(world: BrokerWorld) -> PartitionLog:
    found = world.logs.get(T0)
    assert found is not None
    return found


async def flushes_end(world: BrokerWorld) -> None:
    while tasks := list(world.replicas.events.log_flusher._tasks.values()):
        await asyncio.gather(*tasks)


async def turns_until(condition: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0)
    pytest.fail("it does not come about")


@pytest.mark.parametrize("acks", [1, -1])
async def test_an_acknowledgement_waits_for_the_flush(world: BrokerWorld, acks: int) -> None:
    await world.start(*ALONE, FLUSHED)
    world.executor.holding = True
    answer = produce(world, b"a", acks)
    assert isinstance(answer, Awaitable)
    assert replica(world).read_for_consumer(0, max_bytes=1000).records is None
    assert (replica(world).high_watermark, replica(world).log_end_offset) == (0, 1)
    world.executor.release()
    assert await code_of(answer) is ErrorCode.NONE
    assert (replica(world).high_watermark, log_of(world).recovery_point) == (1, 1)


async def test_who_asks_for_no_acknowledgement_does_not_wait(world: BrokerWorld) -> None:
    await world.start(*ALONE, FLUSHED)
    world.executor.holding = True
    assert produce(world, b"a", 0) is None
    assert log_of(world).awaits_flush


@pytest.mark.parametrize("acks", [1, -1])
async def test_without_a_due_flush_nobody_waits(world: BrokerWorld, acks: int) -> None:
    await world.start(
        *ALONE, Config("topic", "t", "flush.messages", "3"), Config("topic", "t", "flush.ms", "1")
    )
    world.executor.holding = True
    assert await code_of(produce(world, b"a", acks)) is ErrorCode.NONE
    assert log_of(world).recovery_point == 0


async def test_one_fsync_covers_all_that_wait(world: BrokerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.start(*ALONE, FLUSHED)
    world.executor.holding = True
    first = produce(world, b"first", 1)
    await asyncio.sleep(0)
    others = [produce(world, b"%d" % n, acks) for n in range(30) for acks in (1, -1)]
    jobs: list[object] = []
    run = world.executor.run

    async def noted(job: Any, *args: object) -> Any:
        jobs.append(job)
        return await run(job, *args)

    monkeypatch.setattr(world.executor, "run", noted)
    world.executor.release()
    assert {await code_of(answer) for answer in (first, *others)} == {ErrorCode.NONE}
    assert len(jobs) == 1, "the first flush was under way"


async def test_a_flush_that_takes_too_long_times_out(world: BrokerWorld) -> None:
    await world.start(*ALONE, FLUSHED)
    world.executor.holding = True
    assert await code_of(produce(world, b"a", 1, timeout_ms=1)) is ErrorCode.REQUEST_TIMED_OUT
    assert world.replicas.events.flush_purgatory.entries_of(T0) == 0


@pytest.mark.parametrize("acks", [1, -1])
async def test_who_waits_hears_that_the_leadership_is_gone(world: BrokerWorld, acks: int) -> None:
    await world.start(*topic("t", 1, (1, 2)), FLUSHED)
    world.executor.holding = True
    answer = produce(world, b"a", acks)
    await world.publish(led_by(1, 0, 2))
    assert await code_of(answer) is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("acks", [1, -1])
async def test_who_waits_hears_that_the_disk_failed(acks: int) -> None:
    disk = FailingDisk(memory_disk())
    world = BrokerWorld(disk, directories=("/data", "/more"))  # type: ignore[arg-type]
    await world.start(*ALONE, FLUSHED)
    world.executor.holding = True
    answer = produce(world, b"a", acks)
    disk.fail = lambda operation, path: errno.EIO if operation == "sync" and "t-0" in path else None
    world.executor.release()
    assert await code_of(answer) is ErrorCode.KAFKA_STORAGE_ERROR
    assert len(world.logs.usable_directories) == 1
    await world.close()


async def test_a_replica_that_follows_does_not_fetch_what_another_process_left_unflushed() -> None:
    storage = new_storage()
    before = BrokerWorld(simulated_disk(storage))
    await before.start(*ALONE)
    replica(before).append_records(batch(b"a"), acks=1, now_ms=0)
    storage.locks.clear()  # it was killed
    world = BrokerWorld(simulated_disk(storage))
    world.executor.holding = True
    await world.start(*FOLLOWING, FLUSHED)
    assert replica(world).awaits_flush
    for _ in range(10):
        await asyncio.sleep(0)
    assert 2 not in world.leaders or world.leaders[2].asked == []
    world.executor.release()
    await flushes_end(world)
    for _ in range(10):
        await asyncio.sleep(0)
    (request,) = world.leaders[2].asked
    assert [asked.fetch_offset for asked in request.partitions] == [1]
    await world.close()


async def test_a_config_that_is_taken_away_ends_all_waits(world: BrokerWorld) -> None:
    await world.start(*ALONE, FLUSHED)
    world.executor.holding = True
    answers = [produce(world, b"a", acks) for acks in (1, -1)]
    await world.publish(Config("topic", "t", "flush.messages", None))
    assert [await code_of(answer) for answer in answers] == [ErrorCode.NONE] * 2
    assert log_of(world).recovery_point == 0


async def test_what_was_acknowledged_is_there_after_a_power_loss() -> None:
    """In any segment, and in leader epochs without a record too."""
    for storage in [new_storage(seed) for seed in range(8)]:
        world = BrokerWorld(simulated_disk(storage))
        await world.start(*ALONE, FLUSHED, Config("topic", "t", "segment.bytes", "1024"))
        acknowledged = 0
        for number in range(40):
            assert await code_of(produce(world, b"%d" % number * 20, 1)) is ErrorCode.NONE
            acknowledged += 1
            if number % 10 == 9:
                await world.publish(led_by(1, 0, -1))
                await world.publish(led_by(1, 0, 1))
        assert len(log_of(world).segment_base_offsets) > 3
        epochs = log_of(world).epochs.entries
        world.executor.holding = True
        for _ in range(5):
            produce(world, b"nobody was told of it", 1)
        storage.lose_power()

        again = BrokerWorld(simulated_disk(storage))
        await again.start(*topic("t", 1, (1,), epoch=20), FLUSHED)
        assert log_of(again).log_end_offset >= acknowledged
        assert log_of(again).epochs.entries[:4] == epochs[:4]
        await again.close()


async def test_an_offset_commit_waits_for_the_flush_of_the_internal_topic(world: BrokerWorld) -> None:
    world.replicas.leaderships.add(world.groups.runtime)
    offsets = topic("__consumer_offsets", 9, (1,))
    await world.start(*offsets, *ALONE, Config("topic", "__consumer_offsets", "flush.messages", "1"))
    await turns_until(lambda: not world.groups.runtime.is_loading)
    world.executor.holding = True
    partition = OffsetCommitRequestPartition(0, 7, committed_metadata="")
    body = OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", partitions=[partition])])
    answer = asyncio.ensure_future(world.handle(body, 8))
    log = world.logs.get(TopicPartition("__consumer_offsets", 0))
    assert log is not None
    await turns_until(lambda: log.log_end_offset > 0)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not answer.done()
    world.executor.release()
    answered = await answer
    assert answered.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert log.recovery_point == log.log_end_offset


async def test_a_transactional_producer_waits_for_the_flush_of_the_internal_topic(world: BrokerWorld) -> None:
    world.replicas.leaderships.add(world.transactions.runtime)
    await world.start(
        *topic("__transaction_state", 9, (1,)), Config("topic", "__transaction_state", "flush.messages", "1")
    )
    await turns_until(lambda: not world.transactions.runtime.is_loading)
    world.executor.holding = True
    request = InitProducer("id", 60_000, expected=None, new_producer_id=7)
    answer = world.transactions.submit("id", request)
    log = world.logs.get(TopicPartition("__transaction_state", 0))
    assert log is not None
    await turns_until(lambda: log.log_end_offset > 0)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not answer.done()
    world.executor.release()
    answered = await answer
    assert isinstance(answered, InitProducerIdResponse)
    assert (answered.error_code, answered.producer_id) == (ErrorCode.NONE, 7)
    assert log.recovery_point == log.log_end_offset
