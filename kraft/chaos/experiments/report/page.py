"""The page of a run: one HTML file that stands alone, for a screen in light or dark, and for paper.

Everything on it is drawn from evidence and verdict by pure functions; style and the script that zooms the timeline are
put into it (`page.css`, `page.js`), and nothing is fetched from elsewhere. Without the script the page shows all, and
the whole run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Final

from kraft.chaos.experiments.evidence import Evidence
from kraft.chaos.experiments.measures import activities, noticed
from kraft.chaos.experiments.report.series import (
    Buckets,
    Series,
    Span,
    buckets,
    controllers,
    faults,
    leaders,
    unhealthy,
)
from kraft.chaos.experiments.report.summary import Run, probe_rows, sentences

PARTITIONS_MAX: Final = 12
"""Rows of partitions on the timeline; the first ones by name."""
LOG_LINES_MAX: Final = 200
EXCUSES_MAX: Final = 20
LANES_MAX: Final = 20
TICKS: Final = 8


def page(run: Run) -> str:
    """The HTML of a run."""
    folder = files(__package__)
    style, script = ((folder / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    title = f"{run.experiment.name}: {run.verdict.verdict}"
    body = "\n".join(
        part
        for section in (
            _head,
            _findings,
            _timeline,
            _fault_table,
            _steady_state,
            _counts,
            _evidence,
            _logs,
            _around,
        )
        for part in section(run)
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        f"<script>\n{script}</script>\n</body>\n</html>\n"
    )


# -- what came of it


def _head(run: Run) -> Iterator[str]:
    verdict = run.verdict
    yield f'<h1>{escape(run.experiment.name)}<span class="badge {verdict.verdict}">{verdict.verdict}</span></h1>'
    yield f'<p class="teaches">{escape(run.experiment.teaches)}</p>'
    expected = "as expected" if verdict.as_expected else "not as expected"
    grades = (("safety", verdict.safety), ("hypothesis", verdict.hypothesis))
    told = "".join(f'<span>{name} <b class="{grade}">{grade}</b></span>' for name, grade in grades)
    yield (
        f'<div class="grades">{told}<span>{expected}</span><span>{escape(run.evidence.backend)}, seed'
        f" {run.evidence.seed}</span></div>"
    )
    yield from (f"<p>{escape(one)}</p>" for one in sentences(run))


def _findings(run: Run) -> Iterator[str]:
    if run.verdict.reasons:
        yield "<h2>Findings</h2>"
        items = "".join(
            f'<li class="{one.grade}"><b>{one.grade}</b> ({escape(one.rule)}) <span>{escape(one.text)}</span></li>'
            for one in run.verdict.reasons
        )
        yield f'<ul class="findings">{items}</ul>'


# -- the timeline


def _timeline(run: Run) -> Iterator[str]:
    evidence = run.evidence
    series, struck = buckets(evidence), faults(evidence)
    yield "<h2>Timeline</h2>"
    yield (
        '<div class="zoom"><button data-act="in">zoom in</button><button data-act="out">zoom out</button>'
        '<button data-act="left">←</button><button data-act="right">→</button><button data-act="all">all</button>'
        "<span>or drag over a part of it</span></div>"
    )
    shades = "".join(_placed("shade", one, evidence) for one in struck)
    shades += _mark(evidence.steady_until_s, evidence, "the method begins")
    if evidence.healed_s is not None:
        shades += _mark(evidence.healed_s, evidence, "everything has healed")
    yield f'<div class="timeline" data-seconds="{evidence.ended_s:.3f}">'
    yield _lanes("faults", struck, evidence)
    yield _row("not whole", _spans(unhealthy(evidence), evidence) + shades)
    yield _row("controller", _spans(controllers(evidence), evidence) + shades)
    by_partition = leaders(evidence)
    for name in list(by_partition)[:PARTITIONS_MAX]:
        yield _row(f"{name[0]}-{name[1]}", _spans(by_partition[name], evidence) + shades)
    if len(by_partition) > PARTITIONS_MAX:
        yield _row("", f"{len(by_partition) - PARTITIONS_MAX} more partitions")
    yield from _charts(series, evidence, shades)
    ticks = "".join(
        f'<span style="left:{100 * n / TICKS:.2f}%">{evidence.ended_s * n / TICKS:.1f} s</span>'
        for n in range(TICKS + 1)
    )
    yield f'<div class="row"><div class="name"></div><div class="axis">{ticks}</div></div></div>'


@dataclass(frozen=True)
class _Scale:
    """From values to heights in a chart of 100, downwards."""

    least: float
    most: float
    is_log: bool = False

    def height(self, value: float) -> float:
        if self.is_log:
            part = math.log(max(value, self.least) / self.least) / math.log(self.most / self.least)
        else:
            part = value / self.most
        return 98.0 - 94.0 * part


def _charts(series: Buckets, evidence: Evidence, shades: str) -> Iterator[str]:
    lines = ((series.acknowledged, "first"), (series.read, "second"))
    scale = _Scale(0.0, max(one.top for one, _ in lines) or 1.0)
    label = f"throughput, up to {scale.most:.4g} records/s"
    yield _chart(label, lines, scale, _area(series.acknowledged, scale), evidence, shades)
    latencies = ((series.max_ms, "third"), (series.p99_ms, "second"), (series.p50_ms, "first"))
    values = [value for one, _ in latencies for _, value in one.points if value]
    least, most = max(min(values, default=1.0), 0.01), max(values, default=1.0)
    scale = _Scale(least, max(most, least * 10), is_log=True)
    label = f"latency, {scale.least:.3g} to {scale.most:.4g} ms, logarithmic"
    yield _chart(label, latencies, scale, "", evidence, shades)
    yield _errors(series, evidence, shades)


def _chart(
    label: str,
    lines: Sequence[tuple[Series, str]],
    scale: _Scale,
    under: str,
    evidence: Evidence,
    shades: str,
) -> str:
    colours = {"first": "--first", "second": "--second", "third": "--third"}
    keys = "".join(f'<span class="key" style="--c:var({colours[c]})">{one.name}</span>' for one, c in lines)
    paths = "".join(f'<path class="{colour}" d="{_path(one, scale)}"/>' for one, colour in lines)
    return _row(
        f"{escape(label)}{keys}",
        f'<svg viewBox="0 0 {evidence.ended_s:.3f} 100" preserveAspectRatio="none" role="img"'
        f' aria-label="{escape(label)}">{under}{paths}</svg>{shades}',
        "chart",
    )


def _path(series: Series, scale: _Scale) -> str:
    """A line with a gap where there is nothing to measure; a point that stands alone is a short line."""
    words: list[str] = []
    is_open = False
    for number, (at_s, value) in enumerate(series.points):
        if value is None:
            is_open = False
            continue
        words.append(f"{'L' if is_open else 'M'}{at_s:.3f} {scale.height(value):.2f}")
        following = series.points[number + 1][1] if number + 1 < len(series.points) else None
        if not is_open and following is None:
            words.append("h0.05")
        is_open = True
    return "".join(words)


def _area(series: Series, scale: _Scale) -> str:
    if not series.points:
        return ""
    first, last = series.points[0][0], series.points[-1][0]
    tops = "".join(f"L{at_s:.3f} {scale.height(value or 0.0):.2f}" for at_s, value in series.points)
    return f'<path class="area" d="M{first:.3f} 98{tops}L{last:.3f} 98Z"/>'


def _errors(series: Buckets, evidence: Evidence, shades: str) -> str:
    stacked = [
        (at_s, failed or 0.0, unknown or 0.0)
        for (at_s, failed), (_, unknown) in zip(series.failed.points, series.unknown.points, strict=True)
    ]
    top = max((failed + unknown for _, failed, unknown in stacked), default=0.0)
    if not top:
        return _row("errors", f'<span class="soft">every send was acknowledged</span>{shades}')
    bars = "".join(
        _bar("failed", at_s, series.width_s, 0.0, failed, top)
        + _bar("unknown", at_s, series.width_s, failed, unknown, top)
        for at_s, failed, unknown in stacked
    )
    keys = (
        '<span class="key" style="--c:var(--bad)">failed</span>'
        '<span class="key" style="--c:var(--doubt)">unknown</span>'
    )
    return _row(
        f"errors, up to {top:g}{keys}",
        f'<svg viewBox="0 0 {evidence.ended_s:.3f} 100" preserveAspectRatio="none" role="img" aria-label="errors">'
        f"{bars}</svg>{shades}",
        "chart low",
    )


def _bar(kind: str, at_s: float, width_s: float, under: float, value: float, top: float) -> str:
    if not value:
        return ""
    height = 96 * value / top
    y = 98 - 96 * under / top - height
    left_s = at_s - width_s / 2
    return f'<rect class="{kind}" x="{left_s:.3f}" y="{y:.2f}" width="{width_s:.3f}" height="{height:.2f}"/>'


def _lanes(name: str, spans: Sequence[Span], evidence: Evidence) -> str:
    """Spans that overlap lie below each other."""
    lanes: list[list[Span]] = []
    for one in sorted(spans, key=lambda span: span.from_s):
        free = next((lane for lane in lanes if lane[-1].until_s <= one.from_s), None)
        if free is not None:
            free.append(one)
        elif len(lanes) < LANES_MAX:
            lanes.append([one])
        else:
            lanes[-1].append(one)
    drawn = "".join(f'<div class="lane">{_spans(lane, evidence)}</div>' for lane in lanes)
    return _row(name, drawn or '<span class="soft">none</span>')


def _spans(spans: Iterable[Span], evidence: Evidence) -> str:
    return "".join(_placed(f"span {one.kind}", one, evidence, one.label) for one in spans if one.until_s >= 0)


def _placed(kind: str, one: Span, evidence: Evidence, label: str = "") -> str:
    whole = max(evidence.ended_s, 1e-9)
    left, width = 100 * one.from_s / whole, 100 * (one.until_s - one.from_s) / whole
    return (
        f'<div class="{kind}" data-from="{one.from_s:.3f}" data-until="{one.until_s:.3f}" title="{escape(one.title)}"'
        f' style="left:{left:.3f}%;width:{width:.3f}%">{escape(label)}</div>'
    )


def _mark(at_s: float, evidence: Evidence, title: str) -> str:
    left = 100 * at_s / max(evidence.ended_s, 1e-9)
    return f'<div class="mark" data-from="{at_s:.3f}" title="{escape(title)}" style="left:{left:.3f}%"></div>'


def _row(name: str, content: str, kind: str = "") -> str:
    return f'<div class="row"><div class="name">{name}</div><div class="track {kind}">{content}</div></div>'


# -- tables


def _table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], numbers: frozenset[int] = frozenset()
) -> str:
    """Cells are escaped; `numbers`: columns that are set to the right."""

    def cell(tag: str, number: int, value: object) -> str:
        kind = ' class="number"' if number in numbers else ""
        return f"<{tag}{kind}>{escape(str(value))}</{tag}>"

    def cells(tag: str, values: Sequence[object]) -> str:
        return "".join(cell(tag, number, value) for number, value in enumerate(values))

    drawn = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{cells("th", columns)}</tr>{drawn}</table></div>'


def _fault_table(run: Run) -> Iterator[str]:
    evidence = run.evidence
    if not evidence.faults:
        return
    yield "<h2>Faults, and what they cost</h2>"
    rows = []
    for one in evidence.faults:
        detected_s, elected_s = noticed(one, evidence.journal)
        for activity in activities(one, evidence):
            name = activity.partition
            rows.append(
                (
                    one.step + 1,
                    f"{one.name} of {one.target}",
                    ", ".join(map(str, one.nodes)),
                    _seconds(one.began_s),
                    _seconds(one.ended_s),
                    "all" if name is None else f"{name[0]}-{name[1]}",
                    _after(detected_s, one.began_s),
                    _after(elected_s, one.began_s),
                    f"{activity.unavailable_ms / 1000:.2f} s",
                )
            )
    yield _table(
        (
            "step",
            "fault",
            "node",
            "began",
            "ended",
            "partition",
            "noticed after",
            "led again after",
            "client waited",
        ),
        rows,
        frozenset((3, 4, 6, 7, 8)),
    )
    yield "<h2>Did they take effect, and did they end?</h2>"
    yield _table(
        ("step", "took effect", "healed", "before", "during", "after"),
        [
            (
                one.step + 1,
                f"{_yes(one.took_effect)}: {one.proof}",
                f"{_yes(one.healed)}: {one.heal_proof}",
                *_summed(run, number),
            )
            for number, one in enumerate(evidence.faults)
        ],
        frozenset((3, 4, 5)),
    )
    yield (
        '<p class="soft">before and after: acknowledged sends in the partitions that the fault was aimed at; during:'
        " attempts.</p>"
    )


def _summed(run: Run, number: int) -> tuple[int, int, int]:
    found = activities(run.evidence.faults[number], run.evidence)
    return (
        sum(one.acknowledged_before for one in found),
        sum(one.attempts_during for one in found),
        sum(one.acknowledged_after for one in found),
    )


def _yes(value: bool | None) -> str:
    return "unknown" if value is None else "yes" if value else "no"


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.2f} s"


def _after(value: float | None, since_s: float | None) -> str:
    return "not seen" if value is None or since_s is None else f"{value - since_s:.2f} s"


def _steady_state(run: Run) -> Iterator[str]:
    rows = probe_rows(run.verdict)
    if rows:
        yield "<h2>Steady state</h2>"
        marks = {True: "held", False: "violated", None: "not measured"}
        yield _table(
            ("probe", "when", "value", "tolerance", "verdict"),
            [(*row[:4], marks[row[4]]) for row in rows],
            frozenset((2,)),
        )


def _counts(run: Run) -> Iterator[str]:
    counts = run.verdict.counts
    topics = sorted({name.partition("(")[2].rstrip(")") for name in counts if "(" in name})
    names = sorted(name for name in counts if "(" not in name)
    yield "<h2>Counts</h2>"
    yield _table(
        ("count", "all", *topics),
        [(name, counts[name], *(counts.get(f"{name}({topic})", "") for topic in topics)) for name in names],
        frozenset(range(1, len(topics) + 2)),
    )


def _evidence(run: Run) -> Iterator[str]:
    evidence = run.evidence
    for one in evidence.anomalies:
        yield f'<h2 class="violated">Anomaly: {escape(one.name)}</h2><p>{escape(one.text)}</p>'
        if one.operations:
            yield f"<pre>{escape(chr(10).join(one.operations))}</pre>"
    if evidence.excused:
        yield "<h2>Excused by the faults</h2>"
        items = "".join(f"<li>{escape(one)}</li>" for one in evidence.excused[:EXCUSES_MAX])
        yield f"<ul>{items}</ul>"
    yield "<h2>What was read and compared at the end</h2>"
    replicas = {(one.topic, one.partition): one for one in evidence.replicas or ()}
    rows = []
    for read in evidence.final_reads or ():
        copy = replicas.get((read.topic, read.partition))
        rows.append(
            (
                f"{read.topic}-{read.partition}",
                f"{read.began_at} to {read.read_to}",
                f"{read.log_start} to {read.log_end}",
                "none" if copy is None else ", ".join(map(str, copy.compared)) or "none",
                "not compared"
                if copy is None
                else {True: "equal", False: "DIFFERENT", None: "not known"}[copy.equal],
                "" if copy is None else copy.problem,
            )
        )
    if rows:
        yield _table(("partition", "read", "log", "replicas compared", "copies", ""), rows)
    else:
        yield "<p>Nothing was read.</p>"


def _logs(run: Run) -> Iterator[str]:
    lines = run.evidence.logs
    if lines:
        text = "\n".join(
            f"{one.at_s:9.3f} s  {one.node}  {one.level}  {one.text}" for one in lines[:LOG_LINES_MAX]
        )
        summary = f"<summary>{len(lines)} lines of the nodes</summary>"
        yield f"<h2>Logs</h2><details>{summary}<pre>{escape(text)}</pre></details>"


def _around(run: Run) -> Iterator[str]:
    yield "<h2>Environment</h2>"
    yield _table(("what", "value"), [("seed", run.evidence.seed), *sorted(run.evidence.environment.items())])
    yield f"<h2>Play it again</h2><pre>{escape(run.command)}</pre>"
    yield f"<h2>The file</h2><pre>{escape(run.experiment.text)}</pre>"
