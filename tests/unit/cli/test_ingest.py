"""The words of `kraft ingest`, and what it prints when no job is needed."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

pytest.importorskip("deltalake")

from kraft.cli.app import run
from kraft.cli.ingest.run import stopped_by_signals
from kraft.ingest.model import SliceResult, SliceTask
from kraft.ingest.options import parse_size, parse_trigger
from kraft.ingest.spark_job import SparkJobs
from kraft.ingest.tables import open_table
from kraft.ingest.writing import write_slice
from kraft.spark.errors import OptionError
from tests.support.fake_broker import FakeCluster


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as made:
        partition = made.create_topic("audit").partitions[0]
        partition.append([(0, None, b"one", ()), (0, None, b"two", ())])
        made.create_topic("empty")
        yield made


@pytest.fixture(autouse=True)
def jobs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks run in this process instead of Spark's."""

    def work(self: SparkJobs, tasks: Sequence[SliceTask]) -> list[SliceResult]:
        return [write_slice(task) for task in tasks]

    monkeypatch.setattr(SparkJobs, "__call__", work)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["t"], "name the table's folder"),
        (["--to", "x"], "Name the topics to ingest"),
        (["t", "--to", "s3://lake/t"], "and no URL"),
        (["t", "--to", "x/a%20b"], "because of '%20' in the path"),
        (["t", "--to", "x/a\\b"], "--format parquet"),
        (["t/u", "--to", "x"], "is no name of a topic"),
        (["t", "--to", "x", "--continuous", "--available-now"], "exclude each other"),
        (["t", "--to", "x", "--format", "orc"], "--format is one of delta, parquet"),
        (["t", "--to", "x", "--values", "avro"], "--values is one of bytes, string, json"),
        (["t", "--to", "x", "--trigger", "soon"], "--trigger is a time such as 2s"),
        (["t", "--to", "x", "--max-file-size", "12 apples"], "--max-file-size is a size such as 128MB"),
        (["t", "--to", "x", "--max-file-size", "5KB"], "at least 1MB"),
        (["t", "--to", "x", "--schema", "nowhere"], "add --values json"),
        (["t", "--to", "x", "--values", "json", "--schema", "nowhere"], "--schema nowhere cannot be read"),
        (["t", "--to", "x", "--client-option", "subscribe=u"], "--client-option takes kafka"),
    ],
)
def test_wrong_usage_is_a_sentence(
    arguments: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["ingest", *arguments, "--bootstrap-server", "127.0.0.1:1"]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_a_topic_may_be_called_as_a_subcommand(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--topic", "audit", "empty", "--to", str(tmp_path / "table"), "--json"]
    assert run(["ingest", *arguments, "--bootstrap-server", cluster.bootstrap]) == 0
    output, errors = capsys.readouterr()
    assert json.loads(output) == {
        "topics": ["empty", "audit"],
        "rows": 2,
        "dead_letters": 0,
        "late_rows": 0,
        "files": 1,
        "partitions": [
            {
                "topic": topic,
                "partition": 0,
                "from": 0,
                "to": to,
                "records": to,
                "control": 0,
                "aborted": 0,
                "holes": 0,
            }
            for topic, to in (("audit", 2), ("empty", 0))
        ],
        "version": 0,
    }
    assert f"2 rows into {tmp_path / 'table'}, version 0: 1 file, 1 commit, in " in errors


def test_a_failure_is_a_sentence(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").touch()
    assert run(["ingest", "empty", "--to", str(tmp_path), "--bootstrap-server", cluster.bootstrap]) == 1
    assert "is not empty and no table of kraft ingest" in capsys.readouterr().err
    taken = tmp_path / "file"
    taken.touch()
    assert run(["ingest", "empty", "--to", str(taken), "--bootstrap-server", cluster.bootstrap]) == 1
    assert f"the table's folder fails: {taken}: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "table_format"), [("100% ü #1?", "delta"), ("a%20b", "parquet"), ("a\\b", "parquet")]
)
def test_folders_of_odd_names(name: str, table_format: str, cluster: FakeCluster, tmp_path: Path) -> None:
    words = ["--topic", "audit", "--to", str(tmp_path / name), "--format", table_format]
    for _ in range(2):
        assert run(["ingest", *words, "--bootstrap-server", cluster.bootstrap]) == 0
    assert open_table(tmp_path / name).version() == 0


def test_sizes_and_triggers() -> None:
    assert [parse_size(text, "o") for text in ("1MB", "1 GB", "2m", "2097152")] == [
        1 << 20,
        1 << 30,
        2 << 20,
        2 << 20,
    ]
    assert [parse_trigger(text, "o") for text in ("2s", "500ms", "1m", "3", "0s")] == [
        2.0,
        0.5,
        60.0,
        3.0,
        0.0,
    ]
    for text in ("", "s", "-1s", "2 weeks", "999999999s"):
        with pytest.raises(OptionError):
            parse_trigger(text, "--trigger")


def test_a_second_ctrl_c_ends_at_once() -> None:
    with stopped_by_signals() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
