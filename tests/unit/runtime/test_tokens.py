"""Tokens from files and from a real endpoint: within bounds, once for all who wait, and before they end."""

from __future__ import annotations

import asyncio
import pickle
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kraft.runtime.tokens import Tokens, TokenSource, fetch_token, token_source
from kraft.security.oauthbearer_client import TOKEN_MAX_BYTES
from kraft.security.token_login import ANSWER_MAX_BYTES, TokenError, TokenLogin
from tests.support.certificates import Authority
from tests.support.token_endpoint import Asked, Scripted, TokenEndpoint
from tests.support.tokens import Issuer

WAIT_S = 20.0
ISSUES = Issuer()
SECRET = "hunter2"
DAY_S = 86_400.0


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    with TokenEndpoint(ISSUES, {"app": SECRET}) as opened:
        yield opened


def login(url: str, *, secret: str = SECRET, scope: str = "", **limits: int) -> TokenLogin:
    """Attempts follow each other at once; there are four by default."""
    return TokenLogin(url, "app", secret, scope, **{"backoff_ms": 1, "backoff_max_ms": 10, **limits})


class Clock:
    """The real one, and what it is put forward by."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_s


async def refusal(wanted: TokenLogin) -> str:
    with pytest.raises(TokenError) as refused:
        await fetch_token(wanted)
    assert "hunter" not in "".join(traceback.format_exception(refused.value))
    return str(refused.value)


async def asked(endpoint: TokenEndpoint, times: int) -> None:
    """Waits until its thread has heard so many requests."""
    assert await asyncio.to_thread(endpoint.wait_for, times, WAIT_S)


# -- one fetch


async def test_a_token_of_an_endpoint(endpoint: TokenEndpoint) -> None:
    token = await fetch_token(login(endpoint.url, scope="read write"))
    assert token.username == "app"
    assert token.expires_at_s > time.time()
    assert endpoint.asked == [Asked("app", "read write")]


async def test_an_endpoint_that_is_busy_is_asked_again(endpoint: TokenEndpoint) -> None:
    endpoint.script = [Scripted(503), Scripted(429)]
    assert (await fetch_token(login(endpoint.url))).username == "app"
    assert len(endpoint.asked) == 3


@pytest.mark.parametrize(
    ("answer", "attempts", "sentence"),
    [
        (Scripted(503, SECRET.encode()), 4, "answers 503"),
        (Scripted(403, SECRET.encode()), 1, "answers 403"),
        (Scripted(302, b"", {"Location": "/token"}), 1, "redirections are not followed"),
        (Scripted(200, b" " * (ANSWER_MAX_BYTES + 1)), 1, f"answers more than {ANSWER_MAX_BYTES} bytes"),
        (Scripted(200, SECRET.encode()), 1, "answers no JSON"),
        (Scripted(200, b'{"access_token":"hunter2"}'), 1, "is no signed JWT"),
    ],
)
async def test_attempts_are_bounded(
    endpoint: TokenEndpoint, answer: Scripted, attempts: int, sentence: str
) -> None:
    endpoint.script = [answer] * 9
    assert sentence in await refusal(login(endpoint.url))
    assert len(endpoint.asked) == attempts


async def test_a_wrong_secret_is_told_at_once(endpoint: TokenEndpoint) -> None:
    assert f"{endpoint.url} answers 401 (invalid_client)" in await refusal(
        login(endpoint.url, secret="hunter3")
    )
    assert len(endpoint.asked) == 1


async def test_an_endpoint_that_is_silent_or_not_there(endpoint: TokenEndpoint) -> None:
    endpoint.silent.set()
    assert "does not answer" in await refusal(login(endpoint.url, read_timeout_ms=50, backoff_max_ms=1))
    await asked(endpoint, 2)
    endpoint.close()
    assert "does not answer: Cannot connect" in await refusal(login(endpoint.url, backoff_max_ms=1))


async def test_an_endpoint_that_never_comes_to_an_end() -> None:
    """Each byte is in time, and all together are not."""

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nX-Endless: ")
        try:
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.01)
        except ConnectionError:
            writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    limits = {"connect_timeout_ms": 100, "read_timeout_ms": 100, "backoff_max_ms": 1}
    assert "does not answer" in await refusal(login(url, **limits))
    server.close()


async def test_an_endpoint_is_believed_by_its_certificate(tmp_path: Path) -> None:
    authority = Authority()
    identity = authority.write_identity(tmp_path / "issuer.pem", "CN=issuer")
    trusted = authority.write_certificate(tmp_path / "ca.pem")
    with TokenEndpoint(ISSUES, {"app": SECRET}, identity=identity) as opened:
        by_file = TokenLogin(opened.url, "app", SECRET, trusted_file=str(trusted))
        assert (await fetch_token(by_file)).username == "app"
        by_text = TokenLogin(opened.url, "app", SECRET, trusted=trusted.read_text())
        assert (await fetch_token(by_text)).username == "app"
        assert "certificate verify failed" in await refusal(login(opened.url, backoff_max_ms=1))
        assert len(opened.asked) == 2, "nobody else is told the secret"
    missing = TokenLogin(opened.url, "app", SECRET, trusted_file="/nowhere.pem")
    assert "the authorities of https://" in await refusal(missing)


async def test_a_file_is_read_each_time(tmp_path: Path) -> None:
    file = tmp_path / "token file"
    wanted = TokenLogin(file.as_uri())
    tokens, source = Tokens(wanted), TokenSource(wanted)
    for name in ("alice", "bob"):
        file.write_text(ISSUES.token(time.time(), name) + "\n")
        assert (await fetch_token(wanted)).username == name
        assert (await tokens.current()).username == name
        assert source.current().username == name
    file.write_text("a" * TOKEN_MAX_BYTES * 2)
    assert "is no signed JWT" in await refusal(wanted)
    assert (await tokens.current()).username == source.current().username == "bob", "it still counts"
    file.unlink()
    assert "cannot be read: No such file" in await refusal(wanted)
    await tokens.close()


# -- kept tokens


async def test_all_who_wait_have_one_token(endpoint: TokenEndpoint) -> None:
    tokens = Tokens(login(endpoint.url))
    found = await asyncio.gather(*(tokens.current() for _ in range(5)))
    assert all(token is found[0] for token in found)
    assert await tokens.current() is found[0]
    assert len(endpoint.asked) == 1
    await tokens.close()


async def test_a_token_counts_on_while_the_endpoint_is_away(endpoint: TokenEndpoint) -> None:
    endpoint.lifetime_s = DAY_S
    clock, failures = Clock(), []
    tokens = Tokens(login(endpoint.url), clock, failures.append)
    first = await tokens.current()
    clock.ahead_s = DAY_S * 0.8
    endpoint.clients["app"] = "another"
    assert await tokens.current() is first, "nobody waits"
    assert await tokens.begin() is first
    assert ["answers 401" in str(error) for error in failures] == [True]
    endpoint.clients["app"] = SECRET
    second = await tokens.begin()
    assert second is not first
    assert await tokens.current() is second
    clock.ahead_s = DAY_S * 2
    endpoint.clients["app"] = "another"
    with pytest.raises(TokenError, match="answers 401"):
        await tokens.current()
    await tokens.close()


async def test_a_token_is_renewed_by_itself(endpoint: TokenEndpoint) -> None:
    endpoint.lifetime_s = 2
    tokens = Tokens(login(endpoint.url))
    await tokens.current()
    await asked(endpoint, 2)
    await tokens.close()
    with pytest.raises(TokenError, match="nobody fetches"):
        await tokens.begin()


async def test_threads_share_a_token_and_may_have_a_loop(endpoint: TokenEndpoint) -> None:
    endpoint.lifetime_s = DAY_S
    clock = Clock()
    source = TokenSource(login(endpoint.url), clock)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: source.current(), range(8)))
    first = source.current()
    assert all(token is first for token in found)
    assert len(endpoint.asked) == 1
    clock.ahead_s = DAY_S * 0.8
    second = source.current()
    assert second is not first
    clock.ahead_s = DAY_S * 0.97
    endpoint.clients["app"] = "another"
    assert source.current() is second, "it still counts"
    clock.ahead_s = DAY_S * 2
    with pytest.raises(TokenError, match="answers 401"):
        source.current()


def test_equal_logins_of_a_process_have_one_source(endpoint: TokenEndpoint) -> None:
    wanted = login(endpoint.url)
    assert token_source(wanted) is token_source(pickle.loads(pickle.dumps(wanted)))
    assert token_source(wanted) is not token_source(login(endpoint.url, secret="hunter3"))
