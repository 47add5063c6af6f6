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
from kraft.chaos.experiments.document import Experiment, Workload
from kraft.chaos.experiments.evidence import (
    Evidence,
    FaultEvidence,
    Journal,
    PartitionName,
    samples_of,
)
from kraft.chaos.experiments.measures import abort_reason
from kraft.chaos.experiments.simulated.recorder import Recorder
from kraft.chaos.experiments.simulated.strikes import Strike, Strikes
from kraft.chaos.experiments.targets import (
    MetadataView,
    NobodyThereError,
    PartitionView,
    check_by_journal,
    resolve,
)
from kraft.chaos.playable import check_playable
from kraft.chaos.run import Parts, run
from kraft.chaos.scenario import NodeSpec, Scenario, ScenarioError, TopicSpec, WorkloadSpec
from kraft.chaos.workload import transactional_topics
from kraft.coordinator.groups.partitioning import group_partition
from kraft.user_error import EXIT_USAGE, UserError
from quorum.controller.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE

LOOK_EVERY_S: Final = 0.1
ABORTS_EVERY_S: Final = 1.0
CLIENTS_MAX: Final = 10_000
"""Of one entry of the workload; streams of random numbers are named by it."""
NOBODY_WITHIN_S: Final = 3.0
"""How long a fault waits until somebody has the role that it is aimed at."""
JOURNAL_SLACK_S: Final = 0.5
KINDS: Final[Mapping[str, str]] = {"group": "consumer-member"}
"""Workloads that the simulator knows under other names."""


def scenario_of(experiment: Experiment, seed: int) -> Scenario:
    """The scenario of an experiment: its cluster and its clients, which never crash; no faults of its own.

    Raises UserError for what the simulator does not take.
    """
    workloads = [
        _workload(one, number * CLIENTS_MAX + client, client)
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


def _workload(one: Workload, stream: int, client: int) -> WorkloadSpec:
    return WorkloadSpec(
        kind=KINDS.get(one.kind, one.kind),
        stream=stream,
        topic=one.topic,
        acks=one.acks,
        per_second=one.rate,
        group=one.group,
        transactional_id=f"{one.transactional_id}-{client + 1}"
        if one.transactional_id and client
        else one.transactional_id,
        crashes=False,
    )


def play(experiment: Experiment, seed: int, *, on_time: Callable[[float], None] = lambda _: None) -> Evidence:
    """Plays the experiment in this process; `on_time` is told the virtual time now and then."""
    director = _Director(experiment)
    outcome = run(scenario_of(experiment, seed), on_time=on_time, observers=(director,))
    return director.evidence(outcome)


class _Director(Recorder):
    """Carries out the method, besides."""

    def __init__(self, experiment: Experiment) -> None:
        super().__init__(experiment.name, experiment.steady_s)
        self._experiment = experiment
        self._strikes: list[Strike] = [Strike(n, step) for n, step in enumerate(experiment.method)]
        self._aborts_looked_s = 0.0

    # -- phases

    def began(self, parts: Parts) -> None:
        super().began(parts)
        simulation = parts.simulation
        self._striker = Strikes(parts.faults, self.now_s, simulation.stream("experiment/strikes"))
        self._rng = simulation.stream("experiment/targets")
        for strike in self._strikes:
            simulation.call_later(self._experiment.steady_s + strike.planned.at_s, self._strike, strike, 0.0)

    def looked(self, parts: Parts) -> None:
        super().looked(parts)
        if self._parts is None:
            return
        self._look_at_strikes()
        if self._experiment.aborts and not parts.faults.is_over:
            self._look_at_aborts(parts)

    def over(self, parts: Parts) -> None:
        super().over(parts)
        self._look_at_strikes()

    def faults_are_over(self) -> bool:
        return all(one.ended_s is not None for one in self._strikes)

    def faults(self, journal: Journal) -> tuple[FaultEvidence, ...]:
        return tuple(_checked(strike, journal) for strike in self._strikes)

    def _look_at_strikes(self) -> None:
        for strike in self._strikes:
            self._striker.look(strike)

    def _look_at_aborts(self, parts: Parts) -> None:
        """Ends all faults when a probe has left what an abort condition allows."""
        now_s = self.now_s()
        if now_s >= max(self._aborts_looked_s + ABORTS_EVERY_S, self._experiment.steady_s):
            self._aborts_looked_s = now_s
            samples = samples_of(parts.history, self._began_s)
            self.aborted = abort_reason(self._experiment, samples, self.readings, now_s)
            if self.aborted:
                parts.faults.end_all()

    # -- faults

    def _strike(self, strike: Strike, waited_s: float) -> None:
        """Strikes whoever has the role now; waits a little until somebody has it."""
        if self.parts.faults.is_over:
            return
        earlier = {one.number + 1: one.nodes for one in self._strikes if one.began_s is not None}
        try:
            found = resolve(
                strike.planned.target, view_of(self.parts.cluster, self._experiment), self._rng, earlier
            )
        except NobodyThereError as error:
            strike.proof = str(error)
            if waited_s < NOBODY_WITHIN_S:
                again = (strike, waited_s + LOOK_EVERY_S)
                self.parts.simulation.call_later(LOOK_EVERY_S, self._strike, *again)
            return
        strike.nodes, strike.partitions, strike.proof = found.nodes, found.partitions, ""
        self._striker.strike(strike)


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
