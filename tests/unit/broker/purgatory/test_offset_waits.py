"""Waiting for watermarks, in the order of offsets: who is answered what, and when."""

from __future__ import annotations

import asyncio

import pytest

from kraft.broker.purgatory.offset_waits import OffsetPurgatory
from partitions.topic_partition import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
LONG_S = 3600.0


@pytest.fixture
async def produce() -> OffsetPurgatory:
    return OffsetPurgatory(asyncio.get_running_loop())


async def test_a_produce_waits_from_the_call_on(produce: OffsetPurgatory) -> None:
    """The high watermark that comes before the loop turns again counts."""
    decided = produce.wait({A: 5}, LONG_S)
    produce.on_watermark(A, 5)
    assert await decided == {A: None}
    await asyncio.sleep(0)
    assert produce.count == 0


async def test_a_produce_is_answered_with_its_last_partition(produce: OffsetPurgatory) -> None:
    decided = produce.wait({A: 5, B: 2}, LONG_S)
    produce.on_watermark(A, 9)
    produce.on_watermark(B, 1)
    await asyncio.sleep(0)
    assert not decided.done()
    produce.fail(B, "NOT_LEADER_OR_FOLLOWER")
    assert await decided == {A: None, B: "NOT_LEADER_OR_FOLLOWER"}


async def test_a_high_watermark_settles_only_what_it_has_passed(produce: OffsetPurgatory) -> None:
    first, second = produce.wait({A: 5}, LONG_S), produce.wait({A: 6}, LONG_S)
    produce.on_watermark(A, 5)
    assert await first == {A: None}
    assert not second.done()
    produce.on_watermark(A, 7, "NOT_ENOUGH_REPLICAS_AFTER_APPEND")
    assert await second == {A: "NOT_ENOUGH_REPLICAS_AFTER_APPEND"}


async def test_a_produce_times_out(produce: OffsetPurgatory) -> None:
    decided = produce.wait({A: 5, B: 1}, 0.0)
    produce.on_watermark(B, 1)
    assert await decided == {A: "REQUEST_TIMED_OUT", B: None}
    produce.on_watermark(A, 5)  # what comes later is nobody's


async def test_a_retried_batch_does_not_wait_behind_younger_ones(produce: OffsetPurgatory) -> None:
    younger, retried = produce.wait({A: 20}, LONG_S), produce.wait({A: 10}, LONG_S)
    produce.on_watermark(A, 10)
    assert await retried == {A: None}
    assert not younger.done()


async def test_a_client_that_left_leaves_nothing_behind(produce: OffsetPurgatory) -> None:
    """Its high watermark may stand still for long, and its timeout may be an hour."""
    stays = produce.wait({A: 1_000}, LONG_S)
    for offset in range(500):
        left = produce.wait({A: offset + 1, B: 7}, LONG_S)
        left.cancel()
        await asyncio.sleep(0)
    assert produce.count == 1
    assert produce.entries_of(A) < 10
    assert produce.entries_of(B) == 0
    produce.on_watermark(A, 1_000)
    assert await stays == {A: None}


async def test_what_timed_out_leaves_nothing_behind(produce: OffsetPurgatory) -> None:
    produce.wait({A: 5}, LONG_S)
    waits = [produce.wait({A: offset + 6}, 0.0) for offset in range(100)]
    await asyncio.gather(*waits)
    assert produce.entries_of(A) < 10


async def test_a_failure_answers_everybody_in_order(produce: OffsetPurgatory) -> None:
    waits = [produce.wait({A: 5}, LONG_S), produce.wait({A: 3, B: 1}, LONG_S)]
    produce.fail(A, "NOT_LEADER_OR_FOLLOWER")
    assert await waits[0] == {A: "NOT_LEADER_OR_FOLLOWER"}
    assert not waits[1].done()
    produce.on_watermark(B, 1)
    assert await waits[1] == {A: "NOT_LEADER_OR_FOLLOWER", B: None}


async def test_what_is_decided_already_goes_into_the_answer(produce: OffsetPurgatory) -> None:
    decided = produce.wait({A: 5}, LONG_S, {B: "NOT_LEADER_OR_FOLLOWER"})
    produce.on_watermark(B, 9)
    assert not decided.done()
    produce.on_watermark(A, 5)
    assert await decided == {A: None, B: "NOT_LEADER_OR_FOLLOWER"}


async def test_one_too_many_is_answered_at_once() -> None:
    produce = OffsetPurgatory(asyncio.get_running_loop(), waiting_max=1)
    waits = produce.wait({A: 5}, LONG_S)
    assert await produce.wait({A: 6}, LONG_S) == {A: "REQUEST_TIMED_OUT"}
    assert (produce.count, waits.done()) == (1, False)
