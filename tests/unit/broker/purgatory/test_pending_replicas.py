"""Requests that meet a replica which is being made ready wait for it, and nobody else does."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from kraft.broker.dispatch import HANDLERS
from kraft.broker.ready_requests import answer_when_ready
from kraft.broker.replicas.replica_manager import REPLICAS_PER_STEP
from kraft.broker.request import Request
from kraft.network.session import Session
from kraft.protocol.errors import ErrorCode
from kraft.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from kraft.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kraft.protocol.schema import Message
from kraft.protocol.schemas.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kraft.protocol.schemas.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from partitions.partition import Partition
from partitions.records.builder import build_batch
from partitions.topic_partition import TopicPartition
from quorum.metadata.records import TOPIC_RESOURCE, Config, PartitionChange
from quorum.steps import finished
from tests.support.broker_world import (
    LISTENER_NAME,
    NOW_MS,
    BrokerWorld,
    batch,
    gone,
    led_by,
    topic,
    topic_id,
)
from tests.support.logs import FailingDisk, Halted, memory_disk

LATEST = -1


def produce(
    *partitions: tuple[str, int], value: bytes = b"x", timeout_ms: int = 30_000, acks: int = 1
) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=name, partition_data=[PartitionProduceData(index=number, records=batch(value))]
            )
            for name, number in partitions
        ],
    )


def fetch(replica_id: int = -1, max_wait_ms: int = 500) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=max_wait_ms,
        min_bytes=0,
        max_bytes=1000,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=[wanted])],
    )


def list_offsets(replica_id: int = -1) -> ListOffsetsRequest:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    return ListOffsetsRequest(replica_id=replica_id, topics=[ListOffsetsTopic(name="t", partitions=[wanted])])


LIST = list_offsets()
END_OF_EPOCH = OffsetForLeaderEpochRequest(
    topics=[
        OffsetForLeaderTopic(topic="t", partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)])
    ]
)
DELETE = DeleteRecordsRequest(
    timeout_ms=30_000,
    topics=[DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])],
)


def ask(world: BrokerWorld, body: Message, version: int = 9) -> Any:
    """The answer, or a task that brings it if the request has to wait."""
    request = Request(body, version, "test", Session(LISTENER_NAME))
    answer = answer_when_ready(HANDLERS[body.API_KEY], world.services, request)
    return answer if isinstance(answer, Message) else asyncio.ensure_future(answer)  # type: ignore[arg-type]


def codes(answer: Any) -> list[ErrorCode]:
    """Of all partitions."""
    topics = getattr(answer, "responses", None) or answer.topics
    partitions = [
        partition
        for one in topics
        for partition in (getattr(one, "partition_responses", None) or one.partitions)
    ]
    return [ErrorCode(partition.error_code) for partition in partitions]


def offsets(answer: Any) -> list[int]:
    return [one.base_offset for topic in answer.responses for one in topic.partition_responses]


async def being_made(world: BrokerWorld, *ready: Any) -> None:
    """Topic t is this broker's, and its log is being made; other topics are there."""
    await world.start(*ready)
    world.executor.holding = True
    await world.publish(*topic("t", 1, (1,)))
    await asyncio.sleep(0)


async def made(world: BrokerWorld) -> None:
    world.executor.release()
    await world.replicas.settled()


@pytest.mark.parametrize(
    ("body", "version"), [(produce(("t", 0)), 9), (LIST, 7), (fetch(), 12), (END_OF_EPOCH, 4), (DELETE, 2)]
)
async def test_a_request_waits_until_the_log_is_made(world: BrokerWorld, body: Message, version: int) -> None:
    await being_made(world)
    answer = ask(world, body, version)
    await asyncio.sleep(0)
    assert not answer.done()
    await made(world)
    assert codes(await answer) == [ErrorCode.NONE]
    assert not world.replicas.pending
    assert world.replicas.pending.count == 0


async def test_what_is_appended_waits_until_a_leader_has_noted_its_epoch(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (2, 1)))
    world.executor.holding = True
    await world.publish(led_by(1, 0, 1))
    await asyncio.sleep(0)
    answer = ask(world, produce(("t", 0)))
    assert not isinstance(answer, Message)
    assert codes(ask(world, END_OF_EPOCH, 4)) == [ErrorCode.NONE], "which speaks of earlier epochs"
    await made(world)
    assert codes(await answer) == [ErrorCode.NONE]
    assert not world.replicas.pending


