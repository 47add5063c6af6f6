"""The network between simulated hosts: links with latency, bandwidth and one-way blocks, names, and resets.

TCP's promises hold and nothing more:

1. What arrives on a connection is at every instant a prefix of what was sent on it. Where one receive
   ends and the next begins says nothing about how it was written; an impaired link cuts anywhere.
2. Different connections overtake each other, also between the same hosts.
3. A blocked link holds segments back and nobody is told: the sender's kernel keeps retransmitting. After
   the heal each connection goes on at its own next retransmission; a clogged link lets go of everything
   at once. Acknowledgements are held back too, so that the window of the way back closes.
4. A slow link passes on so many bytes a second, of all its connections together.
5. A silent connection (a middlebox forgot it) delivers nothing any more, until each end gives up by
   itself. A reset one tells both ends at once, and what had arrived before can still be read.

Latencies come from the run's seeded stream. The kernels at both ends are in `kraft.chaos.world.kernel`.
Impairments and blocks of one link may overlap; it is whole again when the last has ended.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import deque
from collections.abc import Callable
from heapq import heappush
from typing import Any, NamedTuple, Protocol

from kraft.chaos.world.scheduler import KernelEvent, Scheduler

LOOPBACK_LATENCY_S = (0.000_010, 0.000_030)
SEGMENT_MAX_BYTES = 1448
"""Into such pieces a slow link cuts data; elsewhere a write travels whole."""
CUTS_MAX = 4
RETRANSMIT_MAX_S = 0.5
"""After a link heals, a connection's next retransmission comes within this time."""


class Latency(NamedTuple):
    """One-way delay, drawn evenly between the two for each segment."""

    min_s: float
    max_s: float


LAN_LATENCY = Latency(0.000_2, 0.001)
HEADER_BYTES = 66
"""What a segment costs a slow link beside its data: Ethernet, IPv4 and TCP with timestamps."""


class Impairment(NamedTuple):
    """What is wrong with a link for a while. Of several, the worst counts."""

    latency: Latency = Latency(0.0, 0.0)
    """At least this, where it is more than the link's own."""
    bytes_per_s: float = math.inf
    cut_odds: float = 0.0
    """The probability that a write arrives in pieces, cut at random."""
    cut_gap_s: float = 0.005
    """Up to this lies between the arrivals of two pieces."""


class Stream(Protocol):
    """One direction of one connection: segments of it never overtake each other."""

    last_arrival_s: float


class Machine(Protocol):
    """A host's kernel, as the network and other kernels meet it. What it returns is how many connections it was."""

    def on_syn(self, client: Stream) -> None: ...

    def acknowledge_to(self, far_address: str) -> None: ...

    def reset_connections(self, far_address: str) -> int: ...

    def silence_connections(self, far_address: str, draw_give_up_s: Callable[[], float]) -> int: ...

    def give_up_silent_connections(self, far_address: str) -> None: ...


class Packet(NamedTuple):
    """Something on its way over an impeded link; `args` is one bytes object if it is data."""

    stream: Stream | None
    callback: Callable[..., object]
    args: tuple[Any, ...]
    size_bytes: int
    gap_s: float = 0.0
    """It arrives so much later than it would have by itself. Never counted from what the stream carried before:
    many writes would add up to a delay without bounds, which outlives the impairment."""


