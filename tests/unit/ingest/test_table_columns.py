"""Which columns a table has, and what the fields of JSON documents are called among them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.ingest.model import Values
from kraft.ingest.partitioning import partition_columns
from kraft.ingest.table_columns import column_name, escaped, field_name, own_columns, own_names, table_schema
from kraft.ingest.values.schema_files import parse_schema
from kraft.spark.errors import OptionError

RECORD = ["topic", "partition", "offset", "timestamp", "timestampType", "headers"]


@pytest.mark.parametrize(
    ("values", "by", "names"),
    [
        ("bytes", None, ["key", "value", *RECORD]),
        ("bytes", "date", ["key", "value", *RECORD, "date"]),
        ("string", "hour", ["key", "value", *RECORD, "_error", "_raw", "date", "hour"]),
        ("json", None, ["key", *RECORD, "_error", "_raw"]),
        ("json", "host", ["key", *RECORD, "_error", "_raw", "host"]),
        ("json", "topic", ["key", *RECORD, "_error", "_raw"]),
        ("json", "value", ["key", *RECORD, "_error", "_raw", "value"]),
    ],
)
def test_the_columns_of_a_new_table(values: Values, by: str | None, names: list[str]) -> None:
    schema = table_schema(values, by, None)
    assert schema.names == names
    assert set(partition_columns(by)) <= set(names)


def test_text_and_keys_to_partition_by_are_strings() -> None:
    assert (
        own_columns("string", "key").field("key").type
        == own_columns("string", "key").field("value").type
        == pa.string()
    )
    assert own_columns("bytes", None).field("key").type == pa.binary()


TAKEN = own_names(own_columns("json", "date"))


@pytest.mark.parametrize(
    ("field", "column"),
    [
        ("host", "host"),
        ("value", "value"),
        ("hour", "hour"),
        ("offset", "value_offset"),
        ("OFFSET", "value_OFFSET"),
        ("timestamptype", "value_timestamptype"),
        ("date", "value_date"),
        ("value_offset", "value_value_offset"),
        ("value_host", "value_host"),
        ("_error", "value__error"),
        ("first name", "first%20name"),
        ("a=b;c%d", "a%3Db%3Bc%25d"),
        ("a.b-é", "a.b-é"),
    ],
)
def test_names(field: str, column: str) -> None:
    assert column_name(field, TAKEN) == column
    assert field_name(column, TAKEN) == field


@given(
    st.text(min_size=1)
    | st.builds(
        lambda *parts: "".join(parts),
        st.sampled_from(["value_", "Value_", ""]),
        st.sampled_from(["", "value_"]),
        st.sampled_from(["offset", "Key", "x", "%41", "a b"]),
    )
)
def test_a_column_tells_its_field(field: str) -> None:
    column = column_name(field, TAKEN)
    assert column.lower() not in TAKEN
    assert field_name(column, TAKEN) == field
    assert not set(escaped(field)) & set(" ,;{}()\n\t=")


def test_fields_of_a_schema_get_the_names_of_columns() -> None:
    schema = table_schema(
        "json", None, parse_schema("`offset` INT, `a b` STRUCT<`c d`: ARRAY<STRUCT<`e=`: INT>>>")
    )
    assert schema.names[-2:] == ["value_offset", "a%20b"]
    assert str(schema.field("a%20b").type) == ("struct<c%20d: list<element: struct<e%3D: int32>>>")


@pytest.mark.parametrize(
    ("values", "by", "fields", "reason"),
    [
        ("bytes", "host", None, "no such column. Choose date, hour, topic, partition, key."),
        ("bytes", "value", None, "cannot be partitioned by value"),
        ("json", "offset", None, "cannot be partitioned by offset.*column value_offset"),
        ("json", "_error", None, "cannot be partitioned by _error"),
        ("json", "host", "a INT", "no such column. Choose date, hour, topic, partition, key, a."),
        ("bytes", "", None, "no such column"),
        ("json", "a", "a DOUBLE", "whose type is double"),
        ("json", "a", "a ARRAY<INT>", "whose type is list"),
    ],
)
def test_partitions_that_cannot_be(values: Values, by: str, fields: str | None, reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        table_schema(values, by, None if fields is None else parse_schema(fields))
