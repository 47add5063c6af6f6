"""What a stranger sends costs a listener little, whatever it is; who is known gets through with all of it."""

from __future__ import annotations

import asyncio
import gc
import random
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import uvloop
from aiohttp.http_exceptions import HttpProcessingError
from hypothesis import given
from hypothesis import strategies as st

from quorum.rpc.authentication import CHALLENGE_BYTES, CallerSession
from quorum.rpc.client import RpcClient
from quorum.rpc.envelope import Body
from quorum.rpc.request_door import HEAD_MAX_BYTES, HEADERS_MAX, REFUSAL, RequestDoor, RequestLine
from quorum.rpc.server import LINGERING_S, ControllerListener
from tests.unit.rpc.test_calls import PEM, free_port

SECRET = b"the quorum's secret"
LINE = RequestLine(b"GET /session", b"POST /rpc/")
SESSION = b"GET /session HTTP/1.1\r\nHost: x\r\n\r\n"
CALL = b"POST /rpc/m HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"
NO_REQUESTS = (
    b"\x80\x04\x95" * 20_000,
    b"\n" * 1_000,
    b"GET /other HTTP/1.1\r\n\r\n",
    b"PUT /rpc/m HTTP/1.1\r\n\r\n",
    b"GET /session\xff HTTP/1.1\r\n\r\n",
    b"GET /session HTTP/2.0\r\n\r\n",
    b"GET /session HTTP/1.1\r\nHost: \x00\r\n\r\n",
    b"GET /session HTTP/1.1\r\nHost: a\n b\r\n\r\n",
    b"GET /session HTTP/1.1\r\nno colon\r\n\r\n",
    b"GET /session HTTP/1.1\r\n" + b"x: y\r\n" * (HEADERS_MAX + 1) + b"\r\n",
    b"GET /session HTTP/1.1\r\nx: " + b"y" * HEAD_MAX_BYTES,
    b"GET /session" + b"y" * HEAD_MAX_BYTES,
)


class Transport:
    """A connection whose other end has sent `waiting`; the door takes as much of it as it asks for."""

    def __init__(self, waiting: bytes = b"") -> None:
        self.waiting = waiting
        self.written = b""
        self.paused = self.closed = False
        self.protocol: Any = None

    def run(self) -> None:
        while self.waiting and not self.paused and not self.closed:
            buffer = self.protocol.get_buffer(-1)
            assert 0 < len(buffer) <= HEAD_MAX_BYTES
            part, self.waiting = self.waiting[: len(buffer)], self.waiting[len(buffer) :]
            buffer[: len(part)] = part
            self.protocol.buffer_updated(len(part))

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def set_protocol(self, protocol: object) -> None:
        self.protocol = protocol

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return ("10.0.0.1", 1)


class Handler:
    """aiohttp's side, which remembers what it was given."""

    def __init__(self) -> None:
        self.given: list[bytes] = []
        self.transport: Any = None

    def connection_made(self, transport: object) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.given.append(data)

    def force_close(self) -> None:
        self.transport.closed = True


class Stranger:
    """One connection of a stranger."""

    def __init__(self, data: bytes) -> None:
        self.handler, self.transport = Handler(), Transport(data)
        self.refused: list[bytes] = []
        self.door = RequestDoor(
            self.handler, LINE, lambda _, beginning: self.refused.append(beginning), print
        )
        self.transport.protocol = self.door
        self.door.connection_made(self.transport)
        self.transport.run()

    def next(self) -> None:
        self.door.next_request()
        self.transport.run()


@pytest.mark.parametrize("data", NO_REQUESTS)
def test_what_is_no_request_never_comes_to_the_parser(data: bytes) -> None:
    stranger = Stranger(data)
    assert stranger.handler.given == []
    assert (stranger.transport.written, stranger.transport.closed) == (REFUSAL, True)
    assert len(data) - len(stranger.transport.waiting) <= HEAD_MAX_BYTES
    assert len(stranger.refused[0]) <= 120


