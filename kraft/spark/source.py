"""Spark's entry: `spark.read.format("kraft")`, a Python data source for batch reads.

The columns are those of Spark's own Kafka source. One `load()` is one cut of all partitions (`plan.py`), and each
offset of it is read exactly once (`slice_reader.py`), or the job fails. Streams and writes end in a sentence. Spark
makes the source and plans in a Python process beside the driver, and reads in the executors' Python workers, each with
its own copy of the reader: nothing is shared but what is pickled. The format registers itself through the top-level
package `pyspark_kraft`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
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

from kraft.spark.client import ClusterClient
from kraft.spark.errors import OptionError, UnsupportedOperationError
from kraft.spark.options import ReadOptions, parse_options
from kraft.spark.plan import plan
from kraft.spark.retry import RetryPolicy
from kraft.spark.slice_reader import SliceReader

_COLUMNS = (
    ("key", BinaryType()),
    ("value", BinaryType()),
    ("topic", StringType()),
    ("partition", IntegerType()),
    ("offset", LongType()),
    ("timestamp", TimestampType()),
    ("timestampType", IntegerType()),
)
_NO_STREAMS = (
    "Format kraft reads batches only: use spark.read; a stream can be read with Spark's own format kafka."
)
_NO_WRITES = "Format kraft only reads: write with Spark's own format kafka, or with a Kafka producer."
_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def source_schema(*, include_headers: bool) -> StructType:
    """The columns of Spark's Kafka source: names, types and nullability."""
    fields = [StructField(name, kind) for name, kind in _COLUMNS]
    if include_headers:
        fields.append(StructField("headers", _HEADERS))
    return StructType(fields)


class KraftDataSource(DataSource):  # type: ignore[misc]  # pyspark is not checked
    """The format `kraft`. Options: see `options.py`."""

    @classmethod
    def name(cls) -> str:
        return "kraft"

    def schema(self) -> StructType:
        return source_schema(include_headers=parse_options(self.options).include_headers)

    def reader(self, schema: StructType) -> KraftReader:
        options = parse_options(self.options)
        if schema != source_schema(include_headers=options.include_headers):
            raise OptionError(
                "The columns of format kraft are given: leave .schema(…) out, and select or cast afterwards."
            )
        return KraftReader(options)

    def streamReader(self, schema: StructType) -> NoStreams:
        return NoStreams()

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        raise UnsupportedOperationError(_NO_WRITES)

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        raise UnsupportedOperationError(_NO_WRITES)


class NoStreams(DataSourceStreamReader):  # type: ignore[misc]  # pyspark is not checked
    """Refuses when it is asked, not when it is made: Spark would cover what is raised then with a fault of its own."""

    def _refuse(self, *_: object) -> NoReturn:
        raise UnsupportedOperationError(_NO_STREAMS)

    initialOffset = latestOffset = partitions = read = _refuse


class KraftReader(DataSourceReader):  # type: ignore[misc]  # pyspark is not checked
    """Plans in the driver, reads in the executors."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """One per slice. Nothing to read gives an empty list, of which Spark makes one `None`."""
        with self._client() as client:
            return [InputPartition(part) for part in plan(client, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return
        with self._client() as client:
            reader = SliceReader(client, partition.value, include_headers=self._options.include_headers)
            yield from reader.batches()

    def _client(self) -> ClusterClient:
        return ClusterClient(self._options.bootstrap, client_id=self._options.client_id, policy=RetryPolicy())
