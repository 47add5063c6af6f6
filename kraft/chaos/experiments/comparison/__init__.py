"""The comparison: acks by min.insync.replicas by fault: lost, doubled, unavailable. One run for each fault and each
min.insync.replicas, in which three producers write to one partition side by side, so that one fault strikes them all.

`plan` gives the experiments, `row_of` what came of one, `picture` and `table` show all. Pure; `kraft chaos compare`
plays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kraft.chaos.experiments.document import Experiment, load
from kraft.chaos.experiments.evidence import Evidence
from kraft.chaos.experiments.measures import Window, gaps
from kraft.chaos.experiments.verdict import Grade, Verdict

ACKS: Final = (0, 1, -1)
ACKS_NAMES: Final = {0: "acks=0", 1: "acks=1", -1: "acks=all, idempotent"}
MIN_INSYNC: Final = (1, 2)
SUFFIXES: Final = {0: "_acks0", 1: "_acks1", -1: ""}
NOT_MEASURED: Final = "-"


@dataclass(frozen=True)
class Case:
    """A fault that is compared."""

    name: str
    title: str
    """In a few words, for the table."""
    method: tuple[str, ...]
    """Steps, as a file has them."""
    duration_s: int
    nodes: int = 3
    settings: str = ""
    configs: str = ""
    """Of the topic, besides min.insync.replicas."""


CASES: Final = (
    Case(
        "leader-killed",
        "the leader is killed (kill -9)",
        ("{fault: kill, target: leader of orders-0, at: 2s, for: 5s}",),
        14,
    ),
    Case(
        "leader-killed-ahead",
        "… when its followers have fetched nothing for 2 s",
        (
            "{fault: cut-off, target: leader of orders-0, from: nodes, at: 2s, for: 3s}",
            "{fault: kill, target: node of step 1, at: 4s, for: 6s}",
        ),
        18,
        settings="replica.lag.time.max.ms: 15000, broker.session.timeout.ms: 6000",
    ),
    Case(
        "answers-lost",
        "clients get no answers for 3 s, then a reset",
        (
            "{fault: cut-off, target: leader of orders-0, from: clients, direction: out, at: 2s, for: 3s}",
            "{fault: reset, target: node of step 1, from: clients, at: 5s}",
        ),
        10,
    ),
    Case(
        "last-copy-lost",
        "both followers are stopped, then the leader's disk is lost",
        (
            "{fault: stop, target: replica 2 of orders-0, at: 2s, for: 16s}",
            "{fault: stop, target: replica 3 of orders-0, at: 5s, for: 8s}",
            "{fault: wipe, target: replica 1 of orders-0, at: 9s, for: 10s}",
        ),
        30,
        nodes=5,
        configs=", unclean.leader.election.enable: true",
    ),
)
TEMPLATE: Final = """\
experiment: {name}
teaches: What acks and min.insync.replicas cost and save under one fault.
backends: [real, sim]
duration: {duration}s
steady: 2s
cluster:
  nodes: {nodes}
  settings: {{{settings}}}
  topics:
    orders: {{partitions: 1, replicas: 3, configs: {{min.insync.replicas: {min_insync}{configs}}}}}
workload:
  - {{kind: producer, topic: orders, acks: 0, rate: 20/s}}
  - {{kind: producer, topic: orders, acks: 1, rate: 20/s}}
  - {{kind: idempotent-producer, topic: orders, rate: 20/s}}
  - {{kind: consumer, topic: orders, rate: 40/s}}
