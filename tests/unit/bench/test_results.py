"""From samples to medians, limits and tables."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from bench.limits import Limit, limits_of
from bench.rows import PARTITIONS, ROWS, Row, RowResult, Sample, median
from bench.run import KEYS, steps
from bench.table import document, print_limits, print_rows, write_json
from bench.workers import BATCH_RECORDS, quantile

REAL = Sample(records_per_s=1_200_000.0, broker_cpu_s_per_gb=1.2, client_cpu_s_per_gb=3.0)
NULL = replace(REAL, records_per_s=1_500_000.0, broker_cpu_s_per_gb=0.6)
BY_KEY = {row.key: row for row in ROWS}


def result(key: str, real: Sample = REAL, *, file_cpu: float | None = None) -> RowResult:
    return RowResult(BY_KEY[key], 1_000_000, NULL, real, file_cpu, ((NULL, real),))


def test_medians_are_taken_field_by_field() -> None:
    samples = [replace(REAL, records_per_s=rate, broker_cpu_s_per_gb=10 - rate) for rate in (1.0, 5.0, 3.0)]
    assert median(samples) == replace(REAL, records_per_s=3.0, broker_cpu_s_per_gb=7.0)


def test_a_field_that_was_not_measured_stays_away() -> None:
    assert median([REAL, REAL]).p50_ms is None


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50.0), (0.99, 99.0), (0.999, 100.0), (0.0, 1.0)])
def test_quantiles(share: float, expected: float) -> None:
    assert quantile([float(value) for value in range(100, 0, -1)], share) == expected


@pytest.mark.parametrize("row", [row for row in ROWS if not row.is_latency])
@pytest.mark.parametrize("base", [1, 1_000_000, 2_000_000])
def test_every_worker_and_partition_gets_the_same_number_of_records(row: Row, base: int) -> None:
    records = row.records(base)
    of_producer = records // max(1, row.producers)
    assert records % max(1, row.producers) == 0
    assert of_producer % (PARTITIONS * BATCH_RECORDS) == 0  # partitions take turns, a batch each
    assert PARTITIONS % max(1, row.consumers) == 0
    assert records % PARTITIONS == 0


def test_storing_counts_as_what_a_bare_writer_spends() -> None:
    measured = result("produce-1x", file_cpu=0.4)
    assert measured.ratio == pytest.approx(0.8)
    assert measured.cpu_ratio == pytest.approx(2.0)
    assert measured.storing_cpu_ratio == pytest.approx(1.2)


def test_limits_are_only_on_what_was_measured() -> None:
    assert limits_of({}, {}) == []
    names = [limit.name for limit in limits_of({"consume": result("consume")}, {"start_s": 2.0})]
    assert names == ["one consumer: rate / null", "three nodes ready after kraft cluster start"]


def test_a_limit_is_missed_on_either_side() -> None:
    rows = {"produce-1x": result("produce-1x", replace(REAL, records_per_s=900_000.0), file_cpu=0.1)}
    limits = limits_of(rows, {"failover_s": 3.5, "resting_mb": 60.0})
    assert [limit.ok for limit in limits] == [False, False, False, False, False, True]
    assert Limit("", 1.0, 1.0, "", at_least=True).ok
    assert Limit("", 1.0, 1.0, "", at_least=False).ok


def test_what_is_printed_fits_a_page_and_says_what_is_missed() -> None:
    console = Console(file=io.StringIO(), width=120, color_system=None)
    latency = replace(REAL, p50_ms=1.0, p99_ms=2.0, p999_ms=3.0)
    null_latency = replace(NULL, p50_ms=0.1, p99_ms=0.2, p999_ms=0.3)
    results = [result("produce-1x", file_cpu=0.5), replace(result("latency", latency), null=null_latency)]
    print_rows(console, results)
    print_limits(console, [Limit("name", 2.0, 1.0, "s", at_least=False)])
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert len(text.splitlines()) < 20
    assert "1,200,000" in text
    assert "p50 1.0 / p99 2.0 / p99.9 3.0 ms" in text
    assert "≤ 1.00 s" in text
    assert " no" in text


def test_the_document_holds_every_run(tmp_path: Path) -> None:
    rows = [result("produce-1x", file_cpu=0.5), result("both")]
    limits = limits_of({row.row.key: row for row in rows}, {})
    target = tmp_path / "bench.json"
    write_json(target, document(rows, limits, {"start_s": 2.0}, {"cores": 2}))
    content = json.loads(target.read_text())
    assert content["rows"]["both"]["runs"][0]["kraft"]["records_per_s"] == 1_200_000
    assert content["limits"][0]["ok"] is True
    assert list(tmp_path.iterdir()) == [target]


def test_progress_knows_its_steps() -> None:
    assert steps(KEYS) == len(ROWS) + 2 + 1 + 1 + 1  # two more starts, the kill, two clusters
    assert steps(["consume"]) == 2
    assert steps(["failover"]) == 2
