"""The executor port (`partitions.ports.Executor`) over a small pool of threads.

The pool has at most `max_pending` jobs; further callers wait in order. A job that was started runs to its end even when
its caller is cancelled; `close` waits for the jobs under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

DEFAULT_THREADS = 4
DEFAULT_MAX_PENDING = 256


class ThreadExecutor:
    """Runs blocking jobs in threads. Belongs to one event loop."""

    def __init__(self, *, threads: int = DEFAULT_THREADS, max_pending: int = DEFAULT_MAX_PENDING) -> None:
        assert 1 <= threads <= max_pending
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="kraft-job")
        self._places = asyncio.Semaphore(max_pending)
        self._pending = 0
        self._closed = False

    @property
    def pending_count(self) -> int:
        """Jobs that are queued or running."""
        return self._pending

    async def run(self, job: Callable[..., T], *args: object) -> T:
        """Runs `job(*args)` in a thread; returns its value or raises what it raised.

        When the caller is cancelled, a job that has begun runs to its end and one still queued is dropped.
        Raises RuntimeError after `close`.
        """
        await self._places.acquire()
        try:
            if self._closed:
                raise RuntimeError("the executor is closed: this node is shutting down")
            loop = asyncio.get_running_loop()
            future = self._pool.submit(job, *args)
        except BaseException:
            self._places.release()
            raise
        self._pending += 1
        # The place is free when the job has ended, not when its caller has lost interest.
        future.add_done_callback(lambda done: self._on_done(loop, done))
        return await asyncio.wrap_future(future)

    async def close(self) -> None:
        """Refuses further jobs and waits for those under way."""
        self._closed = True
        await asyncio.to_thread(self._pool.shutdown, wait=True)

    def _on_done(self, loop: asyncio.AbstractEventLoop, future: Future[T]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._free_place)

    def _free_place(self) -> None:
        self._pending -= 1
        self._places.release()