method:
{method}
expect: held
promises: [acked >= 50, acked_acks1 >= 50]
"""


@dataclass(frozen=True)
class Planned:
    """One run."""

    case: Case
    min_insync: int
    experiment: Experiment


@dataclass(frozen=True)
class Cell:
    """What one producer got."""

    acks: int
    sent: int
    """Records that were acknowledged; with acks=0, that were sent."""
    lost: int
    doubled: int
    unavailable_ms: int | None
    """Its longest wait for an acknowledgement. None: it waits for none."""


@dataclass(frozen=True)
class Row:
    """What came of one run."""

    case: str
    title: str
    min_insync: int
    verdict: Grade
    why: str
    """Of a run that is not held: the first reason."""
    cells: tuple[Cell, ...]


def plan(names: Iterable[str] = ()) -> list[Planned]:
    """All runs, or those of some faults. Raises KeyError for a fault that is not compared."""
    by_name = {case.name: case for case in CASES}
    chosen = [by_name[name] for name in names] or CASES
    return [
        Planned(case, min_insync, _experiment(case, min_insync))
        for case in chosen
        for min_insync in MIN_INSYNC
    ]


def _experiment(case: Case, min_insync: int) -> Experiment:
    return load(
        TEMPLATE.format(
            name=f"{case.name}-min-insync-{min_insync}",
            duration=case.duration_s,
            nodes=case.nodes,
            settings=case.settings,
            min_insync=min_insync,
            configs=case.configs,
            method="\n".join(f"  - {step}" for step in case.method),
        )
    )


def row_of(planned: Planned, evidence: Evidence, verdict: Verdict) -> Row:
    """The row of one run."""
    reasons = [one.text for one in verdict.reasons if one.grade == verdict.verdict]
    return Row(
        planned.case.name,
        planned.case.title,
        planned.min_insync,
        verdict.verdict,
        next(iter(reasons), ""),
        tuple(_cell(acks, evidence) for acks in ACKS),
    )


def _cell(acks: int, evidence: Evidence) -> Cell:
    counts, suffix = evidence.counts, SUFFIXES[acks]
    own = [one for one in evidence.samples if one.kind == "send" and one.acks == acks]
    waits = gaps(own, Window(evidence.steady_until_s, evidence.ended_s))
    return Cell(
        acks,
        counts.get(f"acked{suffix}", 0),
        counts.get(f"lost{suffix}", 0),
        counts.get(f"doubled{suffix}", 0),
        round(1000 * max((one.length_s for one in waits), default=0.0)) if acks else None,
    )


# -- for people and programs


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown; what is not known to be so is marked, and told below."""
    heads = ["fault", "min.insync.replicas", *(ACKS_NAMES[acks] for acks in ACKS)]
    lines = [f"| {' | '.join(heads)} |", f"| --- | --- |{' --- |' * len(ACKS)}"]
    notes = []
    for row in rows:
        mark = "" if row.verdict == "held" else f" ({row.verdict})"
        if mark:
            notes.append(f"- {row.case}, min.insync.replicas={row.min_insync}: {row.verdict}: {row.why}")
        cells = [shown(cell) for cell in row.cells]
        lines.append(f"| {' | '.join([row.title, f'{row.min_insync}{mark}', *cells])} |")
    lines += ["", "Each cell: records lost / doubled / the longest wait for an acknowledgement."]
    return "\n".join([*lines, *([""] if notes else []), *notes]) + "\n"


def shown(cell: Cell) -> str:
    """A cell in three numbers."""
    return f"{cell.lost} / {cell.doubled} / {seconds(cell)}"


def seconds(cell: Cell) -> str:
    return NOT_MEASURED if cell.unavailable_ms is None else f"{cell.unavailable_ms / 1000:.1f} s"


def document(rows: Sequence[Row], backend: str, seed: int, folder: str) -> dict[str, Any]:
    """The JSON object of `kraft chaos compare`."""
    return {
        "backend": backend,
        "seed": seed,
        "folder": folder,
        "rows": [
            {
                "fault": row.case,
                "title": row.title,
                "min_insync_replicas": row.min_insync,
                "verdict": row.verdict,
                "why": row.why,
                "producers": [
                    {
                        "acks": {0: "0", 1: "1", -1: "all"}[cell.acks],
                        "sent": cell.sent,
                        "lost": cell.lost,
                        "doubled": cell.doubled,
                        "unavailable_ms": cell.unavailable_ms,
                    }
                    for cell in row.cells
                ],
            }
            for row in rows
        ],
    }
