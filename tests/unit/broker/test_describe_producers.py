"""DescribeProducers: what the log of a replica knows of its producers."""

from __future__ import annotations

from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.producers import (
    DescribeProducersPartition,
    DescribeProducersRequest,
    DescribeProducersTopic,
    ProducerState,
)
from partitions.records.builder import build_batch
from tests.support.broker_world import BrokerWorld, topic
from tests.support.transactions import COMMIT, marker_of, transactional
from tests.unit.broker.test_fetch import T0
from tests.unit.broker.test_fetch_committed import write


def described(world: BrokerWorld, *wanted: tuple[str, int]) -> list[DescribeProducersPartition]:
    topics = [DescribeProducersTopic(name=name, partition_indexes=[number]) for name, number in wanted]
    answer = world.handle(DescribeProducersRequest(topics=topics), 0)
    assert [t.name for t in answer.topics] == [name for name, _ in wanted]
    return [partition for t in answer.topics for partition in t.partitions]


def idempotent(producer_id: int, sequence: int, *values: bytes, epoch: int, timestamp: int) -> bytes:
    return build_batch(
        [(timestamp, None, value, ()) for value in values],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


async def test_producers_and_their_open_transactions(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    write(world, idempotent(5, 0, b"a", b"b", epoch=2, timestamp=1500))
    write(world, transactional(7, b"c", epoch=1, sequence=0))
    write(
        world, transactional(8, b"d", sequence=0), marker_of(8, COMMIT, coordinator_epoch=4, timestamp=1700)
    )
    (answer,) = described(world, ("t", 0))
    assert (answer.partition_index, answer.error_code, answer.error_message) == (0, 0, None)
    assert answer.active_producers == [
        ProducerState(5, 2, last_sequence=1, last_timestamp=1500, coordinator_epoch=-1),
        ProducerState(
            7, 1, last_sequence=0, last_timestamp=1000, coordinator_epoch=-1, current_txn_start_offset=2
        ),
        ProducerState(8, 0, last_sequence=0, last_timestamp=1700, coordinator_epoch=4),
    ]
    write(world, marker_of(7, COMMIT, epoch=3))
    assert [(p.producer_epoch, p.last_sequence) for p in described(world, ("t", 0))[0].active_producers] == [
        (2, 1),
        (3, -1),
        (0, 0),
    ]


async def test_a_follower_tells_of_its_own_log(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (2, 1)))
    records = transactional(7, b"c", sequence=0)
    world.replicas.partition(T0).log.append_as_follower(records, leader_epoch=0)
    (answer,) = described(world, ("t", 0))
    assert [p.current_txn_start_offset for p in answer.active_producers] == [0]


async def test_what_is_not_here_or_named_twice(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)), *topic("elsewhere", 2, (2,)))
    write(world, transactional(7, b"c", sequence=0))
    answers = described(world, ("t", 1), ("none", 0), ("elsewhere", 0), ("t", 0), ("t", 0))
    assert [answer.error_code for answer in answers] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert all(answer.error_message and not answer.active_producers for answer in answers)
