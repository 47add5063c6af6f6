"""Which requests are for this node: also on loopback, a foreign page must not read it through a browser."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import TestClient, TestServer

from kraft.config import load_config
from kraft.http.app import make_app
from kraft.http.hosts import AllowedHosts
from kraft.http.metrics import NodeMetrics
from kraft.node import own_hosts
from tests.unit.http.test_http import World

HOSTS = AllowedHosts(["node-1.example", "Broker.example.", ""])


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8080",
        "LOCALHOST.:8080",
        "kraft.localhost",
        "127.0.0.1:8080",
        "10.1.2.3",
        "[::1]:8080",
        "[fe80::1%eth0]",
        "node-1.example:8080",
        "broker.EXAMPLE",
        None,
    ],
)
def test_own_names(host: str | None) -> None:
    assert HOSTS.refusal("/api/cluster", host, None) is None


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "", "localhost.evil.example", "node-1.example,evil.example"],
)
def test_foreign_names(host: str) -> None:
    refusal = HOSTS.refusal("/", host, None)
    assert refusal is not None
    assert "http.allowed.hosts" in refusal
    assert HOSTS.refusal("/health", host, None) is None
    assert HOSTS.refusal("/health/ready", host, "http://evil.example") is None
    assert HOSTS.refusal("/healthy", host, None) is not None


@pytest.mark.parametrize(
    ("host", "origin", "allowed"),
    [
        ("localhost:8080", "http://localhost:8080", True),
        ("Localhost:8080", "https://localhost:8080", True),
        ("localhost:8080", "http://localhost:9090", False),
        ("127.0.0.1:8080", "http://localhost:8080", False),
        ("localhost:8080", "http://evil.example", False),
        ("localhost:8080", "null", False),
        ("localhost:8080", "http://[", False),
        (None, "http://localhost:8080", False),
    ],
)
def test_pages_of_others(host: str | None, origin: str, allowed: bool) -> None:
    assert (HOSTS.refusal("/metrics", host, origin) is None) == allowed


def test_the_names_of_a_node() -> None:
    config = load_config(
        "process.roles=broker\nnode.id=1\ncontroller.quorum.voters=9@c.example:9093\n"
        "controller.listener.names=CONTROLLER\nlisteners=PLAINTEXT://bound.example:9092\n"
        "advertised.listeners=PLAINTEXT://told.example:9092\nhttp.listener=pages.example:8080\n"
        "http.allowed.hosts=one.example,two.example\ncontroller.listener.secret=s\n"
    )
    hosts = own_hosts(config, "machine.example")
    for name in ("bound", "told", "pages", "one", "two", "machine"):
        assert hosts.refusal("/", f"{name}.example", None) is None
    assert hosts.refusal("/", "c.example", None) is not None


async def test_refused_is_403_with_the_reason() -> None:
    world = World()
    async with TestClient(TestServer(make_app(world, NodeMetrics(world), HOSTS))) as client:
        for path, headers, status in (
            ("/api/cluster", {}, 200),
            ("/api/cluster", {"Host": "evil.example"}, 403),
            ("/metrics", {"Host": "node-1.example"}, 200),
            ("/metrics", {"Origin": "http://evil.example"}, 403),
            ("/nope", {"Host": "evil.example"}, 403),
            ("/health/live", {"Host": "evil.example"}, 200),
        ):
            response = await client.get(path, headers=headers)
            assert response.status == status, (path, headers)
            if status == 403:
                assert (await response.json())["error"]
                assert response.headers["Cache-Control"] == "no-store"
