"""Transports behave as the standard library's do on Linux."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kraft.chaos.world.kernel import WINDOW_BYTES
from kraft.chaos.world.simulation import Simulation


class Recorder(asyncio.Protocol):
    """Writes down what it is told; `made` resolves when connected, `lost` when the connection is gone."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.received = 0
        loop = asyncio.get_running_loop()
        self.made, self.lost, self.eof = loop.create_future(), loop.create_future(), loop.create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.made.set_result(None)

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        self.events.append(data)

    def eof_received(self) -> bool:
        self.eof.set_result(None)
        return False

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


async def pair(host: str = "10.0.0.1", factory: Any = Recorder) -> tuple[Any, Recorder, Any]:
    """A connection inside one host: (server, the client's protocol, the accepted protocol)."""
    loop = asyncio.get_running_loop()
    accepted: list[Any] = []

    def accept() -> Any:
        accepted.append(factory())
        return accepted[-1]

    server = await loop.create_server(accept, "0.0.0.0", 0)
    _, client = await loop.create_connection(Recorder, host, server.sockets[0].getsockname()[1])
    await asyncio.sleep(0.01)
    return server, client, accepted[0]


def test_bytes_arrive_whole_and_in_order(play):
    async def program(process):
        _, client, accepted = await pair()
        sent = bytearray()
        for number in range(2_000):
            data = number.to_bytes(4, "big") * (number % 50)
            client.transport.write(data)
            sent += data
        await asyncio.sleep(1)
        assert b"".join(accepted.events) == bytes(sent)

    play(program)


def test_what_is_written_may_be_changed_afterwards(play):
    async def program(process):
        _, client, accepted = await pair()
        buffer = bytearray(b"before")
        client.transport.write(memoryview(buffer))
        client.transport.writelines([memoryview(buffer), b"!"])
        buffer[:] = b"after."
        await asyncio.sleep(0.1)
        assert b"".join(accepted.events) == b"beforebefore!"

    play(program)


def test_a_reader_that_does_not_read_stops_the_writer(play):
    async def program(process):
        _, client, accepted = await pair()
        accepted.transport.pause_reading()
        assert not accepted.transport.is_reading()
        for _ in range(100):
            client.transport.write(bytes(10_000))
        await asyncio.sleep(1)
        assert accepted.received == 0
        assert client.events == ["pause"]
        assert client.transport.get_write_buffer_size() == 1_000_000 - WINDOW_BYTES
        accepted.transport.resume_reading()
        await asyncio.sleep(1)
        assert accepted.received == 1_000_000
        assert client.events == ["pause", "resume"]
        assert client.transport.get_write_buffer_size() == 0

    play(program)


def test_write_buffer_limits(play):
    async def program(process):
        _, client, accepted = await pair()
        accepted.transport.pause_reading()
        client.transport.set_write_buffer_limits(high=100, low=20)
        assert client.transport.get_write_buffer_limits() == (20, 100)
        client.transport.write(bytes(WINDOW_BYTES + 100))
        assert client.events == []
        client.transport.write(b"x")
        assert client.events == ["pause"]
        with pytest.raises(ValueError, match="high"):
            client.transport.set_write_buffer_limits(high=1, low=2)

    play(program)


class Buffered(asyncio.BufferedProtocol):
    """A receiver with a small buffer that pauses after each fill."""

    def __init__(self) -> None:
        self.buffer = bytearray(1_000)
        self.data = bytearray()
        self.fills: list[int] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self.buffer[:nbytes]
        self.fills.append(nbytes)
        self.transport.pause_reading()
        asyncio.get_running_loop().call_later(0.001, self.transport.resume_reading)


def test_buffered_protocols_take_no_more_than_they_offer(play):
    async def program(process):
        _, client, accepted = await pair(factory=Buffered)
        sent = bytes(range(256)) * 41
        client.transport.write(sent[:5_000])
        client.transport.write(sent[5_000:])
        await asyncio.sleep(1)
        assert bytes(accepted.data) == sent
        assert accepted.fills == [1_000] * 10 + [496]

    play(program)


def test_closing_sends_what_is_buffered_first(play):
    async def program(process):
        _, client, accepted = await pair()
        client.transport.write(bytes(WINDOW_BYTES * 3))
        client.transport.close()
        assert client.transport.is_closing()
        assert not client.lost.done()
        assert await client.lost is None
        assert await accepted.lost is None
        assert accepted.received == WINDOW_BYTES * 3
        client.transport.write(b"swallowed")
        client.transport.abort()

    play(program)


def test_half_close(play):
    class Answering(Recorder):
        def eof_received(self) -> bool:
            self.transport.write(b"answer")
            self.transport.close()
            return True

    async def program(process):
        _, client, _ = await pair(factory=Answering)
        client.transport.write(b"question")
        client.transport.write_eof()
        with pytest.raises(RuntimeError, match="write_eof"):
            client.transport.write(b"more")
        assert await client.lost is None
        assert client.events == [b"answer"]

    play(program)


def test_abort_with_unread_data_resets_the_peer(play):
    async def program(process):
        _, client, accepted = await pair()
        accepted.transport.pause_reading()
        client.transport.write(b"unread")
        await asyncio.sleep(0.1)
        accepted.transport.abort()
        assert isinstance(await client.lost, ConnectionResetError)
        assert await accepted.lost is None

    play(program)


def test_writing_to_a_closed_peer_ends_in_a_reset(play):
    async def program(process):
        _, client, accepted = await pair()
        client.transport.pause_reading()
        accepted.transport.close()
        await asyncio.sleep(0.1)
        assert not client.lost.done()
        client.transport.write(b"into the void")
        await asyncio.sleep(0.1)
        client.transport.write(b"noticed")
        assert isinstance(await client.lost, ConnectionResetError)

    play(program)


def test_a_reset_lets_received_data_be_read_first():
    async def program(process):
        _, client, accepted = await pair("127.0.0.1")
        accepted.transport.pause_reading()
        client.transport.write(b"last words")
        await asyncio.sleep(0.1)
        process.host.simulation.network.reset(process.host.address, process.host.address)
        assert isinstance(await client.lost, ConnectionResetError)
        assert not accepted.lost.done()
        accepted.transport.resume_reading()
        assert isinstance(await accepted.lost, ConnectionResetError)
        assert accepted.events == [b"last words"]

    with Simulation(1) as simulation:
        simulation.add_host().start(program)
        simulation.run_until(5)
    assert simulation.errors == []


def test_a_protocol_that_fails_loses_its_connection():
    class Broken(Recorder):
        def data_received(self, data: bytes) -> None:
            raise KeyError("broken")

    async def program(process):
        _, client, accepted = await pair(factory=Broken)
        client.transport.write(b"x")
        assert isinstance(await accepted.lost, KeyError)
        await client.lost

    with Simulation(1) as simulation:
        simulation.add_host().start(program)
        simulation.run_until(5)
    assert [type(error.error) for error in simulation.errors] == [KeyError]


def test_extra_info_and_socket_options(play):
    async def program(process):
        _, client, accepted = await pair()
        transport = client.transport
        assert transport.get_extra_info("peername") == accepted.transport.get_extra_info("sockname")
        assert transport.get_extra_info("sslcontext") is None
        socket = transport.get_extra_info("socket")
        socket.setsockopt(6, 1, 1)
        assert socket.getsockopt(6, 1) == 1
        assert socket.getpeername() == transport.get_extra_info("peername")

    play(program)
