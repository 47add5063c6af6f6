"""Every test of this folder that touches a socket runs under asyncio's own loop and under uvloop."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import uvloop

from kraft.network.connection import FrameHandler
from kraft.network.server import SocketServer
from kraft.runtime.sendfile import real_sender

Listen = Callable[..., Awaitable[SocketServer]]
Dial = Callable[[SocketServer], Awaitable["Peer"]]
Until = Callable[[Callable[[], bool]], Awaitable[None]]

TURN_S = 0.001
UNTIL_TURNS_MAX = 10_000


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class Peer:
    """A client of plain bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *bodies: bytes) -> None:
        self.writer.write(b"".join(struct.pack(">i", len(body)) + body for body in bodies))

    async def frame(self) -> bytes:
        (length,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(length)

    async def at_end(self) -> bool:
        """Waits for the server to close; True unless bytes came first."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    def reset(self) -> None:
        """Leaves without a goodbye: the server gets a TCP reset."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            pass  # the server reset it: closed all the same


@pytest.fixture
async def listen() -> AsyncIterator[Listen]:
    """Starts servers on free loopback ports and closes them at the end."""
    servers: list[SocketServer] = []

    async def start(handler: FrameHandler, **options: Any) -> SocketServer:
        server = SocketServer(handler, **{"sender_factory": real_sender, **options})
        await server.start("127.0.0.1", 0)
        servers.append(server)
        return server

    yield start
    for server in servers:
        await server.close(grace_s=0.0)


@pytest.fixture
async def dial() -> AsyncIterator[Dial]:
    """Connects plain clients and closes them at the end."""
    peers: list[Peer] = []

    async def connect(server: SocketServer) -> Peer:
        peer = Peer(*await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 20))
        peers.append(peer)
        return peer

    yield connect
    for peer in peers:
        await peer.close()


@pytest.fixture
def until() -> Until:
    """Waits for a condition that other events of the loop bring about; fails if they never do."""

    async def wait(condition: Callable[[], bool]) -> None:
        for _ in range(UNTIL_TURNS_MAX):
            if condition():
                return
            await asyncio.sleep(TURN_S)
        raise AssertionError("the condition never held")

    return wait
