"""A toy cluster of three nodes that uses everything a node may use, under a random mix of faults.

Run as a program it prints what became of some seeds, each run in a process of its own:
`python toy.py SECONDS SEED… [--leak] [--timeline FILE]`. It is the
subject of the determinism tests, which run it twice in separate processes. With `--leak` its behaviour
depends on the order of a set of strings, which those tests must notice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import struct
import time
import uuid
from collections.abc import Coroutine
from typing import IO, Any

import aiohttp
from aiohttp import web

from kraft.chaos.pool import run_isolated
from kraft.chaos.world.host import Host, Process
from kraft.chaos.world.simulation import Simulation
from partitions.disk import write_atomically

HTTP_PORT, ECHO_PORT = 8080, 9092
FAILURES = (aiohttp.ClientError, OSError, asyncio.TimeoutError)


class Counters(dict[str, int]):
    def add(self, name: str) -> None:
        self[name] = self.get(name, 0) + 1


class EchoServer(asyncio.Protocol):
    """Length-prefixed frames come back as they are."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.buffer = transport, bytearray()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        for frame in take_frames(self.buffer):
            self.transport.write(struct.pack(">I", len(frame)) + frame)


class EchoClient(EchoServer):
    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[bytes]] = []
        self.lost = False

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        for frame in take_frames(self.buffer):
            waiter = self.waiting.pop(0)
            if not waiter.done():
                waiter.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        for waiter in self.waiting:
            if not waiter.done():
                waiter.set_exception(ConnectionError("connection lost"))

    async def call(self, payload: bytes) -> bytes:
        waiter: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.waiting.append(waiter)
        self.transport.write(struct.pack(">I", len(payload)) + payload)
        return await waiter


def take_frames(buffer: bytearray) -> list[bytes]:
    frames = []
    while len(buffer) >= 4:
        (length,) = struct.unpack_from(">I", buffer)
        if len(buffer) < 4 + length:
            break
        frames.append(bytes(buffer[4 : 4 + length]))
        del buffer[: 4 + length]
    return frames


class Node:
    """Serves RPC, WebSockets and echo; calls its peers over all three; keeps a journal."""

    def __init__(self, process: Process, peers: list[str], counters: Counters, leak: bool) -> None:
        self.process, self.peers, self.counters = process, peers, counters
        tags = {f"tag-{i}" for i in range(20)}
        self.tags = list(tags) if leak else sorted(tags)

    async def run(self) -> None:
        journal = self.open_journal()
        app = web.Application()
        app.router.add_post("/call/{method}", self.on_call)
        app.router.add_get("/stream", self.on_stream)
        runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await runner.setup()
        await web.TCPSite(runner, "0.0.0.0", HTTP_PORT).start()
        await asyncio.get_running_loop().create_server(EchoServer, "0.0.0.0", ECHO_PORT)
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
            for peer in self.peers:
                group.create_task(self.heartbeat(session, peer))
                group.create_task(self.echo(peer))
                group.create_task(self.stream(session, peer))
            group.create_task(self.fan_out())
            group.create_task(self.write_journal(journal))

    def open_journal(self) -> Any:
        disk = self.process.disk
        disk.make_dirs("/data")
        disk.sync_dir("/")
        disk.lock("/data/.lock")
        journal = disk.open("/data/journal", create=True)
        disk.sync_dir("/data")
        self.process.host.note("journal", journal.size(), sum(journal.read(0, journal.size())))
        return journal

    async def on_call(self, request: web.Request) -> web.Response:
        body = await request.json()
        method = request.match_info["method"]
        if method == "slow":
            await asyncio.sleep(body["s"])
        value = await self.process.executor.run(sorted, body) if method == "sort" else body
        return web.json_response({"value": value, "id": str(uuid.uuid4()), "at": time.time()})

    async def on_stream(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(heartbeat=0.7)
        await socket.prepare(request)
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.BINARY:
                break
            await socket.send_bytes(message.data[::-1])
        return socket

    async def heartbeat(self, session: aiohttp.ClientSession, peer: str) -> None:
        while True:
            try:
                async with asyncio.timeout(0.5):
                    url = f"http://{peer}:{HTTP_PORT}/call/sort"
                    async with session.post(url, data=json.dumps([3, 1, 2])) as response:
                        await response.json()
                self.counters.add("rpc")
            except FAILURES as error:
                self.process.host.note("rpc failed", peer, type(error).__name__)
                self.counters.add("rpc failed")
            await asyncio.sleep(0.05)

    async def echo(self, peer: str) -> None:
        client: EchoClient | None = None
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout(0.6):
                    if client is None or client.lost:
                        _, protocol = await loop.create_connection(EchoClient, peer, ECHO_PORT)
                        assert isinstance(protocol, EchoClient)
                        client = protocol
                    await client.call(random.randbytes(random.randrange(1, 300_000)))
                self.counters.add("echo")
            except FAILURES:
                self.counters.add("echo failed")
                if client is not None:
                    client.transport.abort()
                    client = None
            await asyncio.sleep(0.05)

    async def stream(self, session: aiohttp.ClientSession, peer: str) -> None:
        while True:
            try:
                url = f"http://{peer}:{HTTP_PORT}/stream"
                async with asyncio.timeout(2), session.ws_connect(url, heartbeat=0.7) as socket:
                    for number in range(20):
                        await socket.send_bytes(struct.pack(">I", number))
                        await socket.receive_bytes()
                        self.counters.add("websocket")
                        await asyncio.sleep(0.03)
            except (*FAILURES, TypeError) as error:
                self.process.host.note("stream failed", peer, type(error).__name__)
                self.counters.add("websocket failed")
                await asyncio.sleep(0.1)

    async def fan_out(self) -> None:
        """Sets of tasks, a pool that is too small, and a session closed in mid-flight."""
        while True:
            connector = aiohttp.TCPConnector(limit=3)
            timeout = aiohttp.ClientTimeout(total=1)
            async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
                tasks = [asyncio.create_task(self.post(session, p, i)) for i in range(4) for p in self.peers]
                done, _ = await asyncio.wait(tasks, timeout=0.02)
                self.process.host.note("done", *(tasks.index(task) for task in done))
                done, _ = await asyncio.wait({asyncio.gather(t, return_exceptions=True) for t in tasks})
                self.process.host.note("all", *(type(r).__name__ for d in done for r in d.result()))
                tasks = [asyncio.create_task(self.post(session, peer, "slow")) for peer in self.peers]
                await asyncio.sleep(0.02)
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0.2)

    async def post(self, session: aiohttp.ClientSession, peer: str, what: object) -> int:
        method, body = ("slow", {"s": 9}) if what == "slow" else ("echo", {"number": what})
        async with session.post(f"http://{peer}:{HTTP_PORT}/call/{method}", json=body) as response:
            return len(await response.read())

    async def write_journal(self, journal: Any) -> None:
        for number in range(1_000_000):
            journal.append([struct.pack(">I", number) * 300, random.randbytes(10)])
            await self.process.executor.run(journal.sync)
            self.counters.add("synced")
            await asyncio.sleep(0.001 * self.tags.index("tag-7"))
            if number % 5 == 0:
                state = f"{number} {self.tags}".encode()
                await self.process.executor.run(write_atomically, self.process.disk, "/data/state", state)
            await asyncio.sleep(0.02)


