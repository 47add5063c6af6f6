"""Tasks and futures that hash by a serial number instead of by address.

`asyncio.wait`, `TaskGroup` and aiohttp keep tasks and futures in sets; with these classes the order of
such a set is the same in every process.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kraft.chaos.world.scheduler import Scheduler
from kraft.chaos.world.trace import label_of_coroutine


class SimTask(asyncio.Task[Any]):
    """A task whose hash and trace label are reproducible. Created on a `SimLoop`."""

    __slots__ = ("serial",)

    def __init__(self, coroutine: Any, *, loop: Any, name: str, **options: Any) -> None:
        """`loop` is the task's `SimLoop`; the rest is as for `asyncio.Task`."""
        self.serial: int = loop.scheduler.next_serial()
        """In the order of creation. asyncio keeps a set of all tasks, and asks for the hash at once."""
        super().__init__(coroutine, loop=loop, name=name, **options)

    @property
    def trace_label(self) -> str:
        return f"{self.get_name()}:{label_of_coroutine(self.get_coro())}"

    def __hash__(self) -> int:
        return self.serial


class SimFuture(asyncio.Future[Any]):
    """A future whose hash is reproducible: a number drawn when somebody first asks for it."""

    __slots__ = ("_serial",)

    _serial: int

    def __hash__(self) -> int:
        try:
            return self._serial
        except AttributeError:
            self._serial = _next_serial(self)
            return self._serial


def _next_serial(future: asyncio.Future[Any]) -> int:
    scheduler: Scheduler = future.get_loop().scheduler  # type: ignore[attr-defined]
    return scheduler.next_serial()


def hash_of_gathering(future: Any) -> int:
    """A reproducible hash for the future of `asyncio.gather`, a class of its own; installed as a patch."""
    serial = getattr(future, "_simulated_serial", None)
    if serial is None:
        scheduler = getattr(future.get_loop(), "scheduler", None)
        serial = object.__hash__(future) if scheduler is None else scheduler.next_serial()
        future._simulated_serial = serial
    return int(serial)
