"""The page of a simulated seed: the run of a scenario, watched, with the report of an experiment.

A seed draws its faults with targets, sizes and ends, so that the page knows when each struck and ended and what it did,
and not which step of a method it was. `kraft chaos simulate --report` calls it in the process of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO

from kraft.chaos.experiments.backends import environment
from kraft.chaos.experiments.document import (
    ClusterSpec,
    Expectation,
    Experiment,
    Hypothesis,
    Minimums,
    Topic,
    Workload,
)
from kraft.chaos.experiments.evidence import FaultEvidence, Journal
from kraft.chaos.experiments.report.page import page
from kraft.chaos.experiments.report.summary import Run
from kraft.chaos.experiments.simulated.recorder import Recorder
from kraft.chaos.experiments.verdict import judge
from kraft.chaos.experiments.vocabulary import SIM
from kraft.chaos.faults.context import Struck
from kraft.chaos.outcome import Outcome
from kraft.chaos.run import Parts, run
from kraft.chaos.scenario import Scenario


def run_with_page(
    scenario: Scenario,
    *,
    path: Path,
    command: str,
    story: IO[str] | None = None,
    timeline: IO[str] | None = None,
    on_time: Callable[[float], None] = lambda _: None,
) -> Outcome:
    """Plays a scenario as `kraft.chaos.run.run` does, and writes its page. `command`: what plays it again. A page that
    cannot be written is told as the outcome's `untold`."""
    recorder = _SeedRecorder(f"seed-{scenario.seed}")
    outcome = run(scenario, story=story, timeline=timeline, on_time=on_time, observers=(recorder,))
    experiment, evidence = _experiment_of(scenario), recorder.evidence(outcome)
    evidence = replace(evidence, environment={**environment(), **evidence.environment})
    try:
        path.write_text(
            page(Run(experiment, evidence, judge(experiment, evidence), command)), encoding="utf-8"
        )
    except OSError as error:
        outcome.untold = f"{path} could not be written: {error.strerror}"
    return outcome


class _SeedRecorder(Recorder):
    """Hears of the faults that strike by themselves."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._struck: dict[int, FaultEvidence] = {}

    def began(self, parts: Parts) -> None:
        super().began(parts)
        parts.faults.heard.append(self._heard)

    def _heard(self, struck: Struck, is_over: bool) -> None:
        """A fault strikes, or is over."""
        now_s = self.now_s()
        began_s = self._struck[struck.number].began_s if is_over else now_s
        self._struck[struck.number] = FaultEvidence(
            step=struck.number - 1,
            name=struck.name,
            target=struck.text,
            began_s=began_s,
            ended_s=now_s,
            took_effect=True,
            proof=struck.text,
            healed=True,
            heal_proof="the faults of the simulator end by themselves",
        )

    def faults(self, journal: Journal) -> tuple[FaultEvidence, ...]:
        return tuple(self._struck.values())


def _experiment_of(scenario: Scenario) -> Experiment:
    """A scenario, told as an experiment: its faults are not a method, for nobody aimed them."""
    names = ", ".join(sorted({fault.name for fault in scenario.faults})) or "none"
    return Experiment(
        name=f"seed-{scenario.seed}",
        teaches=f"A scenario drawn from its seed, with {len(scenario.faults)} faults: {names}.",
        backends=(SIM,),
        duration_s=scenario.seconds,
        steady_s=0.0,
        cluster=ClusterSpec(
            len(scenario.nodes),
            dict(scenario.properties),
            tuple(
                Topic(one.name, one.partitions, one.replication_factor, one.configs)
                for one in scenario.topics
            ),
        ),
        hypothesis=Hypothesis(),
        workload=tuple(
            Workload(one.kind, topic=one.topic, acks=one.acks, rate=one.per_second)
            for one in scenario.workloads
        ),
        method=(),
        aborts=(),
        expect=Expectation("held"),
        promises=(),
        minimums=Minimums(0, 0, 0, unknown_at_most=1.0),
        text=scenario.to_json(),
    )
