"""JSON values row by row: what fits, and the sentence that tells why something does not."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kraft.ingest.table_columns import own_columns, table_schema
from kraft.ingest.values.json_fields import MAX_DEPTH, JsonFields
from kraft.ingest.values.schema_files import parse_schema

OWN = own_columns("json", None)


def fields(ddl: str | None = None) -> JsonFields:
    schema = table_schema("json", None, None if ddl is None else parse_schema(ddl))
    return JsonFields(schema, fixed=schema, own=OWN, infer=ddl is None)


def read(reader: JsonFields, *values: str | bytes | None) -> tuple[list[dict[str, Any]], dict[int, str]]:
    array = pa.array([value.encode() if isinstance(value, str) else value for value in values], pa.binary())
    columns, errors = reader.read(array)
    return [
        {name: column[row].as_py() for name, column in columns.items()} for row in range(len(array))
    ], errors


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("INT", "-5", -5),
        ("DOUBLE", "5", 5.0),
        ("FLOAT", "0.5", 0.5),
        ("BIGINT", "9223372036854775807", 2**63 - 1),
        ("DECIMAL(5,2)", "123.45", Decimal("123.45")),
        ("DECIMAL(5,2)", "1.5e2", Decimal("150.00")),
        ("DECIMAL(38,0)", "9" * 38, Decimal("9" * 38)),
        ("STRING", '"\\u00e9"', "é"),
        ("BOOLEAN", "true", True),
        ("BINARY", '"AP8="', b"\0\xff"),
        ("DATE", '"2026-01-31"', date(2026, 1, 31)),
        ("DATE", '"0001-01-01"', date.min),
        ("TIMESTAMP_NTZ", '"9999-12-31 23:59:59.999999"', datetime.max),
        ("TIMESTAMP", '"2026-01-31T10:00:00+02:00"', datetime(2026, 1, 31, 8, tzinfo=UTC)),
        ("TIMESTAMP", '"2026-01-31 10:00:00.5"', datetime(2026, 1, 31, 10, 0, 0, 500_000, UTC)),
        ("TIMESTAMP_NTZ", '"2026-01-31 10:00:00"', datetime(2026, 1, 31, 10)),
        ("ARRAY<INT>", "[1, null]", [1, None]),
        ("STRUCT<x: DECIMAL(3,1)>", '{"x": 1.5, "y": 2}', {"x": Decimal("1.5")}),
        ("STRUCT<x: DATE>", '{"x": "2026-01-31"}', {"x": date(2026, 1, 31)}),
        ("STRUCT<`a b`: INT>", '{"a b": 1}', {"a%20b": 1}),
        (
            "MAP<STRING, STRUCT<`a b`: INT>>",
            '{"k": {"a b": 1}, "l": null}',
            [("k", {"a%20b": 1}), ("l", None)],
        ),
    ],
)
def test_what_fits(kind: str, text: str, value: Any) -> None:
    (row, other), errors = read(fields(f"f {kind}"), f'{{"f": {text}}}', '{"f": null}')
    assert errors == {}
    assert (row["f"], other["f"]) == (value, None)


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        ("TINYINT", "128", "is 128, and no TINYINT"),
        ("SMALLINT", "1.0", "is 1.0, and no SMALLINT"),
        ("INT", "true", "is true, and no INT"),
        ("INT", '"5"', "is '5', and no INT"),
        ("BIGINT", "9223372036854775808", "is 9223372036854775808, and no BIGINT"),
        ("DOUBLE", "1e999", "is a number beyond the column's range"),
        ("DOUBLE", "9" * 400, "is a number beyond the column's range"),
        ("DOUBLE", "9" * 5000, "is a number beyond the column's range"),
        ("FLOAT", "1e39", "is a number beyond the column's range"),
        ("FLOAT", "[]", "is an array, and no number"),
        ("DECIMAL(5,2)", "1.234", "is 1.234, and no DECIMAL(5,2)"),
        ("DECIMAL(5,2)", "1000", "is 1000, and no DECIMAL(5,2)"),
        ("DECIMAL(5,2)", "1e999999999", "is 1E+999999999, and no DECIMAL(5,2)"),
        ("STRING", "5", "is 5, and no STRING"),
        ("STRING", '"\\udc00"', "has half of a surrogate pair"),
        ("BOOLEAN", "0", "is 0, and no BOOLEAN"),
        ("BINARY", '"*"', "is '*', and no base64"),
        ("DATE", '"31.1.2026"', "is '31.1.2026', and no DATE"),
        ("DATE", '"0000-12-31"', "is '0000-12-31', and no DATE"),
        ("TIMESTAMP", '"9999-12-31T23:00:00-02:00"', "is '9999-12-31T23:00:00-02:00', and no TIMESTAMP"),
        ("TIMESTAMP_NTZ", '"0000-12-31 00:00:00"', "is '0000-12-31 00:00:00', and no TIMESTAMP"),
        ("TIMESTAMP", "0", "is 0, and no STRING"),
        ("TIMESTAMP", f'"{"x" * 50}"', f"is '{'x' * 39}…, and no TIMESTAMP"),
        ("TIMESTAMP_NTZ", '"2026-01-31 10:00:00Z"', "is '2026-01-31 10:00:00Z', and no TIMESTAMP"),
        ("ARRAY<INT>", "{}", "is an object, and no array"),
        ("STRUCT<x: INT>", "[]", "is an array, and no object"),
        ("MAP<STRING, INT>", "5", "is 5, and no object"),
        ("MAP<STRING, INT>", '{"a": 1, "a": 2}', "has a key more than once"),
    ],
)
def test_what_does_not_fit(kind: str, text: str, reason: str) -> None:
    rows, errors = read(fields(f"f {kind}, g INT"), f'{{"f": {text}, "g": 1}}', '{"g": 1}')
    assert errors == {0: f"The field f {reason}."}
    assert rows == [{"f": None, "g": None}, {"f": None, "g": 1}]


def test_the_path_to_what_does_not_fit_is_named() -> None:
    _, errors = read(fields("a STRUCT<b: ARRAY<STRUCT<c: INT>>>"), '{"a": {"b": [{"c": 1}, {"c": "x"}]}}')
    assert errors == {0: "The field a.b.c is 'x', and no INT."}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "The value is not JSON: Expecting value: line 1 column 1 (char 0)."),
        (
            "\ufeff{}",
            "The value is not JSON: Unexpected UTF-8 BOM (decode using utf-8-sig): line 1 column 1 (char 0).",
        ),
        ("{} {}", "The value is not JSON: Extra data: line 1 column 4 (char 3)."),
        ("[{}]", "The value is no JSON object."),
        ("null", "The value is no JSON object."),
        (b"{\xff}", "The value is not UTF-8: invalid start byte at byte 1."),
        ('{"g": NaN}', "The value is not JSON: it has the number NaN."),
        ('{"other": ' + "[" * MAX_DEPTH + "]" * MAX_DEPTH + "}", "The value is nested more than 64 deep."),
        ('{"other": ' + "[" * 100_000 + "]" * 100_000 + "}", "The value is nested more than 64 deep."),
        ('{"g": 1, "g": 1}', "The field g stands more than once."),
    ],
)
def test_what_is_no_document(value: str | bytes, reason: str) -> None:
    rows, errors = read(fields("g INT"), '{"g": 1}', value, '{"g": 2, "other": [[1], {"x": 1, "x": 2}]}')
    assert errors == {1: reason}
    assert [row["g"] for row in rows] == [1, None, 2]


def test_inferred_fields_are_all_of_the_documents() -> None:
    reader = fields()
    rows, errors = read(reader, '{"a": 1, "b": {"c": []}}', '{"A": 1}', '{"a": 2.5, "offset": 1}', "{}", None)
    assert errors == {1: "The field A differs from another field only in case."}
    assert rows[2] == {"a": 2.5, "value_offset": 1}
    rows, errors = read(reader, '{"b": {"c": [1]}}', '{"b": {"d": 1, "d": 2}}', '{"": 1}')
    assert rows[0]["b"] == {"c": [1], "d": None}
    assert errors == {
        1: "The field b.d stands more than once.",
        2: "The field  cannot become a column: its name is impossible, or the table has too many fields.",
    }


def test_a_type_that_was_handed_out_makes_the_slice_be_read_again() -> None:
    reader = fields()
    read(reader, '{"a": 1, "b": 1}')
    assert not reader.is_outdated
    read(reader, '{"a": 1.5}')
    assert reader.is_outdated
    known = pa.schema(list(reader.columns().items()))
    assert known == pa.schema([("a", pa.float64()), ("b", pa.int64())])
    again = JsonFields(known, fixed=table_schema("json", None, None), own=OWN, infer=True)
    assert read(again, '{"a": 1, "b": 1}', '{"a": 1.5}')[0][1] == {"a": 1.5, "b": None}


def test_a_type_of_the_table_stays() -> None:
    schema = pa.schema([*OWN, ("a", pa.int64())])
    reader = JsonFields(schema, fixed=schema, own=OWN, infer=True)
    read(reader, '{"a": 1}')
    assert read(reader, '{"a": 1.5}')[1] == {0: "The field a is 1.5, and no BIGINT."}


def test_a_few_bad_values_do_not_slow_the_others_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exact path sees no more than the blocks around them."""
    reader = fields("g INT")
    seen = []
    slowly = reader.read_slowly
    monkeypatch.setattr(reader, "read_slowly", lambda values: seen.append(len(values)) or slowly(values))
    values: list[str | None] = [f'{{"g": {number}}}' for number in range(20_000)]
    values[7], values[15_000], values[19_999] = "{", None, '{"g": "x"}'
    rows, errors = read(reader, *values)
    assert list(errors) == [7, 19_999]
    assert [row["g"] for row in rows] == [
        None if number in (7, 15_000, 19_999) else number for number in range(20_000)
    ]
    assert sum(seen) < 1000
