"""Addresses, names, latency, order, and one-way blocks."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any

import pytest

from kraft.chaos.world.network import CUTS_MAX, LAN_LATENCY, Impairment, Latency
from kraft.chaos.world.simulation import Simulation


class Server(asyncio.Protocol):
    """Answers every chunk with `ok`."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(b"ok")


async def serve(process):
    await asyncio.get_running_loop().create_server(Server, "0.0.0.0", 9)
    await asyncio.Event().wait()


async def ask(writer, reader):
    writer.write(b"?")
    return await reader.readexactly(2)


def test_where_a_listener_can_be_reached(play):
    async def program(process):
        loop = asyncio.get_running_loop()
        await loop.create_server(Server, "0.0.0.0", 1)
        await loop.create_server(Server, "10.0.0.1", 2)
        await loop.create_server(Server, "127.0.0.1", 3)
        await loop.create_server(Server, ["127.0.0.1", "host-1"], 4)

        async def reachable(host):
            ports = []
            for port in (1, 2, 3, 4, 5):
                try:
                    transport, _ = await loop.create_connection(asyncio.Protocol, host, port)
                except ConnectionRefusedError:
                    continue
                transport.close()
                ports.append(port)
            return ports

        assert await reachable("10.0.0.1") == [1, 2, 4]
        assert await reachable("host-1") == [1, 2, 4]
        assert await reachable("127.0.0.1") == [1, 3, 4]
        assert await reachable("localhost") == [1, 3, 4]

    play(program)


def test_binding_errors_and_ephemeral_ports(play):
    async def program(process):
        create_server = asyncio.get_running_loop().create_server
        server = await create_server(Server, "127.0.0.1", 7)
        for host in ("0.0.0.0", "127.0.0.1", None):
            with pytest.raises(OSError, match="in use") as raised:
                await create_server(Server, host, 7)
            assert raised.value.errno == errno.EADDRINUSE
        await create_server(Server, "10.0.0.1", 7)
        with pytest.raises(OSError, match=r"10\.0\.0\.99") as raised:
            await create_server(Server, "10.0.0.99", 7)
        assert raised.value.errno == errno.EADDRNOTAVAIL
        ports = {(await create_server(Server, "0.0.0.0", 0)).sockets[0].getsockname()[1] for _ in range(50)}
        assert len(ports) == 50
        server.close()
        await server.wait_closed()
        assert server.sockets == ()
        await create_server(Server, "127.0.0.1", 7)

    play(program)


