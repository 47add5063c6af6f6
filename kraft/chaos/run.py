"""One run: a scenario played from its first step to the last judgement.

The cluster starts and becomes whole; workloads begin; faults strike; then everything heals. Under load the cluster
must be whole again within a bounded time, and then take writes to every partition; every consumer group must become
whole. When the workloads have ended, every write must be answered (liveness). A fresh client reads everything back,
and the judges look at the rest.
Equal scenarios give equal digests in every process. Callers isolate runs with `kraft.chaos.pool`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import IO, Protocol

from kraft.chaos.checker import Excuses, check_groups, check_history, check_transactions
from kraft.chaos.cluster import SimulatedCluster
from kraft.chaos.faults import FaultContext, strike
from kraft.chaos.history import History, OperationStatus
from kraft.chaos.logs import NodeLogs, judge_processes
from kraft.chaos.narrator import Narrator
from kraft.chaos.oracles import WhiteBox
from kraft.chaos.outcome import Outcome
from kraft.chaos.scenario import Scenario
from kraft.chaos.story import Story
from kraft.chaos.verdict import Verdicts
from kraft.chaos.workload import Workloads, transactional_topics
from kraft.chaos.world.scheduler import SimulationFailed
from kraft.chaos.world.simulation import Simulation
from quorum.controller.topic_names import TRANSACTION_STATE

START_WITHIN_S = 30.0
WHOLE_WITHIN_S = 60.0
"""After the last fault: longer than every timeout of nodes and clients, retries included."""
SERVED_WITHIN_S = 10.0
"""Longer than any request, its retry and the restart of a client take."""
GROUPS_WITHIN_S = 40.0
"""Longer than sessions, rebalances and a few restarts of members take together."""
DRAIN_WITHIN_S = 60.0
READ_WITHIN_S = 60.0
SETTLE_S = 2.0
"""Time for the last high watermark to reach the followers and be checkpointed."""
LOOK_EVERY_S = 0.05
TELL_EVERY_S = 0.1


class Observer(Protocol):
    """Who watches a run, or directs faults of its own. It is told of the phases."""

    def made(self, parts: Parts) -> None:
        """All parts are there, and nothing has happened yet."""

    def reached(self, phase: str) -> None:
        """The run has come so far, in words; not all phases have a method of their own."""

    def began(self, parts: Parts) -> None:
        """The cluster is whole, and the workloads begin now. Faults may be planned."""

    def looked(self, parts: Parts) -> None:
        """Some time has passed, 0.1 virtual seconds at most. Nothing of the run goes on meanwhile."""

    def ending(self, parts: Parts) -> None:
        """Everything has healed, and the workloads are about to stop."""

    def over(self, parts: Parts) -> None:
        """All phases are over, or one of them failed; the judges have judged."""


class _NotWhole(Exception):
    """The cluster or the clients missed a state that they must reach within their time."""


class Parts:
    """The parts of one run, and its phases."""

    def __init__(
        self,
        scenario: Scenario,
        simulation: Simulation,
        timeline: IO[str] | None,
        on_time: Callable[[float], None],
        observers: Sequence[Observer],
    ) -> None:
        self.scenario = scenario
        self.observers = observers
        self.simulation = simulation
        self._on_time = on_time
        self.verdicts = Verdicts(simulation.scheduler)
        self.history = History()
        self.cluster = SimulatedCluster(simulation, scenario.nodes, scenario.properties)
        self.logs = NodeLogs(self.cluster, self.verdicts, timeline)
        self.white_box = WhiteBox(self.cluster, self.verdicts)
        written = transactional_topics(scenario)
        if written:
            self.white_box.transactions.watch(written)
        self.workloads = Workloads(
            self.cluster,
            scenario,
            self.history,
            self.verdicts,
            on_acknowledged=self.white_box.replication.acknowledged,
            explains=self.white_box.replication.explains,
            on_list_offsets=self.white_box.listed_offsets.asked,
            groups=self.white_box.groups,
            transactions=self.white_box.transactions,
        )
        self.faults = FaultContext(
            self.cluster,
            self.verdicts,
            scenario.topics,
            self.white_box.storage_damaged,
            coordinated_by=TRANSACTION_STATE if written else "",
        )
        for observer in observers:
            observer.made(self)

    @property
    def topics(self) -> list[str]:
        return [topic.name for topic in self.scenario.topics]

    def play(self, outcome: Outcome) -> None:
        """Plays all phases; notes in the outcome the history's counts, and why it proves nothing, if so."""
        try:
            self._start()
            self._storm()
            self._calm()
        except _NotWhole as error:
            self.verdicts.violated("liveness", str(error))
            self._judge_groups()
            judge_processes(self.cluster, self.verdicts)
            return
        self.white_box.finish(self.logs.unclean_leaders)
        judge_processes(self.cluster, self.verdicts)
        self.history.lapsed = self.white_box.lapsed_tombstones
        report = check_history(self.history, is_excused=self.white_box.replication.explains)
        for anomaly in report.anomalies:
            self.verdicts.violated(anomaly.oracle, anomaly.text)
        for text in report.excused:
            self.verdicts.excused(text)
        outcome.undecided = report.undecided
        counts = {**report.counts, **self._judge_groups(), **self._judge_transactions()}
        outcome.history = dict(sorted(counts.items()))

    def _judge_groups(self) -> Mapping[str, int]:
        """Judges what members of groups were told, which needs no end of the run; returns how much it was."""
        coordinators = self.white_box.groups
        report = check_groups(
            coordinators.history,
            coordinators.places,
            gone=coordinators.gone,
            is_excused=coordinators.is_excused,
        )
        for anomaly in report.anomalies:
            self.verdicts.violated(anomaly.oracle, anomaly.text)
        for text in report.excused:
            self.verdicts.excused(text)
        return report.counts

    def _judge_transactions(self) -> Mapping[str, int]:
        """Judges what transactional clients did against what was read; returns how much it was."""
        transactions, groups = self.white_box.transactions, self.white_box.groups
        if not transactions.topics:
            return {}
        excuses = Excuses(
            self.white_box.replication.explains,
            transactions.is_cut,
            transactions.is_forgotten,
            groups.is_excused,
        )
        report = check_transactions(transactions.history, excuses)
        for anomaly in report.anomalies:
            self.verdicts.violated(anomaly.oracle, anomaly.text)
        for text in report.excused:
            self.verdicts.excused(text)
        return report.counts

    def _start(self) -> None:
        self.cluster.start()
        self.workloads.create_topics()
        self._wait(lambda: self.workloads.topics_created, START_WITHIN_S, "the topics were not created")
        self._wait_whole(START_WITHIN_S)
        self.workloads.start()
        for observer in self.observers:
            observer.began(self)

    def _storm(self) -> None:
        began_s = self.simulation.now
        for spec in self.scenario.faults:
            self._run_until(began_s + spec.at_s)
            strike(self.faults, spec)
        self._run_until(began_s + self.scenario.seconds)

    def _run_until(self, until_s: float) -> None:
        simulation = self.simulation
        while simulation.now + TELL_EVERY_S < until_s:
            simulation.run_until(simulation.now + TELL_EVERY_S)
            self._told()
        simulation.run_until(until_s)
        self._told()

    def _told(self) -> None:
        self._on_time(self.simulation.now)
        for observer in self.observers:
            observer.looked(self)

    def _reached(self, phase: str) -> None:
        for observer in self.observers:
            observer.reached(phase)

    def _calm(self) -> None:
        self._reached("no further fault strikes, and what goes on is ended: the cluster has to become whole")
        self.faults.end_all()
        self.workloads.take_limits_away()
        self.workloads.calm()
        healed_s = self.simulation.now
        self._wait_whole(WHOLE_WITHIN_S)
        self._reached("the cluster is whole: every partition has to take writes, every group a generation")
        self._wait_served(healed_s)
        self._wait_groups(healed_s)
        self._reached("all are served; the clients stop, and every write has to be answered")
        for observer in self.observers:
            observer.ending(self)
        self.workloads.stop()
        self._wait_drained()
        self._wait_whole(WHOLE_WITHIN_S)
        self.simulation.run_for(SETTLE_S)
        self._reached("a fresh client reads everything, from the start to the end")
        self.workloads.read_everything()
        self._wait(lambda: self.workloads.read, READ_WITHIN_S, "not everything could be read")
        if self.cluster.has_damage:  # the final reading may just have found it, and the repair goes on
            self.simulation.run_for(SETTLE_S)
            self._wait_whole(WHOLE_WITHIN_S)
            self.simulation.run_for(SETTLE_S)

    def _wait_whole(self, within_s: float) -> None:
        self._wait(lambda: not self.cluster.ailments(self.topics), within_s, "the cluster did not recover")

    def _wait_drained(self) -> None:
        """Waits until every client has ended what it had begun."""
        clients = self.workloads
        try:
            self._wait(lambda: not clients.undrained, DRAIN_WITHIN_S, "a write was never answered")
        except _NotWhole as error:
            raise _NotWhole(f"{error}; it waits: {', '.join(clients.undrained)}") from None

    def _wait_served(self, since_s: float) -> None:
        """Waits until the whole cluster has taken a write from every producer with acks=-1 to every partition, and
        every consumer has read on in every partition that it tails.
        """
        unserved = self.workloads.unserved_since
        if not self.simulation.run_until_true(lambda: not unserved(since_s), SERVED_WITHIN_S, LOOK_EVERY_S):
            raise _NotWhole(
                f"within {SERVED_WITHIN_S:g} s of a whole cluster nothing was acknowledged, or read, of what was"
                f" sent after the faults: {', '.join(unserved(since_s))}"
            )

    def _wait_groups(self, since_s: float) -> None:
        """Waits until every group has been whole at some time after the faults."""
        missing = self.workloads.groups_not_whole_since
        if not self.simulation.run_until_true(lambda: not missing(since_s), GROUPS_WITHIN_S, LOOK_EVERY_S):
            raise _NotWhole(
                f"within {GROUPS_WITHIN_S:g} s of a whole cluster no generation of it was whole:"
                f" {'; '.join(missing(since_s))}"
            )

    def _wait(self, condition: Callable[[], bool], within_s: float, otherwise: str) -> None:
        def is_over() -> bool:
            self._told()
            return condition()

        if not self.simulation.run_until_true(is_over, within_s, LOOK_EVERY_S):
            ailments = "; ".join(self.cluster.ailments(self.topics)) or "the cluster is whole"
            raise _NotWhole(f"{otherwise} within {within_s:g} s: {ailments}")


