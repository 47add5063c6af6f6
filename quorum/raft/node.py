"""pysyncobj's Raft node, with the hooks by which our layer looks into it and holds it back.

Guarantees: an election begins only after the pre-vote. Commands are raw bytes, applied with their index and term. New
entries and a new commit index leave in the same tick. All access to the library's private state is here, under plain
names. The driver owns the node, the transport uses it; every call happens inside the driver's world.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quorum.raft.applying import IsReady
from quorum.raft.compat import Journal, Node, SyncObj, SyncObjConf, Transport, World
from quorum.raft.config import RaftConfig
from quorum.raft.messages import PROPOSAL, Message
from quorum.raft.pre_vote import PreVote
from quorum.raft.progress import Progress
from quorum.raft.snapshot import Snapshot
from quorum.raft.transfer import SnapshotTransfer
from quorum.raft.voters import VoterBook

_FOLLOWER = 0
_AT_ONCE = float("-inf")
_NEVER = float("inf")
_NEVER_BY_ITSELF = 2**62


class PeerNode(Node):  # type: ignore[misc]  # the library has no types
    """A voter, known by its number; its hash is that number in every process."""

    def __init__(self, id: int, **properties: Any) -> None:
        super().__init__(id, **properties)
        self.number = int(id)

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, PeerNode) and self.number == other.number)

    def __str__(self) -> str:
        return str(self.id)


def library_conf(config: RaftConfig, journal: Journal) -> SyncObjConf:
    """The library's settings. Snapshots are the driver's decision, so its own triggers are off."""
    timing = config.timing
    return SyncObjConf(
        autoTick=False,
        journalFile=journal,
        fullDumpFile="unused",
        serializer=_refuse,
        deserializer=_refuse,
        raftMinTimeout=timing.election_min_s,
        raftMaxTimeout=timing.election_max_s,
        appendEntriesPeriod=timing.heartbeat_s,
        leaderFallbackTimeout=timing.leader_fallback_s,
        connectionTimeout=max(3.0, timing.election_max_s),
        connectionRetryTime=0.3,
        appendEntriesUseBatch=True,
        appendEntriesBatchSizeBytes=config.append_bytes,
        commandsWaitLeader=False,
        commandsQueueSize=1,
        dynamicMembershipChange=False,
        useFork=False,
        logCompactionMinEntries=_NEVER_BY_ITSELF,
        logCompactionMinTime=_NEVER_BY_ITSELF,
    )


def _refuse(*_: object) -> None:
    raise AssertionError("the library's own snapshot files are never used")


class RaftNode(SyncObj):  # type: ignore[misc]  # the library has no types
    """One voter."""

    _SyncObj__otherNodes: set[PeerNode]

    def __init__(
        self,
        identity: PeerNode,
        peers: list[PeerNode],
        conf: SyncObjConf,
        transport: Transport,
        transfer: SnapshotTransfer,
        world: World,
        pre_vote: PreVote,
        book: VoterBook,
        on_apply: Callable[[bytes, int, int], None],
        on_install: Callable[[Snapshot, Any], None],
        is_ready: IsReady,
        apply_bytes: int,
    ) -> None:
        self._world = world
        self._peers = sorted(peers, key=lambda peer: peer.number)
        self._pre_vote = pre_vote
        self._book = book
        self._progress = Progress(book)
        self._on_apply = on_apply
        self._on_install = on_install
        self._is_ready = is_ready
        self._apply_bytes = apply_bytes
        self._transfer = transfer
        self._sends = 0
        self._held_back: set[PeerNode] = set()
        self._sent_through = 0
        super().__init__(identity, peers, conf, nodeClass=PeerNode, transport=transport)
        self._SyncObj__serializer = transfer
        self._SyncObj__needLoadDumpFile = False
        if not peers:
            self._SyncObj__raftElectionDeadline = _AT_ONCE

    # -- one tick

    def tick(self) -> None:
        """Elects, commits, applies, sends heartbeats and the entries that this step's events added to the log."""
        self.follow_log()
        deadline = self._election_deadline()
        self._SyncObj__raftElectionDeadline = deadline if deadline == _AT_ONCE else _NEVER
        if self._isLeader() and (self._sent_through < self.log_end() or self._transfer.may_go_on):
            self._SyncObj__newAppendEntriesTime = _AT_ONCE
        commit_before = self.commit_index()
        sends_before = self._sends
        self._onTick(0.0)
        if self._SyncObj__raftElectionDeadline == _NEVER:
            self._SyncObj__raftElectionDeadline = deadline
        elif self._SyncObj__raftElectionDeadline == _AT_ONCE and self.peers():
            # No peer was connected any more, so the library did not stand. The consent was for this instant and
            # does not serve a later term.
            self._SyncObj__raftElectionDeadline = self._world.now() + self._SyncObj__generateRaftTimeout()
        if self._isLeader() and self.commit_index() > commit_before and self._sends == sends_before:
            self._SyncObj__sendAppendEntries()

    def _election_deadline(self) -> float:
        """When the library's election timeout expires: at once if an election may begin in this tick. A timeout
        that expires without the others' consent only asks for it and starts anew."""
        deadline = self.election_deadline_s()
        if self._isLeader() or not self.peers():
            return deadline
        if not self._book.counts_me:
            self._pre_vote.cancel()
        if self._pre_vote.passed(self.term()):
            self._pre_vote.cancel()
            return _AT_ONCE
        now = self._world.now()
        if deadline > now:
            return deadline
        self._ask_for_consent()
        return float(now + self._SyncObj__generateRaftTimeout())

    def _ask_for_consent(self) -> None:
        """Begins a pre-vote after a whole timeout without a leader; the leader is unknown from here on."""
        self._SyncObj__raftLeader = None
        if not self._book.counts_me:
            return
        self._pre_vote.begin(self.node_id(), self.term())
        for peer in self.connected_peers():
            self._ask(peer)

    def ask_if_waiting(self, peer: PeerNode) -> None:
        """Asks a peer whose link came up in the midst of a round: with its consent there may be a majority
        before another whole timeout passes."""
        if self._pre_vote.is_open(self.term()) and not self.is_leader():
            self._ask(peer)

    def _ask(self, peer: PeerNode) -> None:
        message = {
            "type": "pre_vote",
            "term": self.term(),
            "round": self._pre_vote.round,
            "last_log_index": self.log_end(),
            "last_log_term": self.log_end_term(),
        }
        self._SyncObj__transport.send(peer, message)

    def next_due_s(self, now_s: float) -> float:
        """Seconds until the library has something to do by itself."""
        if self.commit_index() > self.last_applied():
            return 0.0
        if self._isLeader():
            return float(self._SyncObj__newAppendEntriesTime) - now_s
        return self.election_deadline_s() - now_s

    def election_deadline_s(self) -> float:
        """When this node stands, or asks for consent to, unless it hears of a leader; on the world's clock."""
        return float(self._SyncObj__raftElectionDeadline)

    def follow_log(self) -> None:
        """Reads from the log which directories count; the library keeps the match index of those alone."""
        self._book.follow(self._SyncObj__raftLog)
        if self._isLeader():
            term, counted = self.term(), self._progress.counted
            for peer in self._peers:
                self._SyncObj__raftMatchIndex[peer] = counted(term, peer.number)

    # -- hooks of the library

    def _SyncObj__applyLogEntries(self) -> bool:
        """Applies committed entries, in one tick only as many as leave time for heartbeats."""
        committed, end = self.commit_index(), self.last_applied()
        size_bytes, limit_bytes = 0, self._apply_bytes
        while end < committed and size_bytes < limit_bytes:
            command, index, term = self._SyncObj__getEntries(end + 1, 1)[0]
            if len(command) > limit_bytes and (size_bytes or not self._is_ready(command, index, term)):
                break
            end, size_bytes = index, size_bytes + len(command)
        self._SyncObj__raftCommitIndex = end
        try:
            return bool(super()._SyncObj__applyLogEntries())
        finally:
            self._SyncObj__raftCommitIndex = committed

    def _SyncObj__doApplyCommand(self, command: bytes) -> None:
        index = self.last_applied() + 1
        log = self._SyncObj__raftLog
        self._on_apply(command, index, log[index - log[0][1]][2])

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:
        """Installs the snapshot that has arrived. The library's own way swallows every exception and
        drops the log behind the snapshot, acknowledged or not."""
        self.install(*self._transfer.take_arrival())

    def install(self, snapshot: Snapshot, state: Any) -> None:
        """Replaces the state by a durable snapshot's, at start or when one came from the leader."""
        self._on_install(snapshot, state)
        self._SyncObj__raftLog.join(snapshot.prev, snapshot.last)
        self._SyncObj__raftLastApplied = snapshot.last[1]

    def _SyncObj__sendAppendEntries(self) -> None:
        self._sends += 1
        self._sent_through = self.log_end()
        others, connected = self._SyncObj__otherNodes, self._SyncObj__connectedNodes
        waiting = [peer for peer in self.connected_peers() if self._transfer.must_wait(peer)]
        self._SyncObj__otherNodes = others - set(waiting)
        try:
            super()._SyncObj__sendAppendEntries()
        finally:
            self._SyncObj__otherNodes = others
            connected |= self._held_back
            self._held_back.clear()
        for peer in waiting:
            beat = {
                "type": "append_entries",
                "term": self.term(),
                "commit_index": self.commit_index(),
                "serialized": None,
            }
            self._SyncObj__transport.send(peer, beat)

    def hold_back(self, peer: PeerNode) -> None:
        """Ends this call's sending to a peer: the library sends as long as there is something, but not to a
        disconnected peer, so this one passes for disconnected until the call returns."""
        self._SyncObj__connectedNodes.discard(peer)
        self._held_back.add(peer)

    # -- calls of the layer around

    def deliver(self, peer: PeerNode, message: Message) -> None:
        """Hands a checked message to the library."""
        self._SyncObj__onMessageReceived(peer, message)

    def acknowledge(self, peer: PeerNode, directory_id: bytes, message: Message) -> None:
        """Takes a follower's acknowledgement. If its directory does not count, only the next index to send
        moves, neither the commit index nor this leader's lease."""
        if message["success"]:
            index = message["next_node_idx"] - 1
            self._progress.acknowledged(self.term(), int(peer.id), directory_id, index)
        if self._book.counts(int(peer.id), directory_id):
            self._SyncObj__onMessageReceived(peer, message)
        elif message["success"] or message["reset"]:
            self._SyncObj__raftNextIndex[peer] = message["next_node_idx"]

    def match_of(self, peer: PeerNode, directory_id: bytes) -> int:
        """The index through which a directory's log is known to equal this leader's, counted or not."""
        return self._progress.match(self.term(), int(peer.id), directory_id)

    def propose(self, proposal: bytes) -> int:
        """Appends a proposal to this leader's log and returns its index. Call only while leading."""
        assert self._isLeader()
        before = self.log_end()
        self._applyCommand(PROPOSAL + proposal, None)
        self.append_commands()
        assert self.log_end() == before + 1, "a leader appends at once"
        return before + 1

    def append_commands(self) -> None:
        """Appends the commands that the library was given, wherever they came from, to a leader's log."""
        self._checkCommandsToApply()

    def adopt_term(self, term: int) -> None:
        """Any message of a later term makes a voter a follower of that term (Raft, section 5.1)."""
        self._SyncObj__setCurrentTerm(term, None)
        self._SyncObj__setState(_FOLLOWER)
        self._SyncObj__raftLeader = None
        self._pre_vote.cancel()

    def hasten_election(self) -> None:
        """Shortens the election timeout after the link to the leader broke. Its random part stays, so that voters
        do not collide; the pre-vote protects a leader that lives."""
        soon = self._world.now() + self._SyncObj__generateRaftTimeout() - self.conf.raftMinTimeout
        self._SyncObj__raftElectionDeadline = min(self._SyncObj__raftElectionDeadline, soon)

    def begin_snapshot(self) -> None:
        """Begins a snapshot of the applied state."""
        self.forceLogCompaction()
        self._SyncObj__tryLogCompaction()

    def end_snapshot(self) -> None:
        """Cuts the log behind the snapshot that has become durable."""
        self._SyncObj__tryLogCompaction()

    def node_id(self) -> int:
        return int(self.selfNode.id)

    def peers(self) -> list[PeerNode]:
        """All other voters, in order; they stay the same for the life of the process."""
        return self._peers

    def connected_peers(self) -> list[PeerNode]:
        return [peer for peer in self.peers() if peer in self._SyncObj__connectedNodes]

    def is_leader(self) -> bool:
        return bool(self._isLeader())

    def leader_id(self) -> int | None:
        leader = self._getLeader()
        return None if leader is None else int(leader.id)

    def barrier_applied(self) -> bool:
        """Whether this leader has applied the first entry of its own term, hence all before it."""
        barrier = self._SyncObj__noopIDx
        return self.is_leader() and barrier is not None and self.last_applied() >= barrier

    def term(self) -> int:
        return int(self._SyncObj__raftCurrentTerm)

    def log_end(self) -> int:
        return int(self._SyncObj__raftLog[-1][1])

    def log_end_term(self) -> int:
        return int(self._SyncObj__raftLog[-1][2])

    def commit_index(self) -> int:
        return int(self._SyncObj__raftCommitIndex)

    def last_applied(self) -> int:
        return int(self._SyncObj__raftLastApplied)

    def match_index(self, peer: PeerNode) -> int:
        return int(self._SyncObj__raftMatchIndex.get(peer, 0))

    def next_index(self, peer: PeerNode) -> int:
        return int(self._SyncObj__raftNextIndex.get(peer, 1))

    def raise_next_index(self, peer: PeerNode, index: int) -> None:
        """Keeps an older acknowledgement from having entries in flight sent again."""
        self._SyncObj__raftNextIndex[peer] = max(index, self.next_index(peer))
