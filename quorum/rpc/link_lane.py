"""The port to the lane that a voter's network runs in: its listener and its Raft links.

A broker's event loop has steps that take long (a broker dies, and ten thousand partitions change at once). If
Raft's messages waited for those, every such step would cost an election, and more such steps would follow. So in
production they run in a lane of their own, `kraft.runtime.link_lane`. Calls are still decided on the node's loop.
`ControllerServer` starts the lane and closes it; under simulation it is the node's own loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

T = TypeVar("T")

Work = Callable[[], Awaitable[T]]


class LinkLane(Protocol):
    """An event loop for links and listeners."""

    def start(self) -> None:
        """Begins; called on the node's loop, as are `run` and `close`."""

    async def run(self, work: Work[T]) -> T:
        """Has the lane run a coroutine, and returns or raises what it does."""

    def post(self, callback: Callable[..., object], *args: object) -> None:
        """Has the lane call something, in order; from any thread, ignored once the lane is closed."""

    async def on_node_loop(self, work: Work[T]) -> T:
        """As `run` the other way: called on the lane, runs on the node's loop."""

    async def close(self) -> None:
        """Ends the lane; whatever ran there has been closed before."""


class NodeLoopLane:
    """The node's own event loop."""

    def start(self) -> None:
        """Nothing: the loop runs."""

    async def run(self, work: Work[T]) -> T:
        return await work()

    def post(self, callback: Callable[..., object], *args: object) -> None:
        callback(*args)

    async def on_node_loop(self, work: Work[T]) -> T:
        return await work()

    async def close(self) -> None:
        """Nothing: the loop goes on."""
