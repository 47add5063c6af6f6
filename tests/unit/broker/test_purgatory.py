"""Waiting for the high watermark and for data: nothing that happens after the look is missed."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from kraft.broker import purgatory
from kraft.broker.purgatory import FetchPurgatory, FetchWait, ProducePurgatory, ProduceWait
from partitions.topic_partition import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
LONG_S = 3600.0


@pytest.fixture
async def produce() -> ProducePurgatory:
    return ProducePurgatory(asyncio.get_running_loop())


@pytest.fixture
async def fetch() -> FetchPurgatory:
    return FetchPurgatory(asyncio.get_running_loop())


async def test_a_produce_waits_from_the_call_on(produce: ProducePurgatory) -> None:
    """The high watermark that comes before the loop turns again counts."""
    decided = produce.wait({A: 5}, LONG_S)
    produce.on_high_watermark(A, 5)
    assert await decided == {A: None}
    await asyncio.sleep(0)
    assert produce.count == 0


async def test_a_produce_is_answered_with_its_last_partition(produce: ProducePurgatory) -> None:
    decided = produce.wait({A: 5, B: 2}, LONG_S)
    produce.on_high_watermark(A, 9)
    produce.on_high_watermark(B, 1)
    await asyncio.sleep(0)
    assert not decided.done()
    produce.fail(B, "NOT_LEADER_OR_FOLLOWER")
    assert await decided == {A: None, B: "NOT_LEADER_OR_FOLLOWER"}


async def test_a_high_watermark_settles_only_what_it_has_passed(produce: ProducePurgatory) -> None:
    first, second = produce.wait({A: 5}, LONG_S), produce.wait({A: 6}, LONG_S)
    produce.on_high_watermark(A, 5)
    assert await first == {A: None}
    assert not second.done()
    produce.on_high_watermark(A, 7, "NOT_ENOUGH_REPLICAS_AFTER_APPEND")
    assert await second == {A: "NOT_ENOUGH_REPLICAS_AFTER_APPEND"}


async def test_a_produce_times_out(produce: ProducePurgatory) -> None:
    decided = produce.wait({A: 5, B: 1}, 0.0)
    produce.on_high_watermark(B, 1)
    assert await decided == {A: "REQUEST_TIMED_OUT", B: None}
    produce.on_high_watermark(A, 5)  # what comes later is nobody's


async def test_a_fetch_waits_from_the_call_on(fetch: FetchPurgatory) -> None:
    sizes = {A: 0}
    waited = fetch.wait(dict(sizes), 10, LONG_S, lambda key, _: sizes.get(key))
    sizes[A] = 10
    fetch.on_progress(A)
    await waited
    await asyncio.sleep(0)
    assert fetch.count == 0


async def test_a_fetch_adds_up_what_it_had_and_what_came(fetch: FetchPurgatory) -> None:
    sizes: dict[TopicPartition, int | None] = {A: 6, B: 0}
    waited = fetch.wait({A: 6, B: 0}, 10, LONG_S, lambda key, _: sizes.get(key))
    sizes[B] = 3
    fetch.on_progress(B)
    assert not waited.done()
    sizes[B] = 4
    fetch.on_progress(B)
    await waited


async def test_an_error_ends_a_fetch(fetch: FetchPurgatory) -> None:
    waited = fetch.wait({A: 0, B: 0}, 10, LONG_S, lambda *_: None)
    fetch.on_progress(B)
    await waited


async def test_time_and_cancellation_end_a_fetch(fetch: FetchPurgatory) -> None:
    await fetch.wait({A: 0}, 10, 0.0, lambda *_: 0)
    cancelled = fetch.wait({A: 0, B: 0}, 10, LONG_S, lambda *_: 0)
    assert fetch.count == 1
    cancelled.cancel()
    await asyncio.sleep(0)
    assert fetch.count == 0
    fetch.on_progress(A)  # nobody is looked for


async def test_progress_after_the_end_measures_nothing(fetch: FetchPurgatory) -> None:
    def measure(*_: object) -> int:
        measured.append(None)
        return 10

    measured: list[None] = []
    waited = fetch.wait({A: 0}, 10, LONG_S, measure)
    fetch.on_progress(A)
    fetch.on_progress(A)  # before the loop turns
    await waited
    assert len(measured) == 1


async def test_each_kind_of_reader_waits_for_what_it_can_read(fetch: FetchPurgatory) -> None:
    """A follower reads what was appended, a consumer what was committed; min_bytes 1 needs no look."""

    def never(*_: object) -> int:
        raise AssertionError("nothing has to be measured")

    consumer = fetch.wait({A: 0}, 1, LONG_S, lambda *_: 1)
    follower = fetch.wait({A: 0}, 1, LONG_S, never, is_follower=True)
    fetch.on_high_watermark(B)
    fetch.on_append(B)
    assert not consumer.done()
    assert not follower.done()
    fetch.on_append(A)
    assert follower.done()
    assert not consumer.done()
    fetch.on_high_watermark(A)
    assert consumer.done()
    assert fetch.count == 0


async def test_a_follower_that_wants_more_is_measured(fetch: FetchPurgatory) -> None:
    sizes: dict[TopicPartition, int | None] = {A: 0}
    follower = fetch.wait({A: 0}, 10, LONG_S, lambda key, _: sizes.get(key), is_follower=True)
    sizes[A] = 9
    fetch.on_append(A)
    fetch.on_high_watermark(A)
    assert not follower.done()
    sizes[A] = 10
    fetch.on_append(A)
    assert follower.done()


async def test_a_retried_batch_does_not_wait_behind_younger_ones(produce: ProducePurgatory) -> None:
    younger, retried = produce.wait({A: 20}, LONG_S), produce.wait({A: 10}, LONG_S)
    produce.on_high_watermark(A, 10)
    assert await retried == {A: None}
    assert not younger.done()


async def test_a_client_that_left_leaves_nothing_behind(produce: ProducePurgatory) -> None:
    """Its high watermark may stand still for long, and its timeout may be an hour."""
    stays = produce.wait({A: 1_000}, LONG_S)
    for offset in range(500):
        left = produce.wait({A: offset + 1, B: 7}, LONG_S)
        left.cancel()
        await asyncio.sleep(0)
    assert produce.count == 1
    assert produce.entries_of(A) < 10
    assert produce.entries_of(B) == 0
    produce.on_high_watermark(A, 1_000)
    assert await stays == {A: None}


async def test_what_timed_out_leaves_nothing_behind(produce: ProducePurgatory) -> None:
    produce.wait({A: 5}, LONG_S)
    waits = [produce.wait({A: offset + 6}, 0.0) for offset in range(100)]
    await asyncio.gather(*waits)
    assert produce.entries_of(A) < 10


async def test_a_failure_answers_everybody_in_order(produce: ProducePurgatory) -> None:
    waits = [produce.wait({A: 5}, LONG_S), produce.wait({A: 3, B: 1}, LONG_S)]
    produce.fail(A, "NOT_LEADER_OR_FOLLOWER")
    assert await waits[0] == {A: "NOT_LEADER_OR_FOLLOWER"}
    assert not waits[1].done()
    produce.on_high_watermark(B, 1)
    assert await waits[1] == {A: "NOT_LEADER_OR_FOLLOWER", B: None}


async def test_too_many_waiting_are_answered_at_once(
    produce: ProducePurgatory, fetch: FetchPurgatory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purgatory, "WAITING_MAX", 1)
    produce.wait({A: 5}, LONG_S)
    assert await produce.wait({A: 6}, LONG_S) == {A: "REQUEST_TIMED_OUT"}
    fetch.wait({A: 0}, 1, LONG_S, lambda *_: 0)
    await fetch.wait({A: 0}, 1, LONG_S, lambda *_: 0)


@pytest.fixture
def without_garbage_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive(kind: type) -> int:
    return sum(type(one) is kind for one in gc.get_objects())


async def test_a_wait_that_is_over_takes_no_garbage_collector_to_go(
    without_garbage_collector: None, produce: ProducePurgatory, fetch: FetchPurgatory
) -> None:
    """There is one for nearly every request."""
    before = alive(ProduceWait), alive(FetchWait)
    decided, expired = produce.wait({A: 5}, LONG_S), produce.wait({B: 5}, 0.0)
    has_data = fetch.wait({A: 0}, 1, LONG_S, lambda key, partition: 1)
    left = fetch.wait({A: 0}, 1, LONG_S, lambda key, partition: 0)
    produce.on_high_watermark(A, 5)
    fetch.on_progress(A)
    left.cancel()
    await asyncio.wait({decided, expired, has_data, left})
    await asyncio.sleep(0)  # the callbacks of what was cancelled
    assert (alive(ProduceWait), alive(FetchWait)) == before
