"""`quorum.rpc.listening`: what a protocol is told of a TLS connection, from its acceptance to its end."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from quorum.rpc import listening
from quorum.rpc.listening import Listener, listen

PEM = Path(__file__).with_name("localhost.pem")
FAR_S = 60.0
HELLO = bytes.fromhex("1603010200010001fc0303")
"""The beginning of a ClientHello."""


class Noting(asyncio.Protocol):
    """Notes what it is told, and pauses a handshake, or ends it, as soon as it is told of it, if asked to."""

    def __init__(self, *, pauses: bool = False, closes: bool = False) -> None:
        self.told: list[str] = []
        self.peer: tuple[str, int] | None = None
        self.is_made, self.is_lost = asyncio.Event(), asyncio.Event()
        self._pauses, self._closes = pauses, closes

    def connection_accepted(self, handshake: asyncio.Transport) -> None:
        self.told.append("accepted")
        self.handshake = handshake
        self.peer = handshake.get_extra_info("peername")
        if self._pauses:
            handshake.pause_reading()
        if self._closes:
            handshake.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.told.append("made")
        self.is_made.set()

    def data_received(self, data: bytes) -> None:
        self.told.append(data.decode())

    def connection_lost(self, exc: Exception | None) -> None:
        self.told.append("lost")
        self.is_lost.set()


class Opened:
    """A listener, and the protocols that it made."""

    def __init__(self, **wishes: bool) -> None:
        self.made: asyncio.Queue[Noting] = asyncio.Queue()
        self.listener: Listener
        self._wishes = wishes

    def __call__(self) -> Noting:
        protocol = Noting(**self._wishes)
        self.made.put_nowait(protocol)
        return protocol

    @property
    def port(self) -> int:
        port: int = self.listener.sockets[0].getsockname()[1]
        return port

    async def dial(self) -> tuple[Noting, socket.socket]:
        """A silent peer, and the protocol that was told of it."""
        peer = socket.create_connection(("127.0.0.1", self.port))
        peer.setblocking(False)
        return await self.made.get(), peer


Open = Callable[..., Awaitable[Opened]]


@pytest.fixture
async def opened() -> AsyncIterator[Open]:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(PEM)
    all_of_them = []

    async def start(timeout_s: float = FAR_S, **wishes: bool) -> Opened:
        one = Opened(**wishes)
        one.listener = await listen(one, "127.0.0.1", 0, tls=tls, handshake_timeout_s=timeout_s, backlog=100)
        all_of_them.append(one)
        return one

    yield start
    for one in all_of_them:
        one.listener.close()
        await one.listener.wait_closed()


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(PEM))


async def test_a_connection_is_told_of_before_its_handshake_and_after_it(opened: Open) -> None:
    one = await opened()
    protocol, peer = await one.dial()
    assert protocol.told == ["accepted"]
    assert protocol.peer == peer.getsockname()
    _, writer = await asyncio.open_connection(sock=peer, ssl=trusting(), server_hostname="localhost")
    writer.write(b"hello")
    writer.close()
    await protocol.is_lost.wait()
    assert protocol.told == ["accepted", "made", "hello", "lost"]


@pytest.mark.parametrize(
    "said", [b"", HELLO, b"not a handshake at all"], ids=["nothing", "a beginning", "no TLS"]
)
@pytest.mark.parametrize("is_reset", [False, True])
async def test_a_peer_that_leaves_in_its_handshake_is_lost_once(
    opened: Open, said: bytes, is_reset: bool
) -> None:
    protocol, peer = await (await opened()).dial()
    peer.sendall(said)
    if is_reset:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    await protocol.is_lost.wait()
    assert protocol.told == ["accepted", "lost"]


async def test_a_peer_that_stays_silent_is_lost_when_its_time_is_over(opened: Open) -> None:
    protocol, peer = await (await opened(timeout_s=0.02)).dial()
    await protocol.is_lost.wait()
    assert protocol.told == ["accepted", "lost"]
    assert await at_end(peer)


@pytest.mark.parametrize("said", [b"", HELLO], ids=["nothing", "a beginning"])
async def test_a_protocol_may_end_a_handshake(opened: Open, said: bytes) -> None:
    protocol, peer = await (await opened()).dial()
    peer.sendall(said)
    await asyncio.sleep(0)
    protocol.handshake.abort()
    protocol.handshake.abort()
    assert protocol.handshake.is_closing()
    await protocol.is_lost.wait()
    assert await at_end(peer)
    assert protocol.told == ["accepted", "lost"]


async def test_a_protocol_may_refuse_a_connection(opened: Open) -> None:
    protocol, peer = await (await opened(closes=True)).dial()
    await protocol.is_lost.wait()
    protocol.handshake.resume_reading()
    assert await at_end(peer)
    assert protocol.told == ["accepted", "lost"]


async def test_a_handshake_waits_while_reading_is_paused(opened: Open) -> None:
    one = await opened(pauses=True)
    protocol, peer = await one.dial()
    connecting = asyncio.create_task(
        asyncio.open_connection(sock=peer, ssl=trusting(), server_hostname="localhost")
    )
    # Another one comes and goes: there was time enough for what must not be.
    other, its_peer = await one.dial()
    other.handshake.close()
    assert await at_end(its_peer)
    assert protocol.told == ["accepted"]
    assert not connecting.done()
    protocol.handshake.resume_reading()
    _, writer = await connecting
    writer.close()
    await protocol.is_lost.wait()
    assert protocol.told == ["accepted", "made", "lost"]


async def test_a_closing_listener_ends_its_handshakes_and_no_others(opened: Open) -> None:
    one = await opened()
    made, peer = await one.dial()
    _, writer = await asyncio.open_connection(sock=peer, ssl=trusting(), server_hostname="localhost")
    await made.is_made.wait()
    silent, its_peer = await one.dial()
    port = one.port
    one.listener.close()
    await one.listener.wait_closed()
    assert silent.told == ["accepted", "lost"]
    assert await at_end(its_peer)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    assert made.told == ["accepted", "made"]
    writer.write(b"still served")
    writer.close()
    await made.is_lost.wait()
    assert made.told[2:] == ["still served", "lost"]


async def test_a_host_without_descriptors_is_asked_again(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "RETRY_S", 0.01)
    accept = socket.socket.accept
    failures = iter((OSError(errno.EMFILE, "Too many open files"), ConnectionAbortedError()))

    def accept_later(self: socket.socket) -> tuple[socket.socket, tuple[str, int]]:
        for failure in failures:
            raise failure
        return accept(self)

    one = await opened()
    monkeypatch.setattr(socket.socket, "accept", accept_later)
    with capture_logs() as lines:
        protocol, _ = await one.dial()
    assert protocol.told == ["accepted"]
    assert [line["event"] for line in lines] == ["cannot accept a connection for now"]


async def at_end(peer: socket.socket) -> bool:
    """Waits until the other side has closed it; whatever it said before counts not."""
    loop = asyncio.get_running_loop()
    try:
        while await loop.sock_recv(peer, 4096):
            pass
    except ConnectionError:
        pass  # it was reset: closed all the same
    peer.close()
    return True