def run(
    scenario: Scenario,
    *,
    story: IO[str] | None = None,
    timeline: IO[str] | None = None,
    on_time: Callable[[float], None] = lambda _: None,
    observers: Sequence[Observer] = (),
) -> Outcome:
    """Plays a scenario in this process. `story`, `timeline`: open text files for what a person reads, and for every
    callback. `on_time` is told the virtual time now and then: it changes nothing. `observers` are told of the phases,
    and may act in them."""
    outcome = Outcome(scenario.seed)
    began_wall_s, began_cpu_s = time.perf_counter(), time.process_time()
    with ExitStack() as stack:
        simulation = stack.enter_context(Simulation(scenario.seed, timeline=timeline))
        narrator = None if story is None else Narrator(Story(story, lambda: simulation.now))
        watching = observers if narrator is None else (*observers, narrator)
        parts = Parts(scenario, simulation, timeline, on_time, watching)
        stack.enter_context(parts.logs.installed())
        stack.enter_context(parts.white_box.installed())
        try:
            parts.play(outcome)
            for observer in watching:
                observer.over(parts)
        except SimulationFailed as error:
            outcome.error = str(error)
        verdicts, operations = parts.verdicts, parts.history.operations
        outcome.digest = simulation.digest()
        outcome.virtual_s, outcome.steps = simulation.now, simulation.scheduler.steps
        outcome.violations, outcome.last_events = verdicts.violations, verdicts.last_events
        outcome.excused = list(verdicts.excuses)
        outcome.coverage = dict(sorted(verdicts.coverage.items()))
        outcome.acknowledged = dict(parts.workloads.acknowledged)
        outcome.operations = sum(one.status is not OperationStatus.PENDING for one in operations)
        if narrator is not None:
            narrator.conclude(outcome)
    outcome.wall_s = time.perf_counter() - began_wall_s
    outcome.cpu_s = time.process_time() - began_cpu_s
    return outcome
