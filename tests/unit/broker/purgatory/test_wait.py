"""The core of all that waits: its place, its timer, its end."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kraft.broker.purgatory.fetch_waits import FetchPurgatory
from kraft.broker.purgatory.offset_waits import OffsetPurgatory
from kraft.broker.purgatory.pending_replicas import PendingReplicas
from kraft.broker.purgatory.wait import Purgatory, Wait
from partitions.topic_partition import TopicPartition

A = TopicPartition("t", 0)
LONG_S = 3600.0


class Noted(Wait[str]):
    """A wait in no order."""

    __slots__ = ("__weakref__", "left")

    def __init__(self, purgatory: Purgatory) -> None:
        super().__init__(purgatory)
        self.left = 0

    def expire(self) -> None:
        self.settle("late")

    def leave(self) -> None:
        self.left += 1


@pytest.fixture
async def purgatory() -> Purgatory:
    return Purgatory(asyncio.get_running_loop(), waiting_max=2)


def begun(purgatory: Purgatory, timeout_s: float = LONG_S) -> Noted:
    wait = Noted(purgatory)
    wait.begin(timeout_s)
    return wait


async def test_places_are_counted_from_the_beginning_to_the_end(purgatory: Purgatory) -> None:
    first = begun(purgatory)
    assert (purgatory.count, purgatory.is_full) == (1, False)
    begun(purgatory)
    assert (purgatory.count, purgatory.is_full) == (2, True)
    first.settle("done")
    assert (purgatory.count, purgatory.is_full) == (1, False)


async def test_a_wait_is_settled_in_the_same_call_and_once(purgatory: Purgatory) -> None:
    wait = begun(purgatory)
    wait.settle("first")
    assert (wait.done.result(), wait.left, purgatory.count) == ("first", 1, 0)
    wait.settle("second")
    wait.end()
    await asyncio.sleep(0)
    assert (wait.done.result(), wait.left, purgatory.count) == ("first", 1, 0)


async def test_a_wait_that_never_began_has_no_place_to_give_back(purgatory: Purgatory) -> None:
    wait = Noted(purgatory)
    wait.settle("at once")
    assert (await wait.done, wait.left, purgatory.count) == ("at once", 0, 0)


async def test_time_ends_a_wait(purgatory: Purgatory) -> None:
    wait = begun(purgatory, timeout_s=0.0)
    assert await wait.done == "late"
    assert (wait.left, purgatory.count) == (1, 0)


async def test_a_client_that_is_gone_ends_its_wait(purgatory: Purgatory) -> None:
    wait = begun(purgatory)
    wait.done.cancel()
    await asyncio.sleep(0)
    assert (wait.left, purgatory.count) == (1, 0)
    wait.settle("nobody asks")
    assert wait.done.cancelled()


async def test_what_is_answered_keeps_its_place_until_it_ends(purgatory: Purgatory) -> None:
    wait = begun(purgatory)
    wait.answer("your turn")
    await asyncio.sleep(0)
    assert (wait.done.result(), wait.left, purgatory.count) == ("your turn", 0, 1)
    wait.end()
    assert (wait.left, purgatory.count) == (1, 0)


@pytest.fixture
def without_garbage_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(lambda wait: wait.settle("x"), id="settled"),
        pytest.param(lambda wait: wait.done.cancel(), id="cancelled"),
        pytest.param(lambda wait: wait.expire(), id="expired"),
        pytest.param(lambda wait: (wait.answer("x"), wait.end()), id="answered, then ended"),
    ],
)
async def test_a_wait_that_is_over_takes_no_garbage_collector_to_go(
    without_garbage_collector: None, purgatory: Purgatory, end: Callable[[Noted], Any]
) -> None:
    wait = begun(purgatory)
    watched, done = weakref.ref(wait), wait.done
    end(wait)
    del wait
    await asyncio.sleep(0)  # the callbacks of what was cancelled
    assert watched() is None
    assert done.done()


async def test_nor_does_one_whose_timer_went_off(
    without_garbage_collector: None, purgatory: Purgatory
) -> None:
    wait = begun(purgatory, timeout_s=0.0)
    watched, done = weakref.ref(wait), wait.done
    del wait
    assert await done == "late"
    await asyncio.sleep(0)
    assert watched() is None


def alive() -> int:
    return sum(isinstance(one, Wait) for one in gc.get_objects())


async def test_nor_do_those_of_any_order(without_garbage_collector: None) -> None:
    loop = asyncio.get_running_loop()
    offsets, fetches = OffsetPurgatory(loop), FetchPurgatory(loop)
    pending = PendingReplicas(loop, lambda key, appends: is_pending)
    is_pending = True
    pending.expect(A)
    before = alive()
    ends: list[asyncio.Future[Any]] = [
        offsets.wait({A: 5}, LONG_S),
        offsets.wait({A: 6}, 0.0),
        fetches.wait({A: 0}, 1, LONG_S, lambda *_: 1),
        fetches.wait({A: 0}, 1, LONG_S, lambda *_: 0),
    ]
    turns = [pending.wait([A], LONG_S, appends=True) for _ in range(3)]
    offsets.on_watermark(A, 5)
    fetches.on_progress(A)
    ends[3].cancel()
    is_pending = False
    pending.settle([A])
    for turn in turns:
        assert turn is not None
        assert turn.done.done()
        turn.end()
    del turns, turn
    await asyncio.wait(ends)
    await asyncio.sleep(0)
    assert alive() == before
    assert offsets.count == fetches.count == pending.count == 0
