"""The parts of the micro-benchmarks that need processes of their own, in small."""

from __future__ import annotations

from pathlib import Path

from bench.micro import serving, starts


def test_a_start_opens_every_log(tmp_path: Path) -> None:
    found = starts.starts(tmp_path, partitions=12)
    assert found.partitions == 12
    assert found.start_s > 0
    assert list(tmp_path.iterdir()) == []


def test_the_broker_and_the_bare_loop_serve_the_same(tmp_path: Path) -> None:
    found = serving.serving(tmp_path, batches=6, rounds=1)
    assert found.mb_per_s > 0
    assert found.bare_mb_per_s > 0
