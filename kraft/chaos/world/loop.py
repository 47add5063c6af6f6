"""The event loop of one process incarnation: asyncio's interface over virtual time and simulated sockets.

Unmodified asyncio code (tasks, timeouts, streams, protocols, aiohttp) runs on it. It is written on
`AbstractEventLoop` because `BaseEventLoop` insists on a selector. All loops of a world share one
scheduler; a handle, task, future or transport belongs to a process through the loop it carries. What
is not here (TLS, task factories, datagrams, subprocesses, file descriptors) raises NotImplementedError.
"""

from __future__ import annotations

import asyncio
import contextvars
import ipaddress
import socket
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextvars import copy_context
from heapq import heappush
from typing import Any, TypeVar, TypeVarTuple

from kraft.chaos.world.executor import SimulatedExecutor
from kraft.chaos.world.incarnation import Incarnation
from kraft.chaos.world.kernel import ANY_ADDRESS, LOOPBACK, Address, Kernel
from kraft.chaos.world.scheduler import AnyHandle, LaneHandle, LaneTimer
from kraft.chaos.world.server import SimServer
from kraft.chaos.world.sockets import SimSocket
from kraft.chaos.world.tasks import SimFuture, SimTask
from kraft.chaos.world.transport import SimTransport

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_new_handle = LaneHandle.__new__
DNS_DELAY_S = 0.000_5
DEFAULT_BACKLOG = 100
_WILDCARDS = (None, "", "0.0.0.0", "::")

ErrorReport = Callable[[str, str, BaseException | None], None]
"""Gets (process name, message, exception) of what nobody handled."""


