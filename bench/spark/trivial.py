"""Python sources that do nothing but hand over: the ceiling of any Python source, and the floor of a micro-batch."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from kraft.spark.columns import arrow_schema
from kraft.spark.schema import source_schema

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
BATCH_ROWS = 10_000


def ready_batch(rows: int, value_bytes: int) -> pa.RecordBatch:
    """Rows of the format kraft."""
    columns = [
        pa.nulls(rows, pa.binary()),
        pa.array([b"x" * value_bytes] * rows, pa.binary()),
        pa.array(["bench"] * rows, pa.string()),
        pa.array([0] * rows, pa.int32()),
        pa.array(range(rows), pa.int64()),
        pa.array([datetime(2025, 1, 1, tzinfo=UTC)] * rows, pa.timestamp("us", tz="UTC")),
        pa.array([0] * rows, pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(COLUMNS))


class ReadyRows(DataSource):  # type: ignore[misc]  # pyspark is not checked
    """The format `ready`: `rows` rows with values of `bytes` bytes in `partitions` tasks, out of one buffer."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> StructType:
        return source_schema(COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _ReadyReader(*(int(self.options[name]) for name in ("rows", "bytes", "partitions")))


class _ReadyReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, rows: int, value_bytes: int, partitions: int) -> None:
        self._rows, self._bytes, self._partitions = rows, value_bytes, partitions

    def partitions(self) -> list[InputPartition]:
        share = self._rows // self._partitions
        return [InputPartition(share) for _ in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = ready_batch(min(BATCH_ROWS, partition.value), self._bytes)
        left = partition.value
        while left:
            taken = min(left, batch.num_rows)
            yield batch.slice(0, taken)
            left -= taken


class OneRowABatch(DataSource):  # type: ignore[misc]
    """The stream `one-row`: always one row more."""

    @classmethod
    def name(cls) -> str:
        return "one-row"

    def schema(self) -> StructType:
        return source_schema(COLUMNS)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _OneRowReader()


class _OneRowReader(DataSourceStreamReader):  # type: ignore[misc]
    def __init__(self) -> None:
        self._given = 0

    def initialOffset(self) -> dict[str, Any]:
        return {"rows": 0}

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        self._given += 1
        return {"rows": self._given}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield ready_batch(1, 100)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is kept."""
