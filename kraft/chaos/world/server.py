"""The listening side of the simulated event loop: what `loop.create_server` returns."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable

from kraft.chaos.world.kernel import Address, Endpoint, Kernel
from kraft.chaos.world.scheduler import Lane
from kraft.chaos.world.sockets import SimSocket
from kraft.chaos.world.transport import SimTransport


class SimServer(asyncio.AbstractServer):
    """Accepts connections on one or more addresses of its host, each into a protocol of its own."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        lane: Lane,
        kernel: Kernel,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        addresses: list[Address],
        backlog: int,
    ) -> None:
        """Binds every address, or raises OSError and binds none."""
        self.closed = False
        self._backlog = backlog
        self._loop = loop
        self._lane = lane
        self._kernel = kernel
        self._protocol_factory = protocol_factory
        self._context = contextvars.copy_context()
        self._waiting_for_accept = 0
        self._serving = False
        self._waiters: list[asyncio.Future[None]] = []
        self._connections: dict[SimTransport, None] = {}
        self._addresses: list[Address] = []
        try:
            for host, port in addresses:
                self._addresses.append(kernel.listen(host, port, self))
        except OSError:
            self._unlisten()
            raise
        self._sockets = tuple(SimSocket(local=address) for address in self._addresses)

    @property
    def sockets(self) -> tuple[SimSocket, ...]:
        return () if self.closed else self._sockets

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def is_serving(self) -> bool:
        return self._serving and not self.closed

    async def start_serving(self) -> None:
        self._serving = True

    async def serve_forever(self) -> None:
        self._serving = True
        try:
            await self._loop.create_future()
        finally:
            self.close()

    # -- called by the kernel

    def backlog_full(self, half_open: int) -> bool:
        return self._waiting_for_accept + half_open >= self._backlog

    def enqueue(self, endpoint: Endpoint) -> None:
        """A connection is established; the process accepts it when it gets to run."""
        self._waiting_for_accept += 1
        self._loop.call_soon(self._accept, endpoint, context=self._context)

    def _accept(self, endpoint: Endpoint) -> None:
        self._waiting_for_accept -= 1
        if self.closed:
            endpoint.kill()
            return
        protocol = self._protocol_factory()
        socket = SimSocket(endpoint=endpoint)
        transport = SimTransport(self._loop, self._lane, endpoint, protocol, socket, self._detach)
        self._connections[transport] = None
        transport.start()

    # -- the end

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._unlisten()
        if not self._connections:
            self._wake()

    async def wait_closed(self) -> None:
        """Returns at once after `close`, as Python 3.11 does; its callers may not wait for clients."""
        if self.closed:
            return
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def _unlisten(self) -> None:
        for address in self._addresses:
            self._kernel.unlisten(address, self)

    def _detach(self, transport: SimTransport) -> None:
        self._connections.pop(transport, None)
        if self.closed and not self._connections:
            self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
