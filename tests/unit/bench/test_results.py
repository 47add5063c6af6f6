"""From samples to medians, limits and tables."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from bench.__main__ import keys_of
from bench.librdkafka import LibraryError
from bench.limits import Limit, limits_of
from bench.rows import GROUPS, PARTITIONS, ROWS, SIZES, Row, RowResult, Sample, loads_of, median
from bench.run import KEYS, steps
from bench.table import document, print_limits, print_rows, write_json
from bench.workers import quantile, settings_of, turn_records

REAL = Sample(records_per_s=1_200_000.0, mb_per_s=120.0, broker_cpu_s_per_gb=1.2, client_cpu_s_per_gb=3.0)
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
    assert of_producer % (PARTITIONS * turn_records(row.record_bytes)) == 0  # a turn each
    assert PARTITIONS % max(1, row.consumers) == 0
    assert records % PARTITIONS == 0


def test_the_rows_of_2014_have_its_parameters() -> None:
    """Its batches, linger and buffer, once for each of our rows with batches; librdkafka knows them all."""
    ours = {row.key for row in ROWS if row.parameters.group == "ours" and not row.is_latency}
    theirs = {key.removeprefix("2014-"): BY_KEY[key] for key in GROUPS["2014"] if key != "latency"}
    assert ours < theirs.keys()
    for key in ours:
        row, other = BY_KEY[key], theirs[key]
        same = ("title", "producers", "consumers", "acks", "replicas", "record_bytes")
        assert [getattr(row, name) for name in same] == [getattr(other, name) for name in same]
    for row in theirs.values():
        settings = settings_of(row.parameters.settings)
        assert (settings["batch.size"], settings["linger.ms"]) == ("8196", "0")
        assert int(settings["queue.buffering.max.kbytes"]) * 1024 == 64 * 1024 * 1024
        assert settings.get("batch.num.messages", "") == ("1" if row.key == "2014-one-record" else "")


def test_a_row_tells_its_workers_its_parameters() -> None:
    (producer, consumer) = loads_of(BY_KEY["2014-both"], "b:1", "t", 60_000)
    assert producer[:7] == ["produce", "b:1", "t", PARTITIONS, 60_000, "1", 100]
    assert {"batch.size=8196", "linger.ms=0"} <= set(producer[7:])
    assert consumer == ["consume", "b:1", "t", 0, PARTITIONS, 60_000]
    assert loads_of(BY_KEY["produce-1x"], "b:1", "t", 60_000) == [
        ["produce", "b:1", "t", PARTITIONS, 60_000, "1", 100]
    ]
    (large,) = loads_of(BY_KEY["2014-100000-bytes"], "b:1", "t", 60)
    assert large[6] == 100_000


def test_larger_records_are_fewer_and_take_their_turns_sooner() -> None:
    assert [row.record_bytes for row in SIZES] == [10, 100, 1_000, 10_000, 100_000]
    assert [row.records(3_000_000) for row in SIZES] == [3_000_000, 1_500_000, 300_000, 60_000, 9_000]
    assert [turn_records(row.record_bytes) for row in SIZES] == [5_000, 5_000, 500, 50, 5]


@pytest.mark.parametrize("word", ["linger.ms", "=0", ""])
def test_a_setting_without_its_value_is_refused(word: str) -> None:
    assert settings_of(["a=1", "b=c=d", "e="]) == {"a": "1", "b": "c=d", "e": ""}
    with pytest.raises(LibraryError, match="SETTING=VALUE"):
        settings_of(["a=1", word])


def test_the_name_of_a_group_stands_for_its_rows() -> None:
    assert keys_of(None) == KEYS
    assert keys_of(["start", "2014"]) == ("start", *GROUPS["2014"])
    assert "latency" in GROUPS["2014"]


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


def test_each_set_of_parameters_has_its_table_and_both_sides_of_a_row_are_told_apart() -> None:
    console = Console(file=io.StringIO(), width=120, color_system=None)
    both = replace(REAL, producers_records_per_s=700_000.0, consumers_records_per_s=600_000.0)
    null = replace(both, producers_records_per_s=1_400_000.0, consumers_records_per_s=800_000.0)
    large = replace(REAL, records_per_s=3_000.0, mb_per_s=300.0)
    results = [
        result("produce-1x"),
        replace(result("2014-both", both), null=null),
        result("2014-100000-bytes", large),
    ]
    print_rows(console, results)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    ours, _, of_2014 = text.partition("parameters of 2014")
    assert "batches of up to 1 MB" in ours
    assert "8,196-byte batches" in of_2014
    cells = {
        words[1].strip(): [word.strip() for word in words[2:6]]
        for words in (line.split("│") for line in of_2014.splitlines())
        if len(words) > 6
    }
    assert cells["its producer"] == ["700,000", "70.0", "1,400,000", "0.50"]
    assert cells["its consumer"] == ["600,000", "60.0", "800,000", "0.75"]
    assert cells["100,000-byte records, no replication"][:2] == ["3,000", "300.0"]
    assert "its producer" not in ours


def test_the_document_holds_every_run(tmp_path: Path) -> None:
    rows = [result("produce-1x", file_cpu=0.5), result("both")]
    limits = limits_of({row.row.key: row for row in rows}, {})
    target = tmp_path / "bench.json"
    write_json(target, document(rows, limits, {"start_s": 2.0}, {"cores": 2}))
    content = json.loads(target.read_text())
    assert content["rows"]["both"]["runs"][0]["kraft"]["records_per_s"] == 1_200_000
    assert (content["rows"]["both"]["parameters"], content["rows"]["both"]["record_bytes"]) == ("ours", 100)
    assert content["limits"][0]["ok"] is True
    assert list(tmp_path.iterdir()) == [target]


def test_progress_knows_its_steps() -> None:
    assert steps(KEYS) == len(ROWS) + 2 + 1 + 1 + 1  # two more starts, the kill, two clusters
    assert steps(["consume"]) == 2
    assert steps(["failover"]) == 2


def test_limits_keep_every_digit_at_80_columns() -> None:
    console = Console(file=io.StringIO(), width=80)
    name = "a shard of 1,000,001 records, 100,000 keys: slowest produce meanwhile, above the usual"
    print_limits(console, [Limit(name, 12_345.0, 5_000.0, "commits/s", at_least=True)])
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "12,345 commits/s" in shown
    assert "≥ 5,000 commits/s" in shown
    assert "above the usual" in " ".join(shown.split())