def test_names(play):
    async def program(process):
        loop = asyncio.get_running_loop()
        infos = await loop.getaddrinfo("host-2", 80, type=socket.SOCK_STREAM)
        assert infos == [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.2", 80))]
        assert (await loop.getaddrinfo("10.9.8.7", None))[0][4] == ("10.9.8.7", 0)
        with pytest.raises(socket.gaierror):
            await loop.getaddrinfo("nowhere", 80)

    play(program, serve)


def test_latency_is_the_links(play):
    times = []

    async def client(process):
        loop = asyncio.get_running_loop()
        await asyncio.sleep(1)
        reader, writer = await asyncio.open_connection("10.0.0.1", 9)
        for latency in (Latency(0.001, 0.002), Latency(0.5, 0.7)):
            network = process.host.simulation.network
            network.link("10.0.0.2", "10.0.0.1").set_latency(latency)
            before = loop.time()
            await ask(writer, reader)
            times.append(loop.time() - before)

    play(serve, client)
    assert 0.001 < times[0] < 0.0035
    assert 0.5 < times[1] < 0.702


def test_one_connection_keeps_its_order_and_others_overtake(play):
    seen = []

    class Collect(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            seen.append(data)

    async def collect(process):
        await asyncio.get_running_loop().create_server(Collect, "0.0.0.0", 9)
        await asyncio.Event().wait()

    async def send(process):
        process.host.simulation.network.link("10.0.0.2", "10.0.0.1").set_latency(Latency(0.001, 0.1))
        loop = asyncio.get_running_loop()
        transports = [(await loop.create_connection(asyncio.Protocol, "10.0.0.1", 9))[0] for _ in range(3)]
        for number in range(20):
            for name, transport in zip(b"abc", transports, strict=True):
                transport.write(bytes([name, number]))
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)

    play(collect, send)
    received = b"".join(seen)
    order = list(zip(received[::2], received[1::2], strict=True))
    for name in b"abc":
        assert [number for who, number in order if who == name] == list(range(20))
    assert order != sorted(order, key=lambda pair: pair[1])


def test_requests_blocked_are_executed_after_the_heal_and_answers_blocked_were_executed():
    executed = []

    class Count(Server):
        def data_received(self, data: bytes) -> None:
            executed.append(data)
            super().data_received(data)

    async def server(process):
        await asyncio.get_running_loop().create_server(Count, "0.0.0.0", 9)
        await asyncio.Event().wait()

    async def client(process):
        reader, writer = await asyncio.open_connection("10.0.0.1", 9)
        network = process.host.simulation.network
        for source, target in (("10.0.0.2", "10.0.0.1"), ("10.0.0.1", "10.0.0.2")):
            await ask(writer, reader)
            executed.clear()
            network.block(source, target)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(ask(writer, reader), 5)
            executed.append("gave up")
            network.heal(source, target)
            assert await reader.readexactly(2) == b"ok"
            outcomes.append(list(executed))

    outcomes: list[list[Any]] = []
    with Simulation(3) as simulation:
        simulation.add_host().start(server)
        simulation.add_host().start(client)
        simulation.run_until(30)
    assert simulation.errors == []
    assert outcomes == [["gave up", b"?"], [b"?", "gave up"]]


def test_a_blocked_acknowledgement_closes_the_window():
    async def client(process):
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(asyncio.Protocol, "10.0.0.1", 9)
        process.host.simulation.network.block("10.0.0.1", "10.0.0.2")
        for _ in range(8):
            transport.write(bytes(100_000))
            await asyncio.sleep(0.1)
        assert transport.get_write_buffer_size() == 800_000 - 256 * 1024
        process.host.simulation.network.heal("10.0.0.1", "10.0.0.2")
        await asyncio.sleep(1)
        assert transport.get_write_buffer_size() == 0

    with Simulation(3) as simulation:
        simulation.add_host().start(serve)
        simulation.add_host().start(client)
        simulation.run_until(5)
    assert simulation.errors == []


def test_partition_and_heal_all():
    async def client(process):
        network = process.host.simulation.network
        network.partition(["10.0.0.1"], ["10.0.0.2", "10.0.0.3"])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.open_connection("10.0.0.1", 9), 3)
        network.heal_all()
        await asyncio.wait_for(asyncio.open_connection("10.0.0.1", 9), 1)

    with Simulation(3) as simulation:
        simulation.add_host().start(serve)
        for _ in range(2):
            simulation.add_host().start(client)
        simulation.run_until(10)
    assert simulation.errors == []


def test_connecting_to_nobody(play):
    async def program(process):
        loop = asyncio.get_running_loop()
        before = loop.time()
        with pytest.raises(TimeoutError, match=r"10\.77\.0\.1:9 timed out"):
            await loop.create_connection(asyncio.Protocol, "10.77.0.1", 9)
        assert 120 < loop.time() - before < 130
        with pytest.raises(ConnectionRefusedError, match=r"10\.0\.0\.1:9 refused"):
            await loop.create_connection(asyncio.Protocol, "10.0.0.1", 9)

    play(program, seconds=200)


def test_a_full_backlog_makes_connections_wait():
    async def server(process):
        await asyncio.get_running_loop().create_server(Server, "0.0.0.0", 9, backlog=2)
        await asyncio.Event().wait()

    async def client(process):
        process.host.simulation.hosts["host-1"].pause(4)
        connects = [asyncio.create_task(asyncio.open_connection("10.0.0.1", 9)) for _ in range(5)]
        await asyncio.sleep(1)
        connected.append(sum(task.done() for task in connects))
        await asyncio.gather(*connects)
        connected.append(process.loop.time())

    connected: list[float] = []
    with Simulation(3) as simulation:
        simulation.add_host().start(server)
        simulation.add_host().start(client)
        simulation.run_until(20)
    assert simulation.errors == []
    assert connected[0] == 2
    assert 4 < connected[1] < 6


