"""What a worker hands back, and what people are told of Spark's own failures; no JVM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
from pyspark import TaskContext

from kraft.ingest.model import IngestError, Layout, SliceResult, SliceTask
from kraft.ingest.spark_job import _Failure, _reason, run_task
from kraft.ingest.table_columns import table_schema
from kraft.spark.errors import TopicChangedError
from kraft.spark.slice_reader import PartitionSlice
from tests.support.fake_broker import FakeCluster


class Attempt:
    """The context of a task, as far as it is looked at."""

    def taskAttemptId(self) -> int:
        return 7


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SliceTask]:
    monkeypatch.setattr(TaskContext, "get", Attempt)
    with FakeCluster() as cluster:
        topic = cluster.create_topic("orders")
        topic.partitions[0].append([(0, None, b"x", ())])
        options = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "orders"}
        layout = Layout("bytes", None, 1 << 20, table_schema("bytes", None, None), infer=False)
        part = PartitionSlice("orders", topic.topic_id, 0, 0, 1, 0)
        yield SliceTask(options, part, layout, str(tmp_path / "table"), "r-1-1-0")


def test_each_attempt_of_a_task_has_names_of_its_own(task: SliceTask) -> None:
    result = run_task(task)
    assert isinstance(result, SliceResult)
    (file,) = result.files
    assert file.path.startswith("r-1-1-0-7-")
    assert (Path(task.folder) / file.path).stat().st_size == file.size_bytes


def test_what_fails_in_a_worker_comes_back_as_the_error_that_it_is(task: SliceTask) -> None:
    missing = run_task(task._replace(part=task.part._replace(topic_id=b"another".ljust(16))))
    assert isinstance(missing, _Failure)
    assert type(missing.error) is TopicChangedError
    Path(task.folder).touch()
    unwritten = run_task(task)
    assert isinstance(unwritten, _Failure)
    assert type(unwritten.error) is IngestError
    assert "orders-0[0, 1) could not be written to" in str(unwritten.error)


def test_a_failure_of_spark_is_told_without_stacks() -> None:
    text = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted: Python worker exited unexpectedly (crashed)
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2898)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""
    told = _reason(RuntimeError(text))
    assert "Python worker exited unexpectedly (crashed)" in told
    assert "DAGScheduler" not in told
    assert _reason(RuntimeError()) == "RuntimeError"
