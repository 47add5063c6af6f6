"""Kill, power loss, pause and restart: what code runs, what peers notice, what is left."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from kraft.chaos.world.incarnation import IncarnationGoneError
from kraft.chaos.world.simulation import Simulation


class Echo(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


async def serve(process):
    await asyncio.get_running_loop().create_server(Echo, "0.0.0.0", 9)
    await asyncio.Event().wait()


async def ask(streams, timeout=5.0):
    reader, writer = streams
    async with asyncio.timeout(timeout):
        writer.write(b"?")
        if not await reader.read(10):
            raise ConnectionAbortedError
    return True


def attempt(awaitable, log):
    """Appends how an awaitable ended, and after how many virtual seconds."""

    async def run():
        loop = asyncio.get_running_loop()
        before = loop.time()
        try:
            result: object = await awaitable
        except (OSError, TimeoutError) as error:
            result = type(error).__name__
        log.append((result if isinstance(result, str | bool) else "ok", round(loop.time() - before, 1)))

    return run()


@pytest.fixture
def world():
    """A server and the world around it; `run` adds a client program and plays it."""
    with Simulation(2) as simulation:
        server = simulation.add_host("server")
        server.start(serve)

        def run(client, seconds=60.0):
            simulation.add_host("client").start(client)
            simulation.run_until(seconds)
            assert simulation.errors == []
            return server

        yield run


def test_a_killed_server_resets_its_connections_and_refuses_new_ones(world):
    log: list[Any] = []

    async def client(process):
        server = process.host.simulation.hosts["server"]
        streams = await asyncio.open_connection("server", 9)
        assert await ask(streams)
        process.host.simulation.call_later(1.0, server.kill)
        await attempt(streams[0].read(1), log)
        await attempt(asyncio.open_connection("server", 9), log)
        server.restart()
        await asyncio.sleep(0.1)
        await attempt(ask(await asyncio.open_connection("server", 9)), log)

    world(client)
    assert log == [("ConnectionResetError", 1.0), ("ConnectionRefusedError", 0.0), (True, 0.0)]


def test_a_server_without_power_is_silent_until_it_boots(world):
    log: list[Any] = []

    async def client(process):
        simulation = process.host.simulation
        server = simulation.hosts["server"]
        idle, busy = [await asyncio.open_connection("server", 9) for _ in range(2)]
        server.power_loss()
        simulation.call_later(4.0, server.restart)
        await asyncio.gather(
            attempt(ask(busy, timeout=20), log),
            attempt(asyncio.wait_for(idle[0].read(1), 10), log),
            attempt(asyncio.open_connection("server", 9), log),
        )

    world(client)
    assert sorted(log) == [("ConnectionResetError", 4.2), ("TimeoutError", 10.0), ("ok", 4.2)]


def test_a_paused_server_still_accepts_and_answers_when_it_resumes(world):
    log: list[Any] = []

    async def client(process):
        process.host.simulation.hosts["server"].pause(5.0)
        streams = await asyncio.wait_for(asyncio.open_connection("server", 9), 1)
        await attempt(ask(streams, timeout=3), log)
        streams = await asyncio.wait_for(asyncio.open_connection("server", 9), 1)
        await attempt(ask(streams, timeout=3), log)

    world(client)
    assert log == [("TimeoutError", 3.0), (True, 2.0)]


def test_a_paused_process_keeps_the_order_of_what_waited():
    seen = []

    async def program(process):
        loop = asyncio.get_running_loop()
        process.host.simulation.call_later(0.5, process.host.pause)
        process.host.simulation.call_later(9.0, process.host.resume)
        for name in "ab":
            loop.call_later(1.0, seen.append, name)
        loop.call_later(2.0, lambda: seen.append(loop.time()))
        await process.executor.run(seen.append, "job")
        await asyncio.sleep(0.6)
        seen.append("main")
        await asyncio.Event().wait()

    with Simulation(1) as simulation:
        simulation.add_host().start(program)
        simulation.run_until(8)
        assert seen == ["job"]
        simulation.run_until(20)
    assert seen[:1] == ["job"]
    assert [what for what in seen[1:] if what != "main"][:2] == ["a", "b"]
    assert "main" in seen
    assert 9.0 <= max(what for what in seen if isinstance(what, float)) < 9.1


def suspended_everywhere(finalized: list[str], simulation: Simulation) -> Any:
    """A program suspended in every way that Python knows."""

    async def generator(future):
        try:
            while True:
                yield await future
        finally:
            finalized.append("generator")

    async def wait(what):
        try:
            await what
        finally:
            finalized.append("task")

    async def iterate(future):
        async for _ in generator(future):
            pass

    class Resource:
        def __del__(self) -> None:
            finalized.append("destructor")

    async def program(process):
        loop = asyncio.get_running_loop()
        resource = Resource()
        try:
            await loop.create_server(Echo, "0.0.0.0", 9)
            _, writer = await asyncio.open_connection("10.0.0.1", 9)
            async with asyncio.TaskGroup() as group, asyncio.timeout(100):
                group.create_task(wait(asyncio.Event().wait()))
                group.create_task(wait(loop.create_future()))
                group.create_task(wait(asyncio.sleep(50)))
                group.create_task(iterate(loop.create_future()))
                writer.write(b"on the way")
                process.host.kill() if process.host.name == "suicide" else None
                finalized.append("ran on to the next await")
                writer.write(b"swallowed")
                await asyncio.sleep(0 if process.host.name == "suicide" else 100)
                finalized.append("never")
        finally:
            finalized.append(f"main {resource}")

    return program


@pytest.mark.parametrize("name", ["suicide", "victim"])
def test_no_code_of_a_killed_process_runs(name):
    finalized: list[str] = []
    with Simulation(1) as simulation:
        host = simulation.add_host(name)
        host.start(suspended_everywhere(finalized, simulation))
        if name == "victim":
            simulation.call_later(5.0, host.power_loss)
        simulation.run_until(200)
        gc.collect()
    gc.collect()
    assert finalized == ["ran on to the next await"]
    assert simulation.errors == []


def test_a_dead_process_is_fenced_from_disk_network_and_loop():
    seen = []

    async def program(process):
        loop, disk = process.loop, process.disk
        file = disk.open("/file", create=True)
        file.append([b"kept"])
        piece = file.slice(0, 4)
        process.host.kill()
        for operation in (
            lambda: file.append([b"lost"]),
            file.sync,
            piece.read,
            lambda: disk.open("/other", create=True),
            lambda: disk.rename("/file", "/renamed"),
            lambda: disk.sync_dir("/"),
        ):
            with pytest.raises(IncarnationGoneError):
                operation()
        loop.call_soon(seen.append, "callback")
        loop.call_later(1, seen.append, "timer")
        seen.append(loop.is_closed())

    with Simulation(1) as simulation:
        host = simulation.add_host()
        host.start(program)
        simulation.run_until(5)
        assert host.storage.files() == {"/file": b"kept"}
    assert seen == [True]


def test_halt_ends_the_process_and_is_remembered():
    async def program(process):
        process.halt("a promise would be broken")
        process.halt("only once")
        await asyncio.sleep(0)
        raise AssertionError("never")

    with Simulation(1) as simulation:
        host = simulation.add_host()
        host.start(program)
        simulation.run_until(1)
    assert list(host.halts.values()) == ["a promise would be broken"]
    assert not host.alive
    assert simulation.errors == []


def test_each_life_has_its_own_name_loop_and_chance():
    lives = []

    async def program(process):
        lives.append((process.incarnation.name, process.rng.random(), process.now_ms()))
        await asyncio.Event().wait()

    with Simulation(1) as simulation:
        host = simulation.add_host()
        host.start(program)
        simulation.run_until(1)
        host.kill()
        host.clock.offset_ms = -500
        host.restart()
        simulation.run_until(2)
    assert [name for name, _, _ in lives] == ["10.0.0.1#1", "10.0.0.1#2"]
    assert lives[0][1] != lives[1][1]
    assert lives[1][2] - lives[0][2] == 500


def test_a_connection_from_a_dead_client_is_reset_not_leaked(world):
    async def client(process):
        await asyncio.open_connection("server", 9)
        await asyncio.sleep(0.1)
        process.host.kill()

    server = world(client)
    assert server.kernel.endpoints == {}


def test_a_program_that_cannot_even_start_ends_its_process():
    def main(process):
        raise KeyError("configuration")

    with Simulation(1) as simulation:
        host = simulation.add_host()
        host.start(main)
        simulation.run_until(1)
    assert not host.alive
    assert [type(error.error) for error in simulation.errors] == [KeyError]
