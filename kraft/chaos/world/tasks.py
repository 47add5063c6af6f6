"""Tasks and futures that hash by a serial number instead of by address.

`asyncio.wait`, `TaskGroup` and aiohttp keep tasks and futures in sets; with these classes the order of
such a set is the same in every process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any

from kraft.chaos.world.scheduler import Scheduler


class SimTask(asyncio.Task[Any]):
    """A task whose hash and trace label are reproducible."""

    __slots__ = ("serial", "trace_label")

    def __init__(
        self,
        scheduler: Scheduler,
        coro: Generator[Any, None, Any] | Coroutine[Any, Any, Any],
        *,
        loop: asyncio.AbstractEventLoop,
        name: str,
        **options: Any,
    ) -> None:
        self.serial = scheduler.next_serial()
        self.trace_label = f"{name}:{getattr(coro, '__qualname__', type(coro).__name__)}"
        super().__init__(coro, loop=loop, name=name, **options)

    def __hash__(self) -> int:
        return self.serial


class SimFuture(asyncio.Future[Any]):
    """A future whose hash is reproducible."""

    __slots__ = ("serial",)

    def __init__(self, scheduler: Scheduler, *, loop: asyncio.AbstractEventLoop) -> None:
        self.serial = scheduler.next_serial()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.serial


def hash_of_gathering(future: Any) -> int:
    """A reproducible hash for the future of `asyncio.gather`, a class of its own; installed as a patch."""
    serial = getattr(future, "_simulated_serial", None)
    if serial is None:
        scheduler = getattr(future.get_loop(), "scheduler", None)
        serial = object.__hash__(future) if scheduler is None else scheduler.next_serial()
        future._simulated_serial = serial
    return int(serial)