class Link:
    """The way from one host to another; the way back is another link."""

    __slots__ = (
        "_impairments",
        "_stops",
        "blocked_since_s",
        "bytes_per_s",
        "cut_gap_s",
        "cut_odds",
        "free_at_s",
        "held",
        "impeded",
        "latency",
        "min_s",
        "pumping",
        "span_s",
    )

    def __init__(self, latency: Latency) -> None:
        self._impairments: list[Impairment] = []
        self._stops = 0
        self.blocked_since_s: float | None = None
        self.impeded = False
        """Not just a delay: `Network.transmit` has to look closer."""
        self.held: deque[Packet] = deque()
        """What waits for the end of a block, or for its turn on a slow link. Empty unless impeded."""
        self.free_at_s = 0.0
        """When a slow link can take the next segment."""
        self.pumping = False
        """It will be looked after at that instant."""
        self.set_latency(latency)

    def set_latency(self, latency: Latency) -> None:
        """Its own latency, for segments sent from now on."""
        self.latency = latency
        self._assess()

    def impair(self, impairment: Impairment) -> None:
        """See `Network.impair`."""
        self._impairments.append(impairment)
        self._assess()

    def relieve(self, impairment: Impairment | None = None) -> None:
        """Ends an equal impairment, if there is one, or all. The network has to pump afterwards."""
        if impairment is None:
            self._impairments.clear()
        elif impairment in self._impairments:
            self._impairments.remove(impairment)
        self._assess()
        self.free_at_s = 0.0

    def stop(self, now_s: float) -> bool:
        """Nothing passes until as many `go`s as `stop`s came. True for the first."""
        self._stops += 1
        if self._stops == 1:
            self.blocked_since_s = now_s
            self.impeded = True
        return self._stops == 1

    def go(self) -> bool:
        """Ends one `stop`. True if it was the last; false also if there was none."""
        if not self._stops:
            return False
        self._stops -= 1
        if not self._stops:
            self.blocked_since_s = None
            self._assess()
        return not self._stops

    @property
    def blocked(self) -> bool:
        return self.blocked_since_s is not None

    @property
    def stops(self) -> int:
        """How many blocks and clogs hold it."""
        return self._stops

    def _assess(self) -> None:
        worst = self._impairments
        self.min_s = max([self.latency.min_s, *(bad.latency.min_s for bad in worst)])
        self.span_s = max([self.latency.max_s, *(bad.latency.max_s for bad in worst)]) - self.min_s
        self.bytes_per_s = min([math.inf, *(bad.bytes_per_s for bad in worst)])
        self.cut_odds = max([0.0, *(bad.cut_odds for bad in worst)])
        self.cut_gap_s = max([0.0, *(bad.cut_gap_s for bad in worst if bad.cut_odds)])
        self.impeded = self.blocked or self.cut_odds > 0 or self.bytes_per_s < math.inf