class SimLoop(asyncio.AbstractEventLoop):
    """The loop of one incarnation; after its end every call is void."""

    def __init__(self, incarnation: Incarnation, kernel: Kernel, report: ErrorReport) -> None:
        self.incarnation = incarnation
        self.kernel = kernel
        self.scheduler = incarnation.scheduler
        self.lane = incarnation.add_lane("", self._callback_failed)
        self.lane.running_loop = self
        self.executor: SimulatedExecutor | None = None
        self._report = report
        self._tasks_created = 0
        self._exception_handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None

    def __repr__(self) -> str:
        return f"<SimLoop {self.incarnation.name}>"

    # -- time and callbacks

    def time(self) -> float:
        return self.scheduler.now

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> LaneHandle:
        lane = self.lane
        handle = _new_handle(LaneHandle)  # as its constructor does, for every wake-up of a task
        handle.lane = lane
        handle._callback = callback
        handle._args = args
        handle._context = copy_context() if context is None else context
        handle._cancelled = False
        post = lane.post
        post(handle)
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> LaneHandle:
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> LaneTimer:
        timer = LaneTimer(when, self.lane, callback, args, context)
        scheduler = self.scheduler
        scheduler.order = order = scheduler.order + 1
        heappush(scheduler.heap, (when, order, timer, None))
        return timer

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> LaneTimer:
        scheduler = self.scheduler
        when = scheduler.now + delay
        timer = LaneTimer(when, self.lane, callback, args, context)
        scheduler.order = order = scheduler.order + 1
        heappush(scheduler.heap, (when, order, timer, None))
        return timer

    # -- tasks and futures

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(loop=self)

    def create_task(
        self, coro: Generator[Any, None, T] | Coroutine[Any, Any, T], *, name: object = None, **options: Any
    ) -> asyncio.Task[T]:
        if name is None:
            self._tasks_created += 1
            name = f"t{self._tasks_created}"
        created = SimTask(coro, loop=self, name=str(name), **options)
        self.scheduler.trace.task(created.serial, coro)
        return created

    # -- the state of the loop

    def is_running(self) -> bool:
        return self.lane.alive

    def is_closed(self) -> bool:
        return not self.lane.alive

    get_debug = staticmethod(bool)  # false; every future asks, from C

    def set_debug(self, enabled: bool) -> None:
        """Debug mode would look at the real clock."""

    def close(self) -> None:
        """The loop ends with its process."""

    async def shutdown_asyncgens(self) -> None:
        """Generators are closed when they are dropped."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """The executor ends with its process."""

    def add_signal_handler(self, sig: int, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """No signal ever comes."""

    def remove_signal_handler(self, sig: int) -> bool:
        return False

    # -- errors nobody handled

    def set_exception_handler(self, handler: Any) -> None:
        self._exception_handler = handler

    def get_exception_handler(self) -> Any:
        return self._exception_handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self._report(self.incarnation.name, str(context.get("message")), context.get("exception"))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.lane.alive:
            return
        kind = type(context.get("exception")).__name__
        self.scheduler.trace.note(self.scheduler.now, "unhandled", self.incarnation.name, kind)
        if self._exception_handler is None:
            self.default_exception_handler(context)
        else:
            self._exception_handler(self, context)

    def _callback_failed(self, error: BaseException, handle: AnyHandle) -> None:
        message = f"Exception in callback {getattr(handle._callback, '__qualname__', '')}"
        self.call_exception_handler({"message": message, "exception": error, "handle": handle})

    # -- jobs

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Libraries use this (aiohttp for large compressions); our own code has the Executor port."""
        if executor is not None or self.executor is None:
            raise RuntimeError("threads do not exist in a simulation: use the Executor port")
        return self.executor.submit(func, *args)

    # -- names

    async def getaddrinfo(
        self, host: Any, port: Any, *, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> list[Any]:
        if isinstance(host, bytes):
            host = host.decode("ascii")
        passive = bool(flags & socket.AI_PASSIVE)
        address = self._literal_address(host, passive=passive)
        if address is None:
            await asyncio.sleep(DNS_DELAY_S)
            address = self.kernel.network.resolve(host)
        if address is None:
            raise socket.gaierror(socket.EAI_NONAME, f"name or service not known: {host}")
        return [
            (
                socket.AF_INET,
                socket.SocketKind(type) if type else socket.SOCK_STREAM,
                socket.IPPROTO_TCP,
                "",
                (address, int(port or 0)),
            )
        ]

    @staticmethod
    def _literal_address(host: str | None, *, passive: bool) -> str | None:
        if host in _WILDCARDS:
            return ANY_ADDRESS if passive or host else LOOPBACK
        assert host is not None
        if host == "localhost":
            return LOOPBACK
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            return None

    async def getnameinfo(self, sockaddr: Any, flags: int = 0) -> tuple[str, str]:
        return sockaddr[0], str(sockaddr[1])

    # -- connections

    async def sock_connect(self, sock: Any, address: Any) -> None:
        if not isinstance(sock, SimSocket):
            raise TypeError("only simulated sockets can be connected in a simulation")
        established = self.create_future()

        def on_connected(error: OSError | None) -> None:
            self.call_soon(_settle, established, error)

        sock.endpoint = self.kernel.connect((address[0], address[1]), on_connected)
        try:
            await established
        except BaseException:
            sock.endpoint.on_connected = None
            sock.endpoint.kill()
            raise

    async def create_connection(  # type: ignore[override]  # typeshed's overloads list TLS options
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: Any = None,
        sock: SimSocket | None = None,
        **options: Any,
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        """`options` choose among real networks (family, local address, …) and mean nothing here."""
        if ssl:
            raise NotImplementedError("TLS is not simulated: use a plaintext listener")
        if sock is None:
            infos = await self.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            sock = SimSocket()
            await self.sock_connect(sock, infos[0][4])
        if sock.endpoint is None:
            raise ValueError("the socket passed as sock is not connected")
        protocol = protocol_factory()
        transport = SimTransport(self, self.lane, sock.endpoint, protocol, sock)
        connected = self.create_future()
        transport.start(connected)
        try:
            await connected
        except BaseException:
            transport.close()
            raise
        return transport, protocol

    async def create_server(  # type: ignore[override]  # typeshed's overloads list TLS options
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | Iterable[str] | None = None,
        port: int | None = None,
        *,
        backlog: int = DEFAULT_BACKLOG,
        ssl: Any = None,
        sock: Any = None,
        start_serving: bool = True,
        **options: Any,
    ) -> SimServer:
        if ssl or sock is not None:
            raise NotImplementedError("TLS and ready-made listening sockets are not simulated")
        addresses: list[Address] = []
        for name in [host] if host is None or isinstance(host, str) else list(host):
            infos = await self.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            addresses.append(infos[0][4])
        server = SimServer(self, self.lane, self.kernel, protocol_factory, addresses, backlog)
        if start_serving:
            await server.start_serving()
        return server


def _settle(future: asyncio.Future[Any], error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
