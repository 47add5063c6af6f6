"""Whatever the values: what the fast path for JSON accepts, the exact one reads the same, row by row."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.ingest.table_columns import own_columns, table_schema
from kraft.ingest.values import json_fields
from kraft.ingest.values.json_fields import Columns, JsonFields
from kraft.ingest.values.schema_files import parse_schema

FIELDS = (
    "a BIGINT, b DOUBLE, c STRING, d BOOLEAN, e ARRAY<INT>,"
    " f STRUCT<x: DOUBLE, y: ARRAY<STRUCT<z: STRING, at: TIMESTAMP>>>,"
    " g TIMESTAMP, h DATE, i FLOAT, j TINYINT, `offset` STRING"
)
"""Each with the fast path."""
OWN = own_columns("json", None)

numbers = st.sampled_from(
    [
        "0",
        "-0",
        "1",
        "-1",
        "127",
        "128",
        "1.0",
        "1e2",
        "1E400",
        "-1e400",
        "1e-400",
        "0.1",
        "-0.0",
        "9007199254740993",
        "9223372036854775807",
        "9223372036854775808",
        "3.4028235677973366e38",
        "3.4028234663852886e38",
        "NaN",
        "-Infinity",
        "Infinity",
        "Inf",
        "-NaN",
        "01",
        "1.",
        ".5",
        "+1",
        "-",
        "0x1",
        "1e",
    ]
) | st.integers(-(2**70), 2**70).map(str)
numbers |= (
    st.floats(allow_nan=False, allow_infinity=False).map(repr) | st.just("9" * 400) | st.just("1" * 5000)
)
texts = st.text(max_size=6).map(json.dumps) | st.text(max_size=6).map(
    lambda text: json.dumps(text, ensure_ascii=False)
)
texts |= st.sampled_from(
    [
        '"\\ud800"', '"\\udc00"', '"\\ud83d\\ude00"', '"\\u0000"',
        '"\n"', '"\t"', '"\x7f"', '"}\\n{"', '"a\\/b"', '"\\x"',
        '"2026-01-01"', '"2026-01-01T10:00:00Z"', '"2026-01-01 10:00:00.123456+02:00"', '"2026-02-30"', '"0000-01-01"',
        '"2026-01-01T10:00:00.1234567Z"', '"9999-12-31T23:59:59.999999Z"', '"9999-12-31T23:59:59-01:00"',
        '"0001-01-01T00:00:00+01:00"', "'x'", '"NaN"', '": NaN,"',
    ]
)  # fmt: skip
NAMES = [*"abcdefghijxyzA", "at", "offset", "other", "\\u0061", "\\ud800"]
names = st.sampled_from([f'"{name}"' for name in NAMES])
names |= st.sampled_from(['""', '"a b"'])
spaces = st.sampled_from(["", "", "", " ", "\n", "\t", "\r", "\x0b", "\ufeff", "\xa0"])
plain = (
    numbers
    | texts
    | st.sampled_from(["null", "true", "false", "{}", "[]", "[null, null]", "[[]]", "nul", ""])
)


def objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    members = st.lists(st.tuples(names, values), max_size=4)
    return members.map(lambda pairs: "{" + ",".join(f"{name}:{value}" for name, value in pairs) + "}")


nested = st.recursive(
    plain, lambda inner: objects(inner) | st.lists(inner, max_size=3).map(lambda all: f"[{','.join(all)}]")
)
fitting = st.fixed_dictionaries(
    {},
    optional={
        "a": st.integers(-(2**63), 2**63 - 1) | st.none(),
        "b": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**60), 2**60),
        "c": st.text(max_size=5),
        "d": st.booleans(),
        "e": st.lists(st.integers(-5, 5) | st.none(), max_size=3),
        "f": st.fixed_dictionaries(
            {},
            optional={
                "x": st.floats(-1, 1),
                "y": st.lists(st.just({"z": "t"}) | st.just({"at": "2026-01-01T10:00:00Z"}), max_size=2),
            },
        ),
        "g": st.sampled_from(["2026-01-01T10:00:00Z", "2026-01-01 10:00:00+02:00"]),
        "h": st.sampled_from(["2026-01-01", "1969-12-31"]),
        "i": st.floats(-1, 1),
        "j": st.integers(-128, 127),
        "offset": st.text(max_size=3),
        "other": st.integers() | st.just({"deep": [1]}),
    },
).map(json.dumps)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A sound document in which a piece is replaced."""
    text = draw(fitting)
    at = draw(st.integers(0, len(text)))
    end = draw(st.integers(at, min(len(text), at + 3)))
    return (
        text[:at]
        + draw(st.sampled_from(["{", "}", "[", "]", ",", ":", '"', "\n", "\0", "}{", "}\n{", "1"]))
        + text[end:]
    )


