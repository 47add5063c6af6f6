"""Calls to the controller listener: `call(address, method, body, timeout)`, and a channel to the leader.

`RpcClient` makes one call to one address. `ControllerChannel` finds the active controller among the
voters, follows its hints, and retries until a deadline; every method is idempotent or fenced by
epochs, so a retry after an unknown outcome is safe. Used by brokers (`kraft.broker`) and the CLI.
"""

from __future__ import annotations

import asyncio
import random
import re
import ssl
from collections.abc import Callable, Collection, Mapping

import aiohttp

from quorum.rpc.authentication import (
    CHALLENGE_BYTES,
    SIGNATURE_HEADER,
    UNKNOWN_SESSION_STATUS,
    CallerSession,
    is_response_to,
)
from quorum.rpc.envelope import (
    ELSEWHERE,
    MAX_RESPONSE_BYTES,
    Body,
    EnvelopeError,
    RpcError,
    RpcUnavailable,
    decode,
    encode,
    unwrap,
)
from quorum.rpc.persistent_call import PAUSE_FIRST_S, PAUSE_MAX_S, Answered, call_persistently

CONNECT_TIMEOUT_S = 1.0
CONNECTIONS_MAX = 64
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)
_CHALLENGE = re.compile(rb"[0-9a-f]{%d}" % (2 * CHALLENGE_BYTES))

ConnectorFactory = Callable[[], aiohttp.BaseConnector]


TlsSource = Callable[[], ssl.SSLContext]
"""Gives the context of a new connection: another one once its files have changed."""


def default_connector() -> aiohttp.BaseConnector:
    """A pool of connections, bounded."""
    return aiohttp.TCPConnector(limit=CONNECTIONS_MAX)


class _SessionUnknown(Exception):
    """The listener does not know our session: it has restarted, or we stood still."""


async def request_session(
    http: aiohttp.ClientSession,
    address: str,
    secret: bytes,
    rng: random.Random,
    tls: TlsSource | None = None,
) -> CallerSession:
    """A session with the controller listener at `host:port`; the caller brings the timeout.

    Raises RpcUnavailable if it answers something else, aiohttp.ClientError.
    """
    async with http.get(f"{url_of(address, tls)}/session", ssl=newest(tls)) as response:
        challenge = await response.content.read(2 * CHALLENGE_BYTES + 1)
        if response.status != 200 or not _CHALLENGE.fullmatch(challenge):
            raise RpcUnavailable(f"{address} is no controller listener: it gives no challenge")
    return CallerSession(secret, challenge.decode(), rng)


def newest(tls: TlsSource | None) -> ssl.SSLContext | bool:
    """What aiohttp takes for a connection."""
    return True if tls is None else tls()


def url_of(address: str, tls: TlsSource | None) -> str:
    """The root of a controller listener."""
    return f"{'http' if tls is None else 'https'}://{address}"


class RpcClient:
    """One pooled HTTP client. Create and close it on the loop that uses it."""

    def __init__(
        self,
        secret: bytes,
        connector: ConnectorFactory = default_connector,
        *,
        rng: random.Random | None = None,
        tls: TlsSource | None = None,
    ) -> None:
        """`rng` makes session ids that nobody can guess (the system's randomness by default)."""
        self._secret = secret
        self._rng = random.SystemRandom() if rng is None else rng
        self._tls = tls
        self._session = aiohttp.ClientSession(
            connector=connector(),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=_TIMEOUT,
        )
        self._sessions: dict[str, CallerSession] = {}

    async def call(self, address: str, method: str, body: Mapping[str, object], timeout_s: float) -> Body:
        """Posts one call to `host:port`.

        Raises RpcUnavailable if nobody answered in `timeout_s` seconds (it may have been executed),
        RpcError if the call was refused.
        """
        data = encode(body)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._call(address, method, data)
        except TimeoutError as error:
            raise RpcUnavailable(f"{address} did not answer {method} in {timeout_s:g} s") from error
        except aiohttp.ClientConnectorError as error:
            raise RpcUnavailable(f"{address}: {error}", in_doubt=False) from error
        except aiohttp.ClientError as error:
            raise RpcUnavailable(f"{address}: {error}") from error

    async def _call(self, address: str, method: str, data: bytes) -> Body:
        """A session that a restarted listener does not know any more is opened anew, once."""
        session = self._sessions.get(address)
        if session is not None:
            try:
                return await self._post(address, session, method, data)
            except _SessionUnknown:
                # Of several calls under way, the first one forgets it, and may have a new one by now.
                if self._sessions.get(address) is session:
                    del self._sessions[address]
        session = await request_session(self._session, address, self._secret, self._rng, self._tls)
        try:
            return await self._post(address, session, method, data)
        except _SessionUnknown as error:
            raise RpcUnavailable(f"{address} does not know the session that it has just opened") from error

    async def _post(self, address: str, session: CallerSession, method: str, data: bytes) -> Body:
        headers = session.sign(method, data)
        async with self._session.post(
            f"{url_of(address, self._tls)}/rpc/{method}",
            data=data,
            headers=headers,
            ssl=newest(self._tls),
        ) as response:
            if response.status == UNKNOWN_SESSION_STATUS:
                raise _SessionUnknown
            if response.status == 401:
                raise RpcError(
                    "CLUSTER_AUTHORIZATION_FAILED", f"{address} refused our signature; check the secret"
                )
            answer = await self._read(method, address, headers[SIGNATURE_HEADER], response)
        self._sessions.setdefault(address, session)  # it is known there, whatever was answered
        try:
            return unwrap(decode(answer))
        except EnvelopeError as error:
            raise RpcUnavailable(f"{address} answered {method} with something else: {error}") from error

    async def _read(
        self, method: str, address: str, signature: str, response: aiohttp.ClientResponse
    ) -> bytes:
        received = bytearray()
        async for chunk in response.content.iter_any():
            received += chunk
            if max(response.content_length or 0, len(received)) > MAX_RESPONSE_BYTES:
                raise RpcUnavailable(
                    f"{address} answered {method} with more than {MAX_RESPONSE_BYTES} bytes, the limit"
                )
        data = bytes(received)
        if response.status != 200 or not is_response_to(
            self._secret, signature, data, response.headers.get(SIGNATURE_HEADER)
        ):
            raise RpcUnavailable(
                f"{address} answered {method} with status {response.status}, not signed by our quorum"
            )
        return data

    async def close(self) -> None:
        """Closes the pool; calls under way fail with RpcUnavailable."""
        await self._session.close()