def program(host: Host, names: list[str], counters: Counters, leak: bool) -> Any:
    def main(process: Process) -> Coroutine[Any, Any, None]:
        return Node(process, [name for name in names if name != host.name], counters, leak).run()

    return main


def cause_faults(simulation: Simulation, hosts: list[Host], counters: Counters) -> None:
    rng = simulation.stream("faults")

    def act() -> None:
        host, other = rng.sample(hosts, 2)
        fault = rng.choice(("kill", "power loss", "pause", "block", "reset"))
        if fault in ("kill", "power loss") and host.alive:
            host.kill() if fault == "kill" else host.power_loss()
            simulation.call_later(rng.uniform(0.05, 0.6), host.restart)
        elif fault == "pause":
            host.pause(rng.uniform(0.05, 0.8))
        elif fault == "block":
            simulation.network.block(host.address, other.address)
            simulation.call_later(
                rng.uniform(0.05, 1.5), simulation.network.heal, host.address, other.address
            )
        elif fault == "reset":
            simulation.network.reset(host.address, other.address)
        counters.add(fault)
        simulation.call_later(rng.uniform(0.05, 0.4), act)

    simulation.call_later(0.2, act)


def run(seed: int, seconds: float, *, leak: bool = False, timeline: IO[str] | None = None) -> dict[str, Any]:
    """The digest, the counters and the unhandled errors of one seed."""
    counters = Counters()
    with Simulation(seed, timeline=timeline) as simulation:
        names = ["a", "b", "c"]
        hosts = [simulation.add_host(name) for name in names]
        for host in hosts:
            host.start(program(host, names, counters, leak))
        cause_faults(simulation, hosts, counters)
        simulation.run_until(seconds)
        return {
            "digest": simulation.digest(),
            "counters": counters,
            "steps": simulation.scheduler.steps,
            "errors": [str(error) for error in simulation.errors],
        }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("seconds", type=float)
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--leak", action="store_true")
    parser.add_argument("--timeline", type=argparse.FileType("w"))
    args = parser.parse_args()
    runs = [
        run_isolated(lambda seed=seed: run(seed, args.seconds, leak=args.leak, timeline=args.timeline))
        for seed in args.seeds
    ]
    print(json.dumps(runs))


if __name__ == "__main__":
    main()
