"""Counts a table's rows of one topic by window, and says which offsets the table has taken.

Of a table of `kraft ingest` its audit rows say that; of another Delta table, or folder of Parquet files, with columns
topic, partition, offset and timestamp, its rows do: records missing at either end are not noticed then. Bounded: a
batch of rows at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from kraft.cli.audit.stored import Ranges, count_windows
from kraft.ingest.folder import read_properties
from kraft.ingest.model import Table
from kraft.user_error import EXIT_UNDECIDED, EXIT_USAGE, UserError

_COLUMNS = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


class Ingested(NamedTuple):
    """What a table has of a topic."""

    rows: Counter[int]
    """By the start of the window; of offsets in the ranges."""
    ranges: Ranges


def read_table(folder: Path, topic: str, topic_id: bytes, window_ms: int, since_ms: int | None) -> Ingested:
    """Raises UserError, TableError."""
    if not folder.is_dir():
        raise UserError(f"--table: there is no folder {folder}", EXIT_USAGE)
    ranges: dict[int, tuple[int, int]] | None = None
    if read_properties(folder) is None:
        files = _foreign_files(folder)
    else:
        from kraft.ingest.tables import open_table

        table = open_table(folder)
        ranges = _taken(table, folder, topic, topic_id)
        files = _files_of(table, folder)
    rows: Counter[int] = Counter()
    seen: dict[int, tuple[int, int]] = {}
    for partitions, offsets, times_ms in _columns(files, topic):
        for partition in np.unique(partitions).tolist():
            chosen = partitions == partition
            low, high = int(offsets[chosen].min()), int(offsets[chosen].max()) + 1
            before = seen.get(partition, (low, high))
            seen[partition] = min(before[0], low), max(before[1], high)
            if ranges is not None:
                start, end = ranges.get(partition, (0, 0))
                chosen &= (offsets >= start) & (offsets < end)
            count_windows(rows, times_ms[chosen], window_ms, since_ms)
    return Ingested(rows, seen if ranges is None else ranges)


def _taken(table: Table, folder: Path, topic: str, topic_id: bytes) -> dict[int, tuple[int, int]]:
    ranges: dict[int, tuple[int, int]] = {}
    for row in table.audit_rows():
        if row.topic != topic:
            continue
        if row.topic_id != topic_id:
            raise UserError(
                f"{folder} has rows of an earlier topic {topic}, which was deleted and made anew: what is stored now"
                " cannot tell about them",
                EXIT_UNDECIDED,
            )
        start, end = ranges.get(row.partition, (row.start, row.end))
        ranges[row.partition] = min(start, row.start), max(end, row.end)
    return ranges


def _files_of(table: Table, folder: Path) -> list[str]:
    place = getattr(table, "data_path", folder.joinpath)
    return [str(place(file.path)) for file in table.files()]


def _foreign_files(folder: Path) -> list[str]:
    if (folder / "_delta_log").is_dir():
        from deltalake import DeltaTable

        return list(DeltaTable(folder).file_uris())
    found = [path for path in sorted(folder.rglob("*.parquet")) if path.is_file()]
    return [
        str(path)
        for path in found
        if not any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts)
    ]


def _columns(files: list[str], topic: str) -> Iterator[tuple[Any, Any, Any]]:
    """Partitions, offsets and times (ms) of the topic's rows, a batch at a time."""
    if not files:
        return
    dataset = ds.dataset(files, schema=pa.schema(_COLUMNS), format="parquet")
    wanted = ds.field("topic") == topic
    try:
        for batch in dataset.to_batches(columns=["partition", "offset", "timestamp"], filter=wanted):
            if batch.num_rows:
                times = batch["timestamp"].cast(pa.int64()).to_numpy() // 1000
                yield batch["partition"].to_numpy(), batch["offset"].to_numpy(), times
    except (pa.ArrowInvalid, pa.ArrowTypeError, OSError) as error:
        raise UserError(
            f"the table's files cannot be read as rows with the columns {', '.join(_COLUMNS)}: {error}",
            EXIT_UNDECIDED,
        ) from error
