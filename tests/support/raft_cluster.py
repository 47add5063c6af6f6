"""Voters of one quorum under virtual time: real drivers, a lossy network, disks that lose power.

One heap of events; everything random comes from one seed. The invariants are checked at every step:
applied prefixes are equal, an acknowledged proposal stays where it was acknowledged, a proposal that
was reported as not committed never shows up, no term has two leaders, nobody votes twice in a term, and
every voter comes back. A violation names its oracle.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable
from functools import partial
from random import Random

from kraft.chaos.world.disk import SimulatedDisk
from kraft.chaos.world.incarnation import Incarnation
from kraft.chaos.world.scheduler import Scheduler
from kraft.chaos.world.storage import Storage
from kraft.chaos.world.trace import Trace
from partitions.log.meta_properties import MetaProperties, write_meta_properties
from quorum.raft.config import RaftConfig
from quorum.raft.driver import RaftDriver
from quorum.raft.events import (
    NOT_COMMITTED,
    Committed,
    LeaderChanged,
    PeerConnected,
    PeerDisconnected,
    PeerMessage,
    ProposalOutcome,
    Propose,
    RaftEffect,
    RaftEvent,
    SendToPeer,
    TransferLeadership,
)
from quorum.raft.messages import decode_message
from quorum.raft.storage import RaftStorageError, open_partition_log
from tests.support.chain_machine import ChainMachine, Violation
from tests.support.raft_faults import CHANGES, MILD, Faults, PowerCut, Settings

__all__ = ["MILD", "Faults", "RaftCluster", "Settings", "Violation", "Voter"]


class Voter:
    """One voter: its disk lives on, its driver does not."""

    def __init__(self, cluster: RaftCluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.storage = Storage(Random(cluster.rng.getrandbits(64)))
        self.storage.make_dirs("/data")
        life = Incarnation(cluster.scheduler, f"voter-{node_id}", 0)
        identity = MetaProperties("cluster", node_id, f"directory-{node_id}")
        write_meta_properties(SimulatedDisk(self.storage, life, lambda low, high: low), "/data", identity)
        self.storage.sync_everything()
        self.life: Incarnation | None = None
        self.driver: RaftDriver | None = None
        self.inbox: list[RaftEvent] = []
        self.sessions: dict[int, int] = {}
        self.active = False
        self.stalled_until = 0.0
        self.due_at = 0.0
        self.steps = 0
        self.incarnation = 0
        self.applied = 0
        self.pending: dict[int, bytes] = {}
        self.operations_left: int | None = None

    def start(self) -> None:
        cluster, settings = self.cluster, self.cluster.settings
        self.incarnation += 1
        self.operations_left = None
        self.storage.before_operation = self._on_operation
        self.life = Incarnation(cluster.scheduler, f"voter-{self.node_id}", self.incarnation)
        config = RaftConfig(
            node_id=self.node_id,
            voters={voter: f"host:{voter}" for voter in cluster.ids},
            cluster_id="cluster",
            directory="/data",
            timing=settings.timing,
            snapshot_every_entries=settings.snapshot_every_entries,
            snapshot_chunk_bytes=settings.snapshot_chunk_bytes,
            append_bytes=settings.append_bytes,
        )
        self.applied = 1
        try:
            self.driver = self._open(config, self.life)
        except RaftStorageError as error:
            raise Violation(f"voter {self.node_id} cannot start: {error}", "halted") from error
        self.schedule(0.0)

    def _open(self, config: RaftConfig, life: Incarnation) -> RaftDriver:
        cluster, settings = self.cluster, self.cluster.settings
        return RaftDriver(
            config=config,
            disk=SimulatedDisk(self.storage, life, lambda low, high: low),
            clock=lambda: cluster.now_s,
            wall_ms=lambda: int(cluster.now_s * 1000),
            rng=Random(cluster.rng.getrandbits(64)),
            halt=self._halted,
            state_machine=ChainMachine(settings.padding_bytes),
            log_factory=cluster.log_factory,
        )

    def _on_operation(self, kind: str, path: str) -> None:
        if self.operations_left is not None and kind in CHANGES:
            self.operations_left -= 1
            if self.operations_left < 0:
                raise PowerCut(f"{kind} {path}")

    def _halted(self, reason: str) -> None:
        if self.operations_left is None or self.operations_left >= 0:
            raise Violation(f"voter {self.node_id} halted: {reason}", "halted")

    def crash(self, power_loss: bool) -> None:
        self.driver = None
        self.inbox.clear()
        self.pending.clear()
        self.active = False
        self.operations_left = None
        self.storage.before_operation = None
        if self.life is not None:
            self.life.end()
        if power_loss:
            self.storage.lose_power()

    def post(self, event: RaftEvent) -> None:
        if self.driver is not None:
            self.inbox.append(event)
            self.schedule(0.0)

    def schedule(self, delay_s: float) -> None:
        self.due_at = max(self.cluster.now_s + delay_s, self.stalled_until)
        self.cluster.at(self.due_at, self._wake, self.incarnation)

    def _wake(self, incarnation: int) -> None:
        if self.driver is None or incarnation != self.incarnation or self.cluster.now_s < self.due_at:
            return
        events, self.inbox = self.inbox, []
        self.steps += 1
        effects = self.driver.step(events)
        if self.operations_left is not None and self.operations_left < 0:
            self.cluster.crash(self, power_loss=True)
            return
        for effect in effects:
            self._take(effect)
        self.schedule(self.driver.tick_interval_s)

    def _take(self, effect: RaftEffect) -> None:
        cluster = self.cluster
        cluster.trace(self.node_id, effect)
        if isinstance(effect, SendToPeer):
            self._watch_votes(effect)
            cluster.send(self, effect)
        elif isinstance(effect, Committed):
            for entry in effect.entries:
                if entry.offset != self.applied + 1:
                    raise Violation(f"voter {self.node_id} hands out {entry.offset} after {self.applied}")
                self.applied = entry.offset
                cluster.committed_at(entry.offset, entry.epoch, entry.records[0] if entry.records else b"")
            cluster.image_at(self.node_id, *effect.image)
            self.applied = effect.image[0]
        elif isinstance(effect, LeaderChanged):
            self.active = effect.active
            if effect.leader_id == self.node_id:
                cluster.leads(self.node_id, effect.epoch)
                cluster.perhaps_crash_soon(self)
        elif isinstance(effect, ProposalOutcome):
            cluster.outcome(self.pending.pop(effect.request_id), effect)

    def _watch_votes(self, effect: SendToPeer) -> None:
        """A vote counts as given when it leaves; whoever asks for votes has given itself its own."""
        _, message = decode_message(effect.data)
        if message["type"] == "response_vote":
            self.cluster.voted(self.node_id, message["term"], effect.peer_id)
        elif message["type"] == "request_vote":
            self.cluster.voted(self.node_id, message["term"], self.node_id)

    def propose(self, data: bytes) -> None:
        request_id = self.cluster.next_serial()
        self.pending[request_id] = data
        self.post(Propose(request_id, data))


class RaftCluster:
    """All voters, the network between them, and the truth."""

    def __init__(self, seed: int, settings: Settings | None = None) -> None:
        self.seed = seed
        self.settings = settings or Settings()
        self.log_factory = partial(open_partition_log, segment_bytes=self.settings.segment_bytes)
        self.rng = Random(seed)
        self.now_s = 100.0
        self.scheduler = Scheduler(Trace())
        self.calm = False
        self._heap: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._serial = 0
        self._trace = hashlib.blake2b(digest_size=16)
        self.ids = list(range(1, self.settings.voters + 1))
        self.voters = {node_id: Voter(self, node_id) for node_id in self.ids}
        self.up: dict[tuple[int, int], bool] = {}
        self._arrivals: dict[tuple[int, int, int], float] = {}
        self.slowness_s: dict[tuple[int, int], float] = {}
        self.log: dict[int, tuple[int, bytes]] = {}
        self.chains: dict[int, bytes] = {}
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[int, int], int] = {}
        self.acknowledged: dict[int, bytes] = {}
        self.refused: set[bytes] = set()
        self.proposals = 0
        self.crashes = 0

    # -- scheduling

    def at(self, when_s: float, call: Callable[..., None], *arguments: object) -> None:
        heapq.heappush(self._heap, (when_s, self.next_serial(), call, arguments))

    def next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def run_until(self, when_s: float, done: Callable[[], bool] = lambda: False) -> bool:
        while self._heap and self._heap[0][0] <= when_s:
            self.now_s, _, call, arguments = heapq.heappop(self._heap)
            call(*arguments)
            if done():
                return True
        self.now_s = when_s
        return done()

    def trace(self, node_id: int, effect: RaftEffect) -> None:
        """Sees every effect; the trace's hash is the run's fingerprint."""
        self._trace.update(f"{self.now_s:.9f} {node_id} {effect!r}\n".encode())

    @property
    def trace_hash(self) -> str:
        return self._trace.hexdigest()

    # -- network

    def connect(self, a: int, b: int) -> None:
        if not self.up.get((a, b)) and self.voters[a].driver and self.voters[b].driver:
            self.up[a, b] = True
            for one, other in ((a, b), (b, a)):
                session = self.voters[one].sessions[other] = self.next_serial()
                self.voters[one].post(PeerConnected(other, session))

    def disconnect(self, a: int, b: int) -> None:
        if self.up.get((a, b)):
            self.up[a, b] = False
            for one, other in ((a, b), (b, a)):
                self.voters[one].post(PeerDisconnected(other, self.voters[one].sessions[other]))

    def pairs(self) -> list[tuple[int, int]]:
        return [(a, b) for a in self.ids for b in self.ids if a < b]

    def send(self, sender: Voter, effect: SendToPeer) -> None:
        faults, rng, peer_id = self.settings.faults, self.rng, effect.peer_id
        link = (min(sender.node_id, peer_id), max(sender.node_id, peer_id))
        if not self.up.get(link) or sender.sessions[peer_id] != effect.session:
            return
        session = self.voters[peer_id].sessions[sender.node_id]
        if not self.calm and rng.random() < faults.drop:
            return
        copies = 2 if not self.calm and rng.random() < faults.duplicate else 1
        for _ in range(copies):
            arrival = self.now_s + rng.choice((0.001, 0.002, 0.005, 0.02, 0.05, 0.15))
            arrival += self.slowness_s.get((sender.node_id, peer_id), 0.0)
            key = (sender.node_id, peer_id, session)
            if self.calm or rng.random() >= faults.reorder:
                arrival = self._arrivals[key] = max(arrival, self._arrivals.get(key, 0.0))
            self.at(arrival, self._arrive, link, PeerMessage(sender.node_id, session, effect.data), peer_id)

    def _arrive(self, link: tuple[int, int], message: PeerMessage, peer_id: int) -> None:
        voter = self.voters[peer_id]
        current = self.up.get(link) and voter.sessions.get(message.peer_id) == message.session
        if current or self.rng.random() < self.settings.faults.late:
            voter.post(message)

    # -- faults

    def crash(self, voter: Voter, power_loss: bool) -> None:
        self.crashes += 1
        for a, b in self.pairs():
            if voter.node_id in (a, b):
                self.disconnect(a, b)
        voter.crash(power_loss)
        self.at(self.now_s + self.rng.random() * 1.5, self._restart, voter)

    def perhaps_crash_soon(self, voter: Voter) -> None:
        odds, rng = self.settings.faults.crash_new_leader, self.rng
        if odds and not self.calm and rng.random() < odds:
            self.at(self.now_s + rng.uniform(0.002, 0.1), self._crash_if, voter, voter.incarnation)

    def _crash_if(self, voter: Voter, incarnation: int) -> None:
        if voter.driver is not None and voter.incarnation == incarnation and not self.calm:
            self.crash(voter, power_loss=False)

    def _restart(self, voter: Voter) -> None:
        if voter.driver is None:
            voter.start()

    def _disturb(self) -> None:
        faults, rng = self.settings.faults, self.rng
        for a, b in self.pairs():
            if not self.calm and rng.random() < faults.cut_link:
                self.disconnect(a, b)
            elif self.calm or rng.random() < faults.heal_link:
                self.connect(a, b)
        for voter in self.voters.values():
            if voter.driver is None or self.calm:
                continue
            if voter.active and rng.random() < faults.propose:
                for _ in range(rng.choice((1, 1, 1, 3, 8))):
                    self.proposals += 1
                    voter.propose(b"%d:" % self.proposals + bytes(rng.choice((5, 40, 90))))
            if rng.random() < faults.crash:
                self.crash(voter, rng.random() < faults.power_loss)
            elif rng.random() < faults.crash_in_step:
                voter.operations_left = rng.randrange(12)
            elif rng.random() < faults.stall:
                voter.stalled_until = self.now_s + rng.random() * 0.8
            elif rng.random() < faults.transfer:
                voter.post(TransferLeadership())
        self.at(self.now_s + 0.01, self._disturb)

    # -- the truth

    def committed_at(self, offset: int, epoch: int, data: bytes) -> None:
        known = self.log.setdefault(offset, (epoch, data))
        if known != (epoch, data):
            raise Violation(f"offset {offset} is {(epoch, data[:20])}, and was {known[0], known[1][:20]}")

    def image_at(self, node_id: int, offset: int, chain: bytes) -> None:
        if self.chains.setdefault(offset, chain) != chain:
            raise Violation(f"voter {node_id} has another image at offset {offset}")

    def leads(self, node_id: int, epoch: int) -> None:
        if self.leaders.setdefault(epoch, node_id) != node_id:
            raise Violation(
                f"voters {node_id} and {self.leaders[epoch]} both lead in epoch {epoch}",
                "one-controller-per-epoch",
            )

    def voted(self, node_id: int, term: int, candidate_id: int) -> None:
        first = self.votes.setdefault((node_id, term), candidate_id)
        if first != candidate_id:
            raise Violation(
                f"voter {node_id} voted for {first} and for {candidate_id} in term {term}", "vote-once"
            )

    def outcome(self, data: bytes, effect: ProposalOutcome) -> None:
        if effect.error is None:
            assert effect.offset is not None
            self.acknowledged[effect.offset] = data
        elif effect.error == NOT_COMMITTED:
            self.refused.add(data)

    # -- a whole run

    def start(self) -> None:
        for voter in self.voters.values():
            voter.start()
        for a, b in self.pairs():
            self.connect(a, b)

    def leader(self) -> Voter | None:
        active = [voter for voter in self.voters.values() if voter.active]
        return active[0] if len(active) == 1 else None

    def run(self) -> None:
        """Faults for a while, then calm; checks at the end that everything has come together."""
        settings = self.settings
        self.start()
        self.at(self.now_s, self._disturb)
        self.run_until(self.now_s + settings.virtual_s)
        self.calm = True
        for voter in self.voters.values():
            voter.operations_left = None
        self.run_until(self.now_s + settings.calm_s)
        self.check_converged()

    def check_converged(self) -> None:
        leader = self.leader()
        if leader is None:
            raise Violation("no single leader after the faults stopped", "liveness")
        leader.propose(b"last")
        self.run_until(self.now_s + 2.0)
        ends = {voter.applied for voter in self.voters.values()}
        if len(ends) != 1 or self.acknowledged.get(max(ends)) != b"last":
            raise Violation(f"the voters did not come together: {sorted(ends)}", "liveness")
        for offset, data in self.acknowledged.items():
            if self.log[offset][1] != data:
                raise Violation(f"the acknowledged proposal at offset {offset} is gone")
        committed = {data for _, data in self.log.values()}
        if committed & self.refused:
            raise Violation("a proposal that was reported as not committed was committed")
