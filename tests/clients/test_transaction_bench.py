"""The benchmark of transactions measures what it says, on real processes; how fast this machine is, is not asked."""

from __future__ import annotations

import json

import pytest

from bench.transactions.__main__ import main


@pytest.mark.usefixtures("hasty_bench")
def test_small_runs_of_all_parts(capsys: pytest.CaptureFixture[str]) -> None:
    small = ("--records", "30000", "--repeats", "1", "--processed", "6000", "--commits", "20")
    assert main([*small, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    figures = document["figures"]
    producing, processing, latency = (figures[part] for part in ("producing", "processing", "latency"))
    assert producing["ratio"] == producing["transactional"][0] / producing["idempotent"][0]
    assert producing["transactions"][0] >= 1
    assert processing["records"] == 6_000
    assert processing["transactions"] >= 1
    assert 0 < latency["call_p50_ms"] <= latency["p50_ms"] <= latency["p99_ms"]
    assert len(document["limits"]) == 4
