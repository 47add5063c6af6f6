"""The keys that tokens of OAUTHBEARER are verified with: of a file or a URL, fetched again now and then (KIP-768).

One for each listener that offers the mechanism. Nobody waits for it: a token is judged by the keys that are there. A
token with a key that is not known is refused and has the keys fetched at once, not more often than once in
`UNKNOWN_KEY_INTERVAL_S` whatever comes; its client comes again. A fetch takes a bounded time and number of bytes and
follows no redirection. When it fails the keys before it stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote, urlsplit

import aiohttp
import structlog

from kraft.config import ConfigError, ServerConfig
from kraft.listeners import is_loopback
from kraft.security.oauthbearer import (
    NO_KEYS,
    Believed,
    Keys,
    TokenRules,
    UnknownKeyError,
    judge_token,
    parse_jwks,
)
from kraft.security.scram import SaslError

log = structlog.get_logger(__name__)

FETCH_MAX_S: Final = 10.0
FETCH_MAX_BYTES: Final = 1 << 20
UNKNOWN_KEY_INTERVAL_S: Final = 10.0
REFRESH_MAX_S: Final = 30 * 86400.0
"""However rarely keys are to be fetched: timers go no further."""
_KEY: Final = "sasl.oauthbearer.jwks.endpoint.url"
_MECHANISM: Final = "OAUTHBEARER"
_FAILURES: Final = (OSError, ValueError, TimeoutError, aiohttp.ClientError)


class TokenJudge:
    """One listener's. Made on the event loop that it lives on; `start` before clients come, `close` at the end."""

    def __init__(self, config: ServerConfig, listener: str, now_ms: Callable[[], int]) -> None:
        def get(key: str) -> object:
            return config.of_listener(listener, f"sasl.oauthbearer.{key}", _MECHANISM)

        self._url = str(get("jwks.endpoint.url"))
        self._refresh_s = _seconds(get("jwks.endpoint.refresh.ms"))
        self._backoff_s = _seconds(get("jwks.endpoint.retry.backoff.ms"))
        self._backoff_max_s = _seconds(get("jwks.endpoint.retry.backoff.max.ms"))
        audience, issuer = get("expected.audience"), get("expected.issuer")
        self._rules = TokenRules(
            audiences=audience if isinstance(audience, tuple) else (),
            issuer=issuer if isinstance(issuer, str) else None,
            scope_claim=str(get("scope.claim.name")),
            subject_claim=str(get("sub.claim.name")),
            clock_skew_s=int(str(get("clock.skew.seconds"))),
        )
        self._now_ms = now_ms
        self._loop = asyncio.get_running_loop()
        self._wanted = asyncio.Event()
        self._asked_at_s: float | None = None
        self._task: asyncio.Task[None] | None = None
        self.keys: Keys = NO_KEYS
        self.fetches = 0
        """How often keys were asked for."""

    def __call__(self, token: str) -> Believed:
        """Raises SaslError."""
        if not self.keys:
            raise SaslError("the broker has not been able to fetch the issuer's keys")
        try:
            return judge_token(token, self.keys, self._rules, self._now_ms() / 1000)
        except UnknownKeyError:
            now_s = self._loop.time()
            if self._asked_at_s is None or now_s - self._asked_at_s >= UNKNOWN_KEY_INTERVAL_S:
                self._asked_at_s = now_s
                self._wanted.set()
            raise

    async def start(self) -> None:
        """A file has to be there; a URL may answer later. Raises ConfigError."""
        parts = urlsplit(self._url)
        if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            log.warning("whoever is between here and the issuer can be any user: use https", url=self._url)
        try:
            await self._fetch()
        except _FAILURES as error:
            if parts.scheme == "file":
                raise ConfigError(f"{_KEY}={self._url}: {_reason(error)}") from error
            self._failed(error)
        self._task = self._loop.create_task(self._keep())

    async def close(self) -> None:
        """No fetch is under way afterwards."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _keep(self) -> None:
        """Fetches when it is time or a key is missed; after a failure sooner, and more and more rarely."""
        failures = 0 if self.keys else 1
        while True:
            pause_s = min(self._refresh_s, REFRESH_MAX_S)
            if failures:
                pause_s = min(self._backoff_s * 2 ** min(failures - 1, 30), self._backoff_max_s)
            try:
                async with asyncio.timeout(pause_s):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            self._wanted.clear()
            try:
                await self._fetch()
            except _FAILURES as error:
                failures += 1
                self._failed(error)
            else:
                failures = 0

    async def _fetch(self) -> None:
        self.fetches += 1
        parts = urlsplit(self._url)
        async with asyncio.timeout(FETCH_MAX_S):
            if parts.scheme == "file":
                text = await self._loop.run_in_executor(None, _read, unquote(parts.path))
            else:
                text = await _get(self._url)
        before, self.keys = len(self.keys), parse_jwks(text)
        if len(self.keys) != before:
            log.info("keys of tokens were read", url=self._url, keys=len(self.keys))

    def _failed(self, error: Exception) -> None:
        log.warning(
            "keys of tokens cannot be read; those before it count", url=self._url, reason=_reason(error)
        )


def _seconds(milliseconds: object) -> float:
    return int(str(milliseconds)) / 1000


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return _bounded(file.read(FETCH_MAX_BYTES + 1))


async def _get(url: str) -> bytes:
    """Raises ValueError for an answer that is none."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, allow_redirects=False, headers={"Accept": "application/json"}) as response,
    ):
        if response.status != 200:
            raise ValueError(f"it answers {response.status}")
        content = bytearray()
        async for chunk in response.content.iter_chunked(64 << 10):
            content += chunk
            _bounded(content)
        return bytes(content)


def _bounded(content: bytes | bytearray) -> bytes:
    if len(content) > FETCH_MAX_BYTES:
        raise ValueError(f"it is larger than {FETCH_MAX_BYTES} bytes")
    return bytes(content)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
