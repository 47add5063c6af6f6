"""The micro-benchmarks measure what they say, in small; how fast this machine is, is not asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.errors import BenchError
from bench.micro import __main__ as micro
from bench.micro import appends, lookups, recovery, stored
from bench.micro.reader import requests_in


def test_appends_leave_nothing_behind(tmp_path: Path) -> None:
    found = appends.appends(tmp_path, 1_000, 200, per_append=10)
    assert (found.batch_bytes, found.batches_per_append) == (1_000, 10)
    assert found.ratio == pytest.approx(found.batches_per_s / found.bare_batches_per_s)
    assert list(tmp_path.iterdir()) == []


def test_recovery_reads_the_whole_log(tmp_path: Path) -> None:
    assert recovery.recovery(tmp_path, 16_000, log_bytes=3_000_000).gb_per_s > 0
    assert list(tmp_path.iterdir()) == []


def test_frames_of_a_file() -> None:
    assert requests_in(b"\0\0\0\2ab\0\0\0\0\0\0\0\1c") == [b"\0\0\0\2ab", b"\0\0\0\0", b"\0\0\0\1c"]


def test_what_does_not_fit_on_the_disk_is_not_begun(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="ask for less with --stored-gb"):
        stored.stored(tmp_path, 10.0**9)


def test_a_missed_limit_fails_a_checked_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(lookups, "SEGMENTS", 3)
    monkeypatch.setattr(lookups, "BATCHES", 8)
    monkeypatch.setattr(lookups, "LOOKUPS", 20)
    monkeypatch.setattr(lookups, "LARGEST_ENTRIES", 50)
    run = ["--only", "lookup", "--directory", str(tmp_path)]
    assert micro.main([*run, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["figures"]["lookup"]["segments"] == 3
    assert [limit["unit"] for limit in document["limits"]] == ["µs", "µs"]
    monkeypatch.setattr(micro, "MAX_TIME_LOOKUP_US", 0.0)
    assert micro.main([*run, "--check"]) == 1
    assert list(tmp_path.iterdir()) == []
