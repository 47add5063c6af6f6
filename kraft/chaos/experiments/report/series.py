"""The series of a run's timeline: throughput, latencies and errors in buckets of one width, states as spans. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kraft.chaos.experiments.evidence import Evidence, MetadataChange, PartitionName
from kraft.chaos.experiments.measures import percentile

BUCKETS_MAX: Final = 150
BUCKET_MIN_S: Final = 0.4


@dataclass(frozen=True)
class Span:
    """A state that lasted."""

    from_s: float
    until_s: float
    label: str
    title: str
    kind: str
    """A class of the page: "node-3", "nobody", "fault"."""


@dataclass(frozen=True)
class Series:
    """Values at the middles of buckets; None: nothing to measure."""

    name: str
    unit: str
    points: tuple[tuple[float, float | None], ...]

    @property
    def top(self) -> float:
        return max((value for _, value in self.points if value is not None), default=0.0)


@dataclass(frozen=True)
class Buckets:
    """All series of the clients."""

    width_s: float
    acknowledged: Series
    read: Series
    p50_ms: Series
    p99_ms: Series
    max_ms: Series
    failed: Series
    unknown: Series


def buckets(evidence: Evidence) -> Buckets:
    """The clients' series, from the beginning of the workload to its end."""
    width_s = max(BUCKET_MIN_S, evidence.ended_s / BUCKETS_MAX)
    count = max(1, int(evidence.ended_s / width_s + 0.999))
    acknowledged, read, failed, unknown = ([0.0] * count for _ in range(4))
    latencies: list[list[float]] = [[] for _ in range(count)]
    for one in evidence.samples:
        at_s = one.ended_s if one.ended_s is not None else one.began_s
        number = int(at_s / width_s)
        if not 0 <= number < count:
            continue
        if one.kind == "poll":
            read[number] += one.records / width_s
        elif one.status == "ok":
            if one.acks:  # else nobody has acknowledged it
                acknowledged[number] += one.records / width_s
                latencies[number].append(1000 * (at_s - one.began_s))
        else:
            (failed if one.status == "fail" else unknown)[number] += 1
    middles = [(number + 0.5) * width_s for number in range(count)]

    def counted(name: str, unit: str, values: Sequence[float]) -> Series:
        return Series(name, unit, tuple(zip(middles, values, strict=True)))

    def latency(name: str, share: float) -> Series:
        values = [percentile(sorted(one), share) if one else None for one in latencies]
        return Series(name, "ms", tuple(zip(middles, values, strict=True)))

    return Buckets(
        width_s,
        counted("acknowledged", "records/s", acknowledged),
        counted("read", "records/s", read),
        latency("p50", 0.5),
        latency("p99", 0.99),
        latency("max", 1.0),
        counted("failed", "sends", failed),
        counted("unknown", "sends", unknown),
    )


def leaders(evidence: Evidence) -> dict[PartitionName, list[Span]]:
    """By partition: who led it, with which ISR and ELR, from change to change."""
    changes: dict[PartitionName, list[MetadataChange]] = {}
    for one in evidence.journal.partitions if evidence.journal is not None else ():
        changes.setdefault((one.topic, one.partition), []).append(one)
    return {
        name: [
            _leader_span(one, mine[number + 1].at_s if number + 1 < len(mine) else evidence.ended_s)
            for number, one in enumerate(mine)
            if one.at_s < evidence.ended_s
        ]
        for name, mine in sorted(changes.items())
    }


def _leader_span(one: MetadataChange, until_s: float) -> Span:
    isr = ",".join(map(str, sorted(one.isr))) or "nobody"
    elr = f" ELR {','.join(map(str, sorted(one.elr)))}" if one.elr else ""
    who = f"leader {one.leader}" if one.leader >= 0 else "no leader"
    unclean = ", elected uncleanly" if one.unclean else ""
    return Span(
        max(0.0, one.at_s),
        until_s,
        f"{who} · ISR {isr}{elr}",
        f"{one.at_s:.3f} s: {who}, epoch {one.leader_epoch}, ISR {isr}{elr}{unclean} (metadata offset {one.offset})",
        f"node-{one.leader % 9}" if one.leader >= 0 else "nobody",
    )


def controllers(evidence: Evidence) -> list[Span]:
    """Who was the active controller."""
    known = evidence.journal.controllers if evidence.journal is not None else ()
    return [
        Span(
            max(0.0, one.at_s),
            known[number + 1].at_s if number + 1 < len(known) else evidence.ended_s,
            f"controller {one.node}",
            f"{one.at_s:.3f} s: node {one.node} is the active controller, epoch {one.epoch}",
            f"node-{one.node % 9}",
        )
        for number, one in enumerate(known)
    ]


def faults(evidence: Evidence) -> list[Span]:
    """The faults that struck."""
    return [
        Span(
            one.began_s,
            evidence.ended_s if one.ended_s is None else one.ended_s,
            f"{one.name}: node {', '.join(map(str, one.nodes))}" if one.nodes else one.name,
            f"{one.name} of {one.target}, from {one.began_s:.3f} s on: {one.proof}",
            "fault",
        )
        for one in evidence.faults
        if one.began_s is not None
    ]


def unhealthy(evidence: Evidence) -> list[Span]:
    """When the cluster was not whole."""
    spans: list[Span] = []
    began: tuple[float, str] | None = None
    for one in evidence.readings:
        if one.ailments and began is None:
            began = one.at_s, one.text
        elif not one.ailments and began is not None:
            spans.append(
                Span(began[0], one.at_s, "not whole", f"from {began[0]:.2f} s on: {began[1]}", "unwell")
            )
            began = None
    if began is not None:
        spans.append(Span(began[0], evidence.ended_s, "not whole", began[1], "unwell"))
    return spans
