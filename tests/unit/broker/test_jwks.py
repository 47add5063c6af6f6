"""The keys of tokens: from a file and from a server, again when they change, within bounds."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from aiohttp import web
from structlog.testing import capture_logs

import kraft.broker.jwks as jwks
from kraft.broker.jwks import TokenJudge
from kraft.config import ConfigError, load_config
from kraft.security.scram import SaslError
from tests.support.tokens import AUDIENCE, ISSUER, Issuer

WAIT_S = 20.0
ISSUES = Issuer()


def judge(url: str, extra: str = "") -> TokenJudge:
    text = (
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@localhost:9093\n"
        "controller.listener.names=CONTROLLER\nlisteners=PLAINTEXT://:9094,SASL://:9092,CONTROLLER://:9093\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        "sasl.enabled.mechanisms=OAUTHBEARER\ninter.broker.listener.name=PLAINTEXT\n"
        f"listener.name.sasl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url={url}\n"
        f"sasl.oauthbearer.expected.audience={AUDIENCE}\nsasl.oauthbearer.expected.issuer={ISSUER}\n" + extra
    )
    return TokenJudge(load_config(text), "SASL", lambda: time.time_ns() // 1_000_000)


class JwksServer:
    """Answers what it is told to, and says when it did."""

    def __init__(self) -> None:
        self.content, self.status = ISSUES.jwks(), 200
        self.asked = asyncio.Event()
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> JwksServer:
        app = web.Application()
        app.router.add_get("/jwks", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/jwks"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked.set()
        headers = {"Location": "/elsewhere"} if self.status == 302 else {}
        return web.Response(body=self.content, status=self.status, headers=headers)


async def until_keys(judging: TokenJudge, token: str) -> str:
    """Tries as clients do, until the token is believed."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                return judging(token).name
            except SaslError:
                await asyncio.sleep(0.01)


async def test_keys_of_a_file(tmp_path: Path) -> None:
    judging = judge(ISSUES.write_jwks(tmp_path / "jwks.json"))
    await judging.start()
    assert judging(ISSUES.token(time.time())).name == "alice"
    await judging.close()


async def test_keys_of_strange_kinds_do_not_end_the_fetching(tmp_path: Path) -> None:
    """Nor do they keep the broker from starting."""
    file = tmp_path / "jwks.json"
    file.write_bytes(ISSUES.jwks({**ISSUES.rsa.as_dict(private=False), "kid": "odd", "key_ops": 5}))
    judging = judge(file.as_uri())
    await judging.start()
    assert judging(ISSUES.token(time.time())).name == "alice"
    await judging.close()


@pytest.mark.parametrize(
    ("url", "lines"),
    [("http://issuer.example/keys", 1), ("https://issuer.example/keys", 0), ("http://127.0.0.1/keys", 0)],
)
async def test_keys_that_anybody_can_change_on_their_way_are_warned_of(
    url: str, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answered(_: str) -> bytes:
        return ISSUES.jwks()

    monkeypatch.setattr(jwks, "_get", answered)
    with capture_logs() as logs:
        judging = judge(url)
        await judging.start()
        await judging.close()
    assert len([line for line in logs if line["log_level"] == "warning"]) == lines


async def test_a_file_that_is_not_there_keeps_the_broker_from_starting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"sasl.oauthbearer.jwks.endpoint.url=file:.*No such file"):
        await judge((tmp_path / "none.json").as_uri()).start()


async def test_a_new_key_is_fetched_when_a_token_names_it_and_floods_of_false_ids_fetch_nothing() -> None:
    async with JwksServer() as server:
        judging = judge(server.url)
        await judging.start()
        assert judging(ISSUES.token(time.time())).name == "alice"
        newer = Issuer()
        newer.rsa = type(newer.rsa).import_key({**newer.rsa.as_dict(private=True), "kid": "rsa-2"})
        server.content = newer.jwks()
        assert await until_keys(judging, newer.token(time.time())) == "alice"
        assert judging.fetches == 2
        for number in range(1000):
            with pytest.raises(SaslError):
                judging(newer.sign(newer.claims(time.time()), "ES256", kid=f"false-{number}"))
        await asyncio.sleep(0)
        assert judging.fetches == 2
        await judging.close()


async def test_a_server_that_is_away_at_the_start_is_asked_again() -> None:
    async with JwksServer() as server:
        server.status = 503
        judging = judge(server.url, "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms=20\n")
        await judging.start()
        with pytest.raises(SaslError, match="has not been able to fetch"):
            judging(ISSUES.token(time.time()))
        server.status = 200
        assert await until_keys(judging, ISSUES.token(time.time())) == "alice"
        await judging.close()


@pytest.mark.parametrize("how", ["gone", "redirected", "too large", "garbage"])
async def test_a_fetch_that_fails_leaves_the_keys_before_it(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with JwksServer() as server:
        judging = judge(server.url, "sasl.oauthbearer.jwks.endpoint.refresh.ms=1000\n")
        await judging.start()
        monkeypatch.setattr(jwks, "FETCH_MAX_BYTES", 4096)
        if how == "too large":
            server.content = ISSUES.jwks() + b" " * 5000
        elif how == "garbage":
            server.content = b"{}"
        else:
            server.status = 404 if how == "gone" else 302
        with pytest.raises(SaslError):
            judging(ISSUES.sign(ISSUES.claims(time.time()), kid="missing"))
        for _ in range(2):  # that it is asked again says that it failed before
            server.asked.clear()
            async with asyncio.timeout(WAIT_S):
                await server.asked.wait()
        assert judging(ISSUES.token(time.time())).name == "alice"
        await judging.close()
        assert judging(ISSUES.token(time.time())).name == "alice"


@pytest.mark.parametrize("url", ["ftp://x/y", "jwks.json", "https://user:pw@host/", "file://host/x"])
def test_urls_that_are_none_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="it must be like file:///PATH"):
        judge(url)


def test_a_listener_that_offers_tokens_needs_keys() -> None:
    with pytest.raises(ConfigError, match="tell where the keys are"):
        judge("")
