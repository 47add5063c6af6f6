"""Tokens of OAUTHBEARER are fetched: from a file or an issuer's endpoint, before those that are there end.

`Tokens` belongs to an event loop: brokers among each other and commands have one, and no connection waits for an
endpoint while the token before still counts. `token_source` is for threads that may wait: the Spark connector, and
librdkafka's callback. Answers are bounded in bytes, attempts in time and number; redirections are not followed, since a
secret would be sent elsewhere. What is asked and what answers mean is decided in `kraft.security.token_login`.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Final

import aiohttp

from kraft.security.oauthbearer_client import TOKEN_MAX_BYTES, BearerToken
from kraft.security.token_login import (
    ANSWER_MAX_BYTES,
    KeptToken,
    TokenError,
    TokenLogin,
    read_token,
    token_of_answer,
    token_request,
)

SOURCES_MAX: Final = 16
"""Logins whose tokens a process keeps for its threads."""
_REASON_MAX: Final = 200


async def fetch_token(login: TokenLogin, now_s: Callable[[], float] = time.time) -> BearerToken:
    """A new one. `now_s`: seconds since the Unix epoch. Raises TokenError."""
    loop = asyncio.get_running_loop()
    if login.path is not None:
        text = await loop.run_in_executor(None, _read, login, login.path)
        return read_token(login, text, now_s())
    context = await loop.run_in_executor(None, _context, login) if login.url.startswith("https:") else None
    pauses = login.pauses_s()
    try:
        async with asyncio.timeout(login.limit_s):
            while True:
                try:
                    return token_of_answer(login, *await _ask(login, context), now_s())
                except TokenError as error:
                    pause_s = None if error.is_final else next(pauses, None)
                    if pause_s is None:
                        raise
                await asyncio.sleep(pause_s)
    except TimeoutError:
        raise TokenError(f"{login.place} does not answer", is_final=False) from None


def _read(login: TokenLogin, path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(TOKEN_MAX_BYTES + 2).decode("ascii", errors="replace")
    except (OSError, ValueError) as error:
        raise TokenError(f"{login.place} cannot be read: {_reason(error)}") from None


def _context(login: TokenLogin) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=login.trusted_file, cadata=login.trusted)
    except (OSError, ValueError) as error:
        raise TokenError(f"the authorities of {login.place} cannot be read: {_reason(error)}") from None


async def _ask(login: TokenLogin, context: ssl.SSLContext | None) -> tuple[int, bytes]:
    """Status and content of one answer."""
    request = token_request(login)
    timeout = aiohttp.ClientTimeout(
        total=None, sock_connect=login.connect_timeout_ms / 1000, sock_read=login.read_timeout_ms / 1000
    )
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(
                login.url,
                data=request.body,
                headers=request.headers,
                allow_redirects=False,
                ssl=True if context is None else context,
            ) as response,
        ):
            content = bytearray()
            async for chunk in response.content.iter_chunked(16 << 10):
                content += chunk
                if len(content) > ANSWER_MAX_BYTES:
                    raise TokenError(f"{login.place} answers more than {ANSWER_MAX_BYTES} bytes")
            return response.status, bytes(content)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        if isinstance(error, TokenError):
            raise
        raise TokenError(f"{login.place} does not answer: {_reason(error)}", is_final=False) from None


def _reason(error: Exception) -> str:
    """Of the network or of a file: what an endpoint says may be anything."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return str(error)[:_REASON_MAX]
    return getattr(error, "strerror", None) or type(error).__name__


class Tokens:
    """One login's, on the event loop that it is made on. `close` it at the end."""

    def __init__(
        self,
        login: TokenLogin,
        now_s: Callable[[], float] = time.time,
        on_failure: Callable[[TokenError], None] = lambda _: None,
    ) -> None:
        """`on_failure` is told of each fetch that failed, also where the token before still counts."""
        self.login = login
        self._now_s = now_s
        self._on_failure = on_failure
        self._kept = KeptToken(login)
        self._loop = asyncio.get_running_loop()
        self._fetching: asyncio.Task[BearerToken] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def current(self) -> BearerToken:
        """Waits only where no token counts, or for its file. Raises TokenError."""
        now_s = self._now_s()
        token = self._kept.usable(now_s)
        if token is not None and self.login.path is None:
            if self._kept.is_due(now_s):
                self.begin()
            return token
        return await asyncio.shield(self.begin())

    async def close(self) -> None:
        """Nothing is fetched afterwards."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)

    def begin(self) -> asyncio.Task[BearerToken]:
        """Fetches a token: one at a time, for all who wait, and who waits need not."""
        if self._fetching is None or self._fetching.done():
            self._fetching = self._loop.create_task(self._fetch())
            self._fetching.add_done_callback(_heard)
        return self._fetching

    async def _fetch(self) -> BearerToken:
        if self._closed:
            raise TokenError("nobody fetches tokens any more")
        try:
            token = await fetch_token(self.login, self._now_s)
        except TokenError as error:
            self._on_failure(error)
            kept = self._kept.failed(self._now_s())
            if kept is None:
                raise
            token = kept
        else:
            self._kept.fetched(token, self._now_s())
        self._wake_when_due()
        return token

    def _wake_when_due(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.login.path is None:
            self._timer = self._loop.call_later(self._kept.due_at_s - self._now_s(), self.begin)


def _heard(task: asyncio.Task[BearerToken]) -> None:
    """Who waits is told of a failure, and where nobody waits the next one who asks fetches again."""
    if not task.cancelled():
        task.exception()


class TokenSource:
    """One login's, for all threads of a process."""

    def __init__(self, login: TokenLogin, now_s: Callable[[], float] = time.time) -> None:
        self._login = login
        self._now_s = now_s
        self._kept = KeptToken(login)
        self._lock = threading.Lock()

    def current(self) -> BearerToken:
        """Waits for one that counts, or for a new one where it is due: as long as a fetch may take. Raises
        TokenError."""
        with self._lock:
            now_s = self._now_s()
            token = self._kept.usable(now_s)
            if token is not None and not self._kept.is_due(now_s):
                return token
            try:
                with ThreadPoolExecutor(1) as elsewhere:  # this thread may have a loop of its own
                    token = elsewhere.submit(asyncio.run, fetch_token(self._login, self._now_s)).result()
            except TokenError:
                token = self._kept.failed(self._now_s())
                if token is None:
                    raise
                return token
            self._kept.fetched(token, self._now_s())
            return token


@lru_cache(maxsize=SOURCES_MAX)
def token_source(login: TokenLogin) -> TokenSource:
    """That of a login, which keeps its token from one task to the next."""
    return TokenSource(login)
