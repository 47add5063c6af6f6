"""The controller listener: `serve(handler)` over aiohttp, for brokers' calls and voters' Raft links.

Every request is authenticated before it is decoded, bounded in size, and answered with an envelope
of `quorum.rpc.envelope`. The handler's typed errors become refusals; a bug in it becomes
UNKNOWN_SERVER_ERROR and a log line, and harms no other request. Started by `kraft.node` on nodes
with the controller role; the WebSocket route belongs to `quorum.rpc.raft_links`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog
from aiohttp import web

from quorum.rpc.envelope import (
    MAX_REQUEST_BYTES,
    SIGNATURE_HEADER,
    Body,
    EnvelopeError,
    RpcError,
    decode,
    encode,
    failure,
    sign,
    success,
    verify,
)

log = structlog.get_logger(__name__)

RpcHandler = Callable[[str, Body], Awaitable[Body]]
"""Answers one call: (method, body) → body. Raises RpcError to refuse it."""

WebSocketHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]

SHUTDOWN_GRACE_S = 0.5


class ControllerListener:
    """One listening address that serves `/rpc/<method>` and, for voters, `/raft`."""

    def __init__(
        self, handler: RpcHandler, secret: bytes, raft_links: WebSocketHandler | None = None
    ) -> None:
        self._handler = handler
        self._secret = secret
        application = web.Application(client_max_size=MAX_REQUEST_BYTES)
        application.router.add_post("/rpc/{method}", self._serve_call)
        if raft_links is not None:
            application.router.add_get("/raft", raft_links)
        self._runner = web.AppRunner(
            application, access_log=None, handle_signals=False, shutdown_timeout=SHUTDOWN_GRACE_S
        )

    async def start(self, host: str, port: int) -> None:
        """Listens. Raises OSError if the address is in use or not this host's."""
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()

    async def close(self) -> None:
        """Stops listening and ends what is open after a short grace."""
        await self._runner.cleanup()

    async def _serve_call(self, request: web.Request) -> web.Response:
        method = request.match_info["method"]
        data = await request.read()
        if not verify(self._secret, method, data, request.headers.get(SIGNATURE_HEADER)):
            log.warning("refused an unauthenticated call", method=method, peer=request.remote)
            return web.Response(
                status=401, text="the signature is missing or wrong; check the shared secret\n"
            )
        try:
            body = decode(data)
        except EnvelopeError as error:
            return web.Response(status=400, text=f"{error}\n")
        return self._answer(method, await self._handle(method, body))

    async def _handle(self, method: str, body: Body) -> Body:
        try:
            return success(await self._handler(method, body))
        except RpcError as error:
            return failure(error)
        except Exception as error:
            log.exception("a call failed inside the controller", method=method)
            return failure(RpcError("UNKNOWN_SERVER_ERROR", f"{type(error).__name__} in {method}"))

    def _answer(self, method: str, envelope: Body) -> web.Response:
        data = encode(envelope)
        return web.Response(
            body=data,
            content_type="application/msgpack",
            headers={SIGNATURE_HEADER: sign(self._secret, method, data)},
        )
