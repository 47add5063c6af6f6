"""The same server and client code on the simulated loop: slices go through the transport there."""

from __future__ import annotations

import asyncio
import struct

from kraft.chaos.world.host import Process
from kraft.chaos.world.simulation import Simulation
from kraft.network.client import BrokerConnection, ConnectionLostError
from kraft.network.connection import Connection
from kraft.network.limits import NetworkLimits
from kraft.network.response import Answer, Response
from kraft.network.sender import transport_sender
from kraft.network.server import SocketServer

LARGE = bytes(range(256)) * 8_000


class World:
    """A broker that echoes small requests at once or later, and answers `slice` with a piece of a file."""

    def __init__(self) -> None:
        self.idle_closed_at_s = 0.0

    async def broker(self, process: Process) -> None:
        process.disk.make_dirs("/data")
        file = process.disk.open("/data/log", create=True)
        file.append([LARGE])

        def handler(frame: memoryview, connection: Connection) -> Answer:
            body = bytes(frame)
            if body[4:] == b"slice":
                return Response.of(body[:4], file.slice(7, 1_900_000), b"end")
            return self._later(body) if body[4:5] == b"l" else Response.of(body)

        limits = NetworkLimits(min_request_bytes=4, connections_max_idle_ms=20_000)
        server = SocketServer(handler, limits=limits, sender_factory=transport_sender)
        await server.start("0.0.0.0", 9092)
        await asyncio.Event().wait()

    async def _later(self, body: bytes) -> Response:
        await asyncio.sleep(0.5)
        return Response.of(body)

    async def client(self, process: Process) -> None:
        await asyncio.sleep(0.1)
        connection = await BrokerConnection.connect("broker", 9092, max_in_flight=200)

        async def ask(body: bytes) -> bytes:
            answer = await connection.exchange(
                lambda cid: struct.pack(">ii", 4 + len(body), cid) + body, timeout_s=10.0
            )
            return bytes(answer[4:])

        bodies = [b"%s%d" % (b"l" if index % 7 == 0 else b"s", index) for index in range(150)]
        assert await asyncio.gather(*map(ask, bodies)) == bodies
        assert await asyncio.gather(ask(b"slice"), ask(b"s"), ask(b"slice")) == [
            LARGE[7:1_900_007] + b"end",
            b"s",
            LARGE[7:1_900_007] + b"end",
        ]
        idle_since_s = process.loop.time()
        await connection.wait_closed()
        self.idle_closed_at_s = process.loop.time() - idle_since_s
        try:
            await ask(b"s")
        except ConnectionLostError:
            return
        raise AssertionError("the connection was closed")


def test_requests_slices_and_idle_timers_under_virtual_time() -> None:
    world = World()
    with Simulation(3) as simulation:
        simulation.add_host("broker").start(world.broker)
        simulation.add_host("client").start(world.client)
        simulation.run_until(120)
        assert simulation.errors == []
        assert not simulation.hosts["client"].alive, "the client did not finish"
    assert 20 <= world.idle_closed_at_s <= 35
