"""Opens a listening socket, with TLS or without: a connection is its protocol's from the moment it is accepted.

asyncio tells a protocol of a TLS connection once its handshake has ended well, and never otherwise: who stays silent
would count in no limit. So with TLS connections are accepted here, their protocols are told of them, and the loop does
the handshake then. Who was told of a connection is told that it is lost, once, whatever its end.
Used by `kraft.network.server`, `quorum.rpc.server` and `kraft.http.server`. With TLS the sockets are real ones: the
simulated loop has none.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final, Protocol

import structlog

log = structlog.get_logger(__name__)

ACCEPTED_PER_TURN: Final = 16
"""Of the loop, at most: others come in between."""
RETRY_S: Final = 1.0
"""After the host had no descriptor or memory for a connection."""


class Accepting(Protocol):
    """A protocol of a listener with TLS, beside what asyncio asks of it."""

    def connection_accepted(self, handshake: asyncio.Transport) -> None:
        """A connection is there, and nothing was read of it. `connection_made` or `connection_lost` follows.

        Until then `handshake` ends it by `close` or `abort`; while its reading is paused the handshake does not begin.
        """


class Listener(Protocol):
    """What listens."""

    @property
    def sockets(self) -> Any:
        """That it listens on."""

    def close(self) -> None:
        """Accepts nothing more, and ends handshakes."""

    async def wait_closed(self) -> None:
        """Until the handshakes have ended."""


Factory = Callable[[], Any]
"""Makes the protocol of one connection: asyncio's, and `Accepting`."""


async def listen(
    factory: Factory,
    host: str | None,
    port: int,
    *,
    tls: ssl.SSLContext | None,
    handshake_timeout_s: float,
    backlog: int,
) -> Listener:
    """None as `host`: every interface. Raises OSError if the address cannot be bound."""
    loop = asyncio.get_running_loop()
    if tls is None:
        return await loop.create_server(factory, host, port, backlog=backlog)
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            if family == socket.AF_INET6 and host is None and not socket.has_dualstack_ipv6():
                continue  # "every interface" of a host without IPv6
            sockets.append(socket.create_server(address, family=family, backlog=backlog))
    except OSError:
        for one in sockets:
            one.close()
        raise
    return _TlsListener(loop, factory, sockets, tls, handshake_timeout_s)


class _TlsListener:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        factory: Factory,
        sockets: list[socket.socket],
        tls: ssl.SSLContext,
        handshake_timeout_s: float,
    ) -> None:
        self.loop = loop
        self.tls = tls
        self.handshake_timeout_s = handshake_timeout_s
        self.sockets = sockets
        self._factory = factory
        self.handshakes: dict[_Handshake, None] = {}
        self._retries: dict[socket.socket, asyncio.TimerHandle] = {}
        for one in sockets:
            one.setblocking(False)
            loop.add_reader(one, self._accept, one)

    def close(self) -> None:
        for one in self.sockets:
            if one in self._retries:
                self._retries.pop(one).cancel()
            else:
                self.loop.remove_reader(one)
            one.close()
        self.sockets = []
        for handshake in list(self.handshakes):
            handshake.close()

    async def wait_closed(self) -> None:
        ending = [handshake.over for handshake in self.handshakes]
        if ending:
            await asyncio.wait(ending)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_PER_TURN):
            try:
                sock, peer = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                log.warning("cannot accept a connection for now", error=str(error), retry_s=RETRY_S)
                self.loop.remove_reader(listening)
                self._retries[listening] = self.loop.call_later(RETRY_S, self._accept_again, listening)
                return
            sock.setblocking(False)
            handshake = _Handshake(self, sock, peer, self._factory())
            self.handshakes[handshake] = None
            handshake.announce()

    def _accept_again(self, listening: socket.socket) -> None:
        del self._retries[listening]
        self.loop.add_reader(listening, self._accept, listening)


class _Handshake(asyncio.Transport):
    """One connection until it is encrypted."""

    def __init__(self, listener: _TlsListener, sock: socket.socket, peer: Any, protocol: Any) -> None:
        super().__init__({"peername": peer})
        self._listener = listener
        self._sock = sock
        self._protocol = protocol
        self._is_closing = False
        self._is_paused = False
        self._task: asyncio.Task[None] | None = None
        self.over: asyncio.Future[None] = listener.loop.create_future()
        """Done when the connection is lost, or was made."""

    def announce(self) -> None:
        """Tells the protocol, and begins if that does not object."""
        self._protocol.connection_accepted(self)
        self._begin()

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self._begin()

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        if self._task is None:
            self._sock.close()
            self._listener.loop.call_soon(self._end)
        else:
            # The loop owns the socket by now, and finds it at its end.
            with contextlib.suppress(OSError):  # it is, already
                self._sock.shutdown(socket.SHUT_RDWR)

    abort = close

    def _begin(self) -> None:
        if self._task is None and not self._is_closing and not self._is_paused:
            self._task = self._listener.loop.create_task(self._shake_hands())

    async def _shake_hands(self) -> None:
        listener = self._listener
        is_made = True
        try:
            transport, _ = await listener.loop.connect_accepted_socket(
                lambda: self._protocol,
                self._sock,
                ssl=listener.tls,
                ssl_handshake_timeout=listener.handshake_timeout_s,
            )
            # Without it the handshake was cut off, which asyncio does not tell.
            is_made = transport.get_extra_info("ssl_object") is not None
        except OSError as failure:
            is_made = False
            # asyncio keeps it in a frame that the traceback holds: a cycle, with the protocol in it.
            failure.__traceback__ = None
        finally:
            self._end(is_made=is_made)

    def _end(self, *, is_made: bool = False) -> None:
        del self._listener.handshakes[self]
        self.over.set_result(None)
        if not is_made:
            self._protocol.connection_lost(None)
