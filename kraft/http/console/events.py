"""`/api/events`: one stream for a tab, of what the tab shows.

What is told every `TICK_S` is found out once for all streams (`asking.Remembered`). Nothing waits for a browser: a
stream makes its next event when the last one was taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import unquote

from kraft.http.console.paging import QueryError
from kraft.http.console.streams import EventStream
from quorum.recent_changes import RecentChanges

TICK_S: Final = 2.0
TOPICS_MAX: Final = 8
GROUP: Final = "group:"
Tell = Callable[[], Awaitable[Any]]


def topics_of(text: str | None) -> list[str]:
    """The topics that a request names. Raises QueryError."""
    names = [name for name in (text or "overview").split(",") if name]
    if len(names) > TOPICS_MAX:
        raise QueryError(f"a stream has at most {TOPICS_MAX} topics")
    for name in names:
        if name not in ("overview", "metadata", "groups") and not name.startswith(GROUP):
            raise QueryError(f"there is no topic {name[:50]!r}: overview, metadata, groups and group:ID are")
    return list(dict.fromkeys(unquote(name) for name in names))


class Teller:
    """One stream: `ticks` are told every `TICK_S`, as (event, what tells it); metadata as they change."""

    def __init__(
        self,
        stream: EventStream,
        ticks: list[tuple[str, Tell]],
        recent: RecentChanges | None,
        changes: Callable[[int | None], Awaitable[Any]] | None,
    ) -> None:
        """`changes(after)` is the data of an event `metadata`: what came after an offset, None: the offset alone."""
        self._stream = stream
        self._ticks = ticks
        self._recent = recent
        self._changes = changes
        self._told_offset = -1

    async def run(self) -> None:
        """Until the browser is gone. Raises StreamOver."""
        news = asyncio.Event()
        if self._changes is not None:
            if self._recent is not None:
                self._recent.watch(news)
            await self._tell_changes(await self._changes(None))
        try:
            await self._tell(news)
        finally:
            if self._recent is not None:
                self._recent.unwatch(news)

    async def _tell(self, news: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + TICK_S
            for event, tell in self._ticks:
                await self._stream.send(event, await tell())
            if not self._ticks:
                await self._stream.ping()
            while (left_s := due_s - loop.time()) > 0:
                try:
                    async with asyncio.timeout(left_s):
                        await news.wait()
                except TimeoutError:
                    break
                news.clear()
                if self._changes is not None:
                    await self._tell_changes(await self._changes(self._told_offset))

    async def _tell_changes(self, data: Any) -> None:
        entries = data["entries"]
        self._told_offset = max(self._told_offset, data["offset"] if not entries else entries[-1]["offset"])
        await self._stream.send("metadata", data)
