"""The lane of a voter's links and listener (`quorum.rpc.link_lane.LinkLane`) as a thread with an event loop.

Posted calls run in order. A coroutine whose caller is cancelled is cancelled, too. When `close` returns, the thread has
ended. `kraft.runtime.real` assembles it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

from quorum.rpc.link_lane import T, Work


class ThreadLinkLane:
    """Made, started and closed on `node_loop`'s thread."""

    def __init__(self, node_loop: asyncio.AbstractEventLoop) -> None:
        self._node_loop = node_loop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()  # between `post` and the end of the loop

    def start(self) -> None:
        # Not uvloop's, which cannot be closed while an address is being looked up.
        loop = self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run, args=(loop,), name="raft-links", daemon=True)
        self._thread.start()

    async def run(self, work: Work[T]) -> T:
        assert self._loop is not None, "the lane has not started, or is closed"
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_done(work()), self._loop))

    def post(self, callback: Callable[..., object], *args: object) -> None:
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(callback, *args)

    async def on_node_loop(self, work: Work[T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_done(work()), self._node_loop))

    async def close(self) -> None:
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is None or self._thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(self._thread.join)


async def _done(work: Awaitable[T]) -> T:
    return await work


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
