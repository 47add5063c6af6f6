"""One experiment in the simulated world: from file and seed to evidence.

The file becomes a scenario without faults of its own; an observer of the run carries the method out, looks at the
cluster, follows the metadata log and gathers what the verdict needs. Equal files and seeds give equal digests.
Callers isolate it with `kraft.chaos.pool.run_isolated`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from kraft.chaos.cluster import SimulatedCluster
from kraft.chaos.experiments.counts import counts_of
from kraft.chaos.experiments.document import Experiment, Workload
from kraft.chaos.experiments.evidence import (
    Anomaly,
    ControllerChange,
    Evidence,
    FaultEvidence,
    FinalRead,
    Journal,
    LogLine,
    MetadataChange,
    PartitionName,
    Reading,
    ReplicaComparison,
    Starvation,
    samples_of,
)
from kraft.chaos.experiments.simulated.closing import comparisons, final_reads
from kraft.chaos.experiments.simulated.strikes import Strike, Strikes
from kraft.chaos.experiments.targets import (
    MetadataView,
    NobodyThereError,
    PartitionView,
    check_by_journal,
    resolve,
)
from kraft.chaos.history import TopicKey
from kraft.chaos.playable import check_playable
from kraft.chaos.run import Observer, Outcome, Parts, run
from kraft.chaos.scenario import NodeSpec, Scenario, ScenarioError, TopicSpec, WorkloadSpec
from kraft.chaos.workload import transactional_topics
from kraft.coordinator.groups.partitioning import group_partition
from kraft.user_error import EXIT_USAGE, UserError
from quorum.controller.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from quorum.metadata.image import MetadataImage, PartitionImage

LOOK_EVERY_S: Final = 0.1
NOBODY_WITHIN_S: Final = 3.0
"""How long a fault waits until somebody has the role that it is aimed at."""
JOURNAL_SLACK_S: Final = 0.5
LOG_LINES_MAX: Final = 400
SHOWN_LEVELS: Final = frozenset(("warning", "error", "critical", "exception"))
SHOWN_TEXTS: Final = ("leader", "controller", "ISR", "fenced", "election")
KINDS: Final[Mapping[str, str]] = {"group": "consumer-member"}
"""Workloads that the simulator knows under other names."""


def scenario_of(experiment: Experiment, seed: int) -> Scenario:
    """The scenario of an experiment: its cluster and its clients, which never crash; no faults of its own.

    Raises UserError for what the simulator does not take.
    """
    workloads = [
        _workload(one, number * 100 + client)
        for number, one in enumerate(experiment.workload)
        for client in range(one.clients)
    ]
    scenario = Scenario(
        seed=seed,
        seconds=experiment.steady_s + experiment.duration_s,
        nodes=tuple(NodeSpec(number) for number in range(1, experiment.cluster.nodes + 1)),
        topics=tuple(
            TopicSpec(topic.name, topic.partitions, topic.replicas, dict(topic.configs))
            for topic in experiment.cluster.topics
        ),
        workloads=tuple(workloads),
        properties=dict(experiment.cluster.settings),
    )
    mixed = {one.topic for one in workloads if "producer" in one.kind and not one.transactional_id}
    if shared := mixed.intersection(transactional_topics(scenario)):
        raise UserError(
            f"{experiment.name}: in the simulator a topic of transactions has no other producers: give those of"
            f" {', '.join(sorted(shared))} a topic of their own",
            EXIT_USAGE,
        )
    try:
        check_playable(scenario)
    except ScenarioError as error:
        raise UserError(f"{experiment.name}: {error}", EXIT_USAGE) from error
    return scenario


def _workload(one: Workload, stream: int) -> WorkloadSpec:
    return WorkloadSpec(
        kind=KINDS.get(one.kind, one.kind),
        stream=stream,
        topic=one.topic,
        acks=one.acks,
        per_second=one.rate,
        group=one.group,
        transactional_id=f"{one.transactional_id}-{stream}" if one.clients > 1 else one.transactional_id,
        crashes=False,
    )


def play(experiment: Experiment, seed: int, *, on_time: Callable[[float], None] = lambda _: None) -> Evidence:
    """Plays the experiment in this process; `on_time` is told the virtual time now and then."""
    director = _Director(experiment)
    outcome = run(scenario_of(experiment, seed), on_time=on_time, observer=director)
    return director.evidence(outcome)


class _Director(Observer):
    """Carries out the method, and gathers the evidence."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._strikes: list[Strike] = [Strike(n, step) for n, step in enumerate(experiment.method)]
        self._readings: list[Reading] = []
        self._changes: list[MetadataChange] = []
        self._controllers: list[ControllerChange] = []
        self._logs: list[LogLine] = []
        self._began_s = 0.0
        self._ended_s: float | None = None
        self._healed_s: float | None = None
        self._final_reads: tuple[FinalRead, ...] | None = None
        self._replicas: tuple[ReplicaComparison, ...] | None = None
        self._parts: Parts | None = None

    # -- phases

    def began(self, parts: Parts) -> None:
        self._parts, simulation = parts, parts.simulation
        self._began_s = simulation.now
        self._striker = Strikes(parts.faults, self._now_s, simulation.stream("experiment/strikes"))
        self._rng = simulation.stream("experiment/targets")
        self._follow(parts)
        for strike in self._strikes:
            simulation.call_later(self._experiment.steady_s + strike.planned.at_s, self._strike, strike, 0.0)
        self._look(parts)

    def ending(self, parts: Parts) -> None:
        self._see(parts)
        self._ended_s = self._now_s()

    def over(self, parts: Parts) -> None:
        for strike in self._strikes:
            self._striker.look(strike)
        self._final_reads = tuple(final_reads(parts))
        self._replicas = tuple(comparisons(parts))

    def _now_s(self) -> float:
        assert self._parts is not None, "the run has begun"
        return self._parts.simulation.now - self._began_s

    # -- faults

    def _strike(self, strike: Strike, waited_s: float) -> None:
        """Strikes whoever has the role now; waits a little until somebody has it."""
        assert self._parts is not None, "the run has begun"
        if self._parts.faults.is_over:
            return
        earlier = {one.number + 1: one.nodes for one in self._strikes if one.began_s is not None}
        try:
            found = resolve(strike.planned.target, self._view(), self._rng, earlier)
        except NobodyThereError as error:
            strike.proof = str(error)
            if waited_s < NOBODY_WITHIN_S:
                again = (strike, waited_s + LOOK_EVERY_S)
                self._parts.simulation.call_later(LOOK_EVERY_S, self._strike, *again)
            return
        strike.nodes, strike.partitions, strike.proof = found.nodes, found.partitions, ""
        self._striker.strike(strike)

    def _view(self) -> MetadataView:
        assert self._parts is not None, "the run has begun"
        return view_of(self._parts.cluster, self._experiment)

    # -- looking

    def _look(self, parts: Parts) -> None:
        """Reads the cluster again and again until the workloads have ended."""
        if self._ended_s is None:
            self._see(parts)
            parts.simulation.call_later(LOOK_EVERY_S, self._look, parts)

    def _see(self, parts: Parts) -> None:
        now_s, cluster = self._now_s(), parts.cluster
        image, topics = cluster.image(), parts.topics
        ailments = cluster.ailments(topics)
        states = _states(image, topics)
        self._readings.append(
            Reading(
                now_s,
                len(ailments),
                sum(state.leader < 0 for state in states),
                sum(len(state.isr) < len(state.replicas) for state in states),
                "; ".join(ailments[:3]),
            )
        )
        controller = cluster.active_controller()
        if controller is not None and (not self._controllers or self._controllers[-1].node != controller):
            node = cluster.nodes[controller].controller
            assert node is not None, "the active controller has one"
            self._controllers.append(ControllerChange(now_s, controller, node.epoch))
        for strike in self._strikes:
            self._striker.look(strike)
        if self._healed_s is None and not ailments and all(one.ended_s is not None for one in self._strikes):
            self._healed_s = now_s

    def _follow(self, parts: Parts) -> None:
        """Hears of every change of a partition that the quorum commits, and of log lines worth showing."""
        metadata = parts.white_box.metadata
        heard = metadata.on_partition
        for topic in parts.topics:
            known = metadata.image.topic(topic)
            for number, state in enumerate(known.partitions if known is not None else ()):
                self._changed(topic, number, state, metadata.offset, is_unclean=False)

        def on_partition(key: TopicKey, before: PartitionImage | None, after: PartitionImage) -> None:
            topic = metadata.image.topics.get(key[0])
            if topic is not None and topic.name in parts.topics:
                is_new = before is None or before.leader_epoch != after.leader_epoch
                is_unclean = is_new and metadata.elections.is_unclean(key, after.leader_epoch)
                self._changed(topic.name, key[1], after, metadata.offset, is_unclean=is_unclean)
            heard(key, before, after)

        metadata.on_partition = on_partition
        parts.logs.on_line = self._on_line

    def _changed(
        self, topic: str, number: int, state: PartitionImage, offset: int, *, is_unclean: bool
    ) -> None:
        self._changes.append(
            MetadataChange(
                self._now_s(),
                offset,
                topic,
                number,
                state.leader,
                state.leader_epoch,
                tuple(state.isr),
                tuple(state.elr),
                is_unclean,
            )
        )

    def _on_line(self, who: str, level: str, text: str, values: str) -> None:
        is_shown = level in SHOWN_LEVELS or any(word in text for word in SHOWN_TEXTS)
        if is_shown and len(self._logs) < LOG_LINES_MAX:
            self._logs.append(LogLine(self._now_s(), who, level, f"{text} {values}".rstrip()))

    # -- evidence

    def evidence(self, outcome: Outcome) -> Evidence:
        """All of it, when the run is over."""
        journal = Journal(tuple(self._changes), tuple(self._controllers))
        parts = self._parts
        history = None if parts is None else parts.history
        ended_s = self._ended_s if self._ended_s is not None else outcome.virtual_s - self._began_s
        return Evidence(
            experiment=self._experiment.name,
            backend="sim",
            seed=outcome.seed,
            ended_s=ended_s,
            steady_until_s=self._experiment.steady_s,
            healed_s=self._healed_s,
            faults=tuple(_checked(strike, journal) for strike in self._strikes),
            samples=() if history is None else samples_of(history, self._began_s),
            readings=tuple(self._readings),
            journal=journal,
            anomalies=tuple(
                Anomaly(one.oracle, one.text, at_s=one.at_s - self._began_s) for one in outcome.violations
            ),
            excused=tuple(outcome.excused),
            checker_undecided=outcome.undecided,
            counts={} if history is None else counts_of(history),
            final_reads=self._final_reads,
            replicas=self._replicas,
            starvation=Starvation(0.0, 0.0),
            bypasses=(),
            aborted=f"the simulation failed: {outcome.error}" if outcome.error else "",
            logs=tuple(self._logs),
            environment={
                "digest": outcome.digest,
                "virtual_s": f"{outcome.virtual_s:.3f}",
                "steps": str(outcome.steps),
                "cpu_s": f"{outcome.cpu_s:.1f}",
            },
        )


