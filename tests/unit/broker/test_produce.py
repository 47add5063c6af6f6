"""Produce over real logs: who is answered what, when, and what is kept meanwhile."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from kraft.broker.handlers.produce import ACKS_ALL, ACKS_LEADER, ACKS_NONE
from kraft.network.connection import CloseConnectionError
from kraft.protocol.errors import ErrorCode
from kraft.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from partitions.topic_partition import TopicPartition
from quorum.metadata.records import Config
from tests.support.broker_world import BrokerWorld, batch, gone, led_by, topic

T0 = TopicPartition("t", 0)
MIN_ISR_2 = Config("topic", "t", "min.insync.replicas", "2")
VERSION = 12


def request(*data: tuple[str, int, Any], acks: int = ACKS_ALL, timeout_ms: int = 60_000) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(name=name, partition_data=[PartitionProduceData(index=n, records=records)])
            for name, n, records in data
        ],
    )


def answers(response: ProduceResponse) -> list[PartitionProduceResponse]:
    return [answer for topic_ in response.responses for answer in topic_.partition_responses]


def codes(response: ProduceResponse) -> list[ErrorCode]:
    return [ErrorCode(answer.error_code) for answer in answers(response)]


def follower_at(world: BrokerWorld, offset: int) -> None:
    world.replicas.partition(T0).update_follower(2, 2, offset, 0, offset, world.replicas.monotonic_ms())


async def test_the_leader_alone_answers_at_once(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    for first in (0, 2):
        response = world.handle(request(("t", 0, batch(b"a", b"b")), acks=ACKS_LEADER), VERSION)
        (answer,) = answers(response)
        assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (0, first, 0)
        assert answer.log_append_time_ms == -1


async def test_all_waits_for_the_high_watermark(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    waiting = asyncio.ensure_future(world.handle(request(("t", 0, batch(b"a", b"b"))), VERSION))
    follower_at(world, 1)
    await asyncio.sleep(0)
    assert not waiting.done()
    follower_at(world, 2)
    response = await waiting
    assert codes(response) == [ErrorCode.NONE]
    assert answers(response)[0].base_offset == 0


async def test_a_commit_before_the_task_has_begun_counts(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    answer = world.handle(request(("t", 0, batch(b"a"))), VERSION)
    follower_at(world, 1)
    async with asyncio.timeout(60):
        assert codes(await answer) == [ErrorCode.NONE]


async def test_a_leader_that_is_alone_in_the_isr_commits_by_itself(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2), isr=(1,)))
    assert codes(world.handle(request(("t", 0, batch(b"a"))), VERSION)) == [ErrorCode.NONE]


async def test_too_few_in_sync_replicas_append_nothing(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2), isr=(1,)), MIN_ISR_2)
    assert codes(world.handle(request(("t", 0, batch(b"a"))), VERSION)) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert world.replicas.partition(T0).log_end_offset == 0
    assert codes(world.handle(request(("t", 0, batch(b"a")), acks=ACKS_LEADER), VERSION)) == [ErrorCode.NONE]


async def test_a_time_that_passes_is_told_and_the_record_stays(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    response = await world.handle(request(("t", 0, batch(b"a")), timeout_ms=0), VERSION)
    assert codes(response) == [ErrorCode.REQUEST_TIMED_OUT]
    assert answers(response)[0].base_offset == -1
    assert world.replicas.partition(T0).log_end_offset == 1


async def test_a_leader_that_is_deposed_says_who_leads_now(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    waiting = world.handle(request(("t", 0, batch(b"a"))), VERSION)
    await world.publish(led_by(1, 0, 2))
    response = await waiting
    assert codes(response) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    hint = answers(response)[0].current_leader
    assert hint is not None
    assert (hint.leader_id, hint.leader_epoch) == (2, 1)
    (endpoint,) = response.node_endpoints
    assert (endpoint.node_id, endpoint.host, endpoint.port) == (2, "broker-2", 9092)


async def test_a_topic_made_anew_does_not_answer_for_the_old_one(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    waiting = world.handle(request(("t", 0, batch(b"old"))), VERSION)
    await world.publish(gone(1), *topic("t", 2, (1,)))
    await world.replicas.settled()
    world.replicas.partition(T0).append_records(batch(b"new", b"newer"), acks=1, now_ms=0)
    assert codes(await waiting) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


async def test_a_partition_that_is_named_twice_has_two_answers_of_one_fate(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    waiting = world.handle(request(("t", 0, batch(b"a")), ("t", 0, batch(b"b"))), VERSION)
    follower_at(world, 1)
    await world.publish(led_by(1, 0, 2))
    assert codes(await waiting) == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2


async def test_one_partition_that_fails_keeps_no_other_from_its_answer(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)), *topic("theirs", 2, (2, 1)))
    damaged = bytearray(batch(b"a"))
    damaged[-1] ^= 1
    response = world.handle(
        request(
            ("t", 0, batch(b"a")),
            ("t", 1, batch(b"a")),
            ("nowhere", 0, batch(b"a")),
            ("theirs", 0, batch(b"a")),
            ("t", 0, None),
            ("t", 0, bytes(damaged)),
        ),
        VERSION,
    )
    assert codes(response) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.INVALID_RECORD,
        ErrorCode.CORRUPT_MESSAGE,
    ]
    assert [answer.base_offset for answer in answers(response)] == [0, -1, -1, -1, -1, -1]


async def test_a_retried_batch_has_its_first_answer(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    once = batch(b"a", b"b", producer_id=7, producer_epoch=0, base_sequence=0)
    bases = [answers(world.handle(request(("t", 0, once)), VERSION))[0].base_offset for _ in range(2)]
    assert bases == [0, 0]
    assert world.replicas.partition(T0).log_end_offset == 2
    gap = batch(b"c", producer_id=7, producer_epoch=0, base_sequence=9)
    assert codes(world.handle(request(("t", 0, gap)), VERSION)) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]


async def test_no_acknowledgement_has_no_answer_and_an_error_closes(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    assert world.handle(request(("t", 0, batch(b"a")), acks=ACKS_NONE), VERSION) is None
    with pytest.raises(CloseConnectionError, match="nowhere-0"):
        world.handle(request(("nowhere", 0, batch(b"a")), acks=ACKS_NONE), VERSION)


@pytest.mark.parametrize(
    ("fields", "version", "code"),
    [
        ({"acks": 2}, VERSION, ErrorCode.INVALID_REQUIRED_ACKS),
        ({"acks": -2}, VERSION, ErrorCode.INVALID_REQUIRED_ACKS),
        ({}, 2, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_what_is_refused_is_refused_for_every_partition(
    world: BrokerWorld, fields: dict[str, Any], version: int, code: ErrorCode
) -> None:
    await world.start(*topic("t", 1, (1,), (1,)))
    body = request(("t", 0, batch(b"a")), ("t", 1, batch(b"a")))
    for name, value in fields.items():
        setattr(body, name, value)
    assert codes(world.handle(body, version)) == [code, code]
    assert world.replicas.partition(T0).log_end_offset == 0


class Frame(bytearray):
    """A frame whose end can be watched."""


async def test_a_request_that_waits_does_not_keep_its_frame(world: BrokerWorld) -> None:
    """A producer's frames are up to 100 MiB, and ISR members may be slow for 30 s."""
    await world.start(*topic("t", 1, (1, 2)))
    frame = Frame(batch(b"a"))
    watched = weakref.ref(frame)
    waiting = asyncio.ensure_future(world.handle(request(("t", 0, memoryview(frame))), VERSION))
    await asyncio.sleep(0)
    del frame
    gc.collect()
    assert watched() is None
    follower_at(world, 1)
    assert codes(await waiting) == [ErrorCode.NONE]
