"""pysyncobj as shipped, before the same judge as our drivers: what the layer above it is for.

No durable journal, no checks on messages, no pre-vote. Links deliver in order and lose what was in
flight when they are cut; nothing else is done to them.
"""

from __future__ import annotations

import heapq
from random import Random

from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.journal import MemoryJournal
from pysyncobj.transport import Transport

from kraft.chaos.quorum.judge import RaftJudge
from quorum.raft.compat import World, running
from quorum.raft.node import PeerNode

DELAYS_S = (0.001, 0.005, 0.02, 0.05, 0.15)


class PageCacheJournal(MemoryJournal):
    """Keeps what the library believes to be stored; a power loss takes what no fsync had covered.

    The library never syncs, so what survives is what the kernel wrote back by itself, now and then.
    """

    def __init__(self) -> None:
        super().__init__()
        self._written_back: tuple[list[tuple[bytes, int, int]], int, str | None] = ([], 0, None)

    def write_back(self) -> None:
        self._written_back = (self[:], self.getCurrentTerm(), self.getVotedForNodeId())

    def power_loss(self) -> None:
        entries, term, vote = self._written_back
        self.clear()
        for entry in entries:
            self.add(*entry)
        self.setCurrentTerm(term, vote)


class _Transport(Transport):
    def __init__(self, cluster: StockCluster, me: PeerNode, peers: list[PeerNode]) -> None:
        super().__init__(None, me, peers)
        self.peers = {peer.id: peer for peer in peers}
        self._cluster, self._me = cluster, me

    def send(self, node: PeerNode, message: dict) -> bool:
        sent = self._cluster.send(self._me.id, node.id, dict(message))
        if sent:
            self._cluster.promised(self._me.id, node.id, message)
        return sent

    def deliver(self, peer_id: int, message: dict) -> None:
        self._onMessageReceived(self.peers[peer_id], message)

    def link(self, peer_id: int, up: bool) -> None:
        (self._onNodeConnected if up else self._onNodeDisconnected)(self.peers[peer_id])


class _Voter(SyncObj):
    def __init__(self, cluster: StockCluster, node_id: int, journal: MemoryJournal) -> None:
        self.cluster = cluster
        me = PeerNode(node_id)
        peers = [PeerNode(other) for other in cluster.ids if other != node_id]
        self.transport_ = _Transport(cluster, me, peers)
        conf = SyncObjConf(
            autoTick=False,
            journalFile=journal,
            appendEntriesBatchSizeBytes=cluster.append_bytes,
            leaderFallbackTimeout=2.0,
            logCompactionMinEntries=cluster.snapshot_every_entries,
            logCompactionMinTime=1e9,
        )
        super().__init__(me, peers, conf, nodeClass=PeerNode, transport=self.transport_)

    def _SyncObj__doApplyCommand(self, command: bytes) -> int:
        index = self.raftLastApplied + 1
        log = self._SyncObj__raftLog
        self.cluster.applied(self, index, log[index - log[0][1]][2], command)
        return index

    @property
    def term(self) -> int:
        return self._SyncObj__raftCurrentTerm

    @property
    def log(self) -> MemoryJournal:
        return self._SyncObj__raftLog


