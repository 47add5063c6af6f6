"""The benchmark of groups measures what it says, on real processes; how fast this machine is, is not asked."""

from __future__ import annotations

import json

import pytest

from bench.groups.__main__ import main


@pytest.mark.usefixtures("hasty_bench")
def test_commits_and_the_loading_of_a_shard(capsys: pytest.CaptureFixture[str]) -> None:
    small = ("--commits", "1000", "--loaded", "10000")
    assert main(["--only", "commits", "loading", *small, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    commits, loading = document["figures"]["commits"], document["figures"]["loading"]
    assert commits["per_s"] == pytest.approx(1000 / commits["seconds"])
    assert (loading["commits"], loading["keys"]) == (10_000, 1_000)
    assert loading["records"] >= loading["commits"]
    assert loading["slowest_ms"] >= loading["usual_ms"] > 0
    assert len(document["limits"]) == 3
