"""Which folder a row goes to, and what the folder is called: as Spark does it."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.ingest import partitioning
from kraft.ingest.model import IngestError
from kraft.ingest.partitioning import NO_VALUE, Partitioner, folder_of
from tests.support.examples import examples

HOUR_US = 3_600_000_000


def batch(times_us: list[int], **columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "offset": list(range(len(times_us))),
            "timestamp": pa.array(times_us, pa.int64()).view(pa.timestamp("us", "UTC")),
            **columns,
        }
    )


def split(by: str | None, *batches: pa.RecordBatch) -> dict[str, list[int]]:
    """The offsets in each folder."""
    partitioner = Partitioner(by)
    found: dict[str, list[int]] = {}
    for rows in batches:
        for part in partitioner.split(rows):
            found.setdefault(folder_of(part.values), []).extend(part.rows.column("offset").to_pylist())
            assert not {name for name, _ in part.values} & set(part.rows.schema.names)
    return found


def test_spark_names_folders_like_this() -> None:
    """What Spark 4.3 called the folders of a table partitioned by these values."""
    odd = "".join(chr(code) for code in range(1, 128))
    assert folder_of((("x", odd[:60]),)) == (
        "x=%01%02%03%04%05%06%07%08%09%0A%0B%0C%0D%0E%0F%10%11%12%13%14%15%16%17%18%19%1A%1B%1C%1D%1E%1F"
        " !%22%23$%25&%27()%2A+,-.%2F0123456789%3A;</"
    )
    assert folder_of((("x", odd[60:]),)) == (
        "x=%3D>%3F@ABCDEFGHIJKLMNOPQRSTUVWXYZ%5B%5C%5D%5E_`abcdefghijklmnopqrstuvwxyz%7B|}~%7F/"
    )
    assert folder_of((("x", None), ("y", "1"))) == f"x={NO_VALUE}/y=1/"
    assert folder_of(()) == ""


@pytest.mark.parametrize(
    ("values", "kind", "folders"),
    [
        ([7, None, 7], pa.int32(), {"x=7/": [0, 2], f"x={NO_VALUE}/": [1]}),
        ([True, False, True], pa.bool_(), {"x=true/": [0, 2], "x=false/": [1]}),
        ([date(2026, 1, 31)] * 3, pa.date32(), {"x=2026-01-31/": [0, 1, 2]}),
        ([None, "", None], pa.string(), {f"x={NO_VALUE}/": [0, 1, 2]}),
        (["", "a", None], pa.string(), {f"x={NO_VALUE}/": [0, 2], "x=a/": [1]}),
    ],
)
def test_by_a_field(values: list[Any], kind: pa.DataType, folders: dict[str, list[int]]) -> None:
    assert split("x", batch([0, 0, 0], x=pa.array(values, kind))) == folders


def test_without_partitions_all_rows_stay_together() -> None:
    assert split(None, batch([0, 1]), batch([2])) == {"": [0, 1, 0]}


@settings(max_examples=examples(40))
@given(st.lists(st.integers(-(2**62), 2**62) | st.integers(-10, 10).map(lambda at: at * HOUR_US - 1)))
def test_each_row_is_in_the_folder_of_its_hour(times_us: list[int]) -> None:
    found = split("hour", batch(times_us))
    assert sorted(offset for offsets in found.values() for offset in offsets) == list(range(len(times_us)))
    for folder, offsets in found.items():
        assert offsets == sorted(offsets)
        for offset in offsets:
            hours = times_us[offset] // HOUR_US
            try:
                day = date(1970, 1, 1) + timedelta(days=hours // 24)
                assert folder == f"date={day.isoformat()}/hour={hours % 24}/"
            except OverflowError:
                assert folder == f"date={NO_VALUE}/hour={NO_VALUE}/"


def test_late_are_those_older_than_the_newest_by_more_than_one() -> None:
    day_us = 24 * HOUR_US
    partitioner = Partitioner("date")
    for times_us in ([5 * day_us, 2 * day_us, -1], [4 * day_us, 3 * day_us, 5 * day_us]):
        list(partitioner.split(batch(times_us)))
    assert partitioner.late_rows == 3


def test_too_many_folders_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioning, "MAX_FOLDERS", 3)
    assert len(split("x", batch([0] * 3, x=pa.array([1, 2, 3])))) == 3
    with pytest.raises(IngestError, match=r"more than 3 folders: .*fewer values than x"):
        split("x", batch([0] * 2, x=pa.array([1, 2])), batch([0] * 2, x=pa.array([3, 4])))
