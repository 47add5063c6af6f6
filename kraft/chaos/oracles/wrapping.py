"""The wrapping of methods of product classes from outside, for the length of a run.

The product has no hooks and no switches for judges. A probe takes a method's place on its class, calls the method,
and tells a model about the call. Everything is put back when the run ends. The acts of a process between its own
end and its next await have no effect, since its disk and its network are fenced: `Whose` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from kraft.chaos.world.incarnation import process_of
from kraft.chaos.world.scheduler import Scheduler

Method = Callable[..., Any]
Probe = TypeVar("Probe", bound=Method)
_PROBED: dict[Method, list[tuple[type, str]]] = {}
"""By probe: the product's methods, with their classes, in whose place it is put."""


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
        return "" if lane is None else process_of(lane.name)


def around(cls: type, method: str) -> Callable[[Probe], Probe]:
    """Makes a method of `Probes` the probe on a method of a product class, which it gets as its first argument."""

    def mark(probe: Probe) -> Probe:
        _PROBED.setdefault(probe, []).append((cls, method))
        return probe

    return mark


class Probes:
    """Some probes, its methods that are marked with `around`, and what they share."""

    @contextmanager
    def installed(self) -> Iterator[None]:
        """The probes, for as long as the context lasts."""
        before: list[tuple[type, str, Any]] = []
        try:
            for probe in vars(type(self)).values():
                for cls, name in _PROBED.get(probe, ()) if callable(probe) else ():
                    original = cls.__dict__[name]
                    before.append((cls, name, original))
                    bound = probe.__get__(self)
                    if isinstance(original, classmethod):
                        setattr(cls, name, classmethod(_probed(original.__func__, bound)))
                    else:
                        setattr(cls, name, _probed(original, bound))
            yield
        finally:
            for cls, name, original in reversed(before):
                setattr(cls, name, original)


def _probed(original: Method, probe: Method) -> Method:
    return lambda *arguments, **options: probe(original, *arguments, **options)
