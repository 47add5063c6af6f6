"""Small tables for tests of ingestion: what workers would have written, and what plain readers see."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from kraft.ingest.folder import sync
from kraft.ingest.model import (
    Commit,
    CommitRange,
    PartitionKey,
    RangeAudit,
    SliceResult,
    Table,
    TableProperties,
    WrittenFile,
    partition_key,
)
from kraft.spark.columns import COLUMN_NAMES, arrow_schema
from kraft.spark.slice_reader import PartitionSlice

CLUSTER = "cluster-1"
TOPIC = "orders"
TOPIC_ID = bytes(range(16))
SCHEMA = arrow_schema(COLUMN_NAMES)
PARQUET = TableProperties("parquet", "bytes", None)
DELTA = TableProperties("delta", "bytes", None)


def rows(
    offsets: Iterable[int], partition: int = 0, topic: str = TOPIC, values: Mapping[int, bytes] | None = None
) -> pa.Table:
    """A row for each offset; its value tells which."""
    named = list(offsets)
    columns = {
        "key": [str(offset % 7).encode() for offset in named],
        "value": [(values or {}).get(offset, b"value-%d" % offset) for offset in named],
        "topic": [topic] * len(named),
        "partition": [partition] * len(named),
        "offset": named,
        "timestamp": [1_700_000_000_000_000 + 1000 * offset for offset in named],
        "timestampType": [0] * len(named),
        "headers": [None] * len(named),
    }
    return pa.table(columns, schema=SCHEMA)


def part(
    start: int,
    end: int,
    partition: int = 0,
    *,
    topic: str = TOPIC,
    topic_id: bytes = TOPIC_ID,
    epoch: int = 3,
) -> PartitionSlice:
    return PartitionSlice(topic, topic_id, partition, start, end, epoch)


def written(
    folder: Path, name: str, data: pa.Table, partition_values: Mapping[str, str | None]
) -> WrittenFile:
    """A durable file, as a worker leaves it."""
    above = "/".join(f"{key}={value}" for key, value in partition_values.items())
    path = f"{above}/{name}.parquet" if above else f"{name}.parquet"
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(data, folder / path)
    sync(folder / path)
    sync((folder / path).parent)
    offsets = data.column("offset").to_pylist()
    return WrittenFile(
        path,
        dict(partition_values),
        data.num_rows,
        (folder / path).stat().st_size,
        json.dumps({"numRecords": data.num_rows}),
        (min(offsets), max(offsets) + 1),
    )


def result(
    table: Table, attempt: str, taken: PartitionSlice, name: str, partition_values: Mapping[str, str | None]
) -> SliceResult:
    """Every offset of the slice is a record, in one file."""
    data = rows(range(taken.start, taken.end), taken.partition, taken.topic)
    file = written(table.staging(attempt), f"{attempt}-{name}", data, partition_values)
    return SliceResult(taken, [file], RangeAudit(records=data.num_rows), SCHEMA, 0)


def commit_of(attempt: str, results: Sequence[SliceResult], schema: pa.Schema = SCHEMA) -> Commit:
    ranges: dict[PartitionKey, CommitRange] = {}
    for one in results:
        key, taken = partition_key(one.part), one.part
        before = ranges.get(key)
        start = taken.start if before is None else min(before.start, taken.start)
        ranges[key] = CommitRange(start, taken.end, taken.leader_epoch)
    return Commit(CLUSTER, attempt, 1_700_000_000_000, results, ranges, schema)


def ingest(
    table: Table,
    attempt: str,
    parts: Sequence[PartitionSlice],
    partition_values: Mapping[str, str | None] | None = None,
) -> int:
    """One commit with a file a slice."""
    results = [
        result(table, attempt, taken, str(number), partition_values or {})
        for number, taken in enumerate(parts)
    ]
    return table.commit(commit_of(attempt, results))


def plain_offsets(folder: Path) -> list[int]:
    """What `spark.read.parquet(DIR)` would see: neither names with `_` nor with `.`."""
    if not folder.exists():
        return []
    found = ds.dataset(folder, format="parquet", schema=pa.schema([("offset", pa.int64())]))
    return sorted(found.to_table().column("offset").to_pylist())
