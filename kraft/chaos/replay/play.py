"""Plays a history under a rule, lets the checker of `kraft chaos simulate` judge it, and compares two plays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kraft.chaos.checker import Excuses, check_history, check_transactions
from kraft.chaos.checker.report import Report
from kraft.chaos.checker.transactions import LOST, TORN
from kraft.chaos.replay.broker import ReplayError
from kraft.chaos.replay.histories import KnownHistory, Verdict
from kraft.chaos.replay.rules import Rule
from kraft.chaos.replay.stage import Stage
from kraft.chaos.replay.story import Step

FORK = "inconsistent-offsets"
LOSSES = frozenset({"lost-write", "unseen", LOST, TORN})


@dataclass(frozen=True)
class Play:
    """One history under one rule."""

    history: KnownHistory
    rule: Rule
    steps: tuple[Step, ...]
    report: Report
    verdict: Verdict
    excused: int
    """Lost records that injected faults explain."""

    @property
    def is_as_stated(self) -> bool:
        """Whether the verdict is the one that the history states for the rule."""
        return self.verdict == self.history.verdicts[self.rule.name]

    def to_document(self, other: Play) -> dict[str, Any]:
        """As `--json` prints it; `other` is the play under the rule to compare with."""
        return {
            "scenario": self.history.name,
            "rule": self.rule.name,
            "verdict": self.verdict,
            "stated": self.history.verdicts[self.rule.name],
            "excused": self.excused,
            "anomalies": [{"oracle": one.oracle, "text": one.text} for one in self.report.anomalies],
            "first_difference": first_difference(self, other),
            "steps": [step.to_document() for step in self.steps],
        }


def play(history: KnownHistory, rule: Rule) -> Play:
    """Deterministic. Raises ReplayError if the script cannot be played, or leaves nothing to judge."""
    stage = Stage(rule, history.brokers, history.configs)
    history.script(stage)
    report = check_history(stage.history, is_excused=stage.is_excused)
    if stage.transactions.transactions:
        found = check_transactions(stage.transactions, Excuses(stage.is_excused))
        report = replace(
            report,
            anomalies=[*report.anomalies, *found.anomalies],
            excused=[*report.excused, *found.excused],
        )
    return Play(history, rule, tuple(stage.steps), report, _verdict(report), len(stage.excused))


def _verdict(report: Report) -> Verdict:
    oracles = {anomaly.oracle for anomaly in report.anomalies}
    if oracles & LOSSES:
        return "lost"
    if FORK in oracles:
        return "forked"
    if oracles or report.verdict == "unknown":
        raise ReplayError(f"the checker says {', '.join(sorted(oracles)) or report.undecided}")
    return "held"


def first_difference(one: Play, other: Play) -> int | None:
    """The first step after which the two plays differ, from 1; None if none does."""
    pairs = zip(one.steps, other.steps, strict=True)
    return next((mine.number for mine, theirs in pairs if mine.differs(theirs)), None)
