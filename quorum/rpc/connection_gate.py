"""Bounds the connections of those who have not proved yet that they belong to the quorum.

A connection is a stranger's until `known` was called for it. Strangers get a short time, and when there
are many of them, the oldest has to go: whoever knows the secret proves it within a round trip, so a flood
of silent or slow connections keeps nobody else out for long. Who came just now is not turned away, except
from a crowd beyond all measure: connections are accepted in bursts, and a whole cluster that starts at
once has its first requests in the sockets still. Used by `quorum.rpc.server` as the factory of its
protocols.
"""

from __future__ import annotations

import asyncio

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

STRANGERS_MAX = 128
STRANGERS_HARD_MAX = 1024
GRACE_S = 1.0
STRANGER_MAX_S = 5.0


class ConnectionGate:
    """The protocol factory of one listening socket."""

    def __init__(self, server: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._strangers: dict[RequestHandler, asyncio.TimerHandle] = {}
        self.turned_away = 0
        """Strangers whose time was over, or who had to make room."""

    def __call__(self) -> RequestHandler:
        handler = self._server()
        if len(self._strangers) >= STRANGERS_MAX:
            oldest, timer = next(iter(self._strangers.items()))
            age_s = self._loop.time() - (timer.when() - STRANGER_MAX_S)
            if age_s >= GRACE_S or len(self._strangers) >= STRANGERS_HARD_MAX:
                self._turn_away(oldest)
        self._strangers[handler] = self._loop.call_later(STRANGER_MAX_S, self._turn_away, handler)
        return handler

    def known(self, handler: RequestHandler) -> None:
        """The other end of this connection knows the secret."""
        timer = self._strangers.pop(handler, None)
        if timer is not None:
            timer.cancel()

    def close(self) -> None:
        """Stops the timers; the connections are the server's to close."""
        for timer in self._strangers.values():
            timer.cancel()
        self._strangers.clear()

    def _turn_away(self, handler: RequestHandler) -> None:
        self._strangers.pop(handler).cancel()
        self.turned_away += handler.transport is not None
        handler.force_close()
