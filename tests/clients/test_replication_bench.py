"""The benchmark of replication measures what it says, on real processes; how fast this machine is, is not asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench.replication.__main__ import main

pytestmark = [pytest.mark.usefixtures("hasty_bench"), pytest.mark.timeout(900)]


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_rates_and_latencies_are_of_the_same_producer(capsys: pytest.CaptureFixture[str]) -> None:
    document = _run(
        capsys, "--only", "throughput", "latency", "--records", "60000", "--repeats", "1", "--latency-s", "1"
    )
    throughput, latency = document["figures"]["throughput"], document["figures"]["latency"]
    runs = throughput["runs"]
    assert [len(runs[key]) for key in ("unreplicated", "async", "sync")] == [1, 1, 1]
    rates = [runs[key][0]["records_per_s"] for key in ("sync", "unreplicated")]
    assert throughput["sync_ratio"] == pytest.approx(rates[0] / rates[1])
    assert latency["records"] == round(latency["maximum_records_per_s"] * 0.1)
    assert 0 < latency["p50_ms"] <= latency["p99_ms"]
    assert len(document["limits"]) == 6


def test_a_follower_catches_up_and_partitions_rest(capsys: pytest.CaptureFixture[str]) -> None:
    document = _run(
        capsys,
        *("--only", "catch-up", "idle"),
        *("--catch-up-gb", "0.02", "--idle-partitions", "20", "--idle-s", "1"),
    )
    catch_up, idle = document["figures"]["catch-up"], document["figures"]["idle"]
    assert catch_up["gb"] == pytest.approx(0.02, rel=0.1)
    assert 0 < catch_up["copy_s"] <= catch_up["in_sync_s"]
    assert len(idle["percents"]) == 3
    assert idle["percent"] == max(idle["percents"])
    assert len(document["limits"]) == 2


def test_all_partitions_come_back_after_a_kill_and_a_restart(capsys: pytest.CaptureFixture[str]) -> None:
    document = _run(capsys, "--only", "scale", "--partitions", "30")
    scale = document["figures"]["scale"]
    assert scale["made_s"] <= scale["create_s"]
    assert scale["session_s"] > 0
    assert 0 < scale["led_s"] <= scale["writable_s"]
    assert scale["stop_s"] + scale["ready_s"] <= scale["restart_s"]
    assert len(document["limits"]) == 3


def test_a_gap_is_the_sum_of_its_shares(capsys: pytest.CaptureFixture[str]) -> None:
    document = _run(capsys, "--only", "failover", "--kills", "2", "--stops", "1")
    failover = document["figures"]["failover"]
    assert sorted(kill["led_quorum"] for kill in failover["kills"]) == [False, True]
    for kill in failover["kills"]:
        shares = [kill[f"{name}_s"] for name in ("detection", "election", "client")]
        assert sum(shares) == pytest.approx(kill["gap_s"])
        assert min(shares[:2]) > 0
    assert len(failover["stops_ms"]) == 1
    assert len(document["limits"]) == 3
