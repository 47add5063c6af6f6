"""ThreadExecutor: bounded, cancel-safe, closes after the jobs under way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from kraft.runtime.executor import ThreadExecutor


@pytest.fixture
async def executor() -> AsyncIterator[ThreadExecutor]:
    executor = ThreadExecutor(threads=2, max_pending=3)
    yield executor
    await executor.close()


async def settle(executor: ThreadExecutor, pending: int) -> None:
    """Waits for threads to have come to where `pending` jobs are left; fails if they never do."""
    for _ in range(10_000):
        if executor.pending_count == pending:
            return
        await asyncio.sleep(0.001)
    raise AssertionError(f"{executor.pending_count} jobs are pending, not {pending}")


async def test_a_job_returns_its_value_or_raises(executor: ThreadExecutor) -> None:
    assert await executor.run(sum, (1, 2, 3)) == 6
    with pytest.raises(ZeroDivisionError):
        await executor.run(divmod, 1, 0)
    await settle(executor, 0)


async def test_jobs_run_beside_the_loop(executor: ThreadExecutor) -> None:
    assert await executor.run(threading.get_ident) != threading.get_ident()


async def test_jobs_beyond_the_bound_wait_for_a_place(executor: ThreadExecutor) -> None:
    gate = threading.Event()
    running = [asyncio.create_task(executor.run(gate.wait)) for _ in range(3)]
    await settle(executor, 3)
    waiting = asyncio.create_task(executor.run(sum, (1, 2)))
    for _ in range(10):
        await asyncio.sleep(0)
    assert executor.pending_count == 3
    gate.set()
    assert await waiting == 3
    assert await asyncio.gather(*running) == [True] * 3


async def test_a_cancelled_caller_keeps_its_place_until_the_job_has_ended(executor: ThreadExecutor) -> None:
    gate, begun = threading.Event(), threading.Event()

    def job() -> None:
        begun.set()
        gate.wait()

    caller = asyncio.create_task(executor.run(job))
    await executor.run(begun.wait)
    await settle(executor, 1)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert executor.pending_count == 1
    gate.set()
    await settle(executor, 0)


async def test_closing_waits_for_jobs_and_refuses_more() -> None:
    executor = ThreadExecutor(threads=1, max_pending=2)
    gate, done = threading.Event(), threading.Event()

    def job() -> None:
        gate.wait()
        done.set()

    running = asyncio.create_task(executor.run(job))
    await settle(executor, 1)
    closing = asyncio.create_task(executor.close())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="shutting down"):
        await executor.run(sum, ())
    gate.set()
    await closing
    assert done.is_set()
    await running
