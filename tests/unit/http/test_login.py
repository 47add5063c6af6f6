"""Who may read a node's pages: names and passwords, certificates, nobody; and what guesses cost."""

from __future__ import annotations

import asyncio
import base64
import random
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from kraft.broker.tls import server_context
from kraft.config import HTTP_LISTENER, ConfigError, load_config
from kraft.http import login
from kraft.http.console.access import IS_STILL_KNOWN, PRINCIPAL
from kraft.http.hosts import AllowedHosts
from kraft.http.login import Login, demanding, make_login
from kraft.http.server import HttpServer
from kraft.security.scram import salted_password, scram_keys
from quorum.metadata.records import UserScramCredential
from tests.support.certificates import Authority
from tests.unit.http.test_http_server import Node

T = TypeVar("T")

MECHANISM = "SCRAM-SHA-512"
KEYS = scram_keys(MECHANISM, salted_password(MECHANISM, "open:sésame", b"salt", 4096))
ALICE = UserScramCredential("alice", 2, b"salt", KEYS.stored, KEYS.server, 4096)
LINES = (
    "process.roles=broker\nnode.id=1\ncontroller.quorum.voters=9@localhost:9093\n"
    "controller.listener.names=CONTROLLER\nlisteners=PLAINTEXT://127.0.0.1:9092\nlog.dirs=/data\n"
)


