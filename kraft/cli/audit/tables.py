"""Counts a table's rows of one topic by window, and says which offsets the table has taken.

Of a table of `kraft ingest` its audit rows say that; of another Delta table, or a folder whose Parquet files are one
table (they lie in it, or below it in folders `column=value`), with columns topic, partition, offset and timestamp, its
rows do: records missing at either end are not noticed then. Rows do not name the topic's id: where a topic that was
made anew and a former one have offsets in common, `kraft.auditing` tells by the window. Bounded: a batch of rows at a
time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kraft.cli.audit.stored import Ranges, count_windows
from kraft.ingest.folder import read_properties
from kraft.ingest.model import Table, topic_id_text
from kraft.user_error import EXIT_UNDECIDED, EXIT_USAGE, UserError

Offsets = npt.NDArray[np.int64]

_COLUMNS = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


class DataFile(NamedTuple):
    path: Path
    values: Mapping[str, str | None]
    """Of columns that all its rows have alike, and that it does not hold."""


class FormerRange(NamedTuple):
    """What the table has taken of a partition of a topic that had this name before."""

    topic_id: bytes
    partition: int
    start: int
    end: int

    def document(self) -> dict[str, Any]:
        """For --json."""
        return {
            "topic_id": topic_id_text(self.topic_id),
            "partition": self.partition,
            "from": self.start,
            "to": self.end,
        }


@dataclass
class Ingested:
    """What a table has of a topic. Rows are counted by the start of their window."""

    ranges: Ranges
    former_ranges: list[FormerRange] = field(default_factory=list)
    """Ascending by topic id and partition."""
    rows: Counter[int] = field(default_factory=Counter)
    """Of offsets in the ranges only."""
    shared: Counter[int] = field(default_factory=Counter)
    """Of offsets in both."""
    former: Counter[int] = field(default_factory=Counter)
    """Of offsets in the former ranges only."""
    is_whole: bool = True
    """It has as many rows of all these offsets as records were ingested."""


def read_table(folder: Path, topic: str, topic_id: bytes, window_ms: int, since_ms: int | None) -> Ingested:
    """Raises UserError, TableError."""
    if not folder.is_dir():
        raise UserError(f"--table: there is no folder {folder}", EXIT_USAGE)
    if read_properties(folder) is None:
        return _read_foreign(_foreign_files(folder), topic, window_ms, since_ms)
    from kraft.ingest.tables import open_table

    table = open_table(folder)
    found, records = _taken(table, topic, topic_id)
    present = 0
    for partitions, offsets, times_ms in _columns(_files_of(table, folder), topic):
        for partition in np.unique(partitions).tolist():
            of_it = partitions == partition
            own = of_it & _within(offsets, [found.ranges.get(partition, (0, 0))])
            former = of_it & _within(
                offsets, [one[2:] for one in found.former_ranges if one.partition == partition]
            )
            for counts, chosen in (
                (found.rows, own & ~former),
                (found.shared, own & former),
                (found.former, former & ~own),
            ):
                count_windows(counts, times_ms[chosen], window_ms, since_ms)
            present += int((own | former).sum())
    found.is_whole = present == records
    return found


def _read_foreign(files: Iterable[DataFile], topic: str, window_ms: int, since_ms: int | None) -> Ingested:
    rows: Counter[int] = Counter()
    seen: dict[int, tuple[int, int]] = {}
    for partitions, offsets, times_ms in _columns(files, topic):
        for partition in np.unique(partitions).tolist():
            chosen = partitions == partition
            low, high = int(offsets[chosen].min()), int(offsets[chosen].max()) + 1
            before = seen.get(partition, (low, high))
            seen[partition] = min(before[0], low), max(before[1], high)
        count_windows(rows, times_ms, window_ms, since_ms)
    return Ingested(seen, rows=rows)


def _taken(table: Table, topic: str, topic_id: bytes) -> tuple[Ingested, int]:
    """The ranges, and how many records were ingested of them."""
    ranges: dict[tuple[bytes, int], tuple[int, int]] = {}
    records = 0
    for row in table.audit_rows():
        if row.topic == topic:
            start, end = ranges.get((row.topic_id, row.partition), (row.start, row.end))
            ranges[row.topic_id, row.partition] = min(start, row.start), max(end, row.end)
            records += row.audit.records
    own = {partition: taken for (of, partition), taken in ranges.items() if of == topic_id}
    former = [FormerRange(*key, *taken) for key, taken in sorted(ranges.items()) if key[0] != topic_id]
    return Ingested(own, former), records


def _within(offsets: Offsets, ranges: Iterable[tuple[int, int]]) -> npt.NDArray[np.bool_]:
    found = np.zeros(len(offsets), np.bool_)
    for start, end in ranges:
        found |= (offsets >= start) & (offsets < end)
    return found


def _files_of(table: Table, folder: Path) -> list[DataFile]:
    place = getattr(table, "data_path", folder.joinpath)
    return [DataFile(place(file.path), file.partition_values) for file in table.files()]


def _foreign_files(folder: Path) -> list[DataFile]:
    """Of a table that is none of `kraft ingest`. Raises UserError where the folder is no table."""
    folder = folder.absolute()
    if (folder / "_delta_log").is_dir():
        from deltalake import DeltaTable

        return [_of_folders(Path(path), folder) for path in DeltaTable(folder).file_uris()]
    files = []
    for path in sorted(folder.rglob("*.parquet")):
        below = path.relative_to(folder).parts
        if not path.is_file() or any(part.startswith(("_", ".")) for part in below):
            continue
        if not all("=" in part for part in below[:-1]):
            raise UserError(
                f"--table: {folder} is no table, although there are Parquet files below it, in {path.parent}: name the"
                " folder that was given to kraft ingest --to",
                EXIT_USAGE,
            )
        files.append(_of_folders(path, folder))
    if not files:
        raise UserError(
            f"--table: {folder} is no table: it has neither a log nor Parquet files; name the folder that was given to"
            " kraft ingest --to",
            EXIT_USAGE,
        )
    return files


def _of_folders(path: Path, table: Path) -> DataFile:
    """With the values that the folders' names tell."""
    parts = path.relative_to(table).parts[:-1] if path.is_relative_to(table) else ()
    pairs = [part.partition("=") for part in parts if "=" in part]
    return DataFile(path, {unquote(name): unquote(value) for name, _, value in pairs})


