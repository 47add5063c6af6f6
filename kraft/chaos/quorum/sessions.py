"""The connections between simulated voters, over the links of `kraft.chaos.world.network`.

A message, not a segment, is what a link carries, and what may be lost, doubled, overtaken or come after its session.
TCP does none of that, but it is what a voter's guards against doubled votes and words of older sessions are for: with
sound messages nobody notices that they are missing. Whatever a fault does to a link or a machine happens to sessions as
to connections: they are reset, fall silent, or wait for the end of a block, and end if that takes long. Owned by
`quorum`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from random import Random
from typing import Protocol

from kraft.chaos.quorum import counters
from kraft.chaos.quorum.settings import SOUND, MessageOdds
from kraft.chaos.world.host import Host
from kraft.chaos.world.kernel import Kernel
from kraft.chaos.world.network import Network
from quorum.raft.events import PeerConnected, PeerDisconnected, PeerMessage, RaftEvent, SendToPeer

Pair = tuple[int, int]
TICK_S = 0.01
LATE_NOTICE_S = (0.05, 0.6)
"""After a power loss, until the peer knows."""
CONNECT_ODDS, GIVE_UP_ODDS = 0.1, 0.03
"""Per tick: that two voters connect, that a session over a blocked link ends."""


class LinkedVoter(Protocol):
    """One voter, as its sessions see it."""

    @property
    def host(self) -> Host: ...

    @property
    def directory_id(self) -> bytes: ...

    @property
    def is_up(self) -> bool: ...

    def post(self, event: RaftEvent) -> None: ...


class _Way:
    """One direction of a session."""

    def __init__(self, session: int) -> None:
        self.session = session
        """The receiver's name for it."""
        self.last_arrival_s = 0.0
        self.sent = 0
        self.newest = 0
        """The number of the newest message that has arrived."""


class VoterKernel(Kernel):
    """The kernel of a voter's machine: its connections are the voter's sessions."""

    def __init__(self, network: Network, address: str, node_id: int, sessions: Sessions) -> None:
        super().__init__(network, address)
        self._node_id = node_id
        self._sessions = sessions

    def _id_of(self, address: str) -> int:
        kernel = self.network.kernels[address]
        assert isinstance(kernel, VoterKernel)
        return kernel._node_id

    def peers(self) -> list[str]:
        return [self._sessions.voters[peer].host.address for peer in self._sessions.peers_of(self._node_id)]

    def reset_connections(self, far_address: str) -> int:
        return self._sessions.disconnect(self._node_id, self._id_of(far_address))

    def silence_connections(self, far_address: str, draw_give_up_s: Callable[[], float]) -> int:
        return self._sessions.disconnect(self._node_id, self._id_of(far_address), draw_give_up_s)

    def process_killed(self) -> None:
        for peer in self._sessions.peers_of(self._node_id):
            self._sessions.disconnect(self._node_id, peer)

    def power_lost(self) -> None:
        super().power_lost()
        for peer in self._sessions.peers_of(self._node_id):
            self._sessions.disconnect(self._node_id, peer, self._sessions.draw_late_notice_s)


class Sessions:
    """All pairs of voters."""

    def __init__(
        self,
        network: Network,
        rng: Random,
        odds: MessageOdds,
        voters: dict[int, LinkedVoter],
        happened: Callable[[str], None],
    ) -> None:
        self.voters = voters
        self.connect_odds = CONNECT_ODDS
        self._network = network
        self._rng = rng
        self._odds = odds
        self._happened = happened
        self._up: dict[Pair, None] = {}
        self._ways: dict[Pair, _Way] = {}
        """Sender and receiver: the newest session, also after its end."""
        self._links = {
            (a, b): network.link(voters[a].host.address, voters[b].host.address)
            for a in voters
            for b in voters
            if a != b
        }
        self.pairs: list[Pair] = list(combinations(sorted(voters), 2))
        self._both_ways = [((a, b), self._links[a, b], self._links[b, a]) for a, b in self.pairs]

    def peers_of(self, node_id: int) -> list[int]:
        """With whom the voter has a session, as far as the network knows."""
        return [b if a == node_id else a for a, b in self._up if node_id in (a, b)]

    def calm_down(self) -> None:
        """No message is lost, doubled or overtaken any more, and all voters connect."""
        self._odds, self.connect_odds = SOUND, 1.0

    # -- life

    def connect(self, a: int, b: int) -> None:
        """Both sides learn of a new session; nothing happens if there is one or a side is down."""
        a, b = _pair(a, b)
        if (a, b) in self._up or not (self.voters[a].is_up and self.voters[b].is_up):
            return
        self._up[a, b] = None
        for sender, receiver in ((a, b), (b, a)):
            way = self._ways[sender, receiver] = _Way(self._network.scheduler.next_serial())
            # The handshake of two voters proves to each which disk the other has.
            event = PeerConnected(sender, way.session, self.voters[sender].directory_id)
            self.voters[receiver].post(event)

    def disconnect(self, a: int, b: int, draw_notice_s: Callable[[], float] | None = None) -> int:
        """The session is over, if there is one, and nothing of it arrives; each side knows at once, or after a time of
        its own. Returns how many sessions it was."""
        a, b = _pair(a, b)
        if (a, b) not in self._up:
            return 0
        del self._up[a, b]
        for sender, receiver in ((a, b), (b, a)):
            event = PeerDisconnected(sender, self._ways[sender, receiver].session)
            if draw_notice_s is None:
                self.voters[receiver].post(event)
            else:
                self._network.scheduler.call_kernel(draw_notice_s(), self.voters[receiver].post, event)
        return 1

    def draw_late_notice_s(self) -> float:
        return self._rng.uniform(*LATE_NOTICE_S)

    def tend(self) -> None:
        """One tick: voters connect, and give up sessions over links that are blocked."""
        for pair, there, back in self._both_ways:
            is_free = there.blocked_since_s is None and back.blocked_since_s is None
            if pair in self._up:
                if not is_free and self._rng.random() < GIVE_UP_ODDS:
                    self.disconnect(*pair, self.draw_late_notice_s)
            elif is_free and self._rng.random() < self.connect_odds:
                self.connect(*pair)

    # -- messages

    def send(self, sender: int, effect: SendToPeer) -> None:
        """Takes a message on its way, as the faults allow."""
        odds, rng, receiver = self._odds, self._rng, effect.peer_id
        back = self._ways.get((receiver, sender))
        if _pair(sender, receiver) not in self._up or back is None or back.session != effect.session:
            return
        if rng.random() < odds.drop:
            self._happened(counters.DROPPED)
            return
        copies = 1
        if rng.random() < odds.duplicate:
            self._happened(counters.DUPLICATED)
            copies = 2
        way = self._ways[sender, receiver]
        way.sent += 1
        message = PeerMessage(sender, way.session, effect.data)
        for _ in range(copies):
            stream = None if rng.random() < odds.overtake else way
            link = self._links[sender, receiver]
            self._network.transmit(link, stream, self._arrive, receiver, way, way.sent, message)

    def _arrive(self, receiver: int, way: _Way, number: int, message: PeerMessage) -> None:
        sender = message.peer_id
        if way is self._ways[sender, receiver] and _pair(sender, receiver) in self._up:
            if number < way.newest:
                self._happened(counters.OVERTAKEN)
            way.newest = max(way.newest, number)
            self.voters[receiver].post(message)
        elif self._rng.random() < self._odds.late:
            self._happened(counters.STALE)
            self.voters[receiver].post(message)


def _pair(a: int, b: int) -> Pair:
    return (a, b) if a < b else (b, a)
