"""The parts of the micro-benchmarks that need processes of their own, in small."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.micro import compaction, serving, starts


def test_a_start_opens_every_log(tmp_path: Path) -> None:
    found = starts.starts(tmp_path, partitions=12)
    assert found.partitions == 12
    assert found.start_s > 0
    assert list(tmp_path.iterdir()) == []


def test_the_broker_and_the_bare_loop_serve_the_same(tmp_path: Path) -> None:
    found = serving.serving(tmp_path, batches=6, rounds=1)
    assert found.mb_per_s > 0
    assert found.bare_mb_per_s > 0


@pytest.mark.parametrize("name", compaction.SHAPES)
def test_a_log_is_cleaned_beside_a_timer(tmp_path: Path, name: str) -> None:
    found = compaction.compaction(tmp_path, name, log_bytes=3_000_000, control_s=0.05)
    assert found.log_mb > found.left_mb > 0
    assert found.cleaning.longest_ms >= found.cleaning.p999_ms
    assert list(tmp_path.iterdir()) == []
