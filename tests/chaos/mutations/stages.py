"""The stages on which mutations play: quorums of real drivers, and whole simulated clusters under a storm of faults.

A stage is clean without a mutation; the runner checks that first. The narrower it is, the fewer seeds a mutation
needs: few nodes, short virtual time, faults that reach the broken rule, topics whose settings make it matter.
Settings that no property of the server can express are `settings`: patches of the product that belong to the stage,
with and without the mutation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kraft.chaos.outcome import Outcome
from kraft.chaos.quorum.run import run as run_quorum
from kraft.chaos.quorum.settings import QuorumScenario, Settings, drawn
from kraft.chaos.run import run
from kraft.chaos.scenario import FaultSpec, NodeSpec, Scenario, TopicSpec, WorkloadSpec
from kraft.chaos.swarm import scenario_of
from tests.chaos.mutations.registry import Patch, Sighting, all_applied

FIRST_FAULT_S = 0.5


@dataclass(frozen=True)
class RaftStage:
    """The controller quorum alone, as `kraft chaos quorum` plays it; the first violation ends a run."""

    name: str
    settings: Callable[[int], Settings] = drawn
    """The scenario of a seed."""

    def play(self, seed: int) -> Sighting:
        return _seen(run_quorum(QuorumScenario(seed, self.settings(seed))))


@dataclass(frozen=True)
class ClusterStage:
    """A scenario for each seed, played as `kraft chaos simulate` does."""

    name: str
    scenario: Callable[[int], Scenario]
    settings: tuple[Patch, ...] = ()

    def play(self, seed: int) -> Sighting:
        with all_applied(self.settings):
            return _seen(run(self.scenario(seed)))


def _seen(outcome: Outcome) -> Sighting:
    first: dict[str, str] = {}
    for violation in outcome.violations:
        first.setdefault(violation.oracle, violation.text)
    return Sighting(tuple(first), tuple(first.values()), outcome.error, bool(outcome.excused))


def swarm(seconds: float) -> Callable[[int], Scenario]:
    """The default swarm, for a shorter time."""
    return lambda seed: scenario_of(seed, seconds=seconds)


@dataclass(frozen=True)
class Storm:
    """A scenario drawn from a seed: one kind of cluster, a few kinds of faults, one after the other."""

    faults: tuple[str, ...]
    """Names; one that is there twice strikes twice as often."""
    seconds: float = 15.0
    mean_s: float = 0.6
    """Between two faults."""
    brokers: int = 3
    controllers: tuple[int, ...] = ()
    """Node ids of controllers that are no brokers; none: every broker is a voter, too."""
    topics: tuple[TopicSpec, ...] = (
        TopicSpec("orders", 2, 3, {"min.insync.replicas": "2", "segment.bytes": "65536"}),
    )
    workloads: tuple[WorkloadSpec, ...] = (
        WorkloadSpec("idempotent-producer", 0, "orders", per_second=60.0),
        WorkloadSpec("producer", 1, "orders", acks=1, per_second=40.0),
        WorkloadSpec("consumer", 2, "orders", per_second=40.0),
    )
    properties: dict[str, str] = field(default_factory=dict)
    run_time_configs: dict[str, str] = field(default_factory=dict)
    log_dirs: int = 1
    """Of each broker."""
    racks: tuple[str, ...] = ()
    """Of the brokers, by turns."""

    def __call__(self, seed: int) -> Scenario:
        rng = Random(f"{seed}/storm")
        roles = ("broker",) if self.controllers else ("broker", "controller")
        racks = self.racks or ("",)
        nodes = [
            NodeSpec(number, roles, self.log_dirs, racks[number % len(racks)])
            for number in range(1, self.brokers + 1)
        ]
        nodes += [NodeSpec(number, ("controller",)) for number in self.controllers]
        return Scenario(
            seed=seed,
            seconds=self.seconds,
            nodes=tuple(nodes),
            topics=self.topics,
            workloads=self.workloads,
            faults=tuple(self._faults(rng)),
            properties=self.properties,
            run_time_configs=self.run_time_configs,
        )

    def _faults(self, rng: Random) -> Iterable[FaultSpec]:
        at_s, stream = rng.uniform(FIRST_FAULT_S, 2 * FIRST_FAULT_S), 0
        while at_s < self.seconds:
            yield FaultSpec(rng.choice(self.faults), round(at_s, 6), stream)
            at_s += rng.expovariate(1 / self.mean_s)
            stream += 1


def default(owner: Any, name: str, value: object) -> Patch:
    """A setting: a constant or default of the product that a stage wants otherwise."""
    return Patch(owner, name, lambda _: value)
