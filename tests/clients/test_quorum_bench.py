"""The quorum's benchmark measures what it says, on real processes; how fast this machine is, is not asked."""

from __future__ import annotations

import json

import pytest

from bench.quorum.__main__ import main


def test_a_small_run_says_what_it_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "commit", "scale", "--commits", "20", "--partitions", "1200", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    figures = document["figures"]
    assert figures["commit"]["fsync_ms"] > 0
    scale = figures["scale"]
    assert scale["partitions"] == 1200
    assert scale["moved"] == 300  # one of four brokers led a quarter
    assert len(document["limits"]) == 6
