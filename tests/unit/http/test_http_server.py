"""The listener of a node's pages: anybody may ask, and nothing that anybody sends is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from kraft.http import server
from kraft.http.server import HttpServer
from quorum.rpc import connection_gate
from quorum.rpc.request_door import REFUSAL


class Node:
    """A node that has neither role yet."""

    broker = controller = config = executor = None

    def now_ms(self) -> int:
        return 0

    def unready_reasons(self) -> Sequence[str]:
        return ()

    def warnings(self) -> Sequence[str]:
        return ()

    def describe(self) -> Mapping[str, Any]:
        return {}


@pytest.fixture
async def port() -> AsyncIterator[int]:
    node: Any = Node()
    pages = HttpServer(node, node)
    await pages.start("127.0.0.1:0")
    yield pages.port
    await pages.close()


async def test_many_pages_over_one_connection(port: int) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as http:
        for path, status in (("health/live", 200), ("metrics", 200), ("nope", 404), ("health/ready", 200)):
            async with http.get(f"http://127.0.0.1:{port}/{path}") as response:
                await response.read()
                assert response.status == status
        async with http.head(f"http://127.0.0.1:{port}/metrics") as response:
            assert response.status == 200


async def test_requests_sent_ahead_are_answered_in_order(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for path in (b"/health/live", b"/nope", b"/health/ready"):
        writer.write(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path)
    answers = b""
    while answers.count(b"HTTP/1.1 ") < 3 or b'"reasons"' not in answers:
        answers += await asyncio.wait_for(reader.read(4096), 10)
    assert [answer.split()[0] for answer in answers.split(b"HTTP/1.1 ")[1:]] == [b"200", b"404", b"200"]
    writer.close()


@pytest.mark.parametrize("framing", [b"Content-Length: 4", b"Transfer-Encoding: chunked"])
async def test_a_request_with_a_body_is_answered_and_is_the_last(port: int, framing: bytes) -> None:
    """Nothing of the body is read: what comes behind it cannot be told from it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = b"GET " if framing.startswith(b"Content") else b"4\r\nGET \r\n0\r\n\r\n"
    writer.write(b"GET /health/live HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n%s" % (framing, body))
    writer.write(b"GET /health/ready HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(60):
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in answer.lower()
    assert b'"live": true' in answer
    writer.close()


@pytest.mark.parametrize(
    "data", [b"\x16\x03\x01junk", b"POST /metrics HTTP/1.1\r\n\r\n", b"GET /\xff HTTP/1.1\r\n\r\n"]
)
async def test_what_is_no_request_for_a_page_is_refused(port: int, data: bytes) -> None:
    with capture_logs() as lines:
        for _ in range(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(data)
            assert await reader.read() == REFUSAL
            writer.close()
    (line,) = lines
    assert (line["event"], line["listener"]) == ("refused what is no HTTP request", "http")


async def test_an_idle_connection_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "IDLE_MAX_S", 0.05)
    node: Any = Node()
    pages = HttpServer(node, node)
    await pages.start("127.0.0.1:0")
    reader, writer = await asyncio.open_connection("127.0.0.1", pages.port)
    writer.write(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    assert (await reader.read()).endswith(b"}")
    writer.close()
    await pages.close()


async def test_the_connection_that_was_idle_longest_makes_room(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_gate, "STRANGERS_MAX", 2)
    monkeypatch.setattr(connection_gate, "GRACE_S", 0.0)
    first = await asyncio.open_connection("127.0.0.1", port)
    second = await asyncio.open_connection("127.0.0.1", port)
    first[1].write(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await first[0].readline()).startswith(b"HTTP/1.1 200")
    third = await asyncio.open_connection("127.0.0.1", port)
    assert await second[0].read() == b""
    for reader, writer in (first, third):
        writer.write(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await reader.readline()
    for _, writer in (first, second, third):
        writer.close()