class ControllerChannel:
    """Calls the active controller, wherever it is.

    `voters` maps node ids to `host:port` of their controller listeners. The last known leader is
    tried first, then the one that a refusal hints at, then the others in turn: each once, then a pause.
    """

    def __init__(self, client: RpcClient, voters: Mapping[int, str], rng: random.Random) -> None:
        if not voters:
            raise ValueError("controller.quorum.voters names no voter")
        self._client = client
        self._voters = dict(voters)
        self._order = sorted(voters)
        self._rng = rng
        self.leader_id: int | None = None
        self._target = rng.choice(self._order)

    async def call(
        self,
        method: str,
        body: Mapping[str, object],
        *,
        timeout_s: float,
        attempt_timeout_s: float | None = None,
    ) -> Body:
        """Calls the active controller, retrying elsewhere until `timeout_s` seconds have passed.

        Raises RpcError as the controller refused it, or RpcUnavailable if no active controller
        answered in time. A call may have been executed more than once.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        pause_s = PAUSE_FIRST_S
        asked: set[int] = set()
        while True:
            remaining_s = deadline - loop.time()
            if remaining_s <= 0:
                raise RpcUnavailable(f"no active controller answered {method} in {timeout_s:g} s")
            attempt_s = remaining_s if attempt_timeout_s is None else min(remaining_s, attempt_timeout_s)
            asked.add(self._target)
            try:
                return await self.call_once(method, body, timeout_s=attempt_s)
            except RpcError as error:
                if error.code not in ELSEWHERE:
                    raise
            if self._target not in asked:
                continue  # one dead voter is no reason to wait; that all were asked is: nobody leads yet
            asked.clear()
            await asyncio.sleep(min(pause_s * self._rng.uniform(0.8, 1.2), max(0.0, deadline - loop.time())))
            pause_s = min(pause_s * 2, PAUSE_MAX_S)

    async def call_once(self, method: str, body: Mapping[str, object], *, timeout_s: float) -> Body:
        """One attempt at the voter that is thought to lead; the next call goes where this one's failure
        points. For calls whose unknown outcome the caller has to know of. Raises RpcError.
        """
        return await self._ask(self._target, method, body, timeout_s)

    async def call_persistently(
        self, method: str, body: Mapping[str, object], *, timeout_s: float
    ) -> Answered:
        """Calls the active controller, though it may change, and says whether an earlier attempt may have done
        what was asked for already. Raises RpcError, RpcUnavailable: see `persistent_call`."""
        return await call_persistently(
            lambda voter, within_s: self._ask(voter, method, body, within_s),
            self._next_voter,
            what=method,
            timeout_s=timeout_s,
            rng=self._rng,
        )

    async def _ask(self, voter: int, method: str, body: Mapping[str, object], timeout_s: float) -> Body:
        try:
            answer = await self._client.call(self._voters[voter], method, body, timeout_s)
        except RpcError as error:
            if error.code in ELSEWHERE:
                if self.leader_id == voter:
                    self.leader_id = None
                if self._target == voter:  # else another call has moved on already, perhaps to the leader
                    hint = error.leader_id
                    self._target = hint if hint in self._voters and hint != voter else self._after(voter)
            raise
        self.leader_id = self._target = voter
        return answer

    def _next_voter(self, without: Collection[int]) -> int | None:
        """The voter that is thought to lead, or the next one that is not among those."""
        first = self._order.index(self._target)
        return next((v for v in self._order[first:] + self._order[:first] if v not in without), None)

    def _after(self, voter_id: int) -> int:
        return self._order[(self._order.index(voter_id) + 1) % len(self._order)]
