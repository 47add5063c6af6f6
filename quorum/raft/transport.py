"""The transport between the library and its peers: sessions, and the checks that make Raft safe.

Guarantees, where the library as shipped loses acknowledged entries or commits wrong ones:
- a message of an older session, a duplicate or a straggler is dropped;
- acknowledgements carry their term; one of another term counts for nothing, and a later term in any message deposes
  this node;
- a vote counts once for each (term, voter), and only from a directory that counts (`voters.py`);
- a follower commits no further than this very message proved to match the leader's log;
- a follower that is asked to resend asks from its committed end; a leader resends nothing that is acknowledged;
- an acknowledgement says where the follower's log ends. A leader so notices a voter that has forgotten entries that
  it acknowledged (an older copy of its folder took the folder's place) and tells it. Its promises are void: it ends
  for good, and comes back only as a new directory;
- a snapshot that is no news is refused for the whole transfer; an installed one acknowledges itself and nothing
  behind it.
The transport only collects messages (`outbox`). The driver sends them after the sync that they wait for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from quorum.raft.compat import Transport, World
from quorum.raft.events import SendToPeer
from quorum.raft.halting import Halting
from quorum.raft.messages import (
    Message,
    MessageRefusedError,
    SnapshotChunk,
    decode_message,
    encode_message,
)
from quorum.raft.node import PeerNode, RaftNode
from quorum.raft.pre_vote import PreVote
from quorum.raft.transfer import SnapshotTransfer
from quorum.raft.voters import VoterBook

PROMISES = frozenset({"next_node_idx", "request_vote", "response_vote"})
"""Messages that promise something: term, vote and log are durable before they leave."""
_NEVER_SENT = frozenset({"apply_command", "apply_command_response", "timeout_now"})


@dataclass
class _Link:
    """The live session with one peer."""

    peer: PeerNode
    session: int
    directory_id: bytes
    sent: int = 0
    received: int = 0


class QuorumTransport(Transport):  # type: ignore[misc]  # the library has no types
    """All peers of one voter."""

    def __init__(
        self,
        peers: list[PeerNode],
        world: World,
        pre_vote: PreVote,
        book: VoterBook,
        transfer: SnapshotTransfer,
        halting: Halting,
        void: Callable[[int, int], None],
    ) -> None:
        """`void(leader, index)` ends a voter whose log ends before an index that it acknowledged to the leader."""
        super().__init__(None, None, peers)
        self._peers = {int(peer.id): peer for peer in peers}
        self._world = world
        self._pre_vote = pre_vote
        self._book = book
        self._transfer = transfer
        self._halting = halting
        self._void = void
        self._node: RaftNode | None = None
        self._links: dict[int, _Link] = {}
        self._newest_session = dict.fromkeys(self._peers, -1)
        self._votes: tuple[int, dict[int, bytes]] = (0, {})
        self._acknowledge_at_most: int | None = None
        self._installing_term = -1
        self._handlers: dict[str, Callable[[PeerNode, Message], None]] = {
            "request_vote": lambda peer, message: self.node.deliver(peer, message),
            "response_vote": self._on_response_vote,
            "append_entries": self._on_append_entries,
            "next_node_idx": self._on_next_node_idx,
            "pre_vote": self._on_pre_vote,
            "response_pre_vote": self._on_response_pre_vote,
            "take_leadership": self._on_take_leadership,
            "forgotten": self._on_forgotten,
        }
        self.outbox: list[SendToPeer] = []
        self.outbox_promises = False
        self.dropped_messages = 0
        self.refused_messages = 0
        self.leader_commit_index = 0
        """The newest that a leader has told."""

    def attach(self, node: RaftNode) -> None:
        """Gives the transport its node: each needs the other, and the node is made second."""
        self._node = node

    @property
    def node(self) -> RaftNode:
        assert self._node is not None
        return self._node

    # -- sessions

    def connected(self, peer_id: int, session: int, directory_id: bytes) -> None:
        """A new session; an older one of the same peer ends with it."""
        peer = self._peers.get(peer_id)
        if peer is None or session <= self._newest_session[peer_id]:
            return
        if peer_id in self._links:
            self.disconnected(peer_id, self._links[peer_id].session)
        self._newest_session[peer_id] = session
        self._links[peer_id] = _Link(peer, session, directory_id)
        self._onNodeConnected(peer)
        self.node.ask_if_waiting(peer)

    def disconnected(self, peer_id: int, session: int) -> None:
        """Ends a session: the messages on their way to the peer are sent again in the next one."""
        link = self._links.get(peer_id)
        if link is None or link.session != session:
            return
        del self._links[peer_id]
        self._onNodeDisconnected(link.peer)
        self._transfer.cancelTransmisstion(link.peer)
        if self.node.leader_id() == peer_id:
            self._pre_vote.lost_leader()
            self.node.hasten_election()

    def linked(self) -> list[tuple[PeerNode, bytes]]:
        """The peers that are linked now, and the directories that they have proved to be theirs."""
        return [(link.peer, link.directory_id) for link in self._links.values()]

    def match_index(self, peer_id: int) -> int:
        """The index through which the linked peer's log equals this leader's, counted or not; 0: unknown."""
        link = self._links.get(peer_id)
        return 0 if link is None else self.node.match_of(link.peer, link.directory_id)

    def receive(self, peer_id: int, session: int, data: bytes) -> None:
        """Takes bytes from a peer. Old, duplicate and malformed messages are counted and dropped."""
        link = self._links.get(peer_id)
        if link is None or link.session != session:
            self.dropped_messages += 1
            return
        try:
            sequence, message = decode_message(data)
        except MessageRefusedError:
            self.refused_messages += 1
            return
        if sequence <= link.received:
            self.dropped_messages += 1
            return
        link.received = sequence
        self.node.follow_log()
        self._handlers[message["type"]](link.peer, message)

    # -- sending

    def send(self, node: PeerNode, message: Message) -> bool:
        """Collects a message of the library or of this layer; false if there is no link."""
        link = self._links.get(int(node.id))
        kind = message["type"]
        if link is None or kind in _NEVER_SENT:
            return False
        if kind == "next_node_idx":
            message = self._checked_acknowledgement(message)
        elif "transmission" in message:
            self._halting.halt("the Raft library cut an entry into pieces, though entries are limited")
        if kind in PROMISES:
            self.outbox_promises = True
        link.sent += 1
        self.outbox.append(SendToPeer(int(node.id), link.session, encode_message(link.sent, message)))
        if message.get("serialized") is not None and self._transfer.must_wait(node):
            self.node.hold_back(node)
        return True

    def take_outbox(self) -> list[SendToPeer]:
        outbox, self.outbox, self.outbox_promises = self.outbox, [], False
        return outbox

    def _checked_acknowledgement(self, message: Message) -> Message:
        node = self.node
        index = message["next_node_idx"]
        if message["reset"] and not message["success"]:
            index = min(index, max(node.commit_index(), node.last_applied()) + 1)
        if self._acknowledge_at_most is not None:
            index = min(index, self._acknowledge_at_most + 1)
        return {**message, "term": node.term(), "next_node_idx": index, "log_end": node.log_end()}

    def _answer(self, peer: PeerNode, *, reset: bool, chunk: SnapshotChunk | None = None) -> None:
        """Tells a leader where this log stands (`reset`: send from there) and how much of its snapshot is here, and
        acknowledges nothing."""
        index = self.node.last_applied() + 1 if reset else self.node.log_end() + 1
        answer = {"type": "next_node_idx", "next_node_idx": index, "reset": reset, "success": False}
        if chunk is not None:
            answer["snapshot_index"] = chunk.last_index
            answer["snapshot_bytes"] = self._transfer.incoming.received_bytes(int(peer.id), chunk)
        self.send(peer, answer)

    # -- elections

    def _on_response_vote(self, peer: PeerNode, message: Message) -> None:
        """Keeps votes back until they suffice: for the library, a majority always does."""
        directory_id = self._links[int(peer.id)].directory_id
        if message["term"] != self.node.term() or not self._book.counts(int(peer.id), directory_id):
            return
        if self._votes[0] != message["term"]:
            self._votes = (message["term"], {})
        votes = self._votes[1]
        if peer.id not in votes:
            votes[int(peer.id)] = directory_id
            if 1 + len(votes) == self._book.quorum:
                for voter in votes:
                    self.node.deliver(self._peers[voter], message)

    def voted_for_me(self) -> dict[int, bytes]:
        """The peers that voted for this node in its term, and with which directory."""
        term, votes = self._votes
        return dict(votes) if term == self.node.term() else {}

    def _on_pre_vote(self, peer: PeerNode, message: Message) -> None:
        node = self.node
        if message["term"] > node.term():
            node.adopt_term(message["term"])
        good_log = (message["last_log_term"], message["last_log_index"]) >= (
            node.log_end_term(),
            node.log_end(),
        )
        granted = (
            good_log
            and message["term"] == node.term()
            and not node.is_leader()
            and not self._pre_vote.leader_is_live(self._world.now())
        )
        if granted and int(peer.id) > node.node_id():
            # Two voters that asked each other at once would both stand and split the votes, so one gives way.
            self._pre_vote.give_way()
        answer = {
            "type": "response_pre_vote",
            "term": node.term(),
            "round": message["round"],
            "granted": granted,
        }
        self.send(peer, answer)

    def _on_response_pre_vote(self, peer: PeerNode, message: Message) -> None:
        if message["term"] > self.node.term():
            self.node.adopt_term(message["term"])
        elif message["term"] == self.node.term():
            counts = self._book.counts(int(peer.id), self._links[int(peer.id)].directory_id)
            self._pre_vote.answered(message["round"], int(peer.id), granted=message["granted"], counts=counts)

    def _on_take_leadership(self, peer: PeerNode, message: Message) -> None:
        node = self.node
        if message["term"] == node.term() and node.leader_id() == peer.id and not node.is_leader():
            self._pre_vote.order_election(message["term"])

    def hand_over_leadership(self) -> bool:
        """A leader asks its most caught-up connected peer to take over; false if none is caught up."""
        node = self.node
        if not node.is_leader():
            return False
        ready = [peer for peer in node.connected_peers() if node.match_index(peer) == node.log_end()]
        return bool(ready) and self.send(ready[0], {"type": "take_leadership", "term": node.term()})

    # -- the log

    def _on_append_entries(self, peer: PeerNode, message: Message) -> None:
        node = self.node
        if message["term"] < node.term():
            self._answer(peer, reset=False)
            return
        if message["term"] == node.term() and node.is_leader():
            self._halting.halt(f"voters {node.node_id()} and {peer.id} both lead in epoch {node.term()}")
        self._pre_vote.heard_leader(self._world.now())
        self.leader_commit_index = max(self.leader_commit_index, message["commit_index"])
        if "entries" not in message:
            self._on_snapshot_chunk(peer, message)
        elif self._is_installing_of(peer, message["term"]):
            self._beat(peer, message)
            self._answer(peer, reset=False)
        else:
            proved = message["prevLogIdx"] + len(message["entries"])
            message["commit_index"] = min(message["commit_index"], proved)
            node.deliver(peer, message)

    def _on_snapshot_chunk(self, peer: PeerNode, message: Message) -> None:
        node, chunk = self.node, message["serialized"]
        self._transfer.incoming.forget_through(node.last_applied())
        if chunk is None:
            self._beat(peer, message)
            return
        is_news = chunk.last_index > node.last_applied()
        state = self._transfer.incoming.receive(int(peer.id), chunk) if is_news else False
        if state:
            self._installing_term = message["term"]
            if self._transfer.incoming.read_on():
                self._install(peer, message["term"], chunk.last_index)
                return
        self._beat(peer, message)
        reset = state is False and (chunk.is_first or chunk.is_last)
        self._answer(peer, reset=reset, chunk=chunk if is_news else None)

    def _beat(self, peer: PeerNode, message: Message) -> None:
        """Takes from a leader's message only that it leads."""
        beat = {
            "type": "append_entries",
            "term": message["term"],
            "commit_index": min(message["commit_index"], self.node.commit_index()),
            "serialized": None,
        }
        self.node.deliver(peer, beat)

    def install_on(self) -> None:
        """Takes one step of reading the arrived snapshot, if there is one, and installs it after the last.

        It stops once another node leads, which sends its own snapshot, or once the log reaches as far. In the same
        leader's next term it begins anew, with the bytes that are here."""
        node, incoming = self.node, self._transfer.incoming
        incoming.forget_abandoned()
        arrival = incoming.arrival
        if arrival is None:
            return
        peer = self._peers[arrival.peer_id]
        if arrival.last_index <= node.last_applied():
            incoming.forget_arrival()
        elif not self._is_installing_of(peer, node.term()):
            incoming.put_back()
        elif incoming.read_on():
            self._install(peer, node.term(), arrival.last_index)

    def _is_installing_of(self, peer: PeerNode, term: int) -> bool:
        """Whether this leader's snapshot is being read: entries are useless until it is installed."""
        arrival = self._transfer.incoming.arrival
        return (
            arrival is not None
            and arrival.peer_id == peer.id == self.node.leader_id()
            and term == self._installing_term == self.node.term()
        )

    def _install(self, peer: PeerNode, term: int, last_index: int) -> None:
        install = {"type": "append_entries", "term": term, "commit_index": last_index, "serialized": True}
        self._acknowledge_at_most = last_index
        try:
            self.node.deliver(peer, install)
        finally:
            self._acknowledge_at_most = None

    def _on_next_node_idx(self, peer: PeerNode, message: Message) -> None:
        node = self.node
        if message["term"] > node.term():
            node.adopt_term(message["term"])
            return
        acknowledged = message["next_node_idx"] - 1
        if message["term"] < node.term() or not node.is_leader():
            return
        if message["success"] and acknowledged > node.log_end():
            self.refused_messages += 1
            return
        in_flight = node.next_index(peer)
        directory_id = self._links[int(peer.id)].directory_id
        promised = node.match_of(peer, directory_id)
        if message["log_end"] < promised:
            self.send(peer, {"type": "forgotten", "term": node.term(), "acknowledged": promised})
            return
        if not message["success"]:
            self._transfer.chunk_answered(
                peer, message.get("snapshot_index"), message.get("snapshot_bytes", 0)
            )
        if message["reset"]:
            self._transfer.cancelTransmisstion(peer)
            first = max(message["next_node_idx"], promised + 1, 2)
            message["next_node_idx"] = min(first, node.log_end() + 1)
        node.acknowledge(peer, directory_id, message)
        if not message["reset"]:
            node.raise_next_index(peer, in_flight)

    def _on_forgotten(self, peer: PeerNode, message: Message) -> None:
        node = self.node
        if (
            message["term"] == node.term()
            and node.leader_id() == peer.id
            and node.log_end() < message["acknowledged"]
        ):
            self._void(int(peer.id), message["acknowledged"])
