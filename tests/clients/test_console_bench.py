"""The benchmark of the console measures what it says, in a real browser; how fast this machine is, is not asked."""

from __future__ import annotations

import json

import pytest

from bench.console import main

pytestmark = [pytest.mark.usefixtures("hasty_bench")]


def test_paints_costs_and_frames_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    small = ("--paints", "2", "--seconds", "2", "--repeats", "1", "--rate", "200")
    assert main([*small, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    paint, cost, tail = (document["figures"][part] for part in ("paint", "cost", "tail"))
    assert min(paint["runs_ms"]) <= paint["median_ms"] <= paint["worst_ms"] == max(paint["runs_ms"])
    (run,) = cost["runs"]
    assert run["open_percent"] > 0
    assert cost["percent"] == pytest.approx(run["open_percent"] - run["closed_percent"])
    assert tail["frames"] > 0
    assert tail["late"] <= tail["frames"]
    assert tail["records_per_s"] > 0
    assert len(document["limits"]) == 4
