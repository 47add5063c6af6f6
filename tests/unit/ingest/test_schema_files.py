"""Schemas that users give: DDL and Spark's JSON mean the same, and what cannot be is refused in a sentence."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from kraft.ingest.values.schema_files import parse_schema
from kraft.spark.errors import OptionError

DDL = """
    id INT NOT NULL COMMENT 'it\\'s', `first ``name` string, ok boolean, b tinyint, s SHORT, l long, f real, d DOUBLE,
    m DECIMAL(12, 2), n numeric, raw binary, day date, at TIMESTAMP, local timestamp_ntz, v varchar(10),
    tags ARRAY<STRING>, place: STRUCT<lat: DOUBLE, lon DOUBLE, names: ARRAY<MAP<STRING, INT>>>
"""
WANTED = pa.schema(
    [
        ("id", pa.int32()),
        ("first `name", pa.string()),
        ("ok", pa.bool_()),
        ("b", pa.int8()),
        ("s", pa.int16()),
        ("l", pa.int64()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("m", pa.decimal128(12, 2)),
        ("n", pa.decimal128(10, 0)),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("v", pa.string()),
        ("tags", pa.list_(pa.field("element", pa.string()))),
        (
            "place",
            pa.struct(
                [
                    ("lat", pa.float64()),
                    ("lon", pa.float64()),
                    ("names", pa.list_(pa.field("element", pa.map_(pa.string(), pa.int32())))),
                ]
            ),
        ),
    ]
)


def test_ddl() -> None:
    assert parse_schema(DDL) == WANTED


def test_what_spark_writes_of_a_schema_is_read_as_spark_means_it() -> None:
    """Spark's own classes write the JSON; no JVM."""
    pandas_types = pytest.importorskip("pyspark.sql.pandas.types")
    spark = pandas_types.from_arrow_schema(WANTED)
    assert parse_schema(spark.json()) == WANTED
    assert parse_schema(json.dumps(json.loads(spark.json()), indent=2)) == WANTED


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "end.* where the name of a field must stand"),
        ("a", "has the end at character 2, where a type must stand"),
        ("a INT,", "where the name of a field"),
        ("a INT b INT", "has b at character 7, where a comma or the end must stand"),
        ("a INT, A STRING", "names the field A twice"),
        ("a STRUCT<b: INT, b: INT>", "names the field b twice"),
        ("a ARRAY<INT", "where > must stand"),
        ("a ARRAY INT", "where < must stand"),
        ("a MAP<INT, INT>", "keys are no STRING"),
        ("a INTERVAL", "type INTERVAL, which no JSON value becomes"),
        ("a INT(3)", r"type INT\(3\)"),
        ("a DECIMAL(39, 2)", r"DECIMAL\(39,2\): the precision is from 1 to 38"),
        ("a DECIMAL(x)", "where a whole number must stand"),
        ("a INT NOT 3", "where NULL must stand"),
        ("a INT COMMENT b", "COMMENT without text"),
        ("a-b INT", "'-b INT' where it cannot stand"),
        ("a " + "ARRAY<" * 100 + "INT" + ">" * 100, "nests deeper than 64"),
        (", ".join(f"f{number} INT" for number in range(1001)), "more than 1000 fields"),
        ("{", "is not JSON"),
        ("[]", "none of StructType.json"),
        ('"int"', "must be .*struct"),
        ('{"type": "struct", "fields": []}', "names no field"),
        ('{"type": "struct", "fields": [{"name": "a"}]}', "a field without name and type"),
        ('{"type": "struct", "fields": [{"name": "", "type": "integer"}]}', "without a name"),
        ('{"type": "struct", "fields": [{"name": "a", "type": {"type": "udt"}}]}', "none of StructType.json"),
        ('{"type": "struct", "fields": [{"name": "a", "type": "void"}]}', "type VOID"),
        ('{"type": "array", "elementType": ' * 20_000, "not JSON|nests deeper"),
    ],
)
def test_what_cannot_be_is_refused(text: str, reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        parse_schema(text)
