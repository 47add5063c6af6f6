"""What the benchmark of Spark tells people."""

from __future__ import annotations

import io

import pytest

pytest.importorskip("pyspark")

from rich.console import Console

from bench.spark.report import print_figures

MICRO_BATCHES = {"batch_p50_ms": {"kraft": 447.0, "kafka": 828.0, "one-row": 409.0}, "why_alone": None}
IDLE = {
    "python_percent": {"kraft": 1.25, "kafka": 0.0},
    "jvm_percent": {"kraft": 4.0, "kafka": 9.0},
    "jvm_alone_percent": 0.5,
}


def batch(**sources: float) -> dict[str, object]:
    """Rows a second by source, of counting and of the stream."""
    ratio = sources["kraft"] / sources["kafka"] if "kafka" in sources else None
    return {
        "codec": "lz4",
        "rows_per_s": {name: {"count": [rate, 1.0, 9e9], "stream": [rate]} for name, rate in sources.items()},
        "ceiling": {"count": [4_000_000.0]},
        "ratios": {"count": ratio, "stream": ratio},
        "worker_mb": 212.4,
        "why_alone": None if "kafka" in sources else "it was not asked for",
    }


def shown(figures: dict[str, object]) -> list[list[str]]:
    """The cells of each line; what stands below the table is one cell."""
    out = io.StringIO()
    print_figures(Console(file=out, width=120), figures)
    lines = [line.split("│") for line in out.getvalue().splitlines()]
    return [[cell.strip() for cell in line if cell.strip()] for line in lines]


def test_every_measure_has_a_line() -> None:
    lines = shown(
        {
            "batch-lz4": batch(kraft=2_500_000.0, kafka=1_000_000.0),
            "micro-batches": MICRO_BATCHES,
            "idle": IDLE,
        }
    )
    assert ["lz4: count, rows/s", "2,500,000", "1,000,000", "2.50", "4,000,000"] in lines
    assert ["lz4: stream, rows/s", "2,500,000", "1,000,000", "2.50", "-"] in lines
    assert ["lz4: memory of a Python worker, MB", "212", "-", "-", "-"] in lines
    assert ["a micro-batch of one record, p50, ms", "447", "828", "-", "409"] in lines
    assert ["an idle stream, Python, % of a core", "1.2", "0.0", "-", "-"] in lines
    assert ["no stream, the JVM, % of a core", "0.5", "-", "-", "-"] in lines
    assert not any("left out" in cell for line in lines for cell in line)


def test_without_sparks_own_source_the_reason_is_told() -> None:
    lines = shown({"batch-lz4": batch(kraft=2_500_000.0)})
    assert ["lz4: count, rows/s", "2,500,000", "-", "-", "4,000,000"] in lines
    assert lines[-1] == ["Spark's own source is left out: it was not asked for."]


def test_nothing_has_run() -> None:
    assert shown({})
