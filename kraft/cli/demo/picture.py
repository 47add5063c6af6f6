"""The ingested table as a picture: queried with Spark SQL, drawn by matplotlib.

`query` looks at the view `ingested`, the table's rows, and at `samples`, the fields of the host's samples among them
(`SAMPLE_FIELDS`; none where files were streamed). `draw` writes a PNG. The demo ends with it, and so does
`examples/ingest_and_plot.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

SAMPLE_FIELDS = (
    "timestamp_ms BIGINT, kind STRING, name STRING, user BIGINT, nice BIGINT, system BIGINT, idle BIGINT,"
    " iowait BIGINT, irq BIGINT, softirq BIGINT, steal BIGINT, MemTotal_kb BIGINT, MemAvailable_kb BIGINT,"
    " Buffers_kb BIGINT, Cached_kb BIGINT, received_bytes BIGINT, sent_bytes BIGINT"
)
"""What is drawn of a sample, as Spark's DDL."""

_BINS = 40
_INTERFACES = 4
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
"""Told apart by people who are colour-blind (Okabe and Ito)."""

_SPAN = """
    SELECT min(unix_millis(timestamp)) AS first_ms, max(unix_millis(timestamp)) AS last_ms, count(*) AS records
    FROM ingested
"""
_RECORDS = """
    SELECT partition, CAST(floor((unix_millis(timestamp) - {first_ms}) / {bin_ms}) AS INT) AS bin, count(*) AS records
    FROM ingested GROUP BY partition, bin
"""
_CPU = """
    WITH ticks AS (
        SELECT timestamp_ms, user + nice AS user, system + irq + softirq AS system, iowait,
               user + nice + system + idle + iowait + irq + softirq + steal AS total
        FROM samples WHERE kind = 'cpu' AND name = 'cpu'
    ), steps AS (
        SELECT timestamp_ms, user - lag(user) OVER w AS user, system - lag(system) OVER w AS system,
               iowait - lag(iowait) OVER w AS iowait, total - lag(total) OVER w AS total
        FROM ticks WINDOW w AS (ORDER BY timestamp_ms)
    )
    SELECT timestamp_ms, 100 * user / total AS user, 100 * system / total AS system, 100 * iowait / total AS iowait
    FROM steps WHERE total > 0 ORDER BY timestamp_ms
"""
_MEMORY = """
    SELECT timestamp_ms, (MemTotal_kb - MemAvailable_kb) / 1048576 AS used,
           (Buffers_kb + Cached_kb) / 1048576 AS cache, MemTotal_kb / 1048576 AS total
    FROM samples WHERE kind = 'memory' ORDER BY timestamp_ms
"""
_NETWORK = """
    SELECT name, timestamp_ms, (sent_bytes - lag(sent_bytes) OVER w) / (timestamp_ms - lag(timestamp_ms) OVER w) / 1000
           AS mb_per_s
    FROM samples WHERE kind = 'network' WINDOW w AS (PARTITION BY name ORDER BY timestamp_ms)
"""

Line = list[tuple[float, float]]
"""Seconds since the first record, and a value."""


class Event(NamedTuple):
    """A moment to be marked in every panel."""

    label: str
    time_ms: int


class Figures(NamedTuple):
    """What the queries found. Times are seconds since the first record."""

    first_ms: int
    bin_s: float
    records: dict[int, dict[int, int]]
    """By partition: records by bin."""
    cpu: dict[str, Line]
    """Per cent of all cores, by what they did."""
    memory: dict[str, Line]
    """GiB."""
    network: dict[str, Line]
    """MB/s sent, by interface; the busiest."""

    @property
    def total(self) -> int:
        return sum(sum(bins.values()) for bins in self.records.values())


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def show_samples(spark: Any, *, are_there: bool) -> None:
    """Makes the view `samples` of the values in `ingested`, or an empty one."""
    spark.sql(
        f"""
        CREATE OR REPLACE TEMPORARY VIEW samples AS SELECT sample.* FROM (
            SELECT from_json(CAST(value AS STRING), '{SAMPLE_FIELDS}') AS sample FROM ingested WHERE {are_there}
        )
        """
    )