documents = st.builds(
    lambda before, text, after: (before + text + after).encode("utf-8", "surrogatepass"),
    spaces,
    fitting | fitting | fitting | objects(nested) | nested | damaged(),
    spaces,
)
values = st.one_of(
    documents,
    documents,
    documents,
    documents,
    st.none(),
    st.just(b""),
    st.binary(max_size=8),
    st.builds(lambda one, two: one + two, documents, documents),
    st.sampled_from(
        [b'{"a":{}', b'{"b":1}}', b'{"a":1}{"a":2}', b'{"other":' + b"[" * 70 + b"]" * 70 + b"}"]
    ),
)
blocks = st.lists(values, max_size=6) | st.lists(fitting.map(str.encode) | st.none(), max_size=6)


def reader(*, infer: bool, partition_column: str | None = None) -> JsonFields:
    schema = table_schema("json", partition_column, None if infer else parse_schema(FIELDS))
    return JsonFields(schema, fixed=schema, own=OWN, infer=infer, partition_column=partition_column)


def rows(columns: Columns, count: int) -> list[dict[str, Any]]:
    """Of times and the like as Arrow has them, since Python's have other bounds."""
    return [{name: column[row] for name, column in columns.items()} for row in range(count)]


scalars = st.fixed_dictionaries({"c": st.integers(-(2**64), 2**64)}).map(json.dumps)
scalars |= st.builds('{{"c": {}}}'.format, numbers | texts | st.sampled_from(["true", "false", "null"]))


@settings(deadline=None, max_examples=80)
@given(
    st.tuples(blocks, st.just(None))
    | st.tuples(blocks | st.lists(scalars.map(str.encode), min_size=1, max_size=4), st.just("c"))
)
def test_the_fast_path_gives_what_the_exact_one_gives(case: tuple[list[bytes | None], str | None]) -> None:
    block, partition_column = case
    array = pa.array(block, pa.binary())
    fields = reader(infer=False, partition_column=partition_column)
    fast = fields.read_fast(array)
    if fast is None:
        return
    if not fast:
        assert all(value is None for value in block)
        return
    for row, value in enumerate(block):
        exact, errors = fields.read_slowly(pa.array([value], pa.binary()))
        assert not errors
        assert rows({name: column.slice(row, 1) for name, column in fast.items()}, 1) == rows(exact, 1)
    for column in fast.values():
        column.validate(full=True)


def test_sound_documents_take_the_fast_path() -> None:
    sound = b'{"a":1,"b":2,"c":"x","d":true,"e":[1],"f":{"x":1,"y":[{"z":""}]},'
    sound += b'"g":"2026-01-01T00:00:00Z","h":"2026-01-01"}'
    assert reader(infer=False).read_fast(pa.array([sound, None, b" {}\n", sound], pa.binary()))
    inferred = reader(infer=True)
    inferred.read(pa.array([sound], pa.binary()))
    assert inferred.read_fast(pa.array([sound, sound], pa.binary()))
    by_field = reader(infer=True, partition_column="c")
    for value in (b"5", b'"x"', b"true", b"-7"):
        columns = by_field.read_fast(pa.array([b'{"c":%b}' % value] * 2, pa.binary()))
        assert columns is not None
        assert columns["c"].to_pylist() == [value.strip(b'"').decode()] * 2


@settings(deadline=None, max_examples=30)
@given(st.lists(blocks, min_size=1, max_size=3), st.booleans())
def test_cut_into_blocks_or_not_the_rows_are_those_of_the_exact_path(
    parts: list[list[bytes | None]], infer: bool
) -> None:
    """Inferred fields: those that the first part has, and then all rows."""
    array = pa.array([value for part in parts for value in part], pa.binary())
    whole, exact = reader(infer=infer), reader(infer=infer)
    if infer:
        for fields in (whole, exact):
            fields.read_slowly(array)
    slow_rows = json_fields.SLOW_ROWS
    json_fields.SLOW_ROWS = 2
    try:
        columns, errors = whole.read(array)
    finally:
        json_fields.SLOW_ROWS = slow_rows
    wanted, wanted_errors = exact.read_slowly(array)
    assert errors == wanted_errors
    assert {name: column.type for name, column in columns.items()} == {
        name: column.type for name, column in wanted.items()
    }
    assert rows(columns, len(array)) == rows(wanted, len(array))