def _columns(files: Iterable[DataFile], topic: str) -> Iterator[tuple[Offsets, Offsets, Offsets]]:
    """Partitions, offsets and times (ms) of the topic's rows, a batch at a time. Raises UserError."""
    for file in files:
        try:
            with pq.ParquetFile(file.path) as opened:
                stored = [name for name in _COLUMNS if name in opened.schema_arrow.names]
                missing = [name for name in _COLUMNS if name not in stored and name not in file.values]
                if missing:
                    raise UserError(
                        f"--table: {file.path} has no column {', '.join(missing)}: its rows are no records of a topic",
                        EXIT_USAGE,
                    )
                for batch in opened.iter_batches(columns=stored):
                    yield _of_topic(batch, file.values, topic)
        except (pa.ArrowException, OSError) as error:
            raise UserError(
                f"the table's file {file.path} cannot be read as rows with the columns {', '.join(_COLUMNS)}: {error}",
                EXIT_UNDECIDED,
            ) from error


def _of_topic(
    batch: pa.RecordBatch, constants: Mapping[str, str | None], topic: str
) -> tuple[Offsets, Offsets, Offsets]:
    columns = {
        name: batch[name].cast(kind)
        if name in batch.schema.names
        else pa.repeat(pa.scalar(constants[name]).cast(kind), batch.num_rows)
        for name, kind in _COLUMNS.items()
    }
    wanted = pc.equal(columns["topic"], topic)
    partitions, offsets, times = (
        columns[name].filter(wanted).cast(pa.int64()).to_numpy(zero_copy_only=False)
        for name in ("partition", "offset", "timestamp")
    )
    return partitions, offsets, times // 1000