def basic(name: str, password: str) -> dict[str, str]:
    """The header of RFC 7617."""
    return {"Authorization": f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"}


RIGHT = basic("alice", "open:sésame")
WRONG = basic("alice", "wrong")


class Jobs:
    """An executor that counts, and waits for `gate`."""

    def __init__(self) -> None:
        self.count = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def run(self, job: Callable[..., T], *args: object) -> T:
        self.count += 1
        await self.gate.wait()
        return job(*args)


def make(
    extra: str, jobs: Jobs | None = None, credentials: dict[Any, Any] | None = None
) -> tuple[Login | None, Any]:
    config = load_config(LINES + extra)
    found = {("alice", 2): ALICE} if credentials is None else credentials
    return make_login(config, lambda: found, "cluster", jobs or Jobs(), random.Random(1)), config


@asynccontextmanager
async def pages(doors: Login | None, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    node: Any = Node()
    server = HttpServer(node, node, AllowedHosts(), doors)
    await server.start("127.0.0.1:0", tls)
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.port}"
    finally:
        await server.close()


async def test_a_name_and_a_password_are_needed_for_everything_but_health() -> None:
    doors, _ = make("http.authentication=basic\nconnection.failed.authentication.delay.ms=0\n")
    async with pages(doors) as url, aiohttp.ClientSession() as http:
        for path in ("/", "/metrics", "/api/cluster", "/nope", "/healthy", "/static/app.js", "/api/topics"):
            async with http.get(url + path) as response:
                assert response.status == 401, path
                assert response.headers["WWW-Authenticate"].startswith('Basic realm="kraft"')
                assert "kraft users" in (await response.json())["error"]
        for path in ("/health", "/health/live", "/health/ready"):
            async with http.get(url + path) as response:
                assert response.status in (200, 503), path
        for headers, status in ((RIGHT, 200), (WRONG, 401), (basic("nobody", "open:sésame"), 401)):
            async with http.get(f"{url}/metrics", headers=headers) as response:
                assert response.status == status


@pytest.mark.parametrize(
    "header", ["", "Basic", "Basic !", "Basic YQ==", "Bearer x", "Basic /w==", "Basic Og==", "basic  "]
)
async def test_what_is_no_name_and_password_is_nobody(header: str) -> None:
    jobs = Jobs()
    doors, _ = make("http.authentication=basic\n", jobs)
    given = {"Authorization": header}
    async with (
        pages(doors) as url,
        aiohttp.ClientSession() as http,
        http.get(f"{url}/metrics", headers=given) as response,
    ):
        assert response.status == 401
    assert jobs.count == 0


async def test_the_costly_part_is_done_once_until_the_user_changes() -> None:
    jobs = Jobs()
    credentials: dict[Any, Any] = {("alice", 2): ALICE}
    doors, _ = make(
        "http.authentication=basic\nconnection.failed.authentication.delay.ms=0\n", jobs, credentials
    )
    async with pages(doors) as url, aiohttp.ClientSession() as http:
        for _ in range(3):
            async with http.get(f"{url}/metrics", headers=RIGHT) as response:
                assert response.status == 200
        assert jobs.count == 1
        del credentials["alice", 2]
        async with http.get(f"{url}/metrics", headers=RIGHT) as response:
            assert response.status == 401


async def test_guesses_of_one_address_wait_for_each_other_and_no_more_than_some() -> None:
    jobs = Jobs()
    jobs.gate.clear()
    doors, _ = make("http.authentication=basic\nconnection.failed.authentication.delay.ms=0\n", jobs)
    assert doors is not None
    with capture_logs() as logs:
        guesses = [
            asyncio.create_task(doors.principal(_asked("10.0.0.1", f"wrong-{n}")))
            for n in range(login.WAITING_MAX)
        ]
        await asyncio.sleep(0)
        with pytest.raises(login.Busy):
            await doors.principal(_asked("10.0.0.1", "one too many"))
        other = asyncio.create_task(doors.principal(_asked("10.0.0.2", "open:sésame")))
        await asyncio.sleep(0)
        assert jobs.count == 1, "one is looked at at a time"
        jobs.gate.set()
        assert await other == "User:alice"
        assert await asyncio.gather(*guesses) == [None] * login.WAITING_MAX
    assert jobs.count == login.WAITING_MAX + 1
    assert len([line for line in logs if line["log_level"] == "warning"]) == 1, "lines are sparse, too"
    assert "wrong" not in str(logs)
    assert doors._guesses == {}, "nothing is kept of who only guesses"


def _asked(address: str, password: str) -> login.Asked:
    return login.Asked(address, basic("alice", password)["Authorization"], None)


async def test_a_certificate_says_who_asks(tmp_path: Path) -> None:
    authority = Authority()
    store = authority.write_identity(tmp_path / "node.pem", "CN=node")
    trusted = authority.write_certificate(tmp_path / "ca.pem")
    client = authority.write_identity(tmp_path / "client.pem", "CN=carol,OU=people")
    doors, config = make(
        f"http.ssl.enable=true\nhttp.authentication=tls\nssl.keystore.location={store}\n"
        f"ssl.truststore.location={trusted}\nlistener.name.http.ssl.client.auth=requested\n"
        "listener.name.http.ssl.principal.mapping.rules=RULE:^CN=([^,]+).*$/$1/\n"
    )
    assert doors is not None
    stranger = ssl.create_default_context(cafile=str(trusted))
    known = ssl.create_default_context(cafile=str(trusted))
    known.load_cert_chain(client)
    async with pages(doors, server_context(config, HTTP_LISTENER)) as url, aiohttp.ClientSession() as http:
        async with http.get(f"{url}/metrics", ssl=stranger) as response:
            assert (response.status, await response.json()) == (
                403,
                {"error": "a client certificate is needed"},
            )
        async with http.get(f"{url}/metrics", ssl=known) as response:
            assert response.status == 200


async def test_who_asks_is_told_to_what_follows() -> None:
    """And whether that holds still, for answers that take long."""
    credentials: dict[Any, Any] = {("alice", 2): ALICE}
    doors, _ = make("http.authentication=basic\n", None, credentials)
    assert doors is not None
    again = replace(ALICE, salt=b"pepper")

    async def who(request: web.Request) -> web.Response:
        held = [request[IS_STILL_KNOWN]()]
        for now in ({}, {("alice", 2): again}, {("alice", 2): ALICE}):
            credentials.clear()
            credentials.update(now)
            held.append(request[IS_STILL_KNOWN]())
        assert held == [True, False, False, False], "who is not remembered has to ask again"
        return web.Response(text=request[PRINCIPAL])

    app = web.Application(middlewares=[demanding(doors)])
    app.router.add_get("/", who)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    try:
        async with aiohttp.ClientSession() as http, http.get(url, headers=RIGHT) as response:
            assert await response.text() == "User:alice"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("extra", "methods"),
    [
        ("", None),
        ("http.listener=[::1]:0\n", None),
        ("http.listener=0.0.0.0:0\n", ("basic",)),
        ("http.listener=:0\n", ("basic",)),
        ("http.listener=pages.example:80\nhttp.authentication=none\n", None),
        ("http.authentication=basic\n", ("basic",)),
        (
            "http.listener=0.0.0.0:0\nhttp.ssl.enable=true\nssl.client.auth=requested\nssl.keystore.location=/x\n",
            ("basic", "tls"),
        ),
    ],
)
async def test_a_user_is_needed_elsewhere_than_on_loopback(
    extra: str, methods: tuple[str, ...] | None
) -> None:
    with capture_logs() as logs:
        doors, _ = make(extra)
    assert (None if doors is None else doors.methods) == methods
    is_risky = "0.0.0.0" in extra or "=:0" in extra or "example" in extra
    assert len(logs) == int(is_risky and "http.ssl" not in extra), "one line says what is risky"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("http.authentication=tls\n", "asks for no certificates"),
        ("http.authentication=none,basic\n", "none stands alone"),
        ("http.authentication=digest\n", "use none and basic and tls"),
    ],
)
def test_contradictions_are_refused(line: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_config(LINES + line)
