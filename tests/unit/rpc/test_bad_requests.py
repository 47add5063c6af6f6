"""Bytes that are no HTTP request are refused, and cost a line of the log now and then, never a traceback."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest
from aiohttp.http_exceptions import BadHttpMessage
from structlog.testing import capture_logs

from quorum.rpc import bad_requests
from quorum.rpc.envelope import Body
from quorum.rpc.server import ControllerListener

BAD = (
    b"GET /session HTTP/1.1\r\nHost: \x00\xff\r\n\r\n",
    b"GET /\xff\xfe\r\nx HTTP/1.1\r\n\r\n",
    b"GET /session HTTP/9.x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    b"POST /rpc/m HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"POST /rpc/m HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
)


async def nobody_calls(method: str, body: Body) -> Body:
    raise AssertionError


@pytest.fixture
async def address() -> AsyncIterator[tuple[str, int]]:
    listener = ControllerListener(nobody_calls, b"secret")
    await listener.start("127.0.0.1", 0)
    yield listener._server.sockets[0].getsockname()
    await listener.close()


async def says(address: tuple[str, int], data: bytes) -> bytes:
    """The first line of the answer."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(data)
        return await asyncio.wait_for(reader.readline(), 10)
    finally:
        writer.close()


async def test_many_bad_requests_are_one_line(
    address: tuple[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    with capture_logs() as lines, caplog.at_level(logging.DEBUG):
        for data in BAD * 3:
            assert (await says(address, data)).split()[1].startswith(b"4")
    (line,) = lines
    assert (line["log_level"], line["event"]) == ("warning", "refused what is no HTTP request")
    assert (line["listener"], line["peer"]) == ("controller", "127.0.0.1")
    assert len(line["reason"]) <= bad_requests.REASON_MAX_CHARACTERS
    assert line["reason"].isascii()
    assert "exc_info" not in line
    assert [record for record in caplog.records if record.name.startswith("aiohttp")] == []


async def test_the_next_line_says_how_many_were_refused_meanwhile() -> None:
    log = bad_requests.RequestErrorLog("http")
    with capture_logs() as lines:
        for _ in range(3):
            log.exception("Error handling request from %s", "peer", exc_info=BadHttpMessage("bad\nbytes\xff"))
        log._refusals._next_line_s = 0.0
        log.debug("Error handling request from %s", "peer", exc_info=BadHttpMessage("worse"))
    assert [(line["reason"], line["since_the_last_line"]) for line in lines] == [
        ("bad bytes\\xff", 0),
        ("worse", 2),
    ]


async def test_our_own_errors_are_logged_whole() -> None:
    log = bad_requests.RequestErrorLog("http")
    with capture_logs() as lines:
        log.exception("Error handling request from %s", "peer", exc_info=ValueError("ours"))
        log.debug("Ignored premature client disconnection")
    (line,) = lines
    assert (line["log_level"], line["event"]) == ("error", "Error handling request from peer")
    assert isinstance(line["exc_info"], ValueError)


async def test_calls_of_strangers_are_one_line_as_well(address: tuple[str, int]) -> None:
    with capture_logs() as lines:
        for _ in range(5):
            assert b" 401 " in await says(address, b"POST /rpc/m HTTP/1.1\r\nHost: x\r\n\r\n")
    assert [line["event"] for line in lines] == ["refused an unauthenticated call"]
