"""Bounds the connections of strangers: those that have not proved yet that they belong here.

A connection is a stranger's until `known` was called for it. Strangers get a short time, and the oldest goes when
there are many. A caller that knows the secret proves it within a round trip, so a flood of silent or slow
connections keeps nobody else out for long. The newest are not turned away, except from a crowd beyond all measure:
connections are accepted in bursts, and a whole cluster that starts at once has its first requests in the sockets
still. A connection counts when it is accepted, before its TLS handshake. `RequestDoor` bounds the bytes of a stranger.
Used by `quorum.rpc.server` and `kraft.http.server` as the factory of their protocols.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from quorum.rpc.request_door import Refused, RequestDoor, RequestLine

STRANGERS_MAX = 128
STRANGERS_HARD_MAX = 1024
GRACE_S = 1.0
STRANGER_MAX_S = 5.0


class _Stranger(NamedTuple):
    door: RequestDoor
    since_s: float
    timer: asyncio.TimerHandle


class ConnectionGate:
    """The protocol factory of one listening socket."""

    def __init__(
        self,
        server: web.Server,
        loop: asyncio.AbstractEventLoop,
        line: RequestLine,
        refused: Refused,
        stranger_max_s: float | None = None,
    ) -> None:
        """`line`: what is served; `refused` is told what was not; `stranger_max_s`: STRANGER_MAX_S by default."""
        self._server = server
        self._loop = loop
        self._line = line
        self._refused = refused
        self._max_s = STRANGER_MAX_S if stranger_max_s is None else stranger_max_s
        self._strangers: dict[RequestHandler, _Stranger] = {}
        self.turned_away = 0
        """Strangers whose time was over, or who had to make room."""

    def __call__(self) -> RequestDoor:
        if len(self._strangers) >= STRANGERS_MAX:
            oldest, stranger = next(iter(self._strangers.items()))
            is_old = self._loop.time() - stranger.since_s >= GRACE_S
            if is_old or len(self._strangers) >= STRANGERS_HARD_MAX:
                self._turn_away(oldest, stranger.door)
        handler = self._server()
        door = RequestDoor(handler, self._line, self._refused, self._forget)
        self._remember(handler, door)
        return door

    def next_request(self, handler: RequestHandler) -> None:
        """A stranger's request is served; it may send one more."""
        stranger = self._strangers.get(handler)
        if stranger is not None:
            stranger.door.next_request()

    def renew(self, handler: RequestHandler) -> None:
        """A stranger that was of use: its time begins anew."""
        stranger = self._strangers.get(handler)
        if stranger is not None:
            self._forget(handler)
            self._remember(handler, stranger.door)

    def known(self, handler: RequestHandler) -> None:
        """The other end of this connection knows the secret."""
        stranger = self._strangers.get(handler)
        if stranger is not None:
            self._forget(handler)
            stranger.door.open()

    def close(self) -> None:
        """Stops the timers; the connections are the server's to close."""
        for handler in list(self._strangers):
            self._forget(handler)

    def _remember(self, handler: RequestHandler, door: RequestDoor) -> None:
        timer = self._loop.call_later(self._max_s, self._turn_away, handler, door)
        self._strangers[handler] = _Stranger(door, self._loop.time(), timer)

    def _forget(self, handler: RequestHandler) -> None:
        stranger = self._strangers.pop(handler, None)
        if stranger is not None:
            stranger.timer.cancel()

    def _turn_away(self, handler: RequestHandler, door: RequestDoor) -> None:
        self._forget(handler)
        self.turned_away += 1
        door.end()
