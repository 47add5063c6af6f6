"""The wrapping of methods of product classes from outside, for the length of a run.

The product has no hooks and no switches for judges. A probe takes a method's place on its class, calls the method,
and tells a model about the call. Everything is put back when the run ends. The acts of a process between its own
end and its next await have no effect, since its disk and its network are fenced: `Whose` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kraft.chaos.world.scheduler import Scheduler

Method = Callable[..., Any]


class Whose:
    """The node whose code runs at this moment."""

    __slots__ = ("_known", "_node_id_of", "_scheduler")

    def __init__(self, scheduler: Scheduler, node_id_of: Callable[[str], int | None]) -> None:
        """`node_id_of` maps the name of a lane to its node."""
        self._scheduler = scheduler
        self._node_id_of = node_id_of
        self._known: dict[str, int | None] = {}

    def node(self) -> int | None:
        """The node; None for clients, for the world itself, and for a process that has ended."""
        lane = self._scheduler.current
        if lane is None or not lane.alive:
            return None
        known = self._known.get(lane.name)
        return self.owner() if known is None else known

    def owner(self) -> int | None:
        """The node, even of a process that ended during this very call."""
        lane = self._scheduler.current
        if lane is None:
            return None
        name = lane.name
        if name not in self._known:
            self._known[name] = self._node_id_of(name)
        return self._known[name]

    def process(self) -> str:
        """The incarnation, such as "10.0.0.1#2"; empty for the world itself."""
        lane = self._scheduler.current
        if lane is None:
            return ""
        address, _, life = lane.name.partition("#")
        return f"{address}#{life.partition('.')[0]}"


@contextmanager
def wrapped(wrappers: dict[tuple[type, str], Callable[[Method], Method]]) -> Iterator[None]:
    """Puts wrappers in the place of methods, by (class, name); each gets the method that it replaces."""
    before: list[tuple[type, str, Any]] = []
    try:
        for (cls, name), wrapper in wrappers.items():
            original = cls.__dict__[name]
            before.append((cls, name, original))
            if isinstance(original, classmethod):
                setattr(cls, name, classmethod(wrapper(original.__func__)))
            else:
                setattr(cls, name, wrapper(original))
        yield
    finally:
        for cls, name, original in reversed(before):
            setattr(cls, name, original)
