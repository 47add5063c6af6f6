"""A listener: accepts connections, grants them their limits, closes them in good order.

One `SocketServer` serves one listener of a node (a host, a port, a security protocol). It owns its
connections and what they leave behind: `close` stops accepting, lets answers that are owed go out
within a grace period, drops the rest and awaits every task that was cancelled on the way.
"""

from __future__ import annotations

import asyncio
import errno
import math
import ssl
from collections.abc import Iterator

from kraft.network.connection import Connection, FrameHandler, Introduce
from kraft.network.limits import NetworkLimits
from kraft.network.response import Response
from kraft.network.sender import SenderFactory, transport_sender
from kraft.network.session import Session
from kraft.security.quotas.connection_quotas import ConnectionQuotas, canonical_ip
from quorum.rpc.listening import Listener, listen

_MIN_SWEEP_S = 0.05
_MAX_SWEEP_S = 10.0
_BACKLOG = 1024
_TLS_HANDSHAKE_TIMEOUT_S = 10.0


class ListenerError(OSError):
    """The listener cannot be opened; the text says why and what to do."""

    def __str__(self) -> str:
        return str(self.strerror)


class SocketServer:
    """Serves `handler` on one listener.

    `name` stands in front of log lines. With `authentication_required`, what a connection sends is limited to
    `limits.max_unauthenticated_request_bytes` in sum, and to `limits.authentication_timeout_ms`, until a handler calls
    `Session.recognize`. `introduce` is told of each connection before its first request.
    """

    def __init__(
        self,
        handler: FrameHandler,
        *,
        limits: NetworkLimits | None = None,
        ssl_context: ssl.SSLContext | None = None,
        sender_factory: SenderFactory = transport_sender,
        authentication_required: bool = False,
        introduce: Introduce | None = None,
        name: str = "listener",
        quotas: ConnectionQuotas | None = None,
    ) -> None:
        self.handler = handler
        self.limits = limits or NetworkLimits()
        self.sender_factory = sender_factory
        self.authentication_required = authentication_required
        self.introduce = introduce
        self.name = name
        self._quotas = quotas
        self._ssl_context = ssl_context
        self._server: Listener | None = None
        self._closing = False
        self._address: tuple[str, int] = ("", 0)
        self._connections: dict[int, Connection] = {}
        self._per_ip: dict[str, int] = {}
        self._leaving: dict[asyncio.Task[Response | None], None] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._all_closed: asyncio.Future[None] | None = None
        self.accepted_count = 0
        self.refused_count = 0

    @property
    def port(self) -> int:
        """The port that is listened on (the one that was found free when 0 was asked for)."""
        return self._address[1]

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def sessions(self) -> Iterator[Session]:
        """Of the open connections; who is in a TLS handshake is nobody yet."""
        return (connection.session for connection in self._connections.values() if connection.is_made)

    async def start(self, host: str, port: int) -> None:
        """Listens on `host`:`port`; an empty host means every interface, port 0 any free one.

        Raises ListenerError when the address cannot be bound.
        """
        assert self._server is None, "a SocketServer is started once"
        loop = asyncio.get_running_loop()
        try:
            self._server = await listen(
                lambda: Connection(self, loop),
                # Several sockets (IPv4 and IPv6) cannot agree on one free port.
                host or ("0.0.0.0" if port == 0 else None),
                port,
                tls=self._ssl_context,
                handshake_timeout_s=_TLS_HANDSHAKE_TIMEOUT_S,
                backlog=_BACKLOG,
            )
        except OSError as error:
            raise ListenerError(error.errno, bind_failure(self.name, host, port, error)) from error
        address = self._server.sockets[0].getsockname()
        self._address = (address[0], address[1])
        self._schedule_sweep()

    async def close(self, grace_s: float) -> None:
        """Stops accepting, waits up to `grace_s` seconds for answers that are owed, drops the rest."""
        if self._server is None or self._closing:
            return
        self._closing = True
        self._server.close()
        for connection in list(self._connections.values()):
            connection.drain()
        await self._wait_until_closed(grace_s)
        for connection in list(self._connections.values()):
            connection.abort()
        await self._wait_until_closed(None)
        if self._sweep is not None:
            self._sweep.cancel()
        if self._leaving:
            await asyncio.wait(list(self._leaving))
        await self._server.wait_closed()

    # -- ConnectionOwner ------------------------------------------------------------------------

    def admit(self, connection: Connection) -> str | None:
        """Registers a new connection, with TLS before its handshake, or says why it is refused."""
        limits = self.limits
        host = connection.session.peer[0]
        of_ip = limits.max_connections_per_ip
        if limits.max_connections_of_ip:
            of_ip = limits.max_connections_of_ip.get(canonical_ip(host), of_ip)
        refusal = None
        if self._closing:
            refusal = "the server is shutting down"
        elif limits.max_connections is not None and len(self._connections) >= limits.max_connections:
            refusal = f"max.connections={limits.max_connections} are open"
        elif of_ip is not None and self._per_ip.get(host, 0) >= of_ip:
            refusal = f"max.connections.per.ip={of_ip} are open from there"
        if refusal is not None:
            self.refused_count += 1
            return refusal
        self.accepted_count += 1
        self._connections[id(connection)] = connection
        self._per_ip[host] = self._per_ip.get(host, 0) + 1
        if self._quotas is not None and self._quotas.is_limiting:
            self._slow_down(connection, host, self._quotas)
        return None

    def _slow_down(self, connection: Connection, host: str, quotas: ConnectionQuotas) -> None:
        """Has a connection that came too soon wait, and closed then if it is not taken."""
        loop = asyncio.get_running_loop()
        is_taken, delay_ms = quotas.admit(self.name, host, loop.time() * 1000)
        if not delay_ms:
            return
        at_s = loop.time() + delay_ms / 1000
        connection.mute_until(at_s if is_taken else math.inf)
        if not is_taken:
            self.refused_count += 1
            loop.call_at(
                at_s, connection.close, "its address opens connections faster than its quota lets it"
            )

    def forget(self, connection: Connection, unfinished: list[asyncio.Task[Response | None]]) -> None:
        """The connection is gone; keeps its cancelled tasks until they have ended."""
        for task in unfinished:
            self._leaving[task] = None
            task.add_done_callback(self._forget_task)
        if self._connections.pop(id(connection), None) is None:
            return
        host = connection.session.peer[0]
        if self._per_ip[host] == 1:
            del self._per_ip[host]
        else:
            self._per_ip[host] -= 1
        if not self._connections and self._all_closed is not None and not self._all_closed.done():
            self._all_closed.set_result(None)

    def _forget_task(self, task: asyncio.Task[Response | None]) -> None:
        self._leaving.pop(task, None)

    # -- closing and idle connections -----------------------------------------------------------

    async def _wait_until_closed(self, timeout_s: float | None) -> None:
        if self._connections:
            self._all_closed = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._all_closed], timeout=timeout_s)

    def _schedule_sweep(self) -> None:
        limits = self.limits
        shortest_ms = min(limits.connections_max_idle_ms or limits.closing_grace_ms, limits.closing_grace_ms)
        if self.authentication_required:
            shortest_ms = min(shortest_ms, limits.authentication_timeout_ms)
        delay_s = min(max(shortest_ms / 4000, _MIN_SWEEP_S), _MAX_SWEEP_S)
        self._sweep = asyncio.get_running_loop().call_later(delay_s, self._sweep_idle)

    def _sweep_idle(self) -> None:
        """One timer for all connections: looks for peers that have been silent for too long."""
        now_s = asyncio.get_running_loop().time()
        idle_ms = self.limits.connections_max_idle_ms
        idle_s = None if idle_ms is None else idle_ms / 1000
        grace_s = self.limits.closing_grace_ms / 1000
        for connection in list(self._connections.values()):
            connection.check_idle(now_s, idle_s, grace_s)
        self._schedule_sweep()


def bind_failure(name: str, host: str, port: int, error: OSError) -> str:
    """A sentence for a person about why a listener could not be opened."""
    address = f"{host or '0.0.0.0'}:{port}"
    if error.errno == errno.EADDRINUSE:
        return (
            f"{name} cannot listen on {address}: the port is in use. Stop the process that holds it, "
            f"or choose another port."
        )
    if error.errno == errno.EACCES:
        return f"{name} cannot listen on {address}: no permission. Choose a port above 1023."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{name} cannot listen on {address}: this host has no such address. Correct it."
    return f"{name} cannot listen on {address}: {error.strerror or error}. Correct the address."
