"""The connections between simulated voters: sessions that break, and messages that come late, twice or never.

Within a session the real transport keeps order; here a message may even be overtaken, as the driver's own
sequence numbers are to notice. A connection that breaks may be noticed late by one side. Owned by `quorum`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from kraft.chaos.quorum import counters
from kraft.chaos.quorum.settings import Settings
from kraft.chaos.world.scheduler import Scheduler
from quorum.raft.events import PeerConnected, PeerDisconnected, PeerMessage, RaftEvent, SendToPeer

Pair = tuple[int, int]
LATE_NOTICE_MAX_S = 0.6
CLOG_MAX_S = 1.0


class LinkedVoter(Protocol):
    """One voter, as the network sees it."""

    directory_id: bytes

    @property
    def is_up(self) -> bool: ...

    def post(self, event: RaftEvent) -> None: ...


class Links:
    """All pairs of voters."""

    def __init__(
        self,
        scheduler: Scheduler,
        rng: Random,
        settings: Settings,
        endpoints: dict[int, LinkedVoter],
        happened: Callable[[str], None],
    ) -> None:
        self._scheduler = scheduler
        self._rng = rng
        self._settings = settings
        self._endpoints = endpoints
        self._happened = happened
        self.calm = False
        self.slowness_s: dict[Pair, float] = {}
        """More delay from one voter to another, for directed stories."""
        self._up: set[Pair] = set()
        self._isolated_until_s: dict[int, float] = {}
        self._clogged_until_s: dict[Pair, float] = {}
        self._sessions: dict[Pair, int] = {}
        self._arrivals: dict[tuple[int, int, int], float] = {}

    def pairs(self) -> list[Pair]:
        ids = sorted(self._endpoints)
        return [(a, b) for a in ids for b in ids if a < b]

    def is_up(self, a: int, b: int) -> bool:
        return _pair(a, b) in self._up

    def connect(self, a: int, b: int) -> None:
        """Both sides learn of a new session; nothing happens if there is one or a side is down."""
        pair = _pair(a, b)
        if pair in self._up or not (self._endpoints[a].is_up and self._endpoints[b].is_up):
            return
        self._up.add(pair)
        for one, other in (pair, pair[::-1]):
            session = self._sessions[one, other] = self._scheduler.next_serial()
            # The handshake of two voters proves to each which disk the other has.
            self._endpoints[one].post(PeerConnected(other, session, self._endpoints[other].directory_id))

    def disconnect(self, a: int, b: int, *, late_side: int | None = None) -> None:
        """The connection is gone; `late_side` does not notice for a while."""
        pair = _pair(a, b)
        if pair not in self._up:
            return
        self._up.discard(pair)
        for one, other in (pair, pair[::-1]):
            event = PeerDisconnected(other, self._sessions[one, other])
            if one == late_side:
                delay_s = self._rng.uniform(0.05, LATE_NOTICE_MAX_S)
                self._scheduler.call_kernel(delay_s, self._endpoints[one].post, event)
            else:
                self._endpoints[one].post(event)

    def isolate(self, node_id: int, duration_s: float = 0.0) -> None:
        """Every connection of a voter breaks; none comes back for so long, unless all is calm before."""
        self._isolated_until_s[node_id] = self._scheduler.now + duration_s
        for a, b in self.pairs():
            if node_id in (a, b):
                self.disconnect(a, b)

    def _is_isolated(self, a: int, b: int) -> bool:
        return self._scheduler.now < max(self._isolated_until_s.get(node_id, 0.0) for node_id in (a, b))

    def disturb(self) -> None:
        """What may happen to each connection within one tick of the faults; when calm, all come up."""
        faults, rng = self._settings.faults, self._rng
        for a, b in self.pairs():
            if (a, b) not in self._up:
                if self.calm or (rng.random() < faults.reconnect and not self._is_isolated(a, b)):
                    self.connect(a, b)
            elif self.calm:
                continue
            elif rng.random() < faults.reset:
                self._happened(counters.LINK_CUT)
                late_side = rng.choice((a, b)) if rng.random() < faults.half_open else None
                if late_side is not None:
                    self._happened(counters.HALF_OPEN)
                self.disconnect(a, b, late_side=late_side)
            elif rng.random() < faults.clog:
                self._happened(counters.CLOGGED)
                way = rng.choice(((a, b), (b, a)))
                self._clogged_until_s[way] = self._scheduler.now + rng.uniform(0.1, CLOG_MAX_S)

    def send(self, sender: int, effect: SendToPeer) -> None:
        """Takes a message on its way, as the faults allow."""
        faults, rng, peer = self._settings.faults, self._rng, effect.peer_id
        if not self.is_up(sender, peer) or self._sessions[sender, peer] != effect.session:
            return
        if not self.calm and rng.random() < faults.drop:
            self._happened(counters.DROPPED)
            return
        copies = 1
        if not self.calm and rng.random() < faults.duplicate:
            self._happened(counters.DUPLICATED)
            copies = 2
        session = self._sessions[peer, sender]
        for _ in range(copies):
            self._carry(sender, peer, session, effect.data)

    def _carry(self, sender: int, peer: int, session: int, data: bytes) -> None:
        rng, now_s = self._rng, self._scheduler.now
        arrival_s = now_s + rng.choice(self._settings.delays_s) + self.slowness_s.get((sender, peer), 0.0)
        if not self.calm:
            arrival_s = max(arrival_s, self._clogged_until_s.get((sender, peer), 0.0))
        key = (sender, peer, session)
        newest_s = self._arrivals.get(key, 0.0)
        if self.calm or rng.random() >= self._settings.faults.overtake:
            arrival_s = max(arrival_s, newest_s)
        elif arrival_s < newest_s:
            self._happened(counters.OVERTAKEN)
        self._arrivals[key] = max(arrival_s, newest_s)
        self._scheduler.deliver(arrival_s, self._arrive, (peer, PeerMessage(sender, session, data)))

    def _arrive(self, peer: int, message: PeerMessage) -> None:
        current = self.is_up(peer, message.peer_id) and (
            self._sessions[peer, message.peer_id] == message.session
        )
        if current:
            self._endpoints[peer].post(message)
        elif self._rng.random() < self._settings.faults.late:
            self._happened(counters.STALE)
            self._endpoints[peer].post(message)


def _pair(a: int, b: int) -> Pair:
    return (a, b) if a < b else (b, a)