def test_heads_come_one_at_a_time_and_a_body_waits_in_the_socket() -> None:
    body = b"x" * 100_000
    stranger = Stranger(SESSION + SESSION + CALL + body)
    assert stranger.handler.given == [SESSION]
    stranger.next()
    assert stranger.handler.given == [SESSION] * 2
    stranger.next()
    assert stranger.handler.given == [SESSION, SESSION, CALL]
    assert stranger.transport.paused
    assert len(stranger.transport.waiting) >= len(body) - HEAD_MAX_BYTES
    stranger.door.open()
    assert stranger.transport.protocol is stranger.handler
    assert not stranger.transport.paused
    assert stranger.handler.given[3] + stranger.transport.waiting == body
    assert stranger.refused == []


@given(st.binary(max_size=200), st.lists(st.sampled_from((SESSION, CALL)), max_size=4))
def test_the_parser_sees_whole_heads_only(tail: bytes, heads: list[bytes]) -> None:
    stranger = Stranger(b"".join(heads) + tail)
    for _ in range(10):
        stranger.next()
    assert stranger.handler.given[: len(heads)] == heads
    assert all(LINE.fits(head) for head in stranger.handler.given)


@given(st.data())
def test_how_a_head_is_cut_into_packets_does_not_matter(data: st.DataObject) -> None:
    stranger = Stranger(b"")
    rest = SESSION
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        stranger.transport.waiting, rest = rest[:size], rest[size:]
        stranger.transport.run()
    assert stranger.handler.given == [SESSION]


# -- over sockets


async def echo(method: str, body: Body) -> Body:
    return {"method": method, **body}


@pytest.fixture
async def address() -> AsyncIterator[tuple[str, int]]:
    listener = ControllerListener(echo, SECRET)
    await listener.start("127.0.0.1", 0)
    yield listener._server.sockets[0].getsockname()
    await listener.close()


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def answer_to(address: tuple[str, int], data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(data)
    try:
        return await reader.read()
    except ConnectionResetError:  # the rest of it was on its way when the connection ended
        return b""
    finally:
        writer.close()


@pytest.mark.usefixtures("no_garbage_collection")
@pytest.mark.parametrize(
    "data",
    [
        *NO_REQUESTS[:3],
        b"POST /rpc/m HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /rpc/m HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"Z" * 99_999,
        SESSION.replace(b"\r\n\r\n", b"\r\nContent-Length: x\r\n\r\n") * 20,
    ],
)
async def test_errors_of_the_parser_do_not_pile_up(address: tuple[str, int], data: bytes) -> None:
    """A cycle of error, traceback and frame would keep what was read until the collector runs, which is seldom."""
    for _ in range(20):
        assert len(await answer_to(address, data)) < 1_000
    await answer_to(address, b"\0")
    assert [error for error in gc.get_objects() if isinstance(error, HttpProcessingError)] == []


async def test_who_is_refused_with_an_old_session_gets_a_new_one_at_once(address: tuple[str, int]) -> None:
    """The body of the refused call stays in the socket: what follows it must not wait behind it."""
    client = RpcClient(SECRET)
    listening = "{}:{}".format(*address)
    client._sessions[listening] = CallerSession(SECRET, "00" * CHALLENGE_BYTES, random.Random(1))
    body = {"text": "x" * 300_000}
    async with asyncio.timeout(LINGERING_S):
        assert await client.call(listening, "m", body, 5) == {"method": "m", **body}
    await client.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("is_tls", [False, True])
def test_a_large_first_call_gets_through(
    new_loop: Callable[[], asyncio.AbstractEventLoop], is_tls: bool
) -> None:
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(PEM)
    client = ssl.create_default_context(cafile=str(PEM))

    async def calls() -> None:
        listener = ControllerListener(echo, SECRET, tls=server if is_tls else None)
        port = free_port()
        await listener.start("localhost", port)
        caller = RpcClient(SECRET, tls=(lambda: client) if is_tls else None)
        for size in (900_000, 10):
            body = {"bytes": random.Random(size).randbytes(size)}
            assert await caller.call(f"localhost:{port}", "m", body, 20) == {"method": "m", **body}
        await caller.close()
        await listener.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(calls())
