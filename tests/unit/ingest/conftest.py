"""Commits made by hand: files with a few rows, as workers would have written them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kraft.ingest.model import (
    Commit,
    CommitRange,
    PartitionKey,
    RangeAudit,
    SliceResult,
    TableProperties,
    WrittenFile,
)
from kraft.spark.slice_reader import PartitionSlice

CLUSTER = "cluster-1"
TOPIC_ID = b"i" * 16
SCHEMA = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])
BYTES = TableProperties("delta", "bytes", None)


def key(partition: int = 0, topic: str = "orders", topic_id: bytes = TOPIC_ID) -> PartitionKey:
    return PartitionKey(topic, topic_id, partition)


def write_slice_by_hand(
    folder: Path, attempt: str, start: int, end: int, *, partition: int = 0, schema: pa.Schema = SCHEMA
) -> SliceResult:
    """A file with one row an offset; columns beyond SCHEMA are null."""
    columns = {"topic": ["orders"] * (end - start), "partition": [partition] * (end - start)}
    rows = pa.table({**columns, "offset": list(range(start, end))}, schema=SCHEMA)
    for field in schema:
        if field.name not in SCHEMA.names:
            rows = rows.append_column(field, pa.nulls(end - start, field.type))
    path = f"{attempt}-{partition}-{start}.parquet"
    pq.write_table(rows, folder / path)
    size = (folder / path).stat().st_size
    stats = {"numRecords": end - start, "minValues": {"offset": start}, "maxValues": {"offset": end - 1}}
    file = WrittenFile(path, {}, end - start, size, json.dumps(stats), (start, end))
    part = PartitionSlice("orders", TOPIC_ID, partition, start, end, 0)
    return SliceResult(part, [file], RangeAudit(records=end - start), schema, 0)


def commit_of(
    folder: Path,
    attempt: str,
    ranges: Mapping[int, tuple[int, int]],
    *,
    schema: pa.Schema = SCHEMA,
    cut_time_ms: int = 1_700_000_000_000,
) -> Commit:
    """Of these offsets by partition, whose files it writes."""
    return Commit(
        cluster_id=CLUSTER,
        attempt=attempt,
        cut_time_ms=cut_time_ms,
        results=[
            write_slice_by_hand(folder, attempt, start, end, partition=partition, schema=schema)
            for partition, (start, end) in ranges.items()
            if end > start
        ],
        ranges={key(partition): CommitRange(start, end, 0) for partition, (start, end) in ranges.items()},
        schema=schema,
    )
