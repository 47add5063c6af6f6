"""One request that waits: a place among a bounded number, a timer, and a future that says it is over.

Guarantees: nothing is polled, so that thousands of waits cost nothing while nothing happens. A wait counts from the
call of `begin` on: between a handler's look and the first step of a task of its own other requests run, and what they
bring would be missed. `settle` ends a wait in the same call, without a turn of the loop. A wait whose time is over,
or whose client is gone (the connection cancels its future), leaves its order by itself. No wait that is over is part
of a reference cycle: there is one for nearly every request, and it goes without the garbage collector.

What is waited for, and in which order it comes, is the purgatory's: offsets (`offset_waits`), bytes (`fetch_waits`),
replicas that are being made ready (`pending_replicas`). Checks of records are none of these: they are work, done in
order whether or not anybody still waits for it (`kraft.broker.replicas.appends`). On the event loop.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


class Purgatory:
    """The waits of one kind. At most `waiting_max` have a place; the others are answered at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop, waiting_max: int) -> None:
        self.loop = loop
        self.waiting_max = waiting_max
        self.count = 0

    @property
    def is_full(self) -> bool:
        return self.count >= self.waiting_max


class Wait(ABC, Generic[Value]):
    """One request that waits. `done` is its future; cancelling it ends the wait."""

    __slots__ = ("_purgatory", "_timer", "done")

    def __init__(self, purgatory: Purgatory) -> None:
        self._purgatory = purgatory
        self._timer: asyncio.TimerHandle | None = None
        """None before the wait begins and when it is over."""
        self.done: asyncio.Future[Value] = purgatory.loop.create_future()

    def begin(self, timeout_s: float) -> None:
        """Takes a place; `expire` is called after `timeout_s` seconds."""
        purgatory = self._purgatory
        purgatory.count += 1
        self.done.add_done_callback(self._on_gone)
        self._timer = purgatory.loop.call_later(timeout_s, self.expire)

    def settle(self, value: Value) -> None:
        """Gives the future its value and the place back. Once is enough."""
        self.answer(value)
        self.end()

    def answer(self, value: Value) -> None:
        """Gives the future its value; the place is kept until `end`."""
        if not self.done.done():
            self.done.remove_done_callback(self._on_gone)
            self.done.set_result(value)

    def end(self) -> None:
        """Gives the place back. Once is enough."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None  # a timer that has gone off leads back to the wait
            self._purgatory.count -= 1
            self.leave()

    def _on_gone(self, _: asyncio.Future[Any]) -> None:
        self.end()

    @abstractmethod
    def expire(self) -> None:
        """Its time is over."""

    @abstractmethod
    def leave(self) -> None:
        """It is over: its order lets go of it."""
