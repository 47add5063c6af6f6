"""The doors of a node without a network: the product's connections, fed by a transport that only takes notes."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, NoReturn

import structlog

from kraft.http.hosts import AllowedHosts
from kraft.http.server import HttpServer
from kraft.network.connection import Connection
from kraft.runtime.free_ports import free_port_range
from quorum.rpc.envelope import Body
from quorum.rpc.server import ControllerListener
from tests.support.broker_world import BrokerWorld
from tests.unit.broker.test_sasl import door
from tests.unit.http.test_http_server import Node
from tests.unit.http.test_login import make as make_login

ANONYMOUS = "User:ANONYMOUS"
TURNS = 3
"""Of the loop, after each input: what was put off has run then."""
HTTP_TURNS = 12
SAID_MAX_BYTES = 8 * 1024
_SHOWN = re.compile(rb"HTTP/1\.[01] 200 .*?Content-Length: (\d+)", re.DOTALL)
_HEALTH = {len(json.dumps(one)) for one in ({"live": True}, {"ready": True, "reasons": []})}
"""How long the pages are that everybody may see."""
ERRORS_MAX: Final = 10
"""That are kept."""

Feed = Callable[[bytes], Awaitable[None]]
"""Takes all that one stranger sends. Raises whatever a door lets through, and AssertionError if he was let in."""


class Transport(asyncio.Transport):
    """The transport of one stranger."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.1", 1)})
        self._closing = False
        self.said = b""
        """The beginning of what was written to it."""

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True

    abort = close

    def write(self, data: Any) -> None:
        self.said += bytes(data)[: SAID_MAX_BYTES - len(self.said)]

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        """Nobody reads it."""

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """It holds nothing."""

    def pause_reading(self) -> None:
        """All of an input is there at once."""

    def resume_reading(self) -> None:
        """All of an input is there at once."""

    def is_reading(self) -> bool:
        return not self._closing


async def visit(protocol: Any, data: bytes, turns: int = TURNS) -> bytes:
    """One connection from its beginning to its end; returns how that begins which it was told."""
    transport = Transport()
    protocol.connection_made(transport)
    left = memoryview(data)
    while left and not transport.is_closing():
        buffer = protocol.get_buffer(len(left))
        size = min(len(buffer), len(left))
        if not size:
            break  # it asks for no more before it has answered
        buffer[:size] = left[:size]
        protocol.buffer_updated(size)
        left = left[size:]
    if not transport.is_closing():
        protocol.eof_received()
    for _ in range(turns):
        await asyncio.sleep(0)
    protocol.connection_lost(None)
    return transport.said


@asynccontextmanager
async def broker() -> AsyncIterator[Feed]:
    """A SASL listener of a broker."""
    world = BrokerWorld()
    async with door(world) as opened:

        async def feed(data: bytes) -> None:
            opened.sessions.clear()
            await visit(Connection(opened.server, asyncio.get_running_loop()), data)
            assert {session.principal for session in opened.sessions} <= {ANONYMOUS}

        yield feed


@asynccontextmanager
async def controller() -> AsyncIterator[Feed]:
    """The listener of a controller, whose secret nobody knows."""

    async def called(method: str, body: Body) -> Body:
        raise AssertionError(f"{method} was called")

    listener = ControllerListener(called, b"the quorum's secret")
    await listener.start("127.0.0.1", free_port_range(1))
    gate = listener._gate
    assert gate is not None

    async def feed(data: bytes) -> None:
        await visit(gate(), data, HTTP_TURNS)

    yield feed
    await listener.close()


@asynccontextmanager
async def pages() -> AsyncIterator[Feed]:
    """A node's pages, for whom it knows by name and password."""
    login, _ = make_login("http.authentication=basic\nconnection.failed.authentication.delay.ms=0\n")
    node: Any = Node()
    server = HttpServer(node, node, AllowedHosts(), login)
    await server.start("127.0.0.1:0")
    gate = server._gate
    assert gate is not None

    async def feed(data: bytes) -> None:
        said = await visit(gate(), data, HTTP_TURNS)
        assert {int(length) for length in _SHOWN.findall(said)} <= _HEALTH, "a page was shown"

    yield feed
    await server.close()


class Errors(logging.Handler):
    """Notes what is logged as an error, the standard library's way or structlog's: strangers cause none."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._note(self.format(record))

    def __call__(self, logger: Any, method: str, event: structlog.typing.EventDict) -> NoReturn:
        """structlog's only processor."""
        self._note(f"{event}")
        raise structlog.DropEvent

    def _note(self, text: str) -> None:
        if len(self.texts) < ERRORS_MAX:
            self.texts.append(text)


@asynccontextmanager
async def no_errors() -> AsyncIterator[None]:
    """Fails at its end if anything was logged as an error meanwhile. Warnings about strangers are not even made."""
    errors = Errors()
    root, before = logging.getLogger(), structlog.get_config()
    root.addHandler(errors)
    logging.disable(logging.WARNING)
    structlog.configure(
        processors=[structlog.processors.format_exc_info, errors],
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.configure(**before)
        logging.disable(logging.NOTSET)
        root.removeHandler(errors)
    assert errors.texts == [], errors.texts
