"""SocketServer: connection limits, idle connections, closing in good order, TLS, a port in use."""

from __future__ import annotations

import asyncio
import gc
import logging
import ssl
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kraft.network.connection import CloseConnectionError, Connection
from kraft.network.framing import FrameBuffer
from kraft.network.limits import NetworkLimits
from kraft.network.outbox import Outbox
from kraft.network.response import Answer, Response
from kraft.network.sender import TransportSender
from kraft.network.server import ListenerError, SocketServer
from kraft.network.session import Session
from kraft.runtime.disk import RealDisk
from kraft.runtime.sendfile import SendfileSender, real_sender
from kraft.security.quotas.connection_quotas import TAKEN_AT_ONCE, Admission, ConnectionQuotas
from kraft.security.quotas.rates import Windows

if TYPE_CHECKING:
    from tests.unit.network.conftest import Dial, Listen, Until

PEM = Path(__file__).with_name("localhost.pem")


def limits(**values: int) -> NetworkLimits:
    return NetworkLimits(min_request_bytes=1, **values)


def echo(frame: memoryview, connection: Connection) -> Answer:
    return Response.of(bytes(frame))


async def test_connections_beyond_the_limit_are_refused(
    listen: Listen, dial: Dial, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    server = await listen(echo, limits=limits(max_connections=2))
    first, second = await dial(server), await dial(server)
    await until(lambda: server.connection_count == 2)
    third = await dial(server)
    assert await third.at_end()
    assert "max.connections=2" in caplog.text
    second.send(b"still served")
    assert await second.frame() == b"still served"
    await first.close()
    await until(lambda: server.connection_count == 1)
    fourth = await dial(server)
    fourth.send(b"a place is free")
    assert await fourth.frame() == b"a place is free"
    assert server.refused_count == 1


async def test_connections_from_one_address_beyond_the_limit_are_refused(
    listen: Listen, dial: Dial, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    server = await listen(echo, limits=limits(max_connections_per_ip=1))
    first = await dial(server)
    await until(lambda: server.connection_count == 1)
    assert await (await dial(server)).at_end()
    assert "max.connections.per.ip=1" in caplog.text
    await first.close()
    await until(lambda: server.connection_count == 0)
    again = await dial(server)
    again.send(b"hello")
    assert await again.frame() == b"hello"


async def test_idle_connections_are_closed_and_waiting_ones_are_not(
    listen: Listen, dial: Dial, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    answer: asyncio.Future[Response | None] = asyncio.get_running_loop().create_future()

    def handler(frame: memoryview, connection: Connection) -> Answer:
        return answer

    server = await listen(handler, limits=limits(connections_max_idle_ms=200))
    waiting = await dial(server)
    waiting.send(b"a long poll")
    idle = await dial(server)
    assert await idle.at_end()
    assert "idle for" in caplog.text
    answer.set_result(Response.of(b"at last"))
    assert await waiting.frame() == b"at last"


async def test_a_closing_server_lets_owed_answers_go_out(listen: Listen, dial: Dial, until: Until) -> None:
    answers: list[asyncio.Future[Response | None]] = []

    def handler(frame: memoryview, connection: Connection) -> Answer:
        answers.append(asyncio.get_running_loop().create_future())
        return answers[-1]

    server = await listen(handler, limits=limits())
    busy, idle = await dial(server), await dial(server)
    busy.send(b"1", b"2")
    await until(lambda: len(answers) == 2)
    closing = asyncio.create_task(server.close(grace_s=10.0))
    assert await idle.at_end()
    with pytest.raises(OSError, match=r".*"):
        await dial(server)
    busy.send(b"too late")
    answers[1].set_result(Response.of(b"two"))
    answers[0].set_result(Response.of(b"one"))
    assert [await busy.frame(), await busy.frame()] == [b"one", b"two"]
    assert await busy.at_end()
    await closing
    assert len(answers) == 2
    assert server.connection_count == 0


async def test_answers_that_outlast_the_grace_are_cancelled_and_awaited(
    listen: Listen, dial: Dial, until: Until
) -> None:
    started = 0
    cleaned_up = 0

    async def slow() -> Response | None:
        nonlocal started, cleaned_up
        started += 1
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)  # a clean-up that takes a turn
            cleaned_up += 1
        return None

    server = await listen(lambda frame, connection: slow(), limits=limits())
    peer = await dial(server)
    peer.send(b"1", b"2")
    await until(lambda: started == 2)
    await server.close(grace_s=0.01)
    assert cleaned_up == 2
    assert await peer.at_end()


async def test_closing_does_not_wait_for_a_reader_that_does_not_read(
    listen: Listen, dial: Dial, until: Until
) -> None:
    def large(frame: memoryview, connection: Connection) -> Answer:
        return Response.of(bytes(20_000_000))

    server = await listen(large, limits=limits())
    peer = await dial(server)
    peer.send(b"1")
    await until(lambda: any(c._outbox.write_paused for c in server._connections.values()))
    await server.close(grace_s=0.01)
    assert server.connection_count == 0
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await peer.frame()


async def test_closing_twice_and_closing_what_never_started(listen: Listen) -> None:
    await SocketServer(echo).close(grace_s=1.0)
    server = await listen(echo)
    await server.close(grace_s=1.0)
    await server.close(grace_s=1.0)


async def test_a_port_in_use_is_a_sentence(listen: Listen) -> None:
    taken = await listen(echo)
    server = SocketServer(echo, name="PLAINTEXT")
    with pytest.raises(
        ListenerError, match=f"PLAINTEXT cannot listen on 127.0.0.1:{taken.port}: the port is in use"
    ):
        await server.start("127.0.0.1", taken.port)


async def test_an_address_of_another_host_is_a_sentence() -> None:
    with pytest.raises(ListenerError, match="this host has no such address"):
        await SocketServer(echo, name="PLAINTEXT").start("192.0.2.1", 9092)


async def test_idle_connections_give_their_memory_back(listen: Listen, dial: Dial, until: Until) -> None:
    server = await listen(echo, limits=limits(closing_grace_ms=50))
    peer = await dial(server)
    peer.send(b"x" * 2000)
    assert await peer.frame() == b"x" * 2000
    (connection,) = server._connections.values()
    assert connection._frames.capacity_bytes > 0
    await until(lambda: connection._frames.capacity_bytes == 0)
    peer.send(b"awake")
    assert await peer.frame() == b"awake"


async def test_tls_carries_frames_and_slices(listen: Listen, tmp_path: Path) -> None:
    content = bytes(range(256)) * 12_000
    (tmp_path / "log").write_bytes(content)
    file = RealDisk().open(str(tmp_path / "log"))
    handled = 0

    def handler(frame: memoryview, connection: Connection) -> Answer:
        nonlocal handled
        handled += 1
        if handled % 2:
            return Response.of(b"head", file.slice(100, 3_000_000), b"tail")
        return Response.of(bytes(frame))

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(PEM)
    server = await listen(handler, limits=limits(), ssl_context=context, sender_factory=real_sender)
    trusting = ssl.create_default_context(cafile=str(PEM))
    reader, writer = await asyncio.open_connection("localhost", server.port, ssl=trusting)
    body = b"y" * 700_000
    frame = len(body).to_bytes(4, "big") + body
    writer.write(frame * 4)
    for index in range(4):
        length = int.from_bytes(await reader.readexactly(4), "big")
        answer = await reader.readexactly(length)
        assert answer == (body if index % 2 else b"head" + content[100:3_000_100] + b"tail")
    writer.close()
    await writer.wait_closed()


async def test_plain_text_to_a_tls_listener_harms_nobody(listen: Listen, dial: Dial) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(PEM)
    server = await listen(echo, limits=limits(), ssl_context=context)
    stranger = await dial(server)
    stranger.send(b"not a handshake")
    await stranger.reader.read()
    trusting = ssl.create_default_context(cafile=str(PEM))
    reader, writer = await asyncio.open_connection("localhost", server.port, ssl=trusting)
    writer.write(b"\0\0\0\2ok")
    assert await reader.readexactly(6) == b"\0\0\0\2ok"
    writer.close()
    await writer.wait_closed()


class Admitting(ConnectionQuotas):
    """Decides about connections as told, in the order in which they come."""

    def __init__(self, *admissions: Admission) -> None:
        super().__init__(Windows(), of_broker=1)
        self._admissions = iter(admissions)

    def admit(self, listener: str, host: str, now_ms: float) -> Admission:
        return next(self._admissions)


async def test_a_connection_beyond_a_listeners_rate_is_read_later(
    listen: Listen, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    muted: list[Connection] = []
    mute_until = Connection.mute_until

    def noted(connection: Connection, at_s: float) -> None:
        mute_until(connection, at_s)
        muted.append(connection)

    monkeypatch.setattr(Connection, "mute_until", noted)
    quotas = Admitting(TAKEN_AT_ONCE, Admission(is_taken=True, delay_ms=20))
    server = await listen(echo, limits=limits(), quotas=quotas)
    for number in range(2):
        peer = await dial(server)
        peer.send(b"hello %d" % number, b"x" * 100_000)
        assert await peer.frame() == b"hello %d" % number
        assert len(muted) == number
    assert server.refused_count == 0


async def test_an_address_beyond_its_rate_is_held_and_turned_away(
    listen: Listen, dial: Dial, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    quotas = Admitting(TAKEN_AT_ONCE, Admission(is_taken=False, delay_ms=20), TAKEN_AT_ONCE)
    server = await listen(echo, limits=limits(), quotas=quotas)
    first, second = await dial(server), await dial(server)
    second.send(b"never read", b"x" * 1_000_000)
    first.send(b"hello")
    assert await first.frame() == b"hello"
    assert await second.at_end()
    assert "faster than its quota" in caplog.text
    assert server.refused_count == 1
    await until(lambda: server.connection_count == 1)
    third = await dial(server)
    third.send(b"again")
    assert await third.frame() == b"again"


async def test_a_muted_connection_is_not_read(listen: Listen, dial: Dial, until: Until) -> None:
    """Whatever its peer sends: TCP holds it back."""

    watching = Admitting(Admission(is_taken=True, delay_ms=60_000))
    server = await listen(echo, limits=limits(), quotas=watching)
    peer = await dial(server)
    await until(lambda: server.connection_count == 1)
    (connection,) = server._connections.values()
    for _ in range(100):
        peer.send(b"x" * 100_000)
        await asyncio.sleep(0)
    await until(lambda: peer.writer.transport.get_write_buffer_size() > 0)
    assert connection._frames.pending_bytes < 1_000_000
    peer.reset()


async def test_an_address_may_have_a_limit_of_its_own(listen: Listen, dial: Dial, until: Until) -> None:
    server = await listen(
        echo, limits=NetworkLimits(1000, max_connections_per_ip=0, max_connections_of_ip={"127.0.0.1": 1})
    )
    await dial(server)
    await until(lambda: server.connection_count == 1)
    assert await (await dial(server)).at_end()
    assert server.refused_count == 1


def silent() -> ssl.SSLContext:
    """Of a listener that nobody says hello to."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(PEM)
    return context


@pytest.mark.parametrize(
    ("bound", "told"),
    [
        ({"max_connections": 2}, "max.connections=2"),
        ({"max_connections_per_ip": 2}, "max.connections.per.ip=2"),
    ],
    ids=["of all", "of an address"],
)
async def test_connections_count_before_their_tls_handshake(
    listen: Listen,
    dial: Dial,
    until: Until,
    caplog: pytest.LogCaptureFixture,
    bound: dict[str, int],
    told: str,
) -> None:
    server = await listen(echo, limits=limits(**bound), ssl_context=silent())
    first, second = await dial(server), await dial(server)
    await until(lambda: server.connection_count == 2)
    assert await (await dial(server)).at_end()
    assert told in caplog.text
    assert list(server.sessions()) == []
    await first.close()
    second.writer.write(b"not a handshake")
    await until(lambda: server.connection_count == 0)
    trusting = ssl.create_default_context(cafile=str(PEM))
    reader, writer = await asyncio.open_connection("localhost", server.port, ssl=trusting)
    writer.write(b"\0\0\0\2ok")
    assert await reader.readexactly(6) == b"\0\0\0\2ok"
    assert server.connection_count == 1, "it counts once"
    assert len(list(server.sessions())) == 1
    writer.close()
    await until(lambda: server.connection_count == 0)
    assert server._per_ip == {}
    assert (server.accepted_count, server.refused_count) == (3, 1)


async def test_the_rate_of_connections_counts_before_their_tls_handshake(
    listen: Listen, dial: Dial, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    quotas = Admitting(Admission(is_taken=False, delay_ms=20), Admission(is_taken=True, delay_ms=20))
    server = await listen(echo, limits=limits(), ssl_context=silent(), quotas=quotas)
    assert await (await dial(server)).at_end()
    assert "faster than its quota" in caplog.text
    await until(lambda: server.connection_count == 0)
    trusting = ssl.create_default_context(cafile=str(PEM))
    reader, writer = await asyncio.open_connection("localhost", server.port, ssl=trusting)
    writer.write(b"\0\0\0\2ok")
    assert await reader.readexactly(6) == b"\0\0\0\2ok"
    assert server.refused_count == 1
    writer.close()


async def test_a_closing_server_waits_for_no_handshake(listen: Listen, dial: Dial, until: Until) -> None:
    server = await listen(echo, limits=limits(), ssl_context=silent())
    peer = await dial(server)
    await until(lambda: server.connection_count == 1)
    await server.close(grace_s=1000.0)
    assert await peer.at_end()
    assert server.connection_count == 0


TURNS_MAX = 50
COUNTED = (Connection, Session, Outbox, FrameBuffer, SendfileSender, TransportSender)


def alive() -> dict[str, int]:
    """What there is of connections, reachable or not."""
    counts = Counter(type(one).__name__ for one in gc.get_objects() if type(one) in COUNTED)
    return dict(counts)


@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "TLS"])
async def test_connections_that_are_gone_leave_nothing_to_collect(
    listen: Listen, until: Until, is_tls: bool
) -> None:
    """The collector comes seldom: what it alone can free adds up, as strangers come and go."""
    came = {b""}

    def handler(frame: memoryview, connection: Connection) -> Answer:
        came.add(bytes(frame))
        match bytes(frame):
            case b"wait":
                return asyncio.get_running_loop().create_future()
            case b"mute":
                connection.mute_until(asyncio.get_running_loop().time() + 60)
            case b"end":
                raise CloseConnectionError("it is not wanted")
            case b"finish":
                connection.finish()
        return Response.of(bytes(frame))

    server = await listen(handler, limits=limits(), ssl_context=silent() if is_tls else None)
    trusting = ssl.create_default_context(cafile=str(PEM)) if is_tls else None
    gc.collect()
    assert alive() == {}
    gc.disable()
    try:
        for number, frame in enumerate((b"echo", b"wait", b"mute", b"end", b"finish", b"", b"handshake"), 1):
            if frame == b"handshake":
                _, writer = await asyncio.open_connection("localhost", server.port)
                writer.write(b"\xff" * 9)
            else:
                _, writer = await asyncio.open_connection("localhost", server.port, ssl=trusting)
                writer.write(len(frame).to_bytes(4, "big") * bool(frame) + frame)
                await until(lambda frame=frame: frame in came)
            await until(lambda number=number: server.accepted_count == number)
            writer.transport.abort()
        await server.close(grace_s=0.0)  # one waits for its answer, and a muted one does not see its peer go
        for _ in range(TURNS_MAX):
            if alive():
                await asyncio.sleep(0)
        assert alive() == {}
    finally:
        gc.enable()
