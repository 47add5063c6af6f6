"""The verdict: violated > undecided > held, from an experiment and the evidence of its run. Pure.

Safety (what no client may ever see) and the hypothesis (the steady state and its tolerances) are judged apart; the
verdict is the worse of the two. Each rule is a line of `RULES`: it names what it finds in sentences, and is either a
violation or missing evidence. "held" needs that no rule finds anything; a violation is never softened by what else is
missing. Losses with acks=0 and 1 are counted and shown, and judged by nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from kraft.chaos.experiments.counts import counts_of_journal
from kraft.chaos.experiments.document import Experiment, quantity
from kraft.chaos.experiments.evidence import Evidence, FaultEvidence, PartitionName, partitions_of
from kraft.chaos.experiments.measures import (
    Measured,
    activities,
    answered_sends,
    counts_of_gaps,
    measured,
)
from kraft.chaos.experiments.vocabulary import PROBES

Grade = Literal["held", "undecided", "violated"]
Part = Literal["safety", "hypothesis"]
ORDER: Final[tuple[Grade, ...]] = ("held", "undecided", "violated")
STARVED_MAX_S: Final = 2.0
"""How long a run may be behind its own clock, all in all."""
LAG_MAX_MS: Final = 2_000.0
"""How long its clock may stand still at once."""
HYPOTHESIS: Final = "hypothesis"
"""The anomaly by which a file may expect that the steady state is not kept."""


@dataclass(frozen=True)
class Reason:
    """One finding of one rule."""

    rule: str
    part: Part
    grade: Grade
    text: str


@dataclass(frozen=True)
class Verdict:
    """The judgement of one run."""

    verdict: Grade
    safety: Grade
    hypothesis: Grade
    as_expected: bool
    reasons: tuple[Reason, ...]
    probes: tuple[Measured, ...]
    counts: Mapping[str, int]
    anomalies: Mapping[str, int]
    """By name: how many were found."""


@dataclass(frozen=True)
class _Case:
    """What the rules look at."""

    experiment: Experiment
    evidence: Evidence
    probes: tuple[Measured, ...]
    counts: Mapping[str, int]

    @property
    def partitions(self) -> tuple[PartitionName, ...]:
        """The partitions of the topics that the workload uses."""
        used = {one.topic for one in self.experiment.workload}
        return tuple(
            (topic.name, number)
            for topic in self.experiment.cluster.topics
            if topic.name in used
            for number in range(topic.partitions)
        )


Finder = Callable[[_Case], Iterable[str]]


@dataclass(frozen=True)
class Rule:
    """A line of the table: what it looks for, which part it belongs to, and what a finding means."""

    name: str
    part: Part
    grade: Grade
    find: Finder


def judge(experiment: Experiment, evidence: Evidence) -> Verdict:
    """The verdict of a run."""
    counts = dict(evidence.counts)
    counts["excused"] = max(counts.get("excused", 0), len(evidence.excused))
    if evidence.journal is not None:
        counts.update(counts_of_journal(evidence.journal))
    counts.update(counts_of_gaps(evidence))
    case = _Case(experiment, evidence, measured(experiment, evidence), counts)
    reasons = tuple(
        Reason(rule.name, rule.part, rule.grade, text) for rule in RULES for text in rule.find(case)
    )
    safety, hypothesis = (
        _worst(one.grade for one in reasons if one.part == part) for part in ("safety", "hypothesis")
    )
    verdict = _worst((safety, hypothesis))
    anomalies: dict[str, int] = {}
    for one in evidence.anomalies:
        anomalies[one.name] = anomalies.get(one.name, 0) + 1
    found = set(anomalies) | {
        one.rule for one in reasons if one.grade == "violated" and one.rule != "anomaly"
    }
    return Verdict(
        verdict,
        safety,
        hypothesis,
        _is_as_expected(experiment, verdict, found, reasons),
        reasons,
        case.probes,
        counts,
        anomalies,
    )


def _worst(grades: Iterable[Grade]) -> Grade:
    return max(grades, key=ORDER.index, default="held")


def _is_as_expected(
    experiment: Experiment, verdict: Grade, found: set[str], reasons: tuple[Reason, ...]
) -> bool:
    """Whether the file said so: every violation that was found is one that it names, and it keeps its promises."""
    if experiment.expect.verdict == "held" or verdict != "violated":
        return verdict == experiment.expect.verdict
    keeps_promises = not any(one.rule == "promise" for one in reasons)
    return bool(found) and found <= experiment.expect.anomalies and keeps_promises


# -- violations


def _anomalies(case: _Case) -> Iterator[str]:
    for one in case.evidence.anomalies:
        yield f"{one.name}: {one.text}"


def _replicas_differ(case: _Case) -> Iterator[str]:
    for one in case.evidence.replicas or ():
        if one.equal is False:
            yield f"the replicas of {one.topic}-{one.partition} differ below the high watermark: {one.problem}"


def _commands_failed(case: _Case) -> Iterator[str]:
    for one in case.evidence.commands:
        if one.exit_code:
            yield f"the command {one.command!r} ended with exit code {one.exit_code}: {one.text}"


def _hypothesis_violated(case: _Case) -> Iterator[str]:
    for one in case.probes:
        if one.value is not None and not one.probe.holds(one.value):
            unit = PROBES[one.probe.name].unit
            more = f" ({one.text})" if one.text else ""
            yield (
                f"{one.probe.name} {_WHEN[one.when]} was {quantity(one.value, unit)},"
                f" which is not {one.probe.tolerance}{more}"
            )


_WHEN: Final = {"before": "before the faults", "during": "during the faults", "after": "after the faults"}

# -- missing evidence


def _hypothesis_unmeasured(case: _Case) -> Iterator[str]:
    for one in case.probes:
        if one.value is None:
            yield f"{one.probe.name} {_WHEN[one.when]} could not be measured: {one.text}"


def _aborted(case: _Case) -> Iterator[str]:
    if case.evidence.aborted:
        yield f"the run was aborted: {case.evidence.aborted}"


def _without_effect(case: _Case) -> Iterator[str]:
    for step, fault in _faults(case):
        if fault is None or fault.began_s is None:
            said = f": {fault.proof}" if fault is not None and fault.proof else ""
            yield f"{_label(case, step)} never struck{said}"
        elif fault.took_effect is not True:
            yield f"{_label(case, step)} is not known to have taken effect: {fault.proof or 'its probe saw nothing'}"


def _not_ended(case: _Case) -> Iterator[str]:
    for step, fault in _faults(case):
        if fault is None or fault.began_s is None:
            continue
        if fault.ended_s is None:
            yield f"{_label(case, step)} never ended"
        elif fault.healed is not True:
            yield f"{_label(case, step)} is not known to be over: {fault.heal_proof or 'its probe saw nothing'}"
    if case.evidence.healed_s is None:
        last = case.evidence.readings[-1].text if case.evidence.readings else "nobody looked at it"
        yield f"the cluster did not become whole after the faults: {last}"


def _too_little_activity(case: _Case) -> Iterator[str]:
    least = case.experiment.minimums
    for step, fault in _faults(case):
        if fault is None or fault.ended_s is None:
            continue
        aimed = case.experiment.method[step].target.partition
        if aimed is not None and aimed not in partitions_of(answered_sends(case.evidence.samples)):
            yield f"{_label(case, step)}: nobody wrote to {aimed[0]}-{aimed[1]}"
            continue
        for one in activities(fault, case.evidence):
            where = "all partitions" if one.partition is None else f"{one.partition[0]}-{one.partition[1]}"
            for what, number, needed in (
                ("acknowledged operations before it", one.acknowledged_before, least.acknowledged_before),
                ("attempts during it", one.attempts_during, least.attempts_during),
                ("acknowledged operations after it", one.acknowledged_after, least.acknowledged_after),
            ):
                if number < needed:
                    yield f"{_label(case, step)}: {where} had {number} {what}, and {needed} are needed"


def _wrong_target(case: _Case) -> Iterator[str]:
    for step, fault in _faults(case):
        if fault is not None and fault.target_problem:
            yield f"{_label(case, step)} did not strike its target: {fault.target_problem}"


def _no_journal(case: _Case) -> Iterator[str]:
    if case.evidence.journal is None:
        yield "there is no metadata journal: nobody can say what the faults excuse"


def _not_read(case: _Case) -> Iterator[str]:
    reads = {(one.topic, one.partition): one for one in case.evidence.final_reads or ()}
    if case.evidence.final_reads is None:
        yield "no fresh client read the partitions at the end"
        return
    for name in sorted({*case.partitions, *partitions_of(case.evidence.samples)}):
        one = reads.get(name)
        label = f"{name[0]}-{name[1]}"
        if one is None:
            yield f"no fresh client read {label} at the end"
        elif one.problem:
            yield f"{label} could not be read to its end: {one.problem}"
        elif one.log_start > one.expired and not case.experiment.may_expire(name[0]):
            yield (
                f"{label} begins at offset {one.log_start} at the end, though nothing of it expires: nobody could read"
                " what was before"
            )
        elif one.began_at > one.log_start + one.expired or one.read_to < one.log_end:
            yield (
                f"{label} was read from {one.began_at} to {one.read_to} at the end, and not from {one.log_start}"
                f" to {one.log_end}"
            )


def _not_compared(case: _Case) -> Iterator[str]:
    if case.evidence.replicas is None:
        yield "the replicas were not compared"
        return
    compared = {(one.topic, one.partition): one for one in case.evidence.replicas}
    for name in case.partitions:
        one, label = compared.get(name), f"{name[0]}-{name[1]}"
        if one is None:
            yield f"the replicas of {label} were not compared"
        elif one.equal is None:
            yield f"the replicas of {label} could not be compared: {one.problem}"
        elif missing := sorted(set(one.replicas) - set(one.compared)):
            nodes = ", ".join(map(str, missing))
            yield f"the replica of {label} on node {nodes} was not compared: {one.problem or 'it had not caught up'}"


def _history_undecided(case: _Case) -> Iterator[str]:
    if case.evidence.checker_undecided:
        yield f"the history proves nothing: {case.evidence.checker_undecided}"


def _unexplained_losses(case: _Case) -> Iterator[str]:
    """The counts and the checker find losses by ways of their own: they must agree."""
    lost = case.counts.get("lost", 0)
    if lost and not case.evidence.anomalies and not case.counts["excused"]:
        yield f"{lost} records acknowledged with acks=all were not read at the end, and the checker tells of none"


def _too_many_unknown(case: _Case) -> Iterator[str]:
    sends = answered_sends(case.evidence.samples)
    unknown = sum(one.status == "info" for one in sends)
    most = case.experiment.minimums.unknown_at_most
    if sends and unknown > most * len(sends):
        yield f"{unknown} of {len(sends)} sends have an unknown outcome, more than {most:.0%}"


def _starved(case: _Case) -> Iterator[str]:
    one = case.evidence.starvation
    if one is None:
        yield "nobody watched whether the run itself was starved"
    elif one.starved_s > STARVED_MAX_S or one.lag_ms_max > LAG_MAX_MS:
        yield (
            f"the run itself was starved: its clock stood still for {one.lag_ms_max:.0f} ms at once and"
            f" {one.starved_s:.1f} s in all; give it more of the machine"
        )


def _bypassed(case: _Case) -> Iterator[str]:
    if case.evidence.bypasses is None:
        yield "nobody watched whether clients went around the relays"
    for text in case.evidence.bypasses or ():
        yield f"a connection went around the relays: {text}"


def _commands_prove_nothing(case: _Case) -> Iterator[str]:
    for one in case.evidence.commands:
        if one.exit_code is None:
            yield f"the command {one.command!r} did not end in its time"
        elif not one.operations and not case.experiment.hypothesis.probes:
            yield f"the command {one.command!r} wrote no history, and no probe measured anything beside it"


def _promises(case: _Case) -> Iterator[str]:
    for promise in case.experiment.promises:
        if not promise.is_met(case.counts):
            yield f"the file promises {promise.text}, and {promise.count} is {case.counts.get(promise.count, 0)}"


RULES: Final[tuple[Rule, ...]] = (
    Rule("anomaly", "safety", "violated", _anomalies),
    Rule("replicas-differ", "safety", "violated", _replicas_differ),
    Rule("command-failed", "safety", "violated", _commands_failed),
    Rule(HYPOTHESIS, "hypothesis", "violated", _hypothesis_violated),
    Rule("unmeasured", "hypothesis", "undecided", _hypothesis_unmeasured),
    Rule("aborted", "safety", "undecided", _aborted),
    Rule("effect", "safety", "undecided", _without_effect),
    Rule("healed", "safety", "undecided", _not_ended),
    Rule("activity", "safety", "undecided", _too_little_activity),
    Rule("target", "safety", "undecided", _wrong_target),
    Rule("journal", "safety", "undecided", _no_journal),
    Rule("final-read", "safety", "undecided", _not_read),
    Rule("replicas", "safety", "undecided", _not_compared),
    Rule("history", "safety", "undecided", _history_undecided),
    Rule("losses", "safety", "undecided", _unexplained_losses),
    Rule("unknown-outcomes", "safety", "undecided", _too_many_unknown),
    Rule("starved", "safety", "undecided", _starved),
    Rule("bypass", "safety", "undecided", _bypassed),
    Rule("command", "safety", "undecided", _commands_prove_nothing),
    Rule("promise", "safety", "undecided", _promises),
)


def _faults(case: _Case) -> Iterator[tuple[int, FaultEvidence | None]]:
    """Every step of the method, and what became of it."""
    by_step = {one.step: one for one in case.evidence.faults}
    for step in range(len(case.experiment.method)):
        yield step, by_step.get(step)


def _label(case: _Case, step: int) -> str:
    planned = case.experiment.method[step]
    return f"step {step + 1} ({planned.fault} of {planned.target.text})"