def _checked(strike: Strike, journal: Journal) -> FaultEvidence:
    """A fault, its target checked against the metadata log."""
    evidence = strike.to_evidence()
    if strike.began_s is None:
        return evidence
    problem = check_by_journal(strike.planned.target, strike.nodes, strike.began_s, journal, JOURNAL_SLACK_S)
    return replace(evidence, target_problem=problem)


def view_of(cluster: SimulatedCluster, experiment: Experiment) -> MetadataView:
    """What the newest metadata say now."""
    image = cluster.image()
    partitions = {
        (topic.name, number): PartitionView(
            state.leader, tuple(state.replicas), tuple(state.isr), tuple(state.elr), state.leader_epoch
        )
        for topic in (image.topics.values() if image is not None else ())
        for number, state in enumerate(topic.partitions)
    }
    groups = {one.group for one in experiment.workload if one.group}
    ids = {one.transactional_id for one in experiment.workload if one.transactional_id}
    mine = {one.name for one in experiment.cluster.topics}
    return MetadataView(
        nodes=tuple(cluster.hosts),
        running=frozenset(cluster.running),
        controller=cluster.active_controller(),
        partitions={name: view for name, view in partitions.items() if name[0] in mine},
        groups=_coordinators(partitions, CONSUMER_OFFSETS, groups),
        transactions=_coordinators(partitions, TRANSACTION_STATE, ids),
    )


def _coordinators(
    partitions: Mapping[PartitionName, PartitionView], topic: str, keys: set[str]
) -> dict[str, int]:
    """The leader of each key's partition of an internal topic, where there is one."""
    count = sum(name[0] == topic for name in partitions)
    if not count:
        return {}
    leaders = {key: partitions[topic, group_partition(key, count)].leader for key in sorted(keys)}
    return {key: leader for key, leader in leaders.items() if leader >= 0}


def _states(image: MetadataImage | None, topics: list[str]) -> list[PartitionImage]:
    known = [None if image is None else image.topic(name) for name in topics]
    return [state for topic in known if topic is not None for state in topic.partitions]
