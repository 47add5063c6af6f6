"""What came of a run, as one JSON object and as three sentences; JUnit beside them. Pure."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass
from typing import Any, Final

from kraft.chaos.experiments.document import Experiment, quantity
from kraft.chaos.experiments.evidence import Evidence, FaultEvidence
from kraft.chaos.experiments.measures import activities, noticed, unavailable_ms
from kraft.chaos.experiments.verdict import RULES, Verdict
from kraft.chaos.experiments.vocabulary import PROBES

NAMED_MAX: Final = 3


@dataclass(frozen=True)
class Run:
    """An experiment, the evidence of one run of it, and its verdict."""

    experiment: Experiment
    evidence: Evidence
    verdict: Verdict
    command: str
    """The command that plays it again."""


def document(run: Run, report: str) -> dict[str, Any]:
    """The JSON object of `kraft chaos run`; `report`: the path of the page."""
    evidence, verdict = run.evidence, run.verdict
    counts = verdict.counts
    return {
        "experiment": run.experiment.name,
        "backend": evidence.backend,
        "seed": evidence.seed,
        "verdict": verdict.verdict,
        "safety": verdict.safety,
        "hypothesis": verdict.hypothesis,
        "as_expected": verdict.as_expected,
        "expected": expectation(run.experiment),
        "anomalies": dict(verdict.anomalies),
        "acked": counts.get("acked", 0),
        "lost": counts.get("lost", 0),
        "doubled": counts.get("doubled", 0),
        "counts": dict(sorted(counts.items())),
        "reasons": [
            {"rule": one.rule, "part": one.part, "grade": one.grade, "text": one.text}
            for one in verdict.reasons
        ],
        "probes": [
            {
                "probe": one.probe.name,
                "when": one.when,
                "value": None if one.value is None else round(one.value, 6),
                "tolerance": one.probe.tolerance,
                "held": one.value is not None and one.probe.holds(one.value),
            }
            for one in verdict.probes
        ],
        "faults": [_fault(one, evidence) for one in evidence.faults],
        "excused": list(evidence.excused),
        "environment": dict(evidence.environment),
        "replay": run.command,
        "report": report,
    }


def _fault(fault: FaultEvidence, evidence: Evidence) -> dict[str, Any]:
    detected_s, elected_s = noticed(fault, evidence.journal)
    return {
        "name": fault.name,
        "target": fault.target,
        "nodes": list(fault.nodes),
        "took_effect": bool(fault.took_effect),
        "began_s": _rounded(fault.began_s),
        "ended_s": _rounded(fault.ended_s),
        "unavailable_ms": unavailable_ms(fault, evidence),
        "detected_s": _rounded(detected_s),
        "elected_s": _rounded(elected_s),
        "proof": fault.proof,
        "healed": bool(fault.healed),
        "heal_proof": fault.heal_proof,
        "partitions": [
            {
                "partition": "all" if one.partition is None else f"{one.partition[0]}-{one.partition[1]}",
                "acknowledged_before": one.acknowledged_before,
                "attempts_during": one.attempts_during,
                "acknowledged_during": one.acknowledged_during,
                "acknowledged_after": one.acknowledged_after,
                "unavailable_ms": one.unavailable_ms,
            }
            for one in activities(fault, evidence)
        ],
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def expectation(experiment: Experiment) -> str | dict[str, list[str]]:
    """As the file has it."""
    expect = experiment.expect
    return "held" if expect.verdict == "held" else {"violated": sorted(expect.anomalies)}


def sentences(run: Run) -> tuple[str, str, str]:
    """What was done, what was found, and what that means."""
    experiment, evidence, verdict = run.experiment, run.evidence, run.verdict
    return _done(experiment, evidence), _found(evidence, verdict), _meaning(experiment, verdict)


def _done(experiment: Experiment, evidence: Evidence) -> str:
    world = "in the simulator" if evidence.backend == "sim" else "of real processes"
    struck = [one for one in evidence.faults if one.began_s is not None]
    told = [f"{one.name} of {one.target}{_nodes(one)} at {one.began_s:.1f} s" for one in struck[:NAMED_MAX]]
    if len(struck) > NAMED_MAX:
        told.append(f"{len(struck) - NAMED_MAX} more faults")
    faults = f"; it was struck by {', '.join(told)}" if told else "; nothing struck it"
    return (
        f"A cluster of {experiment.cluster.nodes} nodes {world} served {len(experiment.workload)} workloads for"
        f" {evidence.ended_s:.0f} s{faults}."
    )


def _nodes(fault: FaultEvidence) -> str:
    return f" (node {', '.join(map(str, fault.nodes))})" if fault.nodes else ""


def _found(evidence: Evidence, verdict: Verdict) -> str:
    counts = verdict.counts
    weak = [
        f"{counts[f'lost_acks{acks}']} of {counts.get(f'acked_acks{acks}', 0)} acknowledged with acks={acks} were lost"
        for acks in (0, 1)
        if f"lost_acks{acks}" in counts
    ]
    longest_ms = max((unavailable_ms(one, evidence) for one in evidence.faults), default=0)
    excused = f", {counts['excused']} losses are excused by the faults" if counts.get("excused") else ""
    elections = counts.get("elections", 0)
    elected = "there was 1 election" if elections == 1 else f"there were {elections} elections"
    return (
        f"Of {counts.get('acked', 0)} records acknowledged with acks=all, {counts.get('lost', 0)} were lost and"
        f" {counts.get('doubled', 0)} doubled{''.join(f', {one}' for one in weak)}{excused}; a client waited for at"
        f" most {longest_ms / 1000:.2f} s around a fault, and {elected}."
    )


def _meaning(experiment: Experiment, verdict: Verdict) -> str:
    expected = "as the file expects" if verdict.as_expected else "which is not what the file expects"
    if verdict.verdict == "held":
        return f"Every promise held, {expected}."
    grade = verdict.verdict
    texts = [one.text for one in verdict.reasons if one.grade == grade]
    more = f", and {len(texts) - 1} findings more" if len(texts) > 1 else ""
    if grade == "violated":
        return f"A promise was violated, {expected}: {texts[0]}{more}."
    return f"It could not be decided: {texts[0]}{more}."


def junit(run: Run) -> str:
    """The verdict as JUnit XML: a case for each rule, and one for what the file expects."""
    evidence, verdict = run.evidence, run.verdict
    suite = ET.Element(
        "testsuite",
        name=f"kraft chaos {run.experiment.name} ({evidence.backend}, seed {evidence.seed})",
        tests=str(len(RULES) + 1),
        time=f"{evidence.ended_s:.3f}",
    )
    failures = errors = 0
    for rule in RULES:
        case = ET.SubElement(
            suite, "testcase", classname=run.experiment.name, name=f"{rule.part}: {rule.name}"
        )
        texts = [one.text for one in verdict.reasons if one.rule == rule.name]
        if texts and not verdict.as_expected:
            is_failure = rule.grade == "violated"
            failures, errors = failures + is_failure, errors + (not is_failure)
            told = ET.SubElement(case, "failure" if is_failure else "error", message=_printable(texts[0]))
            told.text = _printable("\n".join(texts))
    case = ET.SubElement(suite, "testcase", classname=run.experiment.name, name="as expected")
    if not verdict.as_expected:
        failures += 1
        wanted = run.experiment.expect.verdict
        ET.SubElement(case, "failure", message=f"the verdict is {verdict.verdict}, and {wanted} is expected")
    suite.set("failures", str(failures))
    suite.set("errors", str(errors))
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _printable(text: str) -> str:
    """XML has no control characters."""
    return "".join(one if one.isprintable() or one in "\n\t" else "�" for one in text)


def probe_rows(verdict: Verdict) -> list[tuple[str, str, str, str, bool | None]]:
    """For people: probe, when, value, tolerance, and whether it held; None: it was not measured."""
    return [
        (
            one.probe.name,
            one.when,
            one.text if one.value is None else quantity(one.value, PROBES[one.probe.name].unit),
            one.probe.tolerance,
            None if one.value is None else one.probe.holds(one.value),
        )
        for one in verdict.probes
    ]
