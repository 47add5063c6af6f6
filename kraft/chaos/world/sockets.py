"""What code under simulation gets when it asks for a socket object.

It carries options, names and, once connected, the simulated connection; `loop.sock_connect` and
`create_connection(sock=…)` work with it, as aiohttp's connector needs. It cannot do IO by itself: code
that tries has left the event loop behind, and the run fails.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

from kraft.chaos.world.kernel import Address, Endpoint

_BLOCKING_CALLS = frozenset(
    (
        "accept",
        "connect",
        "connect_ex",
        "listen",
        "recv",
        "recv_into",
        "recvfrom",
        "send",
        "sendall",
        "sendto",
    )
)


def _refuse(what: str) -> NoReturn:
    raise RuntimeError(f"{what} on a simulated socket")


class SimSocket:
    """A socket object without IO of its own."""

    violation: ClassVar[Callable[[str], NoReturn]] = staticmethod(_refuse)

    def __init__(
        self,
        family: int = socket.AF_INET,
        type: int = socket.SOCK_STREAM,
        proto: int = 0,
        fileno: int | None = None,
        *,
        endpoint: Endpoint | None = None,
        local: Address = ("0.0.0.0", 0),
    ) -> None:
        self.family = family
        self.type = type
        self.proto = proto
        self.endpoint = endpoint
        self._local = local
        self._options: dict[tuple[int, int], object] = {}

    def __hash__(self) -> int:
        """The same for all: a set of the few sockets of one connect then keeps their order."""
        return 0

    def __eq__(self, other: object) -> bool:
        return self is other

    def setsockopt(self, level: int, option: int, value: object, *args: object) -> None:
        self._options[level, option] = value

    def getsockopt(self, level: int, option: int, *args: object) -> object:
        return self._options.get((level, option), 0)

    def getsockname(self) -> Address:
        return self._local if self.endpoint is None else self.endpoint.local

    def getpeername(self) -> Address:
        if self.endpoint is None:
            raise OSError(107, "Transport endpoint is not connected")
        return self.endpoint.remote

    def bind(self, address: Address) -> None:
        self._local = address

    def setblocking(self, flag: bool) -> None:
        """Nothing here blocks."""

    def settimeout(self, timeout: float | None) -> None:
        """Nothing here blocks."""

    def gettimeout(self) -> float:
        return 0.0

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        if self.endpoint is not None:
            self.endpoint.close()

    def detach(self) -> int:
        return -1

    def __getattr__(self, name: str) -> Any:
        if name in _BLOCKING_CALLS:
            type(self).violation(f"socket.{name}")
        raise AttributeError(name)


def bind_socket_class(violation: Callable[[str], NoReturn]) -> type[SimSocket]:
    """The class that stands for `socket.socket` during one run; IO on it calls `violation`."""

    class RunSocket(SimSocket):
        pass

    RunSocket.violation = staticmethod(violation)
    return RunSocket
