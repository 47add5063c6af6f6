"""The statistics of a file, as readers of a Delta log skip files by them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.ingest.stats import MAX_COLUMNS, FileStats
from tests.support.examples import examples

LAST = chr(0x10FFFF)


def stats(*tables: pa.Table) -> dict[str, Any]:
    file = FileStats()
    for table in tables:
        file.add(table)
    found: dict[str, Any] = json.loads(file.to_json())
    return found


@pytest.mark.parametrize(
    ("values", "kind", "least", "greatest"),
    [
        ([3, None, -1], pa.int64(), -1, 3),
        ([1.5, -0.5], pa.float64(), -0.5, 1.5),
        ([Decimal("1.25"), Decimal("-1.25")], pa.decimal128(5, 2), -2, 2),
        ([date(2026, 1, 2), date(2026, 1, 1)], pa.date32(), "2026-01-01", "2026-01-02"),
        (
            [datetime(2026, 1, 1, 0, 0, 0, 1500, UTC)],
            pa.timestamp("us", "UTC"),
            "2026-01-01T00:00:00.001Z",
            "2026-01-01T00:00:00.002Z",
        ),
        ([datetime(2026, 1, 1)], pa.timestamp("us"), "2026-01-01T00:00:00.000", "2026-01-01T00:00:00.000"),
        (["b", "a"], pa.string(), "a", "b"),
        (["é" * 40], pa.string(), "é" * 32, "é" * 32 + LAST),
        (["a" * 32], pa.string(), "a" * 32, "a" * 32),
        (["a" * 32 + LAST * 2], pa.string(), "a" * 32, None),
        ([float("nan"), 1.0], pa.float64(), None, None),
        ([float("inf"), 1.0], pa.float64(), 1.0, None),
        ([None], pa.int32(), None, None),
        ([True], pa.bool_(), None, None),
        ([b"a"], pa.binary(), None, None),
        ([[1]], pa.list_(pa.int64()), None, None),
    ],
)
def test_bounds(values: list[Any], kind: pa.DataType, least: Any, greatest: Any) -> None:
    found = stats(pa.table({"x": pa.array(values, kind)}))
    assert found["minValues"].get("x") == least
    assert found["maxValues"].get("x") == greatest
    assert found["nullCount"] == {"x": values.count(None)}


def test_times_that_python_has_no_word_for_have_no_bound() -> None:
    found = stats(pa.table({"x": pa.array([0, 2**62], pa.int64()).view(pa.timestamp("us", "UTC"))}))
    assert found["minValues"] == {"x": "1970-01-01T00:00:00.000Z"}
    assert found["maxValues"] == {}


def test_row_groups_add_up() -> None:
    found = stats(
        pa.table({"x": [5, None]}), pa.table({"x": pa.array([None], pa.int64())}), pa.table({"x": [7, -1]})
    )
    assert found == {"numRecords": 5, "minValues": {"x": -1}, "maxValues": {"x": 7}, "nullCount": {"x": 2}}


def test_only_the_first_columns_and_no_objects() -> None:
    columns = {f"c{number}": [number] for number in range(40)}
    found = stats(pa.table({"s": [{"a": 1}], **columns}))
    assert list(found["nullCount"]) == sorted(f"c{number}" for number in range(MAX_COLUMNS - 1))


@settings(max_examples=examples(60))
@given(st.lists(st.text(max_size=40) | st.sampled_from([LAST * 33, "\ud7ff" * 40]), min_size=1))
def test_strings_lie_between_their_bounds(values: list[str]) -> None:
    found = stats(pa.table({"x": values}))
    assert all(found["minValues"]["x"] <= value for value in values)
    if "x" in found["maxValues"]:
        assert all(value <= found["maxValues"]["x"] for value in values)
