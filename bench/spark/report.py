"""What the benchmark prints for people: each measure of ours and of Spark's own source, beside what any Python source
could do at most. `__main__.py` calls it with the figures of the parts that have run."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.spark.sessions import OURS, SPARKS

Line = tuple[str, str, str, str, str]
"""What; ours; Spark's own; ours to Spark's own; a Python source that does nothing."""
_NONE = "-"


def print_figures(console: Console, figures: Mapping[str, Any]) -> None:
    """One table; and why a side of it is empty, where it is."""
    table = Table(title="Spark; 100-byte records; medians", title_justify="left")
    table.add_column("", no_wrap=True)
    for heading in (OURS, SPARKS, "ratio", "ceiling"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, found in figures.items():
        lines = {"micro-batches": _single, "idle": _idle}.get(name, _batches)
        for line in lines(found):
            table.add_row(*line)
    console.print(table)
    for why in dict.fromkeys(found["why_alone"] for found in figures.values() if found.get("why_alone")):
        console.print(f"Spark's own source is left out: {why}.")


def _batches(found: Mapping[str, Any]) -> Iterator[Line]:
    codec, rates = found["codec"], found["rows_per_s"]
    for work, ratio in found["ratios"].items():
        ceiling = found["ceiling"].get(work)
        yield (
            f"{codec}: {work}, rows/s",
            _rate(rates[OURS][work]),
            _rate(rates[SPARKS][work]) if SPARKS in rates else _NONE,
            _NONE if ratio is None else f"{ratio:.2f}",
            _rate(ceiling) if ceiling else _NONE,
        )
    yield f"{codec}: memory of a Python worker, MB", f"{found['worker_mb']:.0f}", _NONE, _NONE, _NONE


def _single(found: Mapping[str, Any]) -> Iterator[Line]:
    ms = found["batch_p50_ms"]
    sparks = f"{ms[SPARKS]:.0f}" if SPARKS in ms else _NONE
    yield "a micro-batch of one record, p50, ms", f"{ms[OURS]:.0f}", sparks, _NONE, f"{ms['one-row']:.0f}"


def _idle(found: Mapping[str, Any]) -> Iterator[Line]:
    for name, percent in (
        ("an idle stream, Python, % of a core", found["python_percent"]),
        ("an idle stream, the JVM, % of a core", found["jvm_percent"]),
    ):
        sparks = f"{percent[SPARKS]:.1f}" if SPARKS in percent else _NONE
        yield name, f"{percent[OURS]:.1f}", sparks, _NONE, _NONE
    yield "no stream, the JVM, % of a core", f"{found['jvm_alone_percent']:.1f}", _NONE, _NONE, _NONE


def _rate(rates: list[float]) -> str:
    return f"{statistics.median(rates):,.0f}"
