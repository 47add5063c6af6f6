"""The network between simulated hosts: links with latency and one-way blocks, names, and resets.

TCP's promises hold and nothing more: bytes of one connection arrive in order, different connections
overtake each other, a blocked link holds segments back until it heals (the sender's kernel keeps
retransmitting), and nobody is told. Latencies come from the run's seeded stream. The sockets at both
ends are in `kraft.chaos.world.endpoint`.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kraft.chaos.world.scheduler import KernelEvent, Scheduler

if TYPE_CHECKING:
    from kraft.chaos.world.kernel import Kernel

LOOPBACK_LATENCY_S = (0.000_010, 0.000_030)
RETRANSMIT_MAX_S = 0.5
"""After a link heals, a connection's next retransmission comes within this time."""


class Latency(NamedTuple):
    """One-way delay, drawn evenly between the two for each segment."""

    min_s: float
    max_s: float


LAN_LATENCY = Latency(0.000_2, 0.001)


class Stream(Protocol):
    """One direction of one connection: segments of it never overtake each other."""

    last_arrival_s: float


class Link:
    """The way from one host to another; the way back is another link."""

    __slots__ = ("blocked_since_s", "held", "latency", "min_s", "span_s")

    def __init__(self, latency: Latency) -> None:
        self.set_latency(latency)
        self.blocked_since_s: float | None = None
        self.held: deque[tuple[Stream | None, Callable[..., object], tuple[Any, ...]]] = deque()

    def set_latency(self, latency: Latency) -> None:
        """For segments sent from now on."""
        self.latency = latency
        self.min_s = latency.min_s
        self.span_s = latency.max_s - latency.min_s

    @property
    def blocked(self) -> bool:
        return self.blocked_since_s is not None


class Network:
    """All links, and the hosts (by address) and names that can be reached over them."""

    def __init__(self, scheduler: Scheduler, rng: random.Random, *, latency: Latency = LAN_LATENCY) -> None:
        self.scheduler = scheduler
        self.latency = latency
        self.kernels: dict[str, Kernel] = {}
        self.names: dict[str, str] = {}
        self._rng = rng
        self._random = rng.random
        self._links: dict[tuple[str, str], Link] = {}

    def link(self, source: str, target: str) -> Link:
        """The link between two host addresses, made on first use with the default latency."""
        link = self._links.get((source, target))
        if link is None:
            latency = Latency(*LOOPBACK_LATENCY_S) if source == target else self.latency
            link = self._links[source, target] = Link(latency)
        return link

    def resolve(self, name: str) -> str | None:
        """The address of a host name, or None."""
        return self.names.get(name)

    def transmit(
        self, link: Link, stream: Stream | None, callback: Callable[..., object], *args: Any
    ) -> None:
        """Runs `callback` at the far end when the segment arrives; in order within a `stream`."""
        if link.blocked_since_s is not None:
            link.held.append((stream, callback, args))
            return
        scheduler = self.scheduler
        arrival_s = scheduler.now + link.min_s + link.span_s * self._random()
        if stream is not None:
            if arrival_s < stream.last_arrival_s:
                arrival_s = stream.last_arrival_s
            stream.last_arrival_s = arrival_s
        scheduler.schedule(arrival_s, KernelEvent(callback, args))

    # -- faults

    def block(self, source: str, target: str) -> None:
        """Nothing gets from `source` to `target` any more, acknowledgements of the way back included."""
        link = self.link(source, target)
        if link.blocked_since_s is None:
            self._note("block", source, target)
            link.blocked_since_s = self.scheduler.now

    def heal(self, source: str, target: str) -> None:
        """What was held is retransmitted, each connection after its own delay."""
        link = self.link(source, target)
        if link.blocked_since_s is None:
            return
        self._note("heal", source, target)
        backoff_max_s = min(RETRANSMIT_MAX_S, self.scheduler.now - link.blocked_since_s)
        link.blocked_since_s = None
        held = list(link.held)
        link.held.clear()
        waiting: dict[int, None] = {}
        for stream, callback, args in held:
            if stream is not None and id(stream) not in waiting:
                waiting[id(stream)] = None
                retransmitted_s = self.scheduler.now + backoff_max_s * self._random()
                stream.last_arrival_s = max(stream.last_arrival_s, retransmitted_s)
            self.transmit(link, stream, callback, *args)
        receiver = self.kernels.get(source)
        if receiver is not None:
            receiver.acknowledge_to(target)

    def partition(self, left: list[str], right: list[str]) -> None:
        """Blocks both directions between every host of `left` and every host of `right`."""
        for a in left:
            for b in right:
                self.block(a, b)
                self.block(b, a)

    def heal_all(self) -> None:
        """Heals every blocked link."""
        for source, target in list(self._links):
            self.heal(source, target)

    def reset(self, a: str, b: str) -> None:
        """Every connection between two hosts fails on both sides, as by a middlebox."""
        self._note("reset", a, b)
        kernel = self.kernels.get(a)
        if kernel is not None:
            kernel.reset_connections(b)

    def _note(self, *words: object) -> None:
        self.scheduler.trace.note(self.scheduler.now, *words)