class StockCluster:
    """Runs for a while under cut links, and crashes if asked; raises Violation on the way or at the end."""

    def __init__(
        self,
        seed: int,
        *,
        append_bytes: int = 120,
        snapshot_every_entries: int = 10**9,
        power_loss: bool = False,
        judge: RaftJudge | None = None,
    ) -> None:
        self.judge = judge or RaftJudge()
        self.ids = [1, 2, 3]
        self.append_bytes = append_bytes
        self.snapshot_every_entries = snapshot_every_entries
        self._power_loss = power_loss
        self._rng = Random(seed)
        self._now_s = 100.0
        self._heap: list[tuple[float, int, int, int, int, dict]] = []
        self._serial = 0
        self._sessions: dict[tuple[int, int], int] = {}
        self._arrivals: dict[tuple[int, int], float] = {}
        self._proposals = 0
        self._journals = {node_id: PageCacheJournal() for node_id in self.ids}
        self._voters: dict[int, _Voter] = {}
        self._down: dict[int, float] = {}

    def run(self, virtual_s: float = 45.0, calm_s: float = 15.0) -> None:
        with running(World(lambda: self._now_s, self._rng)):
            for node_id in self.ids:
                self._start(node_id)
            end_s = self._now_s + virtual_s + calm_s
            while self._now_s < end_s:
                self._now_s += 0.01
                self._disturb(calm=self._now_s > end_s - calm_s)
                self._deliver()
                for node_id in self.ids:
                    if node_id in self._voters:
                        self._voters[node_id].doTick(0.0)
                        self._look_at(self._voters[node_id])

    # -- network

    def send(self, sender: int, receiver: int, message: dict) -> bool:
        session = self._sessions.get((min(sender, receiver), max(sender, receiver)))
        if session is None:
            return False
        self._serial += 1
        key = (sender, receiver)
        arrival_s = max(self._now_s + self._rng.choice(DELAYS_S), self._arrivals.get(key, 0.0))
        self._arrivals[key] = arrival_s
        heapq.heappush(self._heap, (arrival_s, self._serial, sender, receiver, session, message))
        return True

    def _deliver(self) -> None:
        while self._heap and self._heap[0][0] <= self._now_s:
            _, _, sender, receiver, session, message = heapq.heappop(self._heap)
            if self._sessions.get((min(sender, receiver), max(sender, receiver))) == session:
                self._voters[receiver].transport_.deliver(sender, message)

    def _connect(self, a: int, b: int) -> None:
        if (a, b) not in self._sessions and a in self._voters and b in self._voters:
            self._serial += 1
            self._sessions[a, b] = self._serial
            self._voters[a].transport_.link(b, True)
            self._voters[b].transport_.link(a, True)

    def _disconnect(self, a: int, b: int) -> None:
        if self._sessions.pop((a, b), None) is not None:
            self._voters[a].transport_.link(b, False)
            self._voters[b].transport_.link(a, False)

    # -- faults and work

    def _start(self, node_id: int) -> None:
        journal = self._journals[node_id]
        voter = self._voters[node_id] = _Voter(self, node_id, journal)
        self.judge.restarted(node_id, journal.getCurrentTerm(), journal.getVotedForNodeId(), voter.log)

    def _disturb(self, calm: bool) -> None:
        rng = self._rng
        for a, b in ((1, 2), (1, 3), (2, 3)):
            if not calm and rng.random() < 0.004:
                self._disconnect(a, b)
            elif rng.random() < (1.0 if calm else 0.03):
                self._connect(a, b)
        for node_id in self.ids:
            if rng.random() < 0.02:
                self._journals[node_id].write_back()
        if self._power_loss and not calm and not self._down and rng.random() < 0.004:
            self._crash(rng.choice(self.ids))
        for node_id in [node_id for node_id, until_s in self._down.items() if calm or self._now_s > until_s]:
            del self._down[node_id]
            self._start(node_id)
        for node_id in sorted(self._voters):
            voter = self._voters[node_id]
            if not calm and voter._isLeader() and rng.random() < 0.3:
                self._propose(voter)

    def _crash(self, node_id: int) -> None:
        for a, b in ((1, 2), (1, 3), (2, 3)):
            if node_id in (a, b):
                self._disconnect(a, b)
        del self._voters[node_id]
        self._journals[node_id].power_loss()
        self._down[node_id] = self._now_s + self._rng.random() * 2

    def _propose(self, voter: _Voter) -> None:
        self._proposals += 1
        command = b"%d:" % self._proposals + bytes(self._rng.choice((5, 40, 90)))

        def outcome(index: int | None, error: int) -> None:
            if error == 0:
                self.judge.told_committed(index, self.judge.committed[index][1][:1] + command)

        voter._applyCommand(command, outcome, 0)

    # -- what the judge sees

    def promised(self, sender: int, receiver: int, message: dict) -> None:
        if message["type"] == "request_vote":
            self.judge.voted(sender, message["term"], sender)
        elif message["type"] == "response_vote":
            self.judge.voted(sender, message["term"], receiver)
        elif message["type"] == "next_node_idx" and message["success"]:
            self.judge.promised(sender, message["next_node_idx"] - 1, self._voters[sender].log)

    def _look_at(self, voter: _Voter) -> None:
        node_id = voter.selfNode.id
        self.judge.looked_at(node_id, voter.log)
        if voter._isLeader():
            self.judge.led(node_id, voter.term, voter.log)

    def applied(self, voter: _Voter, index: int, term: int, command: bytes) -> None:
        self.judge.applied(voter.selfNode.id, index, term, command, voter.term)
