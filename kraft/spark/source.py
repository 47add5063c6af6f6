"""Spark's entry: `spark.read.format("kraft")`, a Python data source for batch reads.

The columns are those of Spark's own Kafka source. One `load()` is one cut of all partitions (`plan.py`), and each
offset of it is read exactly once (`slice_reader.py`), or the job fails. Streams and writes end in a sentence. Spark
makes the source and plans in a Python process beside the driver, and reads in the executors' Python workers, each with
its own copy of the reader: nothing is shared but what is pickled. The format registers itself through the top-level
package `pyspark_kraft`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
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
from kraft.spark.data_loss import LOGGER, REPEAT_LOAD, LossPolicy
from kraft.spark.errors import OptionError, UnsupportedOperationError
from kraft.spark.options import OPTIONS_OF_STREAMS, ReadOptions, parse_columns, parse_options
from kraft.spark.plan import plan
from kraft.spark.quiet import hide_broken_pipes
from kraft.spark.retry import RetryPolicy
from kraft.spark.slice_reader import PartitionSlice, SliceReader

_TYPES = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}
_NO_STREAMS = (
    "Format kraft reads batches only: use spark.read; a stream can be read with Spark's own format kafka."
)
_NO_WRITES = "Format kraft only reads: write with Spark's own format kafka, or with a Kafka producer."


def source_schema(columns: Sequence[str]) -> StructType:
    """These columns of Spark's Kafka source: names, types and nullability."""
    return StructType([StructField(name, _TYPES[name]) for name in columns])


class KraftDataSource(DataSource):  # type: ignore[misc]  # pyspark is not checked
    """The format `kraft`. Options: see `options.py`."""

    @classmethod
    def name(cls) -> str:
        return "kraft"

    def schema(self) -> StructType:
        return source_schema(parse_columns(self.options))

    def reader(self, schema: StructType) -> KraftReader:
        options = parse_options(self.options)
        if schema != source_schema(options.columns):
            raise OptionError(
                "The columns of format kraft are given: leave .schema(…) out, and select or cast afterwards."
            )
        for name in OPTIONS_OF_STREAMS:
            if name.lower() in {given.lower() for given in self.options}:
                LOGGER.warning("Option %s has no effect on a batch read.", name)
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
        self._loss = LossPolicy(fail=options.fail_on_data_loss, advice=REPEAT_LOAD)

    def partitions(self) -> list[InputPartition]:
        """One per slice. Nothing to read gives an empty list, of which Spark makes one `None`."""
        with driver_client(self._options) as client:
            return [InputPartition(part) for part in plan(client, self._options, self._loss)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return
        yield from read_slice(self._options, self._loss, partition.value)


def driver_client(options: ReadOptions) -> ClusterClient:
    """Asks for metadata and offsets."""
    policy = RetryPolicy(max_attempts=options.num_retries)
    if options.retry_interval_ms is not None:
        interval_s = options.retry_interval_ms / 1000
        policy = replace(policy, first_backoff_s=interval_s, max_backoff_s=interval_s)
    return _client(options, policy)


def read_slice(options: ReadOptions, loss: LossPolicy, part: PartitionSlice) -> Iterator[pa.RecordBatch]:
    """The rows of one slice, read by an executor, which waits longer for brokers: the driver has found them already."""
    hide_broken_pipes()
    budget_s = RetryPolicy.budget_s if options.poll_timeout_ms is None else options.poll_timeout_ms / 1000
    with _client(options, RetryPolicy(budget_s=budget_s, first_answer_s=budget_s)) as client:
        yield from SliceReader(client, part, columns=options.columns, loss=loss).batches()


def _client(options: ReadOptions, policy: RetryPolicy) -> ClusterClient:
    return ClusterClient(
        options.bootstrap,
        client_id=options.client_id,
        policy=policy,
        read_committed=options.read_committed,
    )
