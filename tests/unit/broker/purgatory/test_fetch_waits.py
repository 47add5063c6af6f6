"""Fetches that wait for bytes: nothing that happens after the look is missed."""

from __future__ import annotations

import asyncio

import pytest

from kraft.broker.purgatory.fetch_waits import FetchPurgatory
from partitions.topic_partition import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
LONG_S = 3600.0


@pytest.fixture
async def fetch() -> FetchPurgatory:
    return FetchPurgatory(asyncio.get_running_loop())


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


async def test_a_fetch_too_many_is_answered_at_once() -> None:
    fetch = FetchPurgatory(asyncio.get_running_loop(), waiting_max=1)
    waits = fetch.wait({A: 0}, 1, LONG_S, lambda *_: 0)
    await fetch.wait({A: 0}, 1, LONG_S, lambda *_: 0)
    assert (fetch.count, waits.done()) == (1, False)
