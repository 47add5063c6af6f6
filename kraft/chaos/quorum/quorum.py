"""All voters of a simulated quorum, the network between them, their faults, their operators and judges.

A kind of cluster for `kraft.chaos.faults`: its voters are machines of `kraft.chaos.world`. Everything random comes from
one seed, in streams of their own for each part; time is the scheduler's. The first broken promise ends the run with a
`Violation`. Made by `run`, or by a directed story that moves the sessions and voters itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import IO, Any

from crc32c import crc32c

from kraft.chaos.faults import FaultContext, strike
from kraft.chaos.node_folders import DATA
from kraft.chaos.quorum import counters
from kraft.chaos.quorum.controller import OnAnswer
from kraft.chaos.quorum.faults import KINDS, QuorumGuard
from kraft.chaos.quorum.judge import RaftJudge, Violation
from kraft.chaos.quorum.metadata_judge import MetadataJudge
from kraft.chaos.quorum.operators import BROKERS, Broker, Operator
from kraft.chaos.quorum.sessions import TICK_S, Sessions, VoterKernel
from kraft.chaos.quorum.settings import CALM_MAX_S, QuorumScenario, Settings
from kraft.chaos.quorum.voter import Voter
from kraft.chaos.verdict import Verdicts
from kraft.chaos.world.host import Host, Process
from kraft.chaos.world.scheduler import Scheduler
from kraft.chaos.world.simulation import Simulation
from quorum.metadata.image import MetadataImage
from quorum.raft.events import (
    Committed,
    LeaderChanged,
    ProposalOutcome,
    RaftEffect,
    SendToPeer,
)

REQUEST_S = (0.000_5, 0.02)
"""How long a request or its answer takes between an operator and a voter."""
POLL_S = 0.05
START_S = 0.1
REPLACED_WITHIN_S = 0.2
LAST = b"the last proposal"


class Quorum:
    """One run."""

    broker_ids: tuple[int, ...] = ()

    def __init__(
        self,
        seed: int,
        settings: Settings | None = None,
        *,
        timeline: IO[str] | None = None,
        on_time: Callable[[float], None] = lambda _: None,
        reached: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`on_time` is told the virtual time now and then, `reached` how far the run has come."""
        self.seed = seed
        self.settings = settings or Settings()
        # Nothing here reaches for the real world, or is to be caught at it: the simulation is not entered.
        self.simulation = Simulation(seed, timeline=timeline, latency=self.settings.latency)
        self.scheduler = self.simulation.scheduler
        self.verdicts = Verdicts(self.scheduler)
        self._on_time = on_time
        self._reached = reached
        self.judge = RaftJudge()
        self.metadata = MetadataJudge(self.happened)
        self.candidacies: set[int] = set()
        self.ids = list(range(1, self.settings.voters + 1))
        self.controller_ids = tuple(self.ids)
        self.hosts: dict[int, Host] = {n: self.simulation.add_host(f"voter-{n}") for n in self.ids}
        self.voters = {n: Voter(self, n, host) for n, host in self.hosts.items()}
        network, stream = self.simulation.network, self.simulation.stream
        self.sessions = Sessions(
            network, stream("sessions"), self.settings.messages, dict(self.voters), self.happened
        )
        for node_id, host in self.hosts.items():
            host.kernel = VoterKernel(network, host.address, node_id, self.sessions)
        self.guard = QuorumGuard(self, stream("guard"))
        self.faults = FaultContext(
            self, self.verdicts, (), self._damaged, guard=self.guard, pace=self.settings.pace
        )
        self.on_next_leader: list[Callable[[int], None]] = []
        self._excused: set[str] = set()
        self._rng = stream("work")
        self.brokers: list[Broker] = []
        self.operators: list[Operator] = []
        self._requests = 0
        self._proposals = 0

    # -- what voters and sessions need

    @property
    def now_s(self) -> float:
        return self.scheduler.now

    def happened(self, what: str, text: str = "", times: int = 1) -> None:
        """Counts an event."""
        if what in counters.OFTEN:
            self.verdicts.counted(what, text, times)
        else:
            self.verdicts.happened(what, text, times)

    def note(self, node_id: int, effect: RaftEffect) -> None:
        """Every effect that leaves a lane goes into the trace: its digest is the run's fingerprint."""
        note = self.scheduler.trace.note
        if isinstance(effect, SendToPeer):
            note(self.now_s, node_id, "to", effect.peer_id, crc32c(effect.data))
        elif isinstance(effect, Committed):
            note(self.now_s, node_id, "committed", effect.image[0], effect.image[1].hex())
        elif isinstance(effect, LeaderChanged):
            note(self.now_s, node_id, "leader", effect.leader_id, effect.epoch, effect.active)
        elif isinstance(effect, ProposalOutcome):
            note(self.now_s, node_id, "outcome", effect.request_id, effect.offset, effect.error)

    def led(self, node_id: int) -> None:
        """A voter was elected."""
        called, self.on_next_leader = self.on_next_leader, []
        for call in called:
            call(node_id)

    def may_end(self, process: Process) -> bool:
        """Whether a fault lets the process refuse to start, or halt."""
        return process.incarnation.name in self._excused

    def replace_rotten(self, voter: Voter) -> bool:
        """Gives the voter, which has ended, a new disk if a bit of its own has rotted; false if none has."""
        node_id = voter.node_id
        if not self.guard.has_rotted(node_id):
            return False
        voter.host.wipe()
        self._damaged(node_id, "wipe")
        self.faults.keep_down(node_id, REPLACED_WITHIN_S)
        return True

    def _damaged(self, node_id: int, kind: str) -> None:
        """The judges forget what a voter had promised with what it has lost."""
        if kind == "wipe":
            self.judge.forget(node_id)
            self.guard.replaced(node_id)
        elif kind == "voter rot":
            # If the bit lies in what was written last, nobody can tell.
            self.judge.forget_acknowledgements(node_id)
            self.guard.rotted(node_id)

    def is_recorded(self, voter: Voter, *, besides: Voter) -> bool:
        """Whether somebody else than `besides` knows that the voter's disk is recorded."""
        return any(
            other.is_up and other.image.voters.get(voter.node_id) == voter.directory_id
            for other in self.voters.values()
            if other is not besides
        )

    # -- as faults see a cluster

    @property
    def running(self) -> list[int]:
        return [node_id for node_id, host in self.hosts.items() if host.alive]

    def start_node(self, node_id: int) -> None:
        self.voters[node_id].start()

    def stop_node(self, node_id: int) -> None:
        self.voters[node_id].stop()

    def is_stopping(self, node_id: int) -> bool:
        return False

    def has_started(self, node_id: int) -> bool:
        return self.voters[node_id].is_up

    def excuse(self, node_id: int, *, may_halt: bool = True) -> None:
        process = self.hosts[node_id].process
        if process is not None and may_halt:
            self._excused.add(process.incarnation.name)

    def log_dirs_of(self, node_id: int) -> tuple[str, ...]:
        return (DATA,)

    def image(self) -> MetadataImage | None:
        return None

    def leader_of(self, topic: str, partition: int) -> int:
        return -1

    def active_controller(self) -> int | None:
        active = [voter.node_id for voter in self.voters.values() if voter.active]
        return active[-1] if active else None

    def ailments(self, topics: Sequence[str]) -> list[str]:
        return [f"voter {n} is down" for n, voter in self.voters.items() if not voter.is_up]

    def is_damaged(self, node_id: int, topic: str, partition: int) -> bool:
        return False

    # -- work

    def ask(self, node_id: int, request: Any, answer: OnAnswer) -> None:
        """Carries a request to a voter and its answer back, each in its time."""

        def answered(response: Any, error: str | None) -> None:
            self.scheduler.call_kernel(self._rng.uniform(*REQUEST_S), answer, response, error)

        self.scheduler.call_kernel(self._rng.uniform(*REQUEST_S), self.voters[node_id].ask, request, answered)

    def propose(self, voter: Voter, data: bytes) -> None:
        """Bare bytes to one voter's driver."""
        self._requests += 1
        voter.propose(self._requests, data)

    def _propose_bytes(self) -> None:
        for voter in self.voters.values():
            if voter.active and self._rng.random() < self.settings.propose:
                for _ in range(self._rng.choice((1, 1, 1, 3, 8))):
                    self._proposals += 1
                    size = self._rng.choice((5, 40, 90))
                    self.propose(voter, b"%d:" % self._proposals + bytes(size))

    def _employ(self) -> None:
        """Brokers and operators, for the workload of topics."""

        def caller(name: str) -> tuple[Scheduler, Random, list[int], Quorum]:
            return self.scheduler, Random(f"{self.seed}/{name}"), self.ids, self

        self.brokers = [Broker(number, *caller(f"broker {number}")) for number in range(101, 101 + BROKERS)]
        self.operators = [
            Operator(number, self.metadata, self.happened, *caller(f"operator {number}"))
            for number in range(self.settings.clients)
        ]
        for broker in self.brokers:
            broker.register()
        for operator in self.operators:
            operator.act()

    # -- a run

    def start(self) -> None:
        """Starts all voters and connects them."""
        for voter in self.voters.values():
            voter.start()
        self.run_until(self.now_s + START_S)
        for a, b in self.sessions.pairs:
            self.sessions.connect(a, b)

    def run_until(
        self, when_s: float, done: Callable[[], bool] = lambda: False, poll_s: float = POLL_S
    ) -> bool:
        """Plays on until an instant, or until `done` says so, which is asked now and then."""
        while self.now_s < when_s:
            if done():
                return True
            self.scheduler.run(min(when_s, self.now_s + poll_s))
            self._on_time(self.now_s)
            if self.verdicts.violations:
                raise Violation(self.verdicts.violations[0].oracle, self.verdicts.violations[0].text)
        return done()

    def leader(self) -> Voter | None:
        """The one active leader, if there is one."""
        active = [voter for voter in self.voters.values() if voter.active]
        return active[0] if len(active) == 1 else None

    def play(self) -> None:
        """Faults for a while, then calm; judges at the end that everything has come together."""
        self.start()
        if self.settings.workload == "topics":
            self._employ()
        for spec in QuorumScenario(self.seed, self.settings).faults:
            self.simulation.call_later(spec.at_s, strike, self.faults, spec, KINDS)
        self._tick()
        self.run_until(self.settings.virtual_s)
        self._reached("no further fault strikes: everything must be answered, all voters become equal")
        self.calm_down()
        self._come_together()

    def _tick(self) -> None:
        self.sessions.tend()
        if not self.faults.is_over and self.settings.workload == "bytes":
            self._propose_bytes()
        self.scheduler.call_kernel(TICK_S, self._tick)

    def calm_down(self) -> None:
        """No further fault strikes, and all end."""
        self.sessions.calm_down()
        self.faults.end_all()
        for broker in self.brokers:
            broker.calm = True
        for operator in self.operators:
            operator.stopping = True

    def _come_together(self) -> None:
        """A quorum without faults elects, answers everything, and all voters become equal."""
        deadline_s = self.now_s + CALM_MAX_S
        if not self.run_until(deadline_s, lambda: all(operator.idle for operator in self.operators)):
            raise Violation("liveness", "operators were not answered after the faults had stopped")
        while self.settings.workload == "bytes" and LAST not in self.judge.acknowledged.values():
            leader = self.leader()
            if self.now_s >= deadline_s:
                raise Violation("liveness", "nobody committed a proposal after the faults had stopped")
            if leader is not None and not leader.pending:
                self.propose(leader, LAST)
            self.run_until(self.now_s + POLL_S)
        if not self.run_until(deadline_s, self._is_together):
            ends = {voter.node_id: voter.applied for voter in self.voters.values()}
            raise Violation("liveness", f"the voters did not come together: {ends}")
        self._judge_end()

    def _is_together(self) -> bool:
        """Everything that anybody has in its log is applied by everybody, and acknowledged."""
        drivers = [voter.driver for voter in self.voters.values()]
        ends = {voter.applied for voter in self.voters.values()}
        ends |= {driver._node.log_end() for driver in drivers if driver is not None}
        answered = not any(voter.pending for voter in self.voters.values())
        return all(drivers) and len(ends) == 1 and answered

    def _judge_end(self) -> None:
        self.happened(counters.SPLIT_TERM, times=len(self.candidacies - self.judge.leaders.keys()))
        self.judge.check_end()
        if self.settings.workload == "bytes":
            return
        for voter in self.voters.values():
            self.metadata.compare_image(voter.node_id, voter.image.offset, voter.image, always=True)
            self.metadata.check_end(voter.image)