def query(spark: Any) -> Figures:
    """Asks the views `ingested` and `samples`, in a few queries whose answers are small."""
    span = spark.sql(_SPAN).first()
    first_ms = span.first_ms or 0
    bin_ms = max(((span.last_ms or 0) - first_ms) // _BINS, 1)
    records: dict[int, dict[int, int]] = {}
    for row in spark.sql(_RECORDS.format(first_ms=first_ms, bin_ms=bin_ms)).collect():
        records.setdefault(row.partition, {})[row.bin] = row.records

    def lines(text: str, names: Sequence[str]) -> dict[str, Line]:
        rows = spark.sql(text).collect()
        return {
            name: [((row.timestamp_ms - first_ms) / 1000, row[name]) for row in rows]
            for name in names
            if rows
        }

    network: dict[str, Line] = {}
    for row in spark.sql(_NETWORK).collect():
        if row.mb_per_s is not None:
            network.setdefault(row.name, []).append(((row.timestamp_ms - first_ms) / 1000, row.mb_per_s))
    sent = {name: sum(value for _, value in line) for name, line in network.items()}
    busiest = sorted(filter(sent.get, network), key=lambda name: (-sent[name], name))
    return Figures(
        first_ms,
        bin_ms / 1000,
        records,
        lines(_CPU, ("user", "system", "iowait")),
        lines(_MEMORY, ("used", "cache", "total")),
        {name: sorted(network[name]) for name in busiest[:_INTERFACES]},
    )


def draw(figures: Figures, title: str, path: Path, event: Event | None = None) -> None:
    """Writes the PNG: records over time, and the host's panels where it was sampled."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    has_host = bool(figures.cpu)
    figure = Figure(figsize=(12, 7.5) if has_host else (10, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=15, fontweight="bold")
    if has_host:
        (cpu, memory), (network, records) = figure.subplots(2, 2)
        _areas(cpu, figures.cpu, "CPU of the host", "% of all cores", top=100)
        _draw_memory(memory, figures.memory)
        _lines(network, figures.network, "Network, sent", "MB/s")
        panels = [cpu, memory, network, records]
    else:
        records = figure.subplots(1, 1)
        panels = [records]
    _draw_records(records, figures)
    for panel in panels:
        panel.set_xlabel("seconds since the first record")
        panel.grid(visible=True, alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
        panel.set_xlim(left=0)
        if event is not None:
            _mark(panel, event, figures.first_ms)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _areas(panel: Any, series: dict[str, Line], title: str, unit: str, top: float | None = None) -> None:
    times = [time_s for time_s, _ in next(iter(series.values()))]
    values = [[value for _, value in line] for line in series.values()]
    panel.stackplot(times, values, labels=list(series), colors=_COLOURS, alpha=0.85)
    panel.set_title(title, loc="left")
    panel.set_ylabel(unit)
    panel.set_ylim(0, top)
    _legend(panel, len(series))


def _lines(panel: Any, series: dict[str, Line], title: str, unit: str) -> None:
    for (name, line), colour in zip(series.items(), _COLOURS, strict=False):
        panel.plot(*zip(*line, strict=True), label=name, color=colour, linewidth=1.8)
    panel.set_title(title, loc="left")
    panel.set_ylabel(unit)
    panel.set_ylim(0, 1.1 * max((value for line in series.values() for _, value in line), default=0) or 1)
    _legend(panel, len(series))


def _draw_memory(panel: Any, memory: dict[str, Line]) -> None:
    shown = {"used": memory["used"], "page cache": memory["cache"]}
    total = memory["total"][0][1]
    _lines(panel, shown, f"Memory, of {total:.1f} GiB", "GiB")


def _draw_records(panel: Any, figures: Figures) -> None:
    bins = 1 + max((number for counts in figures.records.values() for number in counts), default=0)
    centres = [number * figures.bin_s for number in range(bins)]
    below = [0.0] * bins
    for (partition, counts), colour in zip(
        sorted(figures.records.items()), _COLOURS * len(figures.records), strict=False
    ):
        rates = [counts.get(number, 0) / figures.bin_s for number in range(bins)]
        panel.bar(
            centres,
            rates,
            figures.bin_s,
            bottom=below,
            align="edge",
            color=colour,
            label=f"{partition}" if partition else "partition 0",
            alpha=0.85,
        )
        below = [low + rate for low, rate in zip(below, rates, strict=True)]
    panel.set_title(f"Ingested: {figures.total:,} records", loc="left")
    panel.set_ylabel("records/s, when they were sent")
    panel.set_ylim(0, 1.1 * max(below, default=0) or 1)
    if len(figures.records) <= len(_COLOURS):
        _legend(panel, len(figures.records))


def _legend(panel: Any, entries: int) -> None:
    """Above the panel, beside its title: nothing is covered."""
    if entries:
        panel.legend(
            loc="lower right",
            bbox_to_anchor=(1, 0.98),
            ncols=entries,
            fontsize=9,
            frameon=False,
            handlelength=1,
            handletextpad=0.5,
            columnspacing=0.8,
        )


def _mark(panel: Any, event: Event, first_ms: int) -> None:
    at_s = (event.time_ms - first_ms) / 1000
    panel.axvline(at_s, color="black", linestyle="--", linewidth=1.2)
    panel.annotate(
        event.label,
        (at_s, 0.02),
        xycoords=("data", "axes fraction"),
        xytext=(4, 2),
        textcoords="offset points",
        fontsize=9,
        bbox={"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1.5},
    )
