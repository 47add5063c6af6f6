"""The pages over TLS (`http.ssl.enable`)."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kraft.broker.tls import server_context
from kraft.config import HTTP_LISTENER, ConfigError, load_config
from kraft.http.server import HttpServer
from quorum.rpc import connection_gate
from tests.support.certificates import Authority
from tests.unit.http.test_http_server import Node

LINES = (
    "process.roles=broker\nnode.id=1\ncontroller.quorum.voters=9@localhost:9093\n"
    "controller.listener.names=CONTROLLER\nlisteners=PLAINTEXT://127.0.0.1:9092\nlog.dirs=/data\n"
    "http.ssl.enable=true\n"
)


async def test_https_alone_with_the_files_of_its_own(tmp_path: Path) -> None:
    authority = Authority()
    store = authority.write_identity(tmp_path / "node.pem", "CN=node")
    keys = f"listener.name.http.ssl.keystore.type=PEM\nlistener.name.http.ssl.keystore.location={store}\n"
    node: Any = Node()
    pages = HttpServer(node, node)
    await pages.start("127.0.0.1:0", server_context(load_config(LINES + keys), HTTP_LISTENER))
    try:
        trusting, stranger = (
            ssl.create_default_context(cadata=one.certificate.decode()) for one in (authority, Authority())
        )
        url = f"https://127.0.0.1:{pages.port}/health/live"
        async with aiohttp.ClientSession() as http:
            async with http.get(url, ssl=trusting) as response:
                assert (response.status, await response.json()) == (200, {"live": True})
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await http.get(url, ssl=stranger)
        reader, writer = await asyncio.open_connection("127.0.0.1", pages.port)
        writer.write(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"live" not in await reader.read(), "who does not encrypt is told nothing"
        writer.close()
    finally:
        await pages.close()


async def test_handshakes_that_fail_take_nobodys_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They count while they last, and not until a page would be idle for too long."""
    monkeypatch.setattr(connection_gate, "STRANGERS_MAX", 3)
    monkeypatch.setattr(connection_gate, "GRACE_S", 0.0)
    authority = Authority()
    store = authority.write_identity(tmp_path / "node.pem", "CN=node")
    keys = f"listener.name.http.ssl.keystore.type=PEM\nlistener.name.http.ssl.keystore.location={store}\n"
    node: Any = Node()
    pages = HttpServer(node, node)
    await pages.start("127.0.0.1:0", server_context(load_config(LINES + keys), HTTP_LISTENER))
    try:
        trusting = ssl.create_default_context(cadata=authority.certificate.decode())
        viewer = await asyncio.open_connection("127.0.0.1", pages.port, ssl=trusting)
        for _ in range(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", pages.port)
            writer.write(b"no handshake")
            await reader.read()
            writer.close()
        viewer[1].write(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await viewer[0].readline()).startswith(b"HTTP/1.1 200")
        silent = [await asyncio.open_connection("127.0.0.1", pages.port) for _ in range(4)]
        assert await silent[0][0].read() == b"", "the oldest made room"
        for _, writer in (viewer, *silent):
            writer.close()
    finally:
        await pages.close()


def test_without_a_certificate_nothing_starts() -> None:
    with pytest.raises(ConfigError, match=r"http\.ssl\.enable is true"):
        load_config(LINES)
