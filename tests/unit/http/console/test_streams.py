"""A stream to a browser: it is dropped, not buffered, and there are so many at most."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from kraft.http.console import streams
from kraft.http.console.access import IS_STILL_KNOWN
from kraft.http.console.events import Teller, topics_of
from kraft.http.console.paging import QueryError
from kraft.http.console.streams import KEEP_OPEN, Streams
from quorum.recent_changes import RecentChanges
from quorum.rpc.messages import MetadataEntry

Client = TestClient[web.Request, web.Application]


class World:
    """An application whose stream sends what it is told to."""

    def __init__(self) -> None:
        self.streams = Streams(streams_max=2)
        self.kept_open = 0
        self.outbox: asyncio.Queue[Any] = asyncio.Queue()
        self.ended = asyncio.Event()
        self.is_known = self.is_allowed = True

    async def handle(self, request: web.Request) -> web.StreamResponse:
        request[IS_STILL_KNOWN] = lambda: self.is_known
        try:
            async with self.streams.open(request, lambda: self.is_allowed) as stream:
                response = stream.response
                while True:
                    await stream.send("news", await self.outbox.get())
        finally:
            self.ended.set()
        return response

    def keep_open(self, request: web.BaseRequest) -> None:
        self.kept_open += 1


@pytest.fixture
async def world() -> World:
    return World()


@pytest.fixture
async def client(world: World) -> AsyncIterator[Client]:
    app = web.Application()
    app[KEEP_OPEN] = world.keep_open
    app.router.add_get("/", world.handle)
    async with TestClient(TestServer(app)) as made:
        yield made
        await world.streams.close()


async def test_events_come_as_they_are_sent(client: Client, world: World) -> None:
    async with client.get("/") as response:
        assert response.headers["Content-Type"] == "text/event-stream"
        world.outbox.put_nowait({"text": "two\nlines"})
        assert await response.content.readuntil(b"\n\n") == b"retry: 2000\n\n"
        assert await response.content.readuntil(b"\n\n") == b'event: news\ndata: {"text":"two\\nlines"}\n\n'
    assert world.kept_open == 1


async def test_who_does_not_read_is_dropped(
    client: Client, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "WRITE_TIMEOUT_S", 0.05)
    async with client.get("/") as response:
        assert response.connection is not None
        assert response.connection.transport is not None
        response.connection.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(200):
            world.outbox.put_nowait("x" * 100_000)
        async with asyncio.timeout(10):
            await world.ended.wait()
    assert world.streams.count == 0
    assert world.outbox.qsize() > 50, "the rest was not made for it"


async def test_a_browser_that_goes_ends_its_stream(client: Client, world: World) -> None:
    async with client.get("/") as response:
        await response.content.readuntil(b"\n\n")
        assert world.streams.count == 1
        response.close()
    async with asyncio.timeout(10):
        while not world.ended.is_set():
            world.outbox.put_nowait("are you there?")
            await asyncio.sleep(0)
    assert world.streams.count == 0


@pytest.mark.parametrize("lost", ["is_known", "is_allowed"])
async def test_a_stream_ends_with_the_rights_of_its_user(client: Client, world: World, lost: str) -> None:
    async with client.get("/") as response, asyncio.timeout(60):
        world.outbox.put_nowait("before")
        await response.content.readuntil(b"before")
        setattr(world, lost, False)
        world.outbox.put_nowait("after")
        assert b"after" not in await response.content.read()
    assert world.ended.is_set()


async def test_one_more_than_there_may_be_is_told_so(client: Client, world: World) -> None:
    async with client.get("/"), client.get("/"), client.get("/") as refused:
        assert refused.status == 503
        assert await refused.json() == {"error": "2 streams are open: close some, or ask another node"}


@pytest.mark.parametrize(
    ("text", "topics"),
    [
        (None, ["overview"]),
        ("", ["overview"]),
        ("metadata,groups,metadata", ["metadata", "groups"]),
        ("group:a%2Cb,group:c", ["group:a,b", "group:c"]),
        ("group:100%25,group:%252C", ["group:100%", "group:%2C"]),
    ],
)
def test_the_topics_of_a_stream(text: str | None, topics: list[str]) -> None:
    assert topics_of(text) == topics


def test_topics_that_there_are_not() -> None:
    with pytest.raises(QueryError, match="there is no topic 'nope'"):
        topics_of("overview,nope")
    with pytest.raises(QueryError, match="at most 8"):
        topics_of(",".join(f"group:{number}" for number in range(9)))


class Recorder:
    """A stream that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()

    async def send(self, event: str, data: Any) -> None:
        self.sent.put_nowait((event, data))


async def test_changes_are_told_as_they_come_and_once() -> None:
    recent, recorder = RecentChanges(), Recorder()
    recent.take([MetadataEntry(7, 1, b"x")], 0)

    async def changes(after: int | None) -> Any:
        entries = [] if after is None else [{"offset": one.entry.offset} for one in recent.after(after, 10)]
        return {"offset": 7, "entries": entries}

    async def overview() -> Any:
        return "overview"

    stream: Any = recorder
    task = asyncio.create_task(Teller(stream, [("overview", overview)], recent, changes).run())
    async with asyncio.timeout(10):
        assert await recorder.sent.get() == ("metadata", {"offset": 7, "entries": []})
        assert await recorder.sent.get() == ("overview", "overview")
        recent.take([MetadataEntry(8, 1, b"x"), MetadataEntry(9, 1, b"x")], 0)
        assert (await recorder.sent.get())[1]["entries"] == [{"offset": 8}, {"offset": 9}]
        recent.take([MetadataEntry(10, 1, b"x")], 0)
        assert (await recorder.sent.get())[1]["entries"] == [{"offset": 10}]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not recent._changed, "nobody watches any more"


async def test_a_browser_that_is_gone_before_the_first_byte_ends_the_stream(
    client: Client, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(response: web.StreamResponse, request: web.BaseRequest) -> None:
        assert request.transport is not None
        request.transport.abort()
        raise ConnectionResetError

    monkeypatch.setattr(web.StreamResponse, "prepare", gone)
    world.outbox.put_nowait("to nobody")
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await client.get("/")
    async with asyncio.timeout(10):
        await world.ended.wait()
    assert world.streams.count == 0
