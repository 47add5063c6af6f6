"""The lane of links as a thread: what runs where, in which order, and how it ends."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kraft.runtime.link_lane import ThreadLinkLane


async def _thread_name() -> str:
    return threading.current_thread().name


async def test_work_runs_beside_the_nodes_loop_and_calls_come_back_to_it() -> None:
    lane = ThreadLinkLane(asyncio.get_running_loop())
    lane.start()
    try:
        assert await lane.run(_thread_name) == "raft-links"
        mine = threading.current_thread().name
        assert await lane.run(lambda: lane.on_node_loop(_thread_name)) == mine
    finally:
        await lane.close()


async def test_what_is_raised_there_is_raised_here() -> None:
    async def fails() -> None:
        raise OSError("in use")

    lane = ThreadLinkLane(asyncio.get_running_loop())
    lane.start()
    with pytest.raises(OSError, match="in use"):
        await lane.run(fails)
    await lane.close()


async def test_posts_are_called_in_order_while_the_nodes_loop_is_busy() -> None:
    lane = ThreadLinkLane(asyncio.get_running_loop())
    lane.start()
    called: list[int] = []
    done = threading.Event()
    for number in range(100):
        lane.post(called.append, number)
    lane.post(done.set)
    assert done.wait(60), "without a turn of the node's loop"
    assert called == list(range(100))
    await lane.close()


async def test_it_ends_without_waiting_for_an_address_that_is_being_looked_up() -> None:
    lane = ThreadLinkLane(asyncio.get_running_loop())
    lane.start()
    may_end = threading.Event()

    async def begin() -> asyncio.Future[bool]:
        return asyncio.get_running_loop().run_in_executor(None, may_end.wait, 30)

    async def give_up(looking: asyncio.Future[bool]) -> None:
        looking.cancel()

    looking = await lane.run(begin)
    await lane.run(lambda: give_up(looking))
    await lane.close()
    assert not may_end.is_set()
    assert not [thread for thread in threading.enumerate() if thread.name == "raft-links"]
    may_end.set()


async def test_a_closed_lane_takes_no_posts_and_may_be_closed_again() -> None:
    lane = ThreadLinkLane(asyncio.get_running_loop())
    lane.start()
    await lane.close()
    lane.post(pytest.fail, "it is closed")
    await lane.close()
    await ThreadLinkLane(asyncio.get_running_loop()).close()


async def test_a_caller_that_gives_up_cancels_its_work() -> None:
    lane = ThreadLinkLane(asyncio.get_running_loop())
    lane.start()
    cancelled = threading.Event()
    begun = threading.Event()

    async def endless() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    task = asyncio.ensure_future(lane.run(endless))
    assert await asyncio.to_thread(begun.wait, 60)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await asyncio.to_thread(cancelled.wait, 60)
    await lane.close()
