"""A connection to another broker that is opened on first use, closed on any failure, and opened again by the next call.

The replica fetcher has one for each lane of a leader (`leader_endpoint`), the lag of groups one for each leader that it
asks (`kraft.broker.coordinators.group_lag`). A call that is cancelled costs the connection, since its answer would come
in the way of the next one's. Where the listener has SASL, a new connection first says who this broker is, and again
before the session that it is granted is over (KIP-368).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fetcher.leader_endpoint import LeaderUnavailable
from kraft.broker.peer_security import PLAIN_PEERS, PeerSecurity
from kraft.network.authentication import AuthenticatedConnection
from kraft.network.client import DEFAULT_MAX_RESPONSE_BYTES, BrokerConnection, ConnectionLostError
from kraft.protocol.schema import Message
from quorum.metadata.records import Listener

CONNECT_TIMEOUT_S = 2.0


class PeerConnection:
    """To one broker. `address` gives its endpoint now, None while it has none."""

    def __init__(
        self,
        broker_id: int,
        address: Callable[[], Listener | None],
        *,
        client_id: str,
        security: PeerSecurity = PLAIN_PEERS,
        max_response_bytes: int = DEFAULT_MAX_RESPONSE_BYTES,
    ) -> None:
        self._broker_id = broker_id
        self._address = address
        self._client_id = client_id
        self._security = security
        self._max_response_bytes = max_response_bytes
        self._connection: AuthenticatedConnection | None = None
        self._opening = asyncio.Lock()

    async def request(self, body: Message, version: int, *, timeout_s: float) -> Any:
        """The answer to one request. Raises LeaderUnavailable."""
        connection = self._connection
        if connection is None or connection.closed:
            connection = await self._connect()
        try:
            return await connection.request(body, version, timeout_s=timeout_s)
        except ConnectionLostError as error:
            self.close()
            raise LeaderUnavailable(f"broker {self._broker_id}: {error}") from error
        except asyncio.CancelledError:
            self.close()
            raise

    async def _connect(self) -> AuthenticatedConnection:
        """The connection, which somebody else may have opened meanwhile."""
        async with self._opening:
            connection = self._connection
            if connection is not None and not connection.closed:
                return connection
            address = self._address()
            if address is None:
                raise LeaderUnavailable(f"broker {self._broker_id} has no address that this broker knows")
            try:
                opened = await BrokerConnection.connect(
                    address.host,
                    address.port,
                    client_id=self._client_id,
                    timeout_s=CONNECT_TIMEOUT_S,
                    ssl_context=self._security.context(),
                    max_response_bytes=self._max_response_bytes,
                )
                security = self._security
                connection = AuthenticatedConnection(
                    opened, security.credentials, security.nonce, timeout_s=CONNECT_TIMEOUT_S
                )
                await connection.renew()
            except ConnectionLostError as error:
                raise LeaderUnavailable(f"broker {self._broker_id}: {error}") from error
            self._connection = connection
            return connection

    def close(self) -> None:
        """Closes it, if it is open."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