def test_connections_leave_no_timers_behind():
    async def client(process):
        for _ in range(5_000):
            _, writer = await asyncio.open_connection("10.0.0.1", 9)
            writer.close()
            await writer.wait_closed()
        kernel = process.host.simulation.hosts["host-1"].kernel
        await asyncio.sleep(0.1)
        assert process.host.kernel.endpoints == kernel.endpoints == {}
        assert len(process.loop.scheduler.heap) < 3_000

    with Simulation(3) as simulation:
        simulation.add_host().start(serve)
        simulation.add_host().start(client)
        simulation.run_until(100)
    assert simulation.errors == []


def transfer(impairment, writes, seed=3):
    """When which bytes arrive over an impaired link, for writes of so many bytes made at once."""
    arrivals = []

    class Collect(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            arrivals.append((asyncio.get_running_loop().time(), data))

    async def collect(process):
        await asyncio.get_running_loop().create_server(Collect, "0.0.0.0", 9)
        await asyncio.Event().wait()

    async def send(process):
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(asyncio.Protocol, "10.0.0.1", 9)
        process.host.simulation.network.impair("10.0.0.2", "10.0.0.1", impairment)
        began.append(loop.time())
        for number, size in enumerate(writes):
            transport.write(bytes([number]) * size)
        await asyncio.Event().wait()

    began: list[float] = []
    with Simulation(seed) as simulation:
        simulation.add_host().start(collect)
        simulation.add_host().start(send)
        simulation.run_until(30)
    assert simulation.errors == []
    return [(at_s - began[0], data) for at_s, data in arrivals]


def test_a_slow_link_passes_on_so_many_bytes_a_second():
    arrivals = transfer(Impairment(bytes_per_s=15_140), [14_480, 28_960])
    assert b"".join(data for _, data in arrivals) == bytes(14_480) + b"\1" * 28_960
    assert all(at_s > 0.1 for at_s, _ in arrivals)
    first_s = [at_s for at_s, data in arrivals if b"\1" not in data][-1]
    assert 0.99 < first_s < 1.01
    assert 2.99 < arrivals[-1][0] < 3.01


def test_a_relieved_link_lets_go_of_what_waited():
    async def client(process):
        network, loop = process.host.simulation.network, process.loop
        reader, writer = await asyncio.open_connection("10.0.0.1", 9)
        slow = Impairment(bytes_per_s=10_000)
        network.impair("10.0.0.2", "10.0.0.1", slow)
        writer.write(b"?" * 200_000)
        await asyncio.sleep(0.1)
        before = loop.time()
        network.relieve("10.0.0.2", "10.0.0.1", slow)
        await ask(writer, reader)
        assert loop.time() - before < 0.2, "but for what is being transmitted right now"

    with Simulation(3) as simulation:
        simulation.add_host().start(serve)
        simulation.add_host().start(client)
        simulation.run_until(100)
    assert simulation.errors == []


def test_writes_arrive_in_pieces_cut_anywhere():
    sizes = set()
    for seed in range(20):
        arrivals = transfer(Impairment(cut_odds=1.0, cut_gap_s=0.1), [100], seed)
        assert b"".join(data for _, data in arrivals) == bytes(100)
        assert len(arrivals) > 1
        sizes.update(len(data) for _, data in arrivals)
    assert len(sizes) > 20


def test_the_gaps_of_many_cut_writes_do_not_add_up():
    gap_s, writes = 0.2, 200
    arrivals = transfer(Impairment(cut_odds=1.0, cut_gap_s=gap_s), [100] * writes)
    assert b"".join(data for _, data in arrivals) == b"".join(bytes([n]) * 100 for n in range(writes))
    assert len(arrivals) > CUTS_MAX
    assert gap_s < arrivals[-1][0] <= CUTS_MAX * gap_s + LAN_LATENCY.max_s


def test_what_is_written_after_the_relief_only_waits_for_what_is_in_flight():
    arrivals = []

    class Collect(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            arrivals.append((asyncio.get_running_loop().time(), data))

    async def collect(process):
        await asyncio.get_running_loop().create_server(Collect, "0.0.0.0", 9)
        await asyncio.Event().wait()

    async def send(process):
        network, loop = process.host.simulation.network, process.loop
        transport, _ = await loop.create_connection(asyncio.Protocol, "10.0.0.1", 9)
        cut = Impairment(cut_odds=1.0, cut_gap_s=0.2)
        network.impair("10.0.0.2", "10.0.0.1", cut)
        for _ in range(50):
            transport.write(b"x" * 100)
        network.relieve("10.0.0.2", "10.0.0.1", cut)
        transport.write(b"y" * 100)
        await asyncio.sleep(2.0)
        written.append(loop.time())
        transport.write(b"z" * 100)
        await asyncio.Event().wait()

    written: list[float] = []
    with Simulation(3) as simulation:
        simulation.add_host().start(collect)
        simulation.add_host().start(send)
        simulation.run_until(10)
    assert simulation.errors == []
    at_s = {data[-1:]: at for at, data in arrivals}
    assert b"".join(data for _, data in arrivals) == b"x" * 5000 + b"y" * 100 + b"z" * 100
    usual_s = 2 * LAN_LATENCY.max_s  # latency, and what the processes take
    assert at_s[b"y"] - at_s[b"x"] <= usual_s, "right behind what was cut before"
    assert at_s[b"z"] - written[0] <= usual_s, "and later on as ever"


def test_the_worst_of_several_impairments_counts():
    with Simulation(3) as simulation:
        link = simulation.network.link("10.0.0.1", "10.0.0.2")
        before = (link.min_s, link.span_s)
        slow, late = Impairment(bytes_per_s=10), Impairment(latency=Latency(0.5, 0.6), bytes_per_s=100)
        simulation.network.impair("10.0.0.1", "10.0.0.2", slow)
        simulation.network.impair("10.0.0.1", "10.0.0.2", late)
        assert (link.bytes_per_s, link.min_s) == (10, 0.5)
        simulation.network.relieve("10.0.0.1", "10.0.0.2", slow)
        assert (link.bytes_per_s, link.min_s) == (100, 0.5)
        simulation.network.relieve("10.0.0.1", "10.0.0.2", late)
        assert (link.min_s, link.span_s) == before
        assert not link.impeded


def test_a_clogged_link_lets_go_of_everything_at_once():
    arrivals = []

    class Collect(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            arrivals.append(asyncio.get_running_loop().time())

    async def collect(process):
        await asyncio.get_running_loop().create_server(Collect, "0.0.0.0", 9)
        await asyncio.Event().wait()

    async def send(process):
        loop, network = asyncio.get_running_loop(), process.host.simulation.network
        transports = [(await loop.create_connection(asyncio.Protocol, "10.0.0.1", 9))[0] for _ in range(10)]
        network.clog("10.0.0.2", "10.0.0.1")
        network.block("10.0.0.2", "10.0.0.1")
        for transport in transports:
            transport.write(b"x")
            await asyncio.sleep(0.1)
        network.heal("10.0.0.2", "10.0.0.1")
        await asyncio.sleep(1.0)
        assert not arrivals, "it is still clogged"
        before = loop.time()
        network.unclog("10.0.0.2", "10.0.0.1")
        await asyncio.sleep(1.0)
        assert len(arrivals) == 10
        assert max(arrivals) - before < 0.002

    with Simulation(3) as simulation:
        simulation.add_host().start(collect)
        simulation.add_host().start(send)
        simulation.run_until(10)
    assert simulation.errors == []


def test_whoever_waits_on_a_silent_connection_can_be_made_to_give_up():
    async def client(process):
        reader, writer = await asyncio.open_connection("10.0.0.1", 9)
        network = process.host.simulation.network
        network.silence("10.0.0.1", "10.0.0.2", (100.0, 200.0))
        process.host.simulation.call_later(1.0, network.end_silence, "10.0.0.1", "10.0.0.2")
        with pytest.raises(TimeoutError, match="timed out"):
            await ask(writer, reader)
        assert process.loop.time() < 2.0
        reader, writer = await asyncio.open_connection("10.0.0.1", 9)
        await ask(writer, reader)

    with Simulation(3) as simulation:
        simulation.add_host().start(serve)
        simulation.add_host().start(client)
        simulation.run_until(300)
    assert simulation.errors == []
