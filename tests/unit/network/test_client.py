"""BrokerConnection against a real SocketServer: pipelining, timeouts, loss, cancellation."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest

from kraft.network.client import BrokerConnection, ConnectionLostError, RequestTimeoutError
from kraft.network.connection import Connection
from kraft.network.limits import NetworkLimits
from kraft.network.request import RequestContext, decoding
from kraft.network.response import Answer, Response
from kraft.network.server import SocketServer
from kraft.protocol.api import ApiKey
from kraft.protocol.messages import decode_request, encode_response, request_class, response_class

if TYPE_CHECKING:
    from tests.unit.network.conftest import Dial, Listen, Until

LIMITS = NetworkLimits(min_request_bytes=4)
Connect = Callable[..., Awaitable[BrokerConnection]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    made: list[BrokerConnection] = []

    async def start(server: SocketServer, **options: Any) -> BrokerConnection:
        made.append(await BrokerConnection.connect("127.0.0.1", server.port, **options))
        return made[-1]

    yield start
    for connection in made:
        connection.close()
        await connection.wait_closed()


def frame(correlation_id: int, body: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


async def ask(connection: BrokerConnection, body: bytes, timeout_s: float = 10.0) -> bytes:
    """One exchange with a server that answers `correlation id, body`."""
    answer = await connection.exchange(lambda cid: frame(cid, body), timeout_s=timeout_s)
    return bytes(answer[4:])


def echo(request: memoryview, connection: Connection) -> Answer:
    return Response.of(bytes(request))


class Held:
    """A handler that answers when the test says so."""

    def __init__(self) -> None:
        self.answers: list[tuple[bytes, asyncio.Future[Response | None]]] = []

    def __call__(self, request: memoryview, connection: Connection) -> Answer:
        future: asyncio.Future[Response | None] = asyncio.get_running_loop().create_future()
        self.answers.append((bytes(request), future))
        return future

    def release(self, index: int) -> None:
        body, future = self.answers[index]
        future.set_result(Response.of(body))


async def test_a_message_of_the_protocol_and_its_answer(listen: Listen, connect: Connect) -> None:
    seen: list[RequestContext] = []

    def handler(context: RequestContext) -> Answer:
        seen.append(context)
        header = context.header
        decode_request(header.api_key, header.api_version, context.body)
        segments, size = encode_response(response_class(ApiKey.METADATA)(cluster_id="a cluster"), 12)
        head = struct.pack(">ib", header.correlation_id, 0)
        return Response([head, *segments], len(head) + size)

    server = await listen(decoding(handler))
    connection = await connect(server, client_id="broker-2")
    answer: Any = await connection.request(request_class(ApiKey.METADATA)(), 12, timeout_s=10.0)
    assert answer.cluster_id == "a cluster"
    assert seen[0].header.client_id == "broker-2"
    assert seen[0].session.peer[0] == "127.0.0.1"


async def test_a_header_that_cannot_be_read_closes_the_connection(
    listen: Listen, dial: Dial, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(context: RequestContext) -> Answer:
        raise AssertionError("never called")

    peer = await dial(await listen(decoding(handler)))
    peer.send(struct.pack(">hhih", 3, 1, 7, 500) + b"short")
    assert await peer.at_end()
    assert "malformed request" in caplog.text


async def test_requests_are_pipelined_and_answers_find_their_callers(
    listen: Listen, connect: Connect, until: Until
) -> None:
    held = Held()
    connection = await connect(await listen(held, limits=LIMITS))
    calls = [asyncio.create_task(ask(connection, b"%d" % index)) for index in range(10)]
    await until(lambda: len(held.answers) == 10)
    assert connection.in_flight_count == 10
    for index in reversed(range(10)):
        held.release(index)
    assert await asyncio.gather(*calls) == [b"%d" % index for index in range(10)]
    assert connection.in_flight_count == 0


async def test_requests_in_flight_are_bounded(listen: Listen, connect: Connect, until: Until) -> None:
    held = Held()
    connection = await connect(await listen(held, limits=LIMITS), max_in_flight=2)
    calls = [asyncio.create_task(ask(connection, b"%d" % index)) for index in range(5)]
    for index in range(5):
        await until(lambda index=index: len(held.answers) > index)
        assert connection.in_flight_count <= 2
        held.release(index)
    assert await asyncio.gather(*calls) == [b"%d" % index for index in range(5)]


async def test_large_requests_and_answers(listen: Listen, connect: Connect) -> None:
    connection = await connect(await listen(echo, limits=LIMITS))
    bodies = [bytes([index]) * 4_000_000 for index in range(4)]
    assert await asyncio.gather(*(ask(connection, body) for body in bodies)) == bodies


async def test_a_late_answer_fails_every_request_and_ends_the_connection(
    listen: Listen, connect: Connect, until: Until
) -> None:
    held = Held()
    connection = await connect(await listen(held, limits=LIMITS))
    patient = asyncio.create_task(ask(connection, b"patient"))
    await until(lambda: len(held.answers) == 1)
    with pytest.raises(RequestTimeoutError, match=r"did not answer a request within 0\.05 s"):
        await ask(connection, b"hasty", timeout_s=0.05)
    with pytest.raises(ConnectionLostError):
        await patient
    assert connection.closed
    with pytest.raises(ConnectionLostError):
        await ask(connection, b"too late")


async def test_the_deadline_of_an_answered_request_harms_no_later_one(
    listen: Listen, connect: Connect, until: Until
) -> None:
    held = Held()
    connection = await connect(await listen(held, limits=LIMITS))
    first = asyncio.create_task(ask(connection, b"first", timeout_s=2.0))
    await until(lambda: len(held.answers) == 1)
    second = asyncio.create_task(ask(connection, b"second", timeout_s=2.5))
    await until(lambda: len(held.answers) == 2)
    held.release(0)
    assert await first == b"first"
    with pytest.raises(RequestTimeoutError, match=r"within 2\.5 s"):  # not at the first one's deadline
        await second


async def test_the_wait_for_a_place_counts(listen: Listen, connect: Connect, until: Until) -> None:
    held = Held()
    connection = await connect(await listen(held, limits=LIMITS), max_in_flight=1)
    first = asyncio.create_task(ask(connection, b"first"))
    await until(lambda: len(held.answers) == 1)
    with pytest.raises(RequestTimeoutError):
        await ask(connection, b"second", timeout_s=0.05)
    assert not connection.closed  # it never got onto the wire
    held.release(0)
    assert await first == b"first"


async def test_a_cancelled_caller_harms_no_later_request(
    listen: Listen, connect: Connect, until: Until
) -> None:
    held = Held()
    connection = await connect(await listen(held, limits=LIMITS), max_in_flight=2)
    given_up = asyncio.create_task(ask(connection, b"given up"))
    await until(lambda: len(held.answers) == 1)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    later = asyncio.create_task(ask(connection, b"later"))
    await until(lambda: len(held.answers) == 2)
    held.release(0)
    held.release(1)
    assert await later == b"later"
    held.answers.clear()
    both = [asyncio.create_task(ask(connection, body)) for body in (b"x", b"y")]
    await until(lambda: len(held.answers) == 2)  # both places are free again
    held.release(0)
    held.release(1)
    assert await asyncio.gather(*both) == [b"x", b"y"]


async def test_loss_fails_all_in_flight_and_all_who_wait(
    listen: Listen, connect: Connect, until: Until
) -> None:
    held = Held()
    server = await listen(held, limits=LIMITS)
    connection = await connect(server, max_in_flight=2)
    calls = [asyncio.create_task(ask(connection, b"%d" % index)) for index in range(5)]
    await until(lambda: len(held.answers) == 2)
    await server.close(grace_s=0.0)
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [ConnectionLostError] * 5
    assert "127.0.0.1" in str(results[0])
    await connection.wait_closed()


@pytest.mark.parametrize(
    "answer", [b"\0\0\0\4\0\0\0\x63", b"\0\0\0\2\0\0", b"\xff\xff\xff\xff"], ids=["id", "short", "negative"]
)
async def test_an_answer_that_makes_no_sense_ends_the_connection(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        writer.write(answer)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connection = await BrokerConnection.connect("127.0.0.1", port)
    with pytest.raises(ConnectionLostError, match="sent"):
        await ask(connection, b"hello")
    assert connection.closed
    await connection.wait_closed()
    server.close()
    await server.wait_closed()


async def test_nobody_listens(listen: Listen) -> None:
    server = await listen(echo)
    await server.close(grace_s=0.0)
    with pytest.raises(ConnectionLostError, match=f"cannot connect to 127.0.0.1:{server.port}"):
        await BrokerConnection.connect("127.0.0.1", server.port)
