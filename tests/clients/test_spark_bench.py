"""The benchmark of Spark measures what it says, on a real cluster; how fast this machine is, is not asked.

Ours alone: a test fetches no jars.
"""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark")

from bench.spark.__main__ import main

pytestmark = [
    pytest.mark.usefixtures("hasty_bench"),
    pytest.mark.timeout(900),  # a JVM starts in here
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # pyspark's own
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def test_small_runs(capsys: pytest.CaptureFixture[str]) -> None:
    small = ("--records", "12000", "--repeats", "1", "--single", "2", "--watch-s", "1")
    parts = ("batch-none", "micro-batches", "idle")
    assert main([*small, "--alone", "--json", "--only", *parts]) == 0
    document = json.loads(capsys.readouterr().out)
    batch, single, idle = (document["figures"][part] for part in parts)
    assert (batch["records"], batch["why_alone"]) == (12_000, "it was not asked for")
    rates = batch["rows_per_s"]["kraft"]
    assert {work: len(runs) for work, runs in rates.items()} == dict.fromkeys(
        ("count", "parquet", "checksum", "stream"), 1
    )
    assert set(batch["ratios"].values()) == {None}, "there is nothing to compare with"
    assert batch["worker_mb"] > 10
    assert single["above_trivial_ms"] == single["batch_p50_ms"]["kraft"] - single["batch_p50_ms"]["one-row"]
    assert set(idle["python_percent"]) == {"kraft"}
    assert len(document["limits"]) == 3
