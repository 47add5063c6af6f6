"""Spark's entry: `format("kraft")`, a Python data source that reads and writes batches and streams.

The columns are those of Spark's own Kafka source. One `load()` is one cut of all partitions (`plan.py`), and each
offset of it is read exactly once (`slice_reader.py`), or the job fails. With `path` the same is read from the data
directories of stopped brokers (`offline`). `stream.py` reads streams, `writer.py` writes.
Spark makes the source and plans in a Python process beside the driver; it reads and writes in the executors' Python
workers, each with its own copy of the reader: nothing is shared but what is pickled. The format registers itself
through the top-level package `pyspark_kraft`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kraft.spark.data_loss import LOGGER, REPEAT_LOAD, LossPolicy
from kraft.spark.errors import UnsupportedOperationError
from kraft.spark.options import OPTIONS_OF_STREAMS, ReadOptions, parse_options
from kraft.spark.plan import plan
from kraft.spark.reading import driver_client, read_slice
from kraft.spark.schema import check_schema, source_schema
from kraft.spark.stream import KraftStreamReader
from kraft.spark.write_options import WriteOptions, parse_write_options
from kraft.spark.writer import KraftStreamWriter, KraftWriter, check_columns, check_reachable


class KraftDataSource(DataSource):  # type: ignore[misc]  # pyspark is not checked
    """The format `kraft`. Options: see `options.py`."""

    @classmethod
    def name(cls) -> str:
        return "kraft"

    def schema(self) -> StructType:
        """Called by `load()`, which so refuses what no read can be."""
        return source_schema(parse_options(self.options, streaming=None).columns)

    def reader(self, schema: StructType) -> KraftReader:
        options = parse_options(self.options)
        check_schema(schema, options.columns)
        for name in OPTIONS_OF_STREAMS:
            if name.lower() in {given.lower() for given in self.options}:
                LOGGER.warning("Option %s has no effect on a batch read.", name)
        return KraftReader(options)

    def streamReader(self, schema: StructType) -> KraftStreamReader:
        return KraftStreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> KraftWriter:
        if overwrite:
            raise UnsupportedOperationError("A topic cannot be overwritten: use .mode('append').")
        options = self._write_options(schema)
        check_reachable(options)
        return KraftWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> KraftStreamWriter:
        """Spark makes one a micro-batch, so that brokers that are away are waited for as records are.

        The output mode complete appends all rows each time, as with Spark's own sink.
        """
        options = self._write_options(schema)
        check_reachable(options, within_s=options.delivery_timeout_ms / 1000)
        return KraftStreamWriter(options)

    def _write_options(self, schema: StructType) -> WriteOptions:
        options = parse_write_options(self.options)
        check_columns(schema, options.topic)
        return options


class KraftReader(DataSourceReader):  # type: ignore[misc]  # pyspark is not checked
    """Plans in the driver, reads in the executors."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._loss = LossPolicy(fail=options.fail_on_data_loss, advice=REPEAT_LOAD)

    def partitions(self) -> list[InputPartition]:
        """One per slice. Nothing to read gives an empty list, of which Spark makes one `None`."""
        if self._options.path:
            from kraft.spark.offline.cluster import plan_offline

            return [InputPartition(part) for part in plan_offline(self._options, self._loss)]
        with driver_client(self._options) as client:
            return [InputPartition(part) for part in plan(client, self._options, self._loss)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return
        if self._options.path:
            from kraft.spark.offline.cluster import read_offline

            yield from read_offline(self._options, self._loss, partition.value)
            return
        yield from read_slice(self._options, self._loss, partition.value)
