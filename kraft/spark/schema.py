"""The columns of Spark's own Kafka source, as Spark's types."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kraft.spark.errors import OptionError

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_TYPES = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS,
}


def source_schema(columns: Sequence[str]) -> StructType:
    """These columns of Spark's Kafka source: names, types and nullability."""
    return StructType([StructField(name, _TYPES[name]) for name in columns])


def check_schema(given: StructType, columns: Sequence[str]) -> None:
    """Raises OptionError if the user gave a schema of their own."""
    if given != source_schema(columns):
        raise OptionError(
            "The columns of format kraft are given: leave .schema(…) out, and select or cast afterwards."
        )
