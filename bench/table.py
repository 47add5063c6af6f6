"""The output of a run: two tables for people, one document for machines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.limits import Limit
from bench.rows import Row, RowResult, Sample


def print_rows(console: Console, results: Sequence[RowResult]) -> None:
    """The table of 2014 with the null broker beside it, once for each set of parameters; then latencies."""
    rates = [result for result in results if result.real.p50_ms is None]
    for _, of_group in groupby(rates, key=lambda result: result.row.parameters.group):
        console.print(_rates(list(of_group)))
    for result in results:
        if result.real.p50_ms is not None:
            console.print(
                f"{result.row.title}: {_latencies(result.real)}; null broker {_latencies(result.null)}"
            )


def _rates(results: Sequence[RowResult]) -> Table:
    """The table of one group's rows."""
    parameters = results[0].row.parameters
    table = Table(title=f"{parameters.title}; 100-byte records unless said; medians", title_justify="left")
    table.add_column("", no_wrap=True)
    for heading in ("records/s", "MB/s", "null", "ratio", "CPU s/GB", "null", "bare file"):
        table.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        real, null = result.real, result.null
        table.add_row(
            result.row.title,
            *_rate(result.row, real.records_per_s, null.records_per_s),
            f"{real.broker_cpu_s_per_gb:.2f}",
            f"{null.broker_cpu_s_per_gb:.2f}",
            "" if result.file_cpu_s_per_gb is None else f"{result.file_cpu_s_per_gb:.2f}",
        )
        for side, of_real, of_null in (
            ("producer", real.producers_records_per_s, null.producers_records_per_s),
            ("consumer", real.consumers_records_per_s, null.consumers_records_per_s),
        ):
            if of_real is not None and of_null is not None:
                table.add_row(f"  its {side}", *_rate(result.row, of_real, of_null))
    return table


def _rate(row: Row, real: float, null: float) -> tuple[str, str, str, str]:
    """Records a second, MB a second, the null broker's records a second, the ratio."""
    return f"{real:,.0f}", f"{real * row.record_bytes / 1e6:.1f}", f"{null:,.0f}", f"{real / null:.2f}"


def _latencies(sample: Sample) -> str:
    return f"p50 {sample.p50_ms:.1f} / p99 {sample.p99_ms:.1f} / p99.9 {sample.p999_ms:.1f} ms"


def print_limits(console: Console, limits: Sequence[Limit]) -> None:
    """One line for each limit."""
    if not limits:
        return
    table = Table(title="limits", title_justify="left")
    table.add_column("", overflow="fold")  # a name may take two lines, a number stays whole
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("limit", justify="right", no_wrap=True)
    table.add_column("ok", no_wrap=True)
    for limit in limits:
        bound = f"{'≥' if limit.at_least else '≤'} {_number(limit.bound)} {limit.unit}".rstrip()
        table.add_row(
            limit.name,
            f"{_number(limit.value)} {limit.unit}".rstrip(),
            bound,
            "[green]yes[/green]" if limit.ok else "[red]no[/red]",
        )
    console.print(table)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.2f}"


def document(
    results: Sequence[RowResult],
    limits: Sequence[Limit],
    cluster: Mapping[str, Any],
    machine: Mapping[str, Any],
) -> dict[str, Any]:
    """Everything that was measured; CPU is in seconds per GB (10^9 bytes) of record values."""
    return {
        "machine": dict(machine),
        "cluster": dict(cluster),
        "rows": {result.row.key: _row(result) for result in results},
        "limits": [{**asdict(limit), "ok": limit.ok} for limit in limits],
    }


def _row(result: RowResult) -> dict[str, Any]:
    return {
        "title": result.row.title,
        "parameters": result.row.parameters.group,
        "record_bytes": result.row.record_bytes,
        "records": result.records,
        "ratio": _rounded(result.ratio),
        "cpu_ratio": _rounded(result.cpu_ratio),
        "file_cpu_s_per_gb": result.file_cpu_s_per_gb and _rounded(result.file_cpu_s_per_gb),
        "storing_cpu_ratio": result.storing_cpu_ratio and _rounded(result.storing_cpu_ratio),
        "kraft": _sample(result.real),
        "null": _sample(result.null),
        "runs": [{"kraft": _sample(real), "null": _sample(null)} for null, real in result.runs],
    }


def _sample(sample: Sample) -> dict[str, float]:
    return {name: _rounded(value) for name, value in asdict(sample).items() if value is not None}


def _rounded(value: float) -> float:
    return round(value) if abs(value) >= 1000 else round(value, 3)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes the document, or leaves the old file as it was."""
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    unfinished.replace(path)
