"""Connections that have to say who they are: what they may send before, for how long, and how a refusal ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from kraft.network.connection import Connection
from kraft.network.limits import NetworkLimits
from kraft.network.response import Deferred, Response
from kraft.network.server import SocketServer
from kraft.network.session import Session

FRAME = (10).to_bytes(4, "big") + b"0123456789"
LIMITS = NetworkLimits(max_unauthenticated_request_bytes=35, closing_grace_ms=50)
IMPATIENT = replace(LIMITS, authentication_timeout_ms=500)
"""So much time a stranger has that says who it is, however busy the machine is."""

Handle = Callable[[memoryview, Connection], object]


class Stranger:
    """A listener whose handler is `handle`, and one connection to it."""

    def __init__(self, handle: Handle, limits: NetworkLimits = LIMITS) -> None:
        self.sessions: list[Session] = []
        self.server = SocketServer(
            handle,  # type: ignore[arg-type]
            limits=limits,
            authentication_required=True,
            introduce=lambda session, _: self.sessions.append(session),
        )

    async def __aenter__(self) -> Stranger:
        await self.server.start("127.0.0.1", 0)
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        await self.server.close(0)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def talk(self) -> None:
        """Until the connection is lost."""
        while True:
            await self.send(FRAME)
            await self.reader.readexactly(len(FRAME))


def echo(frame: memoryview, _: Connection) -> Response:
    return Response.of(bytes(frame))


async def test_what_comes_before_is_bounded_in_sum() -> None:
    async with Stranger(echo) as stranger:
        await stranger.send(3 * FRAME)
        assert await stranger.reader.readexactly(3 * len(FRAME)) == 3 * FRAME
        await stranger.send(FRAME)
        assert await stranger.reader.read() == b"", "a fourth frame is too much"


async def test_so_is_a_single_frame_that_goes_beyond_what_is_left() -> None:
    async with Stranger(echo) as stranger:
        await stranger.send(FRAME)
        await stranger.reader.readexactly(len(FRAME))
        await stranger.send((26).to_bytes(4, "big"))
        assert await stranger.reader.read() == b"", "the length alone tells"


async def test_who_is_recognized_may_send_as_much_as_any() -> None:
    def recognizing(frame: memoryview, connection: Connection) -> Response:
        if not connection.authenticated:
            connection.session.recognize("User:alice")
        return echo(frame, connection)

    async with Stranger(recognizing, IMPATIENT) as stranger:
        await stranger.send(9 * FRAME)
        assert await stranger.reader.readexactly(9 * len(FRAME)) == 9 * FRAME
        assert stranger.sessions[0].principal == "User:alice"
        await asyncio.sleep(0.7)  # what the time of a stranger would have ended by now
        await stranger.send(FRAME)
        assert await stranger.reader.readexactly(len(FRAME)) == FRAME


async def test_a_stranger_that_says_nothing_loses_its_connection() -> None:
    async with Stranger(echo, IMPATIENT) as stranger, asyncio.timeout(60):
        assert await stranger.reader.read() == b""


async def test_one_that_talks_all_the_time_does_too() -> None:
    limits = NetworkLimits(authentication_timeout_ms=100, closing_grace_ms=50)
    async with Stranger(echo, limits) as stranger, asyncio.timeout(60):
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await stranger.talk()


async def test_a_connection_that_is_finished_gives_its_last_answer_and_takes_nothing_more() -> None:
    due: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    taken: list[bytes] = []
    asked = asyncio.Event()

    def refusing(frame: memoryview, connection: Connection) -> Deferred[None, Response | None]:
        taken.append(bytes(frame))
        asked.set()
        connection.session.finish()
        return Deferred(due, lambda _: Response.of(b"refused!"))

    async with Stranger(refusing) as stranger:
        await stranger.send(2 * FRAME)
        await asked.wait()
        due.set_result(None)
        assert await stranger.reader.read() == (8).to_bytes(4, "big") + b"refused!"
        assert taken == [b"0123456789"]