async def test_who_asks_for_what_is_elsewhere_or_nowhere_or_follows_is_answered_at_once(
    world: BrokerWorld,
) -> None:
    await being_made(world, *topic("elsewhere", 2, (2, 3)))
    assert codes(ask(world, produce(("elsewhere", 0)))) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert codes(ask(world, produce(("nowhere", 0)))) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert codes(ask(world, fetch(replica_id=2), 12)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert codes(ask(world, list_offsets(replica_id=2), 7)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert codes(ask(world, fetch(max_wait_ms=0), 12)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


async def test_a_replica_that_is_to_follow_is_not_waited_for(world: BrokerWorld) -> None:
    await being_made(world)
    waiting = ask(world, produce(("t", 0)))
    await world.publish(PartitionChange(topic_id(1), 0, replicas=(1, 2), isr=(1, 2)), led_by(1, 0, 2))
    assert codes(await waiting) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert codes(ask(world, LIST, 7)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert not world.replicas.pending
    await made(world)


async def test_a_request_waits_for_a_leader_whose_turn_is_still_to_come(world: BrokerWorld) -> None:
    """Of many partitions that move at once, the last are brought in line some steps after the first."""
    many = REPLICAS_PER_STEP + 1
    await world.start(*topic("t", 1, *[(2, 1)] * many), *topic("mine", 2, *[(1, 2)] * many))
    moved = [led_by(1, number, 1) for number in range(many)]
    shrunk = [PartitionChange(topic_id(2), number, isr=(1,)) for number in range(many)]
    steps = world.publish_begun(*moved, *shrunk)
    assert next(steps, True) is None
    ready, waiting = ask(world, produce(("t", 0))), ask(world, produce(("t", many - 1)))
    assert codes(ask(world, produce(("mine", many - 1)))) == [ErrorCode.NONE], "it led before"
    await asyncio.sleep(0)
    assert not waiting.done()
    finished(steps)
    await world.replicas.settled()
    assert codes(await ready) == codes(await waiting) == [ErrorCode.NONE]
    assert not world.replicas.pending


BEYOND = REPLICAS_PER_STEP + 2
"""So many that the last have their turn after the first."""
SHRUNK = [PartitionChange(topic_id(1), number, isr=(1,)) for number in range(BEYOND)]


@pytest.fixture
async def few_in_sync(world: BrokerWorld) -> BrokerWorld:
    """Leads the partitions of "few", whose min.insync.replicas allow no smaller ISR, and those of "gone"."""
    await world.start(*topic("few", 1, *[(1, 2)] * BEYOND), *topic("gone", 2, *[(1, 2)] * BEYOND))
    await world.publish(
        Config(TOPIC_RESOURCE, "few", "min.insync.replicas", "2"),
        Config(TOPIC_RESOURCE, "few", "cleanup.policy", "compact"),
    )
    return world


def isr_of(world: BrokerWorld, key: TopicPartition) -> tuple[int, ...]:
    leading = world.replicas.partition(key).leadership
    assert leading is not None
    return leading.isr.committed


async def test_a_leader_takes_records_by_the_newest_metadata_before_its_turn(
    few_in_sync: BrokerWorld,
) -> None:
    """Clients may have been told of them already: of its ISR, and of who leads."""
    world = few_in_sync
    steps = world.publish_begun(*SHRUNK, *(led_by(2, number, 2) for number in range(BEYOND)))
    assert next(steps, True) is None
    refused = ask(world, produce(("few", BEYOND - 1), ("gone", BEYOND - 1), acks=-1))
    assert codes(refused) == [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    other = TopicPartition("few", BEYOND - 2)
    assert isr_of(world, other) == (1, 2), "nobody asked for it"
    finished(steps)
    assert isr_of(world, other) == (1,)
    assert not world.replicas.pending


async def test_so_it_does_where_the_request_had_to_wait_for_another(few_in_sync: BrokerWorld) -> None:
    world = few_in_sync
    world.executor.holding = True
    await world.publish(*topic("made", 3, (1,)))
    await asyncio.sleep(0)
    waiting = ask(world, produce(("made", 0), ("few", BEYOND - 1), acks=-1))
    steps = world.publish_begun(*SHRUNK)
    await made(world)
    assert codes(await waiting) == [ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS]
    finished(steps)


async def test_so_it_does_where_records_were_checked_first(few_in_sync: BrokerWorld) -> None:
    world = few_in_sync
    world.executor.holding = True
    many = [(NOW_MS, b"k%d" % number, b"v" * 100, ()) for number in range(3_000)]
    data = PartitionProduceData(index=BEYOND - 1, records=build_batch(many))
    body = ProduceRequest(
        acks=-1, timeout_ms=1_000, topic_data=[TopicProduceData(name="few", partition_data=[data])]
    )
    checked = ask(world, body)
    await asyncio.sleep(0)
    assert world.replicas.appends.gates.count == 1
    steps = world.publish_begun(*SHRUNK)
    world.executor.release()
    assert codes(await checked) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    finished(steps)


async def test_metadata_that_cannot_be_applied_to_a_leader_in_advance_halt_the_node(
    few_in_sync: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = few_in_sync
    steps = world.publish_begun(*SHRUNK)

    def defect(*_: Any) -> None:
        raise AssertionError("a defect")

    with monkeypatch.context() as defective:
        defective.setattr(Partition, "apply_state", defect)
        with pytest.raises(Halted, match="few-201 could not be applied"):
            ask(world, produce(("few", BEYOND - 1)))
    world.halts.clear()
    finished(steps)


async def test_the_wait_ends_with_the_time_of_the_request(world: BrokerWorld) -> None:
    await being_made(world)
    answer = ask(world, produce(("t", 0), timeout_ms=5))
    assert codes(await answer) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert world.replicas.pending, "it is being made still"
    await made(world)
    assert codes(ask(world, produce(("t", 0)))) == [ErrorCode.NONE]


async def test_the_wait_ends_when_the_topic_goes(world: BrokerWorld) -> None:
    await being_made(world)
    answer = ask(world, produce(("t", 0)))
    await world.publish(gone(1))
    await made(world)
    assert codes(await answer) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert not world.replicas.pending


async def test_a_topic_made_anew_is_waited_for_though_the_old_log_goes_first(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    world.executor.holding = True
    await world.publish(gone(1), *topic("t", 2, (1,)))
    await asyncio.sleep(0)
    answer = ask(world, produce(("t", 0)))
    await made(world)
    assert (codes(await answer), offsets(await answer)) == ([ErrorCode.NONE], [0])


async def test_what_comes_behind_a_request_that_waits_is_appended_behind_it(world: BrokerWorld) -> None:
    await being_made(world, *topic("ready", 2, (1,)), *topic("other", 3, (1,)))
    first = ask(world, produce(("t", 0), ("ready", 0), value=b"first"))
    second = ask(world, produce(("ready", 0), value=b"second"))
    third = ask(world, produce(("ready", 0), ("other", 0), value=b"third"))
    fourth = ask(world, produce(("other", 0), value=b"fourth"))
    await asyncio.sleep(0)
    assert [task.done() for task in (first, second, third, fourth)] == [False] * 4
    await made(world)
    assert offsets(await first) == [0, 0]
    assert offsets(await second) == [1]
    assert offsets(await third) == [2, 0]
    assert offsets(await fourth) == [1]
    assert not world.replicas.pending


async def test_a_request_that_comes_when_the_log_is_ready_stays_behind_those_that_waited(
    world: BrokerWorld,
) -> None:
    await being_made(world)
    first = ask(world, produce(("t", 0), value=b"first"))
    world.executor.release()
    for _ in range(100):  # up to the very turn in which the log is there
        if world.replicas.partition_count:
            break
        await asyncio.sleep(0)
    assert world.replicas.partition_count
    assert not first.done()
    second = ask(world, produce(("t", 0), value=b"second"))
    assert (offsets(await first), offsets(await second)) == ([0], [1])


@pytest.mark.parametrize("turns", [0, 1])
async def test_a_client_that_leaves_holds_nobody_up(world: BrokerWorld, turns: int) -> None:
    """Also one that leaves in the very turn of the loop in which it asked."""
    await being_made(world, *topic("ready", 2, (1,)))
    first = ask(world, produce(("t", 0), ("ready", 0)))
    second = ask(world, produce(("ready", 0)))
    for _ in range(turns):
        await asyncio.sleep(0)
    first.cancel()
    assert codes(await second) == [ErrorCode.NONE]
    await made(world)
    assert world.replicas.partition(TopicPartition("t", 0)).log_end_offset == 0
    assert not world.replicas.pending


async def test_those_behind_a_request_whose_time_is_over_go_on_with_it(world: BrokerWorld) -> None:
    await being_made(world, *topic("ready", 2, (1,)))
    first = ask(world, produce(("t", 0), ("ready", 0), timeout_ms=5))
    second = ask(world, produce(("ready", 0)))
    assert codes(await first) == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]
    assert offsets(await second) == [1]


async def test_more_than_so_many_do_not_wait(world: BrokerWorld) -> None:
    world.replicas.pending.waiting_max = 1
    await being_made(world)
    first = ask(world, LIST, 7)
    assert codes(ask(world, LIST, 7)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    await made(world)
    assert codes(await first) == [ErrorCode.NONE]


async def test_a_log_that_cannot_be_made_is_not_waited_for_any_longer() -> None:
    failing = FailingDisk(memory_disk())
    world = BrokerWorld(failing, directories=("/data", "/more"))  # type: ignore[arg-type]
    await being_made(world)
    answer = ask(world, produce(("t", 0)))
    failing.fail = lambda operation, path: errno.EIO if "t-0" in path else None
    await made(world)
    assert codes(await answer) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert not world.replicas.pending
    failing.fail = lambda operation, path: None
    await world.close()
