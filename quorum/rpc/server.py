"""The controller listener: `serve(handler)` over aiohttp, for brokers' calls and voters' Raft links.

Every request is authenticated before its body is read, bounded in size and time, and answered with an
envelope of `quorum.rpc.envelope`. Strangers have few connections, for a short time, and send the heads of requests and
no more. The handler's typed errors become refusals; a defect in it becomes UNKNOWN_SERVER_ERROR and a log line, and
harms no other request. `kraft.node` starts it on nodes with the controller role. The WebSocket route belongs to
`quorum.rpc.raft_links`.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable

import structlog
from aiohttp import web

from quorum.rpc.authentication import (
    BODY_HEADER,
    SIGNATURE_HEADER,
    UNKNOWN_SESSION_STATUS,
    AuthenticationError,
    RequestGuard,
    UnknownSessionError,
    body_hash,
    response_signature,
)
from quorum.rpc.bad_requests import RequestErrorLog
from quorum.rpc.connection_gate import STRANGER_MAX_S, ConnectionGate
from quorum.rpc.envelope import (
    MAX_REQUEST_BYTES,
    Body,
    EnvelopeError,
    RpcError,
    decode,
    encode,
    failure,
    success,
)
from quorum.rpc.listening import Listener, listen
from quorum.rpc.request_door import RequestLine
from quorum.rpc.sparse_log import SparseLog

log = structlog.get_logger(__name__)

RpcHandler = Callable[[str, Body], Awaitable[Body]]
"""Answers one call: (method, body) → body. Raises RpcError to refuse it."""

WebSocketHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]

SHUTDOWN_GRACE_S = 0.5
LINGERING_S = 1.0
"""So long the connection of a refused request stays open, for its answer to be read."""
BODY_TIMEOUT_S = 10.0
BACKLOG = 1024
"""Connections that the kernel holds for us; a whole cluster may come at once."""
UNAUTHORIZED = 401
RAFT_METHOD = "raft"
"""What the request for a Raft link is signed as."""


class ControllerListener:
    """One listening address that serves `/session`, `/rpc/<method>` and, for voters, `/raft`."""

    def __init__(
        self,
        handler: RpcHandler,
        secret: bytes,
        raft_links: WebSocketHandler | None = None,
        *,
        rng: random.Random | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`rng` makes challenges that nobody can guess (the system's randomness by default)."""
        self._handler = handler
        self._secret = secret
        self._tls = tls
        self._raft_links = raft_links
        self._guard = RequestGuard(secret, random.SystemRandom() if rng is None else rng)
        self._refusals = SparseLog("refused an unauthenticated call")
        self._gate: ConnectionGate | None = None
        self._server: Listener | None = None
        self._errors = RequestErrorLog("controller")
        application = web.Application(client_max_size=MAX_REQUEST_BYTES)
        application.router.add_get("/session", self._serve_challenge)
        application.router.add_post("/rpc/{method}", self._serve_call)
        if raft_links is not None:
            application.router.add_get("/raft", self._serve_raft_link)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            logger=self._errors,
            auto_decompress=False,
            handle_signals=False,
            shutdown_timeout=SHUTDOWN_GRACE_S,
            lingering_time=LINGERING_S,
        )

    async def start(self, host: str, port: int) -> None:
        """Listens. Raises OSError if the address is in use or not this host's."""
        loop = asyncio.get_running_loop()
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        lines = [b"GET /session", b"POST /rpc/"] + [b"GET /raft"] * (self._raft_links is not None)
        self._gate = ConnectionGate(server, loop, RequestLine(*lines), self._errors.refused)
        self._server = await listen(
            self._gate, host, port, tls=self._tls, handshake_timeout_s=STRANGER_MAX_S, backlog=BACKLOG
        )

    async def close(self) -> None:
        """Stops listening and ends what is open after a short grace."""
        if self._server is not None:
            self._server.close()
        if self._gate is not None:
            self._gate.close()
        await self._runner.cleanup()

    async def _serve_challenge(self, request: web.Request) -> web.Response:
        if self._gate is not None:
            self._gate.next_request(request.protocol)
        return web.Response(text=self._guard.challenge(self._now_s()))

    async def _serve_raft_link(self, request: web.Request) -> web.StreamResponse:
        assert self._raft_links is not None
        try:
            self._admit(RAFT_METHOD, request)
        except AuthenticationError as error:
            return self._refused(RAFT_METHOD, request, error)
        return await self._raft_links(request)

    async def _serve_call(self, request: web.Request) -> web.Response:
        method = request.match_info["method"]
        try:
            signature = self._admit(method, request)
            if request.content.is_eof():  # all of it came with the head
                data = await request.read()
            elif request.transport is None:  # it ended before this task had its turn: nothing is awaited then
                raise ConnectionResetError
            else:
                async with asyncio.timeout(BODY_TIMEOUT_S):
                    data = await request.read()
            if body_hash(data) != request.headers[BODY_HEADER]:
                raise AuthenticationError("the body is not the one that was signed")
        except AuthenticationError as error:
            return self._refused(method, request, error)
        except TimeoutError:
            return web.Response(status=408, text=f"the body did not come within {BODY_TIMEOUT_S:g} s\n")
        except ConnectionError:
            return web.Response(status=400)  # for a caller that is gone already
        try:
            body = decode(data)
        except EnvelopeError as error:
            return web.Response(status=400, text=f"{error}\n")
        answer = encode(await self._handle(method, body))
        return web.Response(
            body=answer,
            content_type="application/msgpack",
            headers={SIGNATURE_HEADER: response_signature(self._secret, signature, answer)},
        )

    def _admit(self, method: str, request: web.Request) -> str:
        signature = self._guard.admit(method, request.headers, self._now_s())
        if self._gate is not None:
            self._gate.known(request.protocol)
        return signature

    def _refused(self, method: str, request: web.Request, error: AuthenticationError) -> web.Response:
        if isinstance(error, UnknownSessionError):
            response = web.Response(status=UNKNOWN_SESSION_STATUS, text=f"{error}\n")
        else:
            self._refusals.warning(method=method, peer=request.remote, reason=str(error))
            response = web.Response(status=UNAUTHORIZED, text=f"{error}\n")
        response.force_close()  # the body is still in the socket: nothing can follow it
        return response

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def _handle(self, method: str, body: Body) -> Body:
        try:
            return success(await self._handler(method, body))
        except RpcError as error:
            return failure(error)
        except Exception as error:
            log.exception("a call failed inside the controller", method=method)
            return failure(RpcError("UNKNOWN_SERVER_ERROR", f"{type(error).__name__} in {method}"))
