"""From a checkpoint of Spark's own Kafka source to startingOffsets."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.spark.checkpoint import starting_offsets
from kraft.spark.errors import CheckpointError

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{}}'


def write(folder: Path, planned: dict[int, str], finished: list[int]) -> Path:
    """As Spark lays it out: a file a batch, and its checksums beside."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir()
    for batch, source in planned.items():
        (folder / "offsets" / str(batch)).write_text(f"v1\n{METADATA}\n{source}")
        (folder / "offsets" / f".{batch}.crc").write_bytes(b"crc")
    for batch in finished:
        (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return folder


def test_the_last_finished_batch_counts(tmp_path: Path) -> None:
    planned = {9: '{"a":{"0":1}}', 10: '{"a":{"0":2}}', 11: '{"a":{"0":3}}'}
    assert starting_offsets(write(tmp_path, planned, [8, 9, 10])) == '{"a":{"0":2}}'


def test_the_sink_may_know_of_one_more(tmp_path: Path) -> None:
    """The query died when its sink had taken batch 11, and before it said so itself."""
    planned = {9: '{"a":{"0":1}}', 10: '{"a":{"0":2}}', 11: '{"a":{"0":3}}'}
    folder = write(tmp_path, planned, [8, 9, 10])
    assert starting_offsets(folder, written=11) == '{"a":{"0":3}}'
    assert starting_offsets(folder, written=10) == '{"a":{"0":2}}'
    with pytest.raises(
        CheckpointError, match="has finished batch 10, so that its sink holds more than batch 9"
    ):
        starting_offsets(folder, written=9)
    with pytest.raises(CheckpointError, match="no offsets of batch 12"):
        starting_offsets(folder, written=12)


def test_one_of_several_sources(tmp_path: Path) -> None:
    folder = write(tmp_path, {0: '7\n{"a":{"0":5}}'}, [0])
    assert starting_offsets(folder, source=1) == '{"a":{"0":5}}'
    with pytest.raises(CheckpointError, match="not one of format kafka"):
        starting_offsets(folder)
    with pytest.raises(CheckpointError, match="2 sources"):
        starting_offsets(folder, source=2)


@pytest.mark.parametrize(
    ("planned", "finished", "sentence"),
    [
        ({}, [], "has no offsets: is it"),
        ({0: "{}"}, [], "No batch"),
        ({0: "{}"}, [0, 1], "no offsets of batch 1"),
        (
            {0: '{"topics":{"a":{"id":"AAAA","offsets":{"0":1},"epochs":{"0":0}}}}'},
            [0],
            "not one of format kafka",
        ),
    ],
)
def test_what_cannot_be_used(
    tmp_path: Path, planned: dict[int, str], finished: list[int], sentence: str
) -> None:
    with pytest.raises(CheckpointError, match=sentence):
        starting_offsets(write(tmp_path, planned, finished))
