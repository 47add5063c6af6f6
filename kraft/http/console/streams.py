"""A stream of events to one browser tab (text/event-stream), which is dropped rather than buffered.

What a browser does not read within `WRITE_TIMEOUT_S` costs it the connection; what waits for it until then is bounded
by the buffers of its connection, some ten kilobytes. Whoever sends also keeps the connection known to the gate of the
listener, which would end an idle one. A node serves `STREAMS_MAX` of one kind at once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from aiohttp import web

from kraft.http.console.access import IS_STILL_KNOWN

STREAMS_MAX: Final = 64
WRITE_TIMEOUT_S: Final = 5.0
RETRY_MS: Final = 2_000
"""After so long a browser connects again."""
KEEP_OPEN: web.AppKey[Callable[[web.BaseRequest], None]] = web.AppKey("keep_open")
"""Tells the listener that a connection is of use, so that it is not ended as an idle one."""


class StreamOver(Exception):
    """The browser is gone, or does not read, or its user may not any more."""


def is_still_known(request: web.BaseRequest) -> bool:
    """Whether who asked may still log in, where a login is needed."""
    asked: Callable[[], bool] = request.get(IS_STILL_KNOWN, _always)
    return asked()


def _always() -> bool:
    return True


class EventStream:
    """One connection; one task sends."""

    def __init__(
        self, request: web.Request, response: web.StreamResponse, is_allowed: Callable[[], bool]
    ) -> None:
        self._request = request
        self._is_allowed = is_allowed
        self.response = response
        """For the handler to return."""

    async def send(self, event: str, data: Any) -> None:
        """One event, its data as JSON. Raises StreamOver."""
        await self.send_encoded(event, json.dumps(data, separators=(",", ":")).encode())

    async def send_encoded(self, event: str, data: bytes) -> None:
        """As `send`, for data that is JSON already, in one line. Raises StreamOver."""
        await self._write(b"event: %b\ndata: %b\n\n" % (event.encode(), data))

    async def ping(self) -> None:
        """Shows that there is nothing to tell. Raises StreamOver."""
        await self._write(b": \n\n")

    def check(self) -> asyncio.Transport:
        """Raises StreamOver if the browser is gone already, or its user's rights are."""
        transport = self._request.transport
        if transport is None or transport.is_closing():
            raise StreamOver
        if not is_still_known(self._request) or not self._is_allowed():
            raise StreamOver  # it asks again, and is told why not
        return transport

    async def _write(self, data: bytes) -> None:
        transport = self.check()
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await self.response.write(data)
        except (ConnectionError, TimeoutError) as error:
            transport.abort()
            raise StreamOver from error
        self._request.app[KEEP_OPEN](self._request)


class Streams:
    """Those of one kind that a node serves now."""

    def __init__(self, streams_max: int = STREAMS_MAX) -> None:
        self._streams_max = streams_max
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def count(self) -> int:
        return len(self._tasks)

    @asynccontextmanager
    async def open(
        self, request: web.Request, is_allowed: Callable[[], bool] = _always
    ) -> AsyncIterator[EventStream]:
        """The stream in answer to a request; that it is over inside is no error. It ends when `is_allowed`, which is
        asked before each event, says no. Raises HTTPServiceUnavailable."""
        if len(self._tasks) >= self._streams_max:
            text = json.dumps(
                {"error": f"{self._streams_max} streams are open: close some, or ask another node"}
            )
            raise web.HTTPServiceUnavailable(text=text, content_type="application/json")
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            response = web.StreamResponse(
                headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
            )
            with suppress(ConnectionError):  # of a browser that is gone already: what is sent first finds out
                await response.prepare(request)
                await response.write(f"retry: {RETRY_MS}\n\n".encode())
            yield EventStream(request, response, is_allowed)
        except (StreamOver, ConnectionError):
            return
        finally:
            self._tasks.discard(task)

    async def close(self) -> None:
        """Ends all of them."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
