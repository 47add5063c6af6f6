"""The benchmarks of security and of a change measure what they say, on real processes; how fast, is not asked."""

from __future__ import annotations

import json

import pytest

from bench.against import main as against
from bench.processes import ROOT
from bench.security.__main__ import main

SMALL = ("--records", "12000", "--pairs", "1", "--costs-gb", "0.01", "--acls", "300", "--users", "20")


@pytest.mark.usefixtures("hasty_bench")
def test_small_runs_of_all_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--connects", "20", "--connections", "40", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    figures = document["figures"]
    tls, permissions, connects, silent = (
        figures[part] for part in ("tls", "permissions", "connects", "silent")
    )
    rates = [tls["runs"][way][0]["consumed"]["records_per_s"] for way in ("tls", "plaintext")]
    assert tls["consume"]["rate"] == pytest.approx(rates[0] / rates[1])
    assert 0 < tls["costs_s_per_gb"]["sendfile"] < tls["costs_s_per_gb"]["cipher"]
    assert {name: len(runs) for name, runs in permissions["runs"].items()} == {
        "open": 1, "guarded": 1, "crowded": 1
    }  # fmt: skip
    assert permissions["crowded"]["single"]["cpu"] > 0
    for listener in ("SASL", "SASLTLS"):
        assert connects[listener]["connects_per_s"] > 0
        assert 0 < connects[listener]["usual_ms"] <= connects[listener]["slowest_before_ms"]
    assert silent["connections"] == 40
    assert silent["TLS"]["kib_each"] > silent["PLAINTEXT"]["kib_each"]
    assert len(document["limits"]) == 14


@pytest.mark.usefixtures("hasty_bench")
def test_a_checkout_beside_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert against([str(ROOT), "--records", "12000", "--pairs", "1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    found = document["figures"]["against"]
    costs = [found["runs"][side][0]["produced"]["broker_cpu_s_per_gb"] for side in ("this", "other")]
    assert found["produced"]["cpu"] == pytest.approx(costs[0] / costs[1])
    assert min(costs) > 0
    assert len(document["limits"]) == 3


def test_what_is_no_checkout_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        against(["/"])
    assert "is no checkout of this project" in capsys.readouterr().err
