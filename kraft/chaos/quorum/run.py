"""Plays one scenario of the quorum: from a seed to an outcome. Deterministic, in any process.

A campaign calls it in forked processes (`kraft chaos quorum`), tests and the mutations of the judges directly.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import IO, Final

from structlog.testing import capture_logs

from kraft.chaos.outcome import FAULT_PREFIX, Outcome
from kraft.chaos.quorum import counters
from kraft.chaos.quorum.judge import Violation
from kraft.chaos.quorum.narrator import Narrator, headline
from kraft.chaos.quorum.quorum import Quorum
from kraft.chaos.quorum.settings import FAULTS, QuorumScenario
from kraft.chaos.report import Asked
from kraft.chaos.story import Story

PROPOSALS = "proposals"
COUNTERS: Final = (*(FAULT_PREFIX + name for name in FAULTS), *counters.COUNTERS)
"""All that many seeds have to raise."""


def run(
    scenario: QuorumScenario,
    *,
    story: IO[str] | None = None,
    timeline: IO[str] | None = None,
    on_time: Callable[[float], None] = lambda _: None,
) -> Outcome:
    """Plays a scenario in this process. `story`, `timeline`: open text files for what a person reads, and for every
    event. `on_time` is told the virtual time now and then. The first broken promise ends the run."""
    told: Story | None = None if story is None else Story(story, lambda: quorum.now_s)
    reached = (lambda _: None) if told is None else partial(told.tell, "phase")
    quorum = Quorum(scenario.seed, scenario.settings, timeline=timeline, on_time=on_time, reached=reached)
    if told is not None:
        told.headline(headline(scenario))
        quorum.verdicts.listener = Narrator(told)
    try:
        with capture_logs():  # what dying voters log is nobody's output
            quorum.play()
    except Violation as violation:
        quorum.verdicts.violated(violation.oracle, str(violation))
    verdicts, coverage = quorum.verdicts, quorum.verdicts.coverage
    answered = (counters.ACKNOWLEDGED, counters.UNKNOWN_OUTCOME, counters.NOT_COMMITTED)
    outcome = Outcome(
        scenario.seed,
        digest=quorum.scheduler.trace.digest(),
        violations=verdicts.violations,
        last_events=verdicts.last_events,
        coverage=dict(sorted(coverage.items())),
        acknowledged={PROPOSALS: coverage[counters.ACKNOWLEDGED]},
        operations=sum(coverage[name] for name in answered),
        virtual_s=quorum.now_s,
        steps=sum(voter.steps for voter in quorum.voters.values()),
    )
    if told is not None:
        told.conclude(outcome)
    return outcome


def asked_of_quorums(voters: int | None) -> Asked:
    """A campaign of `kraft chaos quorum`: in many seeds everything has to happen that is counted."""
    return Asked(
        command="quorum",
        options=() if voters is None else ("--voters", str(voters)),
        needed=COUNTERS,
        declared=COUNTERS,
    )
