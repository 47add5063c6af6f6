"""aiohttp, unmodified, meets the faults that a node's control path will meet."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from kraft.chaos.world.host import Process
from kraft.chaos.world.simulation import Simulation

URL = "http://server:8080"


class Service:
    """`/add` counts and answers, `/slow` takes 5 s, `/socket` echoes messages."""

    def __init__(self) -> None:
        self.added = 0

    async def main(self, process: Process) -> None:
        app = web.Application(client_max_size=8 << 20)
        app.router.add_post("/add", self.on_add)
        app.router.add_post("/slow", self.on_slow)
        app.router.add_get("/socket", self.on_socket)
        runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await runner.setup()
        await web.TCPSite(runner, "0.0.0.0", 8080).start()
        assert runner.addresses == [("0.0.0.0", 8080)]
        await asyncio.Event().wait()

    async def on_add(self, request: web.Request) -> web.Response:
        self.added += len(await request.read())
        return web.Response(text=str(self.added))

    async def on_slow(self, request: web.Request) -> web.Response:
        await asyncio.sleep(5)
        return web.Response()

    async def on_socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=8 << 20)
        await socket.prepare(request)
        async for message in socket:
            await socket.send_bytes(message.data)
        return socket


@pytest.fixture
def world():
    """Plays a client program against a Service; returns the service."""
    service = Service()
    with Simulation(4) as simulation:
        simulation.add_host("server").start(service.main)

        def run(client: Any) -> Service:
            async def main(process: Process) -> None:
                await asyncio.sleep(0.1)
                async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
                    await client(process, session, simulation.hosts["server"])

            simulation.add_host("client").start(main)
            simulation.run_until(60)
            assert simulation.errors == []
            assert not simulation.hosts["client"].alive, "the client did not finish"
            return service

        yield run


async def add(session: aiohttp.ClientSession, body: bytes = b"x") -> int:
    async with session.post(f"{URL}/add", data=io.BytesIO(body)) as response:
        return int(await response.text())


def test_requests_small_and_large(world):
    async def client(process, session, server):
        assert await add(session) == 1
        assert await add(session, bytes(3 << 20)) == (3 << 20) + 1
        assert sum(await asyncio.gather(*(add(session) for _ in range(50)))) > 0

    assert world(client).added == (3 << 20) + 51


def test_websockets_small_and_large(world):
    async def client(process, session, server):
        async with session.ws_connect(f"{URL}/socket", max_msg_size=8 << 20) as socket:
            for size in (0, 1, 100, 70_000, 2 << 20):
                await socket.send_bytes(b"m" * size)
                assert await socket.receive_bytes() == b"m" * size

    world(client)


def test_answers_blocked_were_executed_requests_blocked_are_executed_late(world):
    async def client(process, session, server):
        network = process.host.simulation.network
        network.block("10.0.0.1", "10.0.0.2")
        with pytest.raises(TimeoutError):
            await add(session)
        network.heal("10.0.0.1", "10.0.0.2")
        assert await add(session) >= 1
        network.block("10.0.0.2", "10.0.0.1")
        with pytest.raises(TimeoutError):
            await add(session)
        network.heal("10.0.0.2", "10.0.0.1")

    assert world(client).added in (2, 3)


def test_a_killed_server_fails_requests_in_flight_and_stale_pooled_connections(world):
    async def client(process, session, server):
        assert await add(session) == 1
        slow = asyncio.create_task(session.post(f"{URL}/slow"))
        await asyncio.sleep(0.5)
        server.kill()
        with pytest.raises(aiohttp.ClientError):
            await slow
        with pytest.raises(aiohttp.ClientConnectorError):
            await add(session)
        server.restart()
        await asyncio.sleep(0.1)
        assert await add(session) == 2

    world(client)


def test_a_paused_server_times_out_and_answers_later_ones(world):
    async def client(process, session, server):
        server.pause(3)
        with pytest.raises(TimeoutError):
            await add(session)
        assert await add(session) >= 1

    world(client)


def test_websocket_heartbeats_notice_a_silent_peer(world):
    async def client(process, session, server):
        loop = process.loop
        async with session.ws_connect(f"{URL}/socket", heartbeat=1.0) as socket:
            before = loop.time()
            server.power_loss()
            message = await socket.receive(timeout=20)
            assert message.type in (aiohttp.WSMsgType.ERROR, aiohttp.WSMsgType.CLOSED)
            assert loop.time() - before < 4

    world(client)
