"""A connection to another broker says who this node is, or a command: SASL over `BrokerConnection` (KIP-43, KIP-152).

`AuthenticatedConnection` does so again before the session that it is granted is over (KIP-368). While `authenticate`
runs, no other request may begin. The error names the broker, the mechanism, and what the broker says, unless that
repeats what is secret.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from kraft.network.client import BrokerConnection, ConnectionLostError
from kraft.protocol.api import APIS
from kraft.protocol.schema import Message
from kraft.security.exchange import SaslRefusal, sasl_exchange
from kraft.security.mechanisms import Credentials, Shown
from kraft.security.scram import SaslError
from kraft.security.token_login import TokenError, TokenSupply

RENEWED_AFTER: Final = 0.85
"""Of a session's time, as Kafka's clients do at the earliest."""


class AuthenticationFailedError(ConnectionLostError):
    """The broker does not believe this node, or the other way round; the connection is of no use."""


async def authenticate(
    connection: BrokerConnection, credentials: Shown, nonce: str, *, timeout_s: float
) -> float | None:
    """Returns for how many seconds the broker grants the session; None: for ever. `timeout_s` is for each answer.

    Raises ConnectionLostError.
    """
    steps = sasl_exchange(credentials, nonce)
    answer: Any = None
    try:
        while True:
            request = steps.send(answer)
            answer = await connection.request(
                request, APIS[request.API_KEY].versions[-1], timeout_s=timeout_s
            )
    except StopIteration as end:
        lifetime_s: float | None = end.value
        return lifetime_s
    except SaslRefusal as refusal:
        said = "" if credentials.secret in refusal.message else refusal.message
        reason = f"{refusal.code.name}: {said}"
        if refusal.mechanisms:
            reason = f"{refusal.code.name}; it offers {', '.join(refusal.mechanisms)}"
    except SaslError as error:
        reason = str(error)
    connection.close()
    raise AuthenticationFailedError(
        f"authentication by {credentials.mechanism} as {credentials.username} with {connection.name} failed: {reason}"
    )


class AuthenticatedConnection:
    """A connection whose session is renewed by the request that finds it nearly over; others wait meanwhile."""

    def __init__(
        self,
        connection: BrokerConnection,
        credentials: Credentials | TokenSupply | None,
        nonce: Callable[[], str],
        *,
        timeout_s: float,
    ) -> None:
        """`credentials` None: it says nothing of itself. A supply of tokens is asked at each authentication.
        `timeout_s` is for each answer of one."""
        self._connection = connection
        self._credentials = credentials
        self._nonce = nonce
        self._timeout_s = timeout_s
        self._renew_at_s: float | None = None if credentials is None else 0.0
        """When, in loop time, it authenticates again; None: never."""
        self._renewing = asyncio.Lock()

    @property
    def closed(self) -> bool:
        return self._connection.closed

    def close(self) -> None:
        """Closes it, if it is open."""
        self._connection.close()

    async def request(self, body: Message, version: int, *, timeout_s: float) -> Message:
        """As `BrokerConnection.request`. Raises ConnectionLostError."""
        await self.renew()
        return await self._connection.request(body, version, timeout_s=timeout_s)

    async def renew(self) -> None:
        """Says who it is if that is due, as it is at first. What was sent before is answered; what comes now waits.

        It is closed if that fails. Raises ConnectionLostError.
        """
        if not self._is_due():
            return
        async with self._renewing:
            if not self._is_due() or self._credentials is None:
                return
            began_s = asyncio.get_running_loop().time()
            try:
                shown = await self._shown(self._credentials)
                lifetime_s = await authenticate(
                    self._connection, shown, self._nonce(), timeout_s=self._timeout_s
                )
            except BaseException:
                self.close()
                raise
            self._renew_at_s = None if lifetime_s is None else began_s + lifetime_s * RENEWED_AFTER

    async def _shown(self, credentials: Credentials | TokenSupply) -> Shown:
        if isinstance(credentials, Credentials):
            return credentials
        try:
            return await credentials.current()
        except TokenError as error:
            raise AuthenticationFailedError(
                f"authentication with {self._connection.name} needs a token, and there is none: {error}"
            ) from error

    def _is_due(self) -> bool:
        return self._renew_at_s is not None and asyncio.get_running_loop().time() >= self._renew_at_s