class Network:
    """All links, and the hosts (by address) and names that can be reached over them."""

    def __init__(self, scheduler: Scheduler, rng: random.Random, *, latency: Latency = LAN_LATENCY) -> None:
        self.scheduler = scheduler
        self.latency = latency
        self.kernels: dict[str, Machine] = {}
        self.names: dict[str, str] = {}
        self._rng = rng
        self.random = rng.random
        """Of the run's stream for the network: latencies come from it."""
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
        if link.impeded:
            self._transmit_impeded(link, stream, callback, args)
            return
        scheduler = self.scheduler
        arrival_s = scheduler.now + link.min_s + link.span_s * self.random()
        if stream is not None:
            if arrival_s < stream.last_arrival_s:
                arrival_s = stream.last_arrival_s
            stream.last_arrival_s = arrival_s
        scheduler.order = order = scheduler.order + 1
        heappush(scheduler.heap, (arrival_s, order, callback, args))

    def _transmit_impeded(
        self, link: Link, stream: Stream | None, callback: Callable[..., object], args: tuple[Any, ...]
    ) -> None:
        data = args[0] if args and isinstance(args[0], bytes) else b""
        if len(data) > 1 and link.cut_odds and self.random() < link.cut_odds:
            cuts = sorted({self._rng.randrange(1, len(data)) for _ in range(self._rng.randint(1, CUTS_MAX))})
            gap_s = 0.0
            for start, end in itertools.pairwise([0, *cuts, len(data)]):
                gap_s += link.cut_gap_s * self.random() if start else 0.0
                link.held.append(Packet(stream, callback, (data[start:end],), end - start, gap_s))
        else:
            link.held.append(Packet(stream, callback, args, len(data)))
        self._pump(link)

    def _pump(self, link: Link) -> None:
        """Sends off what may go over a link now, in order, and comes back when the rest may."""
        scheduler = self.scheduler
        now_s = scheduler.now
        while link.held and link.blocked_since_s is None:
            if link.free_at_s > now_s:
                if not link.pumping:
                    link.pumping = True
                    scheduler.schedule(link.free_at_s, KernelEvent(self._pump_again, (link,)))
                return
            stream, callback, args, size_bytes, gap_s = link.held.popleft()
            if size_bytes > SEGMENT_MAX_BYTES and link.bytes_per_s < math.inf:
                rest = args[0][SEGMENT_MAX_BYTES:]
                link.held.appendleft(Packet(stream, callback, (rest,), len(rest), gap_s))
                args, size_bytes = (args[0][:SEGMENT_MAX_BYTES],), SEGMENT_MAX_BYTES
            link.free_at_s = now_s + (HEADER_BYTES + size_bytes) / link.bytes_per_s
            arrival_s = link.free_at_s + link.min_s + link.span_s * self.random() + gap_s
            if stream is not None:
                arrival_s = stream.last_arrival_s = max(arrival_s, stream.last_arrival_s)
            scheduler.deliver(arrival_s, callback, args)

    def _pump_again(self, link: Link) -> None:
        link.pumping = False
        self._pump(link)

    # -- faults

    def block(self, source: str, target: str) -> None:
        """Nothing gets from `source` to `target` any more, acknowledgements of the way back included,
        until every block has its heal."""
        if self.link(source, target).stop(self.scheduler.now):
            self._note("block", source, target)

    def heal(self, source: str, target: str) -> None:
        """Ends one block. After the last, what was held is retransmitted, each connection after its own
        delay."""
        link = self.link(source, target)
        since_s = link.blocked_since_s
        if since_s is not None and link.go():
            self._note("heal", source, target)
            self._let_go(source, target, min(RETRANSMIT_MAX_S, self.scheduler.now - since_s))

    def clog(self, source: str, target: str) -> None:
        """As `block`: a queue on the way is stuck."""
        if self.link(source, target).stop(self.scheduler.now):
            self._note("clog", source, target)

    def unclog(self, source: str, target: str) -> None:
        """Ends one clog. If nothing else holds the link, everything that was held comes at once."""
        if self.link(source, target).go():
            self._note("unclog", source, target)
            self._let_go(source, target, 0.0)

    def _let_go(self, source: str, target: str, backoff_max_s: float) -> None:
        link = self.link(source, target)
        waiting: dict[int, None] = {}
        for segment in link.held:
            stream = segment.stream
            if backoff_max_s and stream is not None and id(stream) not in waiting:
                waiting[id(stream)] = None
                retransmitted_s = self.scheduler.now + backoff_max_s * self.random()
                stream.last_arrival_s = max(stream.last_arrival_s, retransmitted_s)
        self._pump(link)
        receiver = self.kernels.get(source)
        if receiver is not None:
            receiver.acknowledge_to(target)

    def impair(self, source: str, target: str, impairment: Impairment) -> None:
        """Something is wrong with a link, until `relieve` with an equal impairment."""
        self.link(source, target).impair(impairment)

    def relieve(self, source: str, target: str, impairment: Impairment | None = None) -> None:
        """Ends one impairment, or all. What waited for its turn goes at once if the link has its speed
        back."""
        link = self.link(source, target)
        link.relieve(impairment)
        self._pump(link)

    def partition(self, left: list[str], right: list[str]) -> None:
        """Blocks both directions between every host of `left` and every host of `right`."""
        for a in left:
            for b in right:
                self.block(a, b)
                self.block(b, a)

    def heal_all(self) -> None:
        """Ends every block, clog and impairment of every link."""
        for (source, target), link in list(self._links.items()):
            self.relieve(source, target)
            for _ in range(link.stops):
                self.heal(source, target)

    def reset(self, a: str, b: str) -> int:
        """Every connection between two hosts fails on both sides, as by a middlebox. Returns how many."""
        self._note("reset", a, b)
        kernel = self.kernels.get(a)
        return 0 if kernel is None else kernel.reset_connections(b)

    def silence(self, a: str, b: str, give_up_s: tuple[float, float]) -> int:
        """Every connection between two hosts goes silent, in both directions and for good.

        Each end finds out when its retransmissions or keepalives were in vain for a time drawn from
        `give_up_s`. Returns how many connections there were.
        """
        self._note("silence", a, b)
        kernel = self.kernels.get(a)
        if kernel is None:
            return 0
        return kernel.silence_connections(b, lambda: self._rng.uniform(*give_up_s))

    def end_silence(self, a: str, b: str) -> None:
        """Whoever still waits on a silent connection between two hosts gives up now."""
        for address, far_address in ((a, b), (b, a)):
            kernel = self.kernels.get(address)
            if kernel is not None:
                kernel.give_up_silent_connections(far_address)

    def _note(self, *words: object) -> None:
        self.scheduler.trace.note(self.scheduler.now, *words)
