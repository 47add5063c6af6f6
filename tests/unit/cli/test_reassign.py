"""The file of targets that `kraft reassign start` takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.cli.app import run
from kraft.user_error import EXIT_USAGE


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is not a list of reassignments"),
        ('{"partitions": []}', "names no partition"),
        ('{"partitions": [{"topic": "t", "partition": 2147483648, "replicas": [1]}]}', "2147483648"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [2147483648]}]}', "2147483648"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]},'
            ' {"topic": "t", "partition": 0, "replicas": [2]}]}',
            "names t-0 twice",
        ),
        ('{"partitions": [{"topic": "t", "partition": 1e999, "replicas": [1]}]}', "inf is no number"),
        ('{"partitions": [{"topic": "t", "partition": 1.9, "replicas": [1]}]}', "1.9 is no number"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [true]}]}', "True is no number"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [-1]}]}', "-1 is not between"),
        ('{"partitions": [{"topic": "t", "partition": "0", "replicas": [1]}]}', "'0' is no number"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": ["1"]}]}', "'1' is no number"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": "12"}]}',
            "\"replicas\" is no list: '12'",
        ),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": {"3": 1}}]}', '"replicas" is no list'),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "no replicas of t-0"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "a replica of t-0 twice"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', 'has no "replicas"'),
        ('{"partitions": [{"topic": null, "partition": 0, "replicas": [1]}]}', "None is no topic"),
        ('{"partitions": {"t": 0}}', '"partitions" is no list'),
        ('["partitions"]', 'has no "partitions"'),
        ("[" * 100_000, "nested too deeply"),
        ('{"partitions": ' + "[" * 900 + "]" * 900 + "}", 'has no "topic"'),
        (None, "cannot be read"),
    ],
)
def test_what_is_none_is_wrong_usage(
    text: str | None, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plan.json"
    if text is not None:
        file.write_text(text)
    assert run(["reassign", "start", "--file", str(file), "--bootstrap-server", "127.0.0.1:1"]) == EXIT_USAGE
    assert reason in capsys.readouterr().err
