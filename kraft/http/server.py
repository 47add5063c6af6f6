"""The HTTP listener of a node: `kraft.http.app` on one address, loopback unless configured otherwise.

Every caller is a stranger. Connections are bounded in number and in idle time, and the listener takes nothing from them
but the heads of GET and HEAD requests (`quorum.rpc.connection_gate`). `kraft.node` starts it.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Protocol

from aiohttp import web

from kraft.config import split_host_port
from kraft.environment import Environment
from kraft.http.app import ONLY_ADDRESSES, NodeView, make_app
from kraft.http.console.cluster import ConsoleNode
from kraft.http.console.routes import Console
from kraft.http.console.streams import KEEP_OPEN
from kraft.http.hosts import AllowedHosts
from kraft.http.login import Login
from kraft.http.loop_lag import LoopLag
from kraft.http.messages.routes import add_routes
from kraft.http.metrics import NodeMetrics
from kraft.http.snapshots import NodeMetricsSource
from kraft.network.server import ListenerError, bind_failure
from quorum.rpc.bad_requests import RequestErrorLog
from quorum.rpc.connection_gate import STRANGER_MAX_S, ConnectionGate
from quorum.rpc.listening import Listener, listen
from quorum.rpc.request_door import RequestLine

SHUTDOWN_GRACE_S = 0.5
BACKLOG = 100
IDLE_MAX_S = 75.0
"""After its last request; scrapes come more often."""
SERVED = RequestLine(b"GET /", b"HEAD /")


class ServedNode(NodeView, ConsoleNode, Protocol):
    """Everything the pages ask of a node."""


class HttpServer:
    """One listener. Start and close it on the event loop that it lives on."""

    def __init__(
        self,
        node: ServedNode,
        environment: Environment,
        hosts: AllowedHosts = ONLY_ADDRESSES,
        login: Login | None = None,
    ) -> None:
        self._node = node
        self._loop_lag = LoopLag(self._each_second)
        source = NodeMetricsSource(node, environment.now_ms(), self._loop_lag.times)
        self._console = Console(node, environment.now_ms, self._loop_lag.times)
        application = make_app(node, NodeMetrics(source), hosts, self._console, login)
        self.messages = add_routes(application, node, environment.executor)
        application[KEEP_OPEN] = self._keep_open
        application.on_response_prepare.append(self._on_answer)
        self._errors = RequestErrorLog("http")
        self._runner = web.AppRunner(
            application,
            access_log=None,
            logger=self._errors,
            auto_decompress=False,
            handle_signals=False,
            lingering_time=0,  # bodies are not read: there is nothing to wait for
            shutdown_timeout=SHUTDOWN_GRACE_S,
        )
        self._gate: ConnectionGate | None = None
        self._server: Listener | None = None
        self.port = 0

    async def start(self, address: str, tls: ssl.SSLContext | None = None) -> None:
        """Listens on `host:port`, with `tls` for https alone; port 0 chooses a free one. Raises ListenerError."""
        host, port = split_host_port(address)
        loop = asyncio.get_running_loop()
        await self._runner.setup()
        assert self._runner.server is not None
        gate = ConnectionGate(self._runner.server, loop, SERVED, self._errors.refused, IDLE_MAX_S)
        try:
            server = await listen(
                gate, host or None, port, tls=tls, handshake_timeout_s=STRANGER_MAX_S, backlog=BACKLOG
            )
        except OSError as error:
            await self._runner.cleanup()
            raise ListenerError(error.errno, bind_failure("http.listener", host, port, error)) from error
        self._gate, self._server = gate, server
        self.port = server.sockets[0].getsockname()[1]
        self._loop_lag.start()

    async def close(self) -> None:
        """Stops listening."""
        self._loop_lag.close()
        if self._server is not None:
            self._server.close()
        await self._console.close()
        if self._gate is not None:
            self._gate.close()
        await self._runner.cleanup()

    def _each_second(self) -> None:
        broker = self._node.broker
        if broker is not None:
            broker.sample_rates()

    def _keep_open(self, request: web.BaseRequest) -> None:
        if self._gate is not None:
            self._gate.renew(request.protocol)

    async def _on_answer(self, request: web.Request, response: web.StreamResponse) -> None:
        if self._gate is not None:
            self._gate.renew(request.protocol)
            if request.can_read_body:
                # Its body was left in the socket, before any other request. The headers have been decided upon.
                response.force_close()
                response.headers["Connection"] = "close"
            else:
                self._gate.next_request(request.protocol)
