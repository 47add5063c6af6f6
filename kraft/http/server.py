"""The HTTP listener of a node: `kraft.http.app` on one address, loopback unless configured otherwise."""

from __future__ import annotations

from typing import Protocol

from aiohttp import web

from kraft.config import split_host_port
from kraft.environment import Environment
from kraft.http.app import NodeView, make_app
from kraft.http.metrics import NodeMetrics
from kraft.http.snapshots import NodeMetricsSource, NodeParts
from kraft.network.server import ListenerError, bind_failure
from quorum.rpc.bad_requests import RequestErrorLog

SHUTDOWN_GRACE_S = 0.5


class ServedNode(NodeView, NodeParts, Protocol):
    """Everything the pages ask of a node."""


class HttpServer:
    """One listener. Start and close it on the event loop that it lives on."""

    def __init__(self, node: ServedNode, environment: Environment) -> None:
        metrics = NodeMetrics(NodeMetricsSource(node, environment.now_ms()))
        self._runner = web.AppRunner(
            make_app(node, metrics),
            access_log=None,
            logger=RequestErrorLog("http"),
            handle_signals=False,
            shutdown_timeout=SHUTDOWN_GRACE_S,
        )
        self.port = 0

    async def start(self, address: str) -> None:
        """Listens on `host:port`; port 0 chooses a free one. Raises ListenerError."""
        host, port = split_host_port(address)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host or None, port).start()
        except OSError as error:
            await self._runner.cleanup()
            raise ListenerError(error.errno, bind_failure("http.listener", host, port, error)) from error
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Stops listening."""
        await self._runner.cleanup()
