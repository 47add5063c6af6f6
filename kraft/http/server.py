"""The HTTP listener of a node: `kraft.http.app` on one address, loopback unless configured otherwise."""

from __future__ import annotations

from typing import Protocol

from aiohttp import web

from kraft.config import ConfigError
from kraft.environment import Environment
from kraft.http.app import NodeView, make_app
from kraft.http.metrics import NodeMetrics
from kraft.http.snapshots import NodeMetricsSource, NodeParts

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
            handle_signals=False,
            shutdown_timeout=SHUTDOWN_GRACE_S,
        )
        self.port = 0

    async def start(self, address: str) -> None:
        """Listens on `host:port`; port 0 chooses a free one. Raises ConfigError, OSError."""
        host, separator, port = address.rpartition(":")
        if not separator or not port.isdigit():
            raise ConfigError(f"http.listener: {address!r} is not host:port")
        await self._runner.setup()
        site = web.TCPSite(self._runner, host.strip("[]") or None, int(port))
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Stops listening."""
        await self._runner.cleanup()
