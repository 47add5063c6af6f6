"""The Parquet files of one slice: one file a folder of the table, and a new one where it has reached its size.

Rows wait in memory until they make a row group, so that a folder that gets few of them, as late ones do, gets one
file. Memory is bounded: MAX_BUFFERED_BYTES of rows that wait, of which the largest are written first; MAX_OPEN_FILES
open files, of which the one that was not written to for longest is closed first. A file that is handed on is closed
and fsynced, and so are the folders down to it. `writing.py` and `maintenance.py` call it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kraft.ingest.folder import make_folder, sync
from kraft.ingest.model import WrittenFile
from kraft.ingest.partitioning import Part, PartitionValues, folder_of
from kraft.ingest.stats import FileStats

ROW_GROUP_BYTES = 16 << 20
"""Of rows in memory; in small files a quarter of the file."""
MAX_BUFFERED_BYTES = 48 << 20
MAX_OPEN_FILES = 64
_BATCH_OVERHEAD_BYTES = 4 << 10
"""About what a batch of a few rows takes beside their bytes."""
COMPRESSION = "zstd"
_NEVER_ALIKE = ("key", "value", "offset", "timestamp", "_raw")
"""Columns for which a dictionary would be made in vain."""
_NEARLY_ASCENDING = ("offset", "timestamp")
"""Their differences take a fraction of the bytes, and a fifth of a file's whole writing time less."""


class SliceFiles:
    """Writes parts into files below `folder`, whose names begin with `name`."""

    def __init__(self, folder: Path, name: str, *, max_file_bytes: int) -> None:
        self._folder = folder
        self._name = name
        self._max_file_bytes = max_file_bytes
        self._row_group_bytes = min(ROW_GROUP_BYTES, max(max_file_bytes // 4, 1))
        self._waiting: dict[PartitionValues, _Waiting] = {}
        self._waiting_bytes = 0
        self._open: dict[PartitionValues, _OpenFile] = {}
        """The one written to last is the last one."""
        self._made: list[Path] = []
        self._written: list[WrittenFile] = []

    def add(self, part: Part) -> None:
        """Raises OSError."""
        rows = part.rows
        step = max(1, rows.num_rows * self._row_group_bytes // max(rows.nbytes, 1))
        for at in range(0, rows.num_rows, step):
            self._add(part.values, rows.slice(at, step))

    def close(self) -> list[WrittenFile]:
        """All files, durable. Raises OSError."""
        for values in list(self._waiting):
            self._flush(values)
        for values in list(self._open):
            self._close(values)
        folders = {
            parent for path in self._made for parent in path.parents if parent.is_relative_to(self._folder)
        }
        for folder in sorted(folders):
            sync(folder)
        return self._written

    def remove(self) -> None:
        """All files made, after an error. Raises OSError."""
        for file in self._open.values():
            file.sink.close()
        for path in self._made:
            path.unlink(missing_ok=True)

    def _add(self, values: PartitionValues, rows: pa.RecordBatch) -> None:
        """No more than about a row group."""
        waiting = self._waiting.get(values)
        if waiting is not None and not waiting.rows[0].schema.equals(rows.schema):
            self._flush(values)
            waiting = None
        if waiting is None:
            waiting = self._waiting[values] = _Waiting()
        size = rows.nbytes + _BATCH_OVERHEAD_BYTES
        waiting.rows.append(rows)
        waiting.bytes += size
        self._waiting_bytes += size
        if waiting.bytes >= self._row_group_bytes:
            self._flush(values)
        if self._waiting_bytes > MAX_BUFFERED_BYTES:
            self._make_room()

    def _make_room(self) -> None:
        """The largest ones leave, a quarter of the bytes."""
        for values in sorted(self._waiting, key=lambda one: self._waiting[one].bytes, reverse=True):
            if self._waiting_bytes <= MAX_BUFFERED_BYTES * 3 // 4:
                break
            self._flush(values)

    def _flush(self, values: PartitionValues) -> None:
        """The rows that wait become a row group."""
        waiting = self._waiting.pop(values)
        self._waiting_bytes -= waiting.bytes
        table = pa.Table.from_batches(waiting.rows)
        if values in self._open and not self._open[values].schema.equals(table.schema):
            self._close(values)
        file = self._open.pop(values, None)
        if file is None:
            if len(self._open) >= MAX_OPEN_FILES:
                self._close(next(iter(self._open)))
            file = self._make(values, table.schema)
        self._open[values] = file
        file.write(table)
        if file.size_with_another_group > self._max_file_bytes:
            self._close(values)

    def _make(self, values: PartitionValues, schema: pa.Schema) -> _OpenFile:
        path = f"{folder_of(values)}{self._name}-{len(self._made)}.parquet"
        target = self._folder / path
        make_folder(target.parent)
        target.touch(exist_ok=False)
        self._made.append(target)
        return _OpenFile(path, values, schema, pa.OSFile(str(target), "wb"))

    def _close(self, values: PartitionValues) -> None:
        file = self._open.pop(values)
        self._written.append(file.close())
        sync(self._folder / file.path)


@dataclass
class _Waiting:
    """Rows of one folder, all of one schema."""

    rows: list[pa.RecordBatch] = field(default_factory=list)
    bytes: int = 0


@dataclass
class _OpenFile:
    path: str
    values: PartitionValues
    schema: pa.Schema
    sink: pa.OSFile
    last_group_bytes: int = 0
    first: int | None = None
    end: int = 0
    """The first offset, and the last one plus one."""

    def __post_init__(self) -> None:
        self._stats = FileStats()
        texts = [one.name for one in self.schema if one.name not in _NEVER_ALIKE]
        self._writer = pq.ParquetWriter(
            self.sink,
            self.schema,
            compression=COMPRESSION,
            use_dictionary=texts,
            column_encoding=dict.fromkeys(_NEARLY_ASCENDING, "DELTA_BINARY_PACKED"),
            version="2.6",
        )

    @property
    def size_with_another_group(self) -> int:
        """In bytes, if the next one is as large as the last one."""
        size_bytes: int = self.sink.tell()
        return size_bytes + self.last_group_bytes

    def write(self, table: pa.Table) -> None:
        """A row group."""
        before = self.sink.tell()
        offsets = pc.min_max(table.column("offset")).as_py()
        self.first = offsets["min"] if self.first is None else min(self.first, offsets["min"])
        self.end = max(self.end, offsets["max"] + 1)
        self._stats.add(table)
        self._writer.write_table(table, row_group_size=table.num_rows)
        self.last_group_bytes = self.sink.tell() - before

    def close(self) -> WrittenFile:
        self._writer.close()
        size_bytes = self.sink.tell()
        self.sink.close()
        assert self.first is not None
        return WrittenFile(
            self.path,
            dict(self.values),
            self._stats.rows,
            size_bytes,
            self._stats.to_json(),
            (self.first, self.end),
        )
