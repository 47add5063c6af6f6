"""What people, programs and Prometheus are told of a run."""

from __future__ import annotations

import urllib.request

import pyarrow as pa
import pytest

from kraft.ingest.metrics import metrics_server
from kraft.ingest.model import CommitRange, RangeAudit, SliceResult
from kraft.ingest.progress import RATE_WINDOW_S, Progress
from kraft.spark.errors import OptionError
from kraft.spark.slice_reader import PartitionSlice
from partitions.topic_partition import TopicPartition
from tests.unit.ingest.conftest import TOPIC_ID, key


@pytest.fixture
def progress() -> Progress:
    made = Progress(["orders"], 100.0)
    made.standing({key(0): 5, key(1): 0})
    return made


def commit(progress: Progress, start: int, end: int, *, now_s: float, lag: dict[int, int]) -> None:
    middle = (start + end) // 2
    audits = [
        RangeAudit(records=middle - start),
        RangeAudit(records=end - middle - 1, control=1, dead_letters=1),
    ]
    results = [
        SliceResult(PartitionSlice("orders", TOPIC_ID, 0, first, last, 0), [], audit, pa.schema([]), 2)
        for (first, last), audit in zip([(start, middle), (middle, end)], audits, strict=True)
    ]
    progress.committed(
        {key(0): CommitRange(start, end, 0)},
        results,
        version=progress.commits,
        lag={TopicPartition("orders", partition): count for partition, count in lag.items()},
        now_s=now_s,
    )


def test_a_line_tells_rate_lag_files_and_the_next_commit(progress: Progress) -> None:
    commit(progress, 5, 36, now_s=110.0, lag={0: 7, 1: 1500})
    line = progress.line(110.0, next_commit_s=1.26)
    assert (
        line == "30 rows, 3 rows/s, lag 1,507 (orders-1: 1,500, orders-0: 7), 0 files, next commit in 1.3 s"
    )
    assert progress.rows_per_s(110.0 + RATE_WINDOW_S + 1) == 0.0


def test_a_run_sums_its_commits_by_partition(progress: Progress) -> None:
    commit(progress, 5, 36, now_s=110.0, lag={})
    commit(progress, 36, 40, now_s=112.0, lag={})
    progress.ended_s = 120.0
    first, second = progress.document()["partitions"]
    assert (first["from"], first["to"], first["records"], first["control"]) == (5, 40, 33, 2)
    assert (second["from"], second["to"], second["records"]) == (0, 0, 0)
    assert progress.summary("lake") == (
        "33 rows into lake, version 1: 0 files, 2 commits, 2 rows with _error, 8 late rows, in 20.0 s (2 rows/s)"
    )


def test_prometheus_reads_the_numbers(progress: Progress) -> None:
    commit(progress, 5, 36, now_s=110.0, lag={0: 7})
    with metrics_server(0, lambda: progress) as port:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        with pytest.raises(OptionError, match="cannot be listened on"), metrics_server(port, lambda: None):
            pytest.fail("two servers on one port")
    assert "kraft_ingest_rows_total 30.0\n" in text
    assert 'kraft_ingest_lag{partition="0",topic="orders"} 7.0\n' in text
    assert "kraft_ingest_table_version 0.0\n" in text
