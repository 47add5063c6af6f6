"""A connection to another broker says who this node is, or a command: SASL over `BrokerConnection` (KIP-43, KIP-152).

`AuthenticatedConnection` does so again before the session that it is granted is over (KIP-368). While `authenticate`
runs, no other request may begin. The error names the broker, the mechanism, and what the broker says, unless that
repeats the password.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from kraft.network.client import BrokerConnection, ConnectionLostError
from kraft.protocol.api import APIS
from kraft.protocol.schema import Message
from kraft.security.exchange import SaslRefusal, sasl_exchange
from kraft.security.mechanisms import Credentials
from kraft.security.scram import SaslError

RENEWED_AFTER: Final = 0.85
"""Of a session's time, as Kafka's clients do at the earliest."""


class AuthenticationFailedError(ConnectionLostError):
    """The broker does not believe this node, or the other way round; the connection is of no use."""


async def authenticate(
    connection: BrokerConnection, credentials: Credentials, nonce: str, *, timeout_s: float
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
        said = "" if credentials.password in refusal.message else refusal.message
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
        credentials: Credentials | None,
        nonce: Callable[[], str],
        *,
        timeout_s: float,
    ) -> None:
        """`credentials` None: it says nothing of itself. `timeout_s` is for each answer of an authentication."""
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
                lifetime_s = await authenticate(
                    self._connection, self._credentials, self._nonce(), timeout_s=self._timeout_s
                )
            except BaseException:
                self.close()
                raise
            self._renew_at_s = None if lifetime_s is None else began_s + lifetime_s * RENEWED_AFTER

    def _is_due(self) -> bool:
        return self._renew_at_s is not None and asyncio.get_running_loop().time() >= self._renew_at_s
