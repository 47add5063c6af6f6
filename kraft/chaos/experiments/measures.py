"""What probes and faults measure, computed from samples and readings of a window of the run. Pure.

Both worlds use it while a run goes on (aborts), and the verdict afterwards. Only sends that somebody answers are
measured: those with acks=0 have no latency and no outcome.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kraft.chaos.experiments.document import Experiment, Probe, quantity
from kraft.chaos.experiments.evidence import (
    Evidence,
    FaultEvidence,
    Journal,
    PartitionName,
    Reading,
    Sample,
)
from kraft.chaos.experiments.vocabulary import PROBES

INSTANT_S: Final = 1.0
"""A fault that does not last is looked at for this long."""
STEADY_FROM_S: Final = 1.0
"""The workload's first moments, in which clients connect, are not measured."""


@dataclass(frozen=True)
class Window:
    """A part of the run, in seconds since the workload began."""

    from_s: float
    until_s: float

    @property
    def length_s(self) -> float:
        return max(0.0, self.until_s - self.from_s)

    def holds(self, at_s: float | None) -> bool:
        return at_s is not None and self.from_s <= at_s <= self.until_s


@dataclass(frozen=True)
class Gap:
    """A time in which a client waited for a partition's next acknowledgement."""

    partition: PartitionName
    from_s: float
    until_s: float

    @property
    def length_s(self) -> float:
        return self.until_s - self.from_s


@dataclass(frozen=True)
class Measured:
    """A probe's value in one window."""

    probe: Probe
    when: str
    value: float | None
    """None: there was nothing to measure."""
    text: str = ""
    """What else there is to say: the first ailments."""


@dataclass(frozen=True)
class Activity:
    """What clients did in one partition around a fault; partition None: in all together."""

    partition: PartitionName | None
    acknowledged_before: int
    attempts_during: int
    acknowledged_during: int
    acknowledged_after: int
    unavailable_ms: int


def windows(evidence: Evidence) -> dict[str, Window]:
    """The windows "before", "during" and "after"; "after" only where the run healed."""
    until_s = evidence.ended_s if evidence.healed_s is None else evidence.healed_s
    found = {
        "before": Window(min(STEADY_FROM_S, evidence.steady_until_s / 2), evidence.steady_until_s),
        "during": Window(evidence.steady_until_s, until_s),
    }
    if evidence.healed_s is not None:
        found["after"] = Window(evidence.healed_s, evidence.ended_s)
    return found


def measured(experiment: Experiment, evidence: Evidence) -> tuple[Measured, ...]:
    """Every probe of the hypothesis in each of its windows."""
    found = windows(evidence)
    results = []
    for probe in experiment.hypothesis.probes:
        for when in ("before", "during", "after"):
            if when not in probe.when:
                continue
            if when not in found:
                results.append(Measured(probe, when, None, "the cluster never healed"))
                continue
            value, text = measure(probe.name, evidence.samples, evidence.readings, found[when])
            results.append(Measured(probe, when, value, text))
    return tuple(results)


def measure(
    name: str, samples: Sequence[Sample], readings: Sequence[Reading], window: Window
) -> tuple[float | None, str]:
    """A probe's value in a window, and what else there is to say. None: there was nothing to measure.

    Of what is read from the cluster the worst counts while faults may strike; the last, in a window of rest, is left
    to the caller, who chooses the window.
    """
    if name in ("ailments", "leaderless", "under-replicated"):
        inside = [one for one in readings if window.holds(one.at_s)]
        if not inside:
            return None, "nobody looked at the cluster"
        worst = max(inside, key=lambda one: int(getattr(one, name.replace("-", "_"))))
        return float(getattr(worst, name.replace("-", "_"))), worst.text
    if name == "unavailable":
        found = gaps(samples, window)
        if not answered_sends(samples):
            return None, "nobody wrote"
        longest = max(found, key=lambda one: one.length_s, default=None)
        where = (
            ""
            if longest is None
            else f"{longest.partition[0]}-{longest.partition[1]} from {longest.from_s:.2f} s on"
        )
        return (0.0 if longest is None else longest.length_s), where
    if not window.length_s:
        return None, "there was no time to measure"
    if name in ("acknowledged", "read"):
        of_kind = answered_sends(samples) if name == "acknowledged" else _polls(samples)
        done = [one for one in of_kind if one.status == "ok" and window.holds(one.ended_s)]
        return sum(one.records for one in done) / window.length_s, ""
    return _of_sends(name, answered_sends(samples), window)


def answered_sends(samples: Iterable[Sample]) -> list[Sample]:
    """The sends that somebody answers. One with acks=0 is told "ok" by its own client: it is evidence of nothing."""
    return [one for one in samples if one.kind == "send" and one.acks]


def _polls(samples: Iterable[Sample]) -> list[Sample]:
    return [one for one in samples if one.kind == "poll"]


def _of_sends(name: str, sends: Sequence[Sample], window: Window) -> tuple[float | None, str]:
    if name == "errors":
        ended = [one for one in sends if window.holds(one.ended_s)]
        return (
            (sum(one.status != "ok" for one in ended) / len(ended), "") if ended else (None, "no send ended")
        )
    latencies = latencies_s(sends, window)
    if not latencies:
        return None, "no send was acknowledged"
    return percentile(latencies, 0.5 if name == "latency-p50" else 0.99), ""


def latencies_s(sends: Iterable[Sample], window: Window) -> list[float]:
    """Of acknowledged sends that were acknowledged in the window; sorted."""
    return sorted(
        one.ended_s - one.began_s
        for one in sends
        if one.status == "ok" and one.ended_s is not None and window.holds(one.ended_s)
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """The nearest rank: the smallest value that so large a share does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def gaps(samples: Iterable[Sample], window: Window) -> list[Gap]:
    """The waits for an acknowledgement, partition by partition, that overlap the window, cut to it.

    A wait begins with the acknowledgement before it, or with the first send after that, whichever is later: a
    partition to which nobody sends is not unavailable.
    """
    by_partition: defaultdict[PartitionName, list[Sample]] = defaultdict(list)
    for one in answered_sends(samples):
        by_partition[one.topic, one.partition].append(one)
    return [gap for name, sends in sorted(by_partition.items()) for gap in _gaps_of(name, sends, window)]


def _gaps_of(name: PartitionName, sends: Sequence[Sample], window: Window) -> list[Gap]:
    ends = sorted(one.ended_s for one in sends if one.status == "ok" and one.ended_s is not None)
    waiting = sorted(sends, key=lambda one: one.began_s)
    found, number, open_from_s = [], 0, math.inf
    before_s = -math.inf
    still_open: list[Sample] = []
    for end_s in [*ends, math.inf]:
        still_open = [one for one in still_open if one.ended_s is None or one.ended_s > before_s]
        while number < len(waiting) and waiting[number].began_s < end_s:
            still_open.append(waiting[number])
            number += 1
        open_from_s = max(before_s, min((one.began_s for one in still_open), default=math.inf))
        from_s, until_s = max(open_from_s, window.from_s), min(end_s, window.until_s)
        if from_s < until_s:
            found.append(Gap(name, from_s, until_s))
        before_s = end_s
    return found


def activities(fault: FaultEvidence, evidence: Evidence) -> tuple[Activity, ...]:
    """What clients did around a fault, in each partition that it was aimed at."""
    if fault.began_s is None:
        return ()
    sends = answered_sends(evidence.samples)
    written = {one.topic for one in sends}
    aimed = [name for name in fault.partitions if name[0] in written]
    if not aimed:
        return (_activity(None, sends, fault, evidence),)
    return tuple(
        _activity(name, [one for one in sends if (one.topic, one.partition) == name], fault, evidence)
        for name in aimed
    )


def _activity(
    name: PartitionName | None, sends: Sequence[Sample], fault: FaultEvidence, evidence: Evidence
) -> Activity:
    assert fault.began_s is not None, "the caller has looked"
    began_s = fault.began_s
    ended_s = max(evidence.ended_s if fault.ended_s is None else fault.ended_s, began_s + INSTANT_S)
    during = Window(began_s, ended_s)
    ok = [one for one in sends if one.status == "ok"]
    open_during = [
        one for one in sends if one.began_s <= ended_s and (one.ended_s is None or one.ended_s >= began_s)
    ]
    waits = [
        gap.length_s
        for gap in gaps(sends, Window(0.0, evidence.ended_s))
        if gap.until_s >= began_s and gap.from_s <= ended_s
    ]
    return Activity(
        partition=name,
        acknowledged_before=sum(one.ended_s is not None and one.ended_s < began_s for one in ok),
        attempts_during=len(open_during),
        acknowledged_during=sum(during.holds(one.ended_s) for one in ok),
        acknowledged_after=sum(one.began_s > ended_s for one in ok),
        unavailable_ms=round(1000 * max(waits, default=0.0)),
    )


def unavailable_ms(fault: FaultEvidence, evidence: Evidence) -> int:
    """The longest wait of a client in a partition that the fault was aimed at, from before to behind its end."""
    return max((one.unavailable_ms for one in activities(fault, evidence)), default=0)


def noticed(fault: FaultEvidence, journal: Journal | None) -> tuple[float | None, float | None]:
    """When the cluster noticed a fault, and when the partitions that it was aimed at had a leader that it did not
    strike: the first such change of each partition, the latest of them. None: it did not happen."""
    if journal is None or fault.began_s is None:
        return None, None
    began_s, aimed = fault.began_s, set(fault.partitions)
    changes = [
        one for one in journal.partitions if one.at_s >= began_s and (one.topic, one.partition) in aimed
    ]
    elected: dict[PartitionName, float] = {}
    for one in changes:
        if one.leader >= 0 and one.leader not in fault.nodes:
            elected.setdefault((one.topic, one.partition), one.at_s)
    detected_s = min((one.at_s for one in changes), default=None)
    if not aimed:
        return min((one.at_s for one in journal.controllers if one.at_s >= began_s), default=None), None
    return detected_s, max(elected.values(), default=None)


def counts_of_gaps(evidence: Evidence) -> dict[str, int]:
    """The longest wait for an acknowledgement, "unavailable_ms", of all partitions and by topic."""
    counts: dict[str, int] = {"unavailable_ms": 0}
    for gap in gaps(evidence.samples, Window(0.0, evidence.ended_s)):
        for name in ("unavailable_ms", f"unavailable_ms({gap.partition[0]})"):
            counts[name] = max(counts.get(name, 0), round(1000 * gap.length_s))
    return counts


def abort_reason(
    experiment: Experiment, samples: Sequence[Sample], readings: Sequence[Reading], now_s: float
) -> str:
    """The first abort condition that is met, in words; "" if none is. All since the method began is measured."""
    window = Window(experiment.steady_s, now_s)
    for abort in experiment.aborts:
        value, text = measure(abort.probe.name, samples, readings, window)
        if value is not None and not abort.probe.holds(value):
            shown = quantity(value, PROBES[abort.probe.name].unit)
            more = f" ({text})" if text else ""
            return f"{abort.probe.name} was {shown}, which is not {abort.probe.tolerance}{more}"
    return ""
