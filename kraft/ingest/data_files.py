"""The Parquet files of one slice: one open file a folder of the table, a new one where it has reached its size.

Rows wait in memory until they make a row group. Memory is bounded: MAX_BUFFERED_BYTES of rows that wait, MAX_OPEN_FILES
open files, of which the one that was not written to for longest is closed first. A file that is handed on is closed and
fsynced, and so are the folders down to it. `writing.py` calls it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kraft.ingest.folder import make_folder, sync
from kraft.ingest.model import WrittenFile
from kraft.ingest.partitioning import Part, PartitionValues, folder_of
from kraft.ingest.stats import FileStats

ROW_GROUP_BYTES = 16 << 20
"""Of rows in memory; in small files a quarter of the file."""
MAX_BUFFERED_BYTES = 48 << 20
MAX_OPEN_FILES = 64
COMPRESSION = "zstd"
_NEVER_ALIKE = ("key", "value", "offset", "timestamp", "_raw")
"""Columns for which a dictionary would be made in vain."""


class SliceFiles:
    """Writes parts into files below `folder`, whose names begin with `name`."""

    def __init__(self, folder: Path, name: str, *, max_file_bytes: int) -> None:
        self._folder = folder
        self._name = name
        self._max_file_bytes = max_file_bytes
        self._row_group_bytes = min(ROW_GROUP_BYTES, max(max_file_bytes // 4, 1))
        self._open: dict[PartitionValues, _OpenFile] = {}
        """The one written to last is the last one."""
        self._buffered_bytes = 0
        self._made: list[Path] = []
        self._written: list[WrittenFile] = []

    def add(self, part: Part) -> None:
        """Raises OSError."""
        rows = part.rows
        step = max(1, rows.num_rows * self._row_group_bytes // max(rows.nbytes, 1))
        for at in range(0, rows.num_rows, step):
            self._add(Part(part.values, rows.slice(at, step)))

    def _add(self, part: Part) -> None:
        """No more than about a row group."""
        file = self._open.pop(part.values, None)
        if file is not None and not file.schema.equals(part.rows.schema):
            self._close(file)
            file = None
        if file is None:
            if len(self._open) >= MAX_OPEN_FILES:
                self._close(self._open.pop(next(iter(self._open))))
            file = self._make(part)
        self._open[part.values] = file
        file.rows.append(part.rows)
        file.buffered_bytes += part.rows.nbytes
        self._buffered_bytes += part.rows.nbytes
        if file.buffered_bytes >= self._row_group_bytes:
            self._flush(file)
        while self._buffered_bytes > MAX_BUFFERED_BYTES:
            self._flush(max(self._open.values(), key=lambda one: one.buffered_bytes))
        if file.size_with_another_group > self._max_file_bytes:
            self._close(self._open.pop(part.values))

    def close(self) -> list[WrittenFile]:
        """All files, durable. Raises OSError."""
        while self._open:
            self._close(self._open.pop(next(iter(self._open))))
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

    def _make(self, part: Part) -> _OpenFile:
        path = f"{folder_of(part.values)}{self._name}-{len(self._made)}.parquet"
        target = self._folder / path
        make_folder(target.parent)
        target.touch(exist_ok=False)
        self._made.append(target)
        return _OpenFile(path, part.values, part.rows.schema, pa.OSFile(str(target), "wb"))

    def _flush(self, file: _OpenFile) -> None:
        self._buffered_bytes -= file.buffered_bytes
        file.flush()

    def _close(self, file: _OpenFile) -> None:
        self._flush(file)
        self._written.append(file.close())
        sync(self._folder / file.path)


@dataclass
class _OpenFile:
    path: str
    values: PartitionValues
    schema: pa.Schema
    sink: pa.OSFile
    rows: list[pa.RecordBatch] = field(default_factory=list)
    """Those that wait."""
    buffered_bytes: int = 0
    last_group_bytes: int = 0
    first: int | None = None
    end: int = 0
    """The first offset, and the last one plus one."""

    def __post_init__(self) -> None:
        self._stats = FileStats()
        texts = [one.name for one in self.schema if one.name not in _NEVER_ALIKE]
        self._writer = pq.ParquetWriter(
            self.sink, self.schema, compression=COMPRESSION, use_dictionary=texts, version="2.6"
        )

    @property
    def size_with_another_group(self) -> int:
        """In bytes, if the next one is as large as the last one."""
        return self.sink.tell() + self.last_group_bytes

    def flush(self) -> None:
        """The rows that wait become a row group."""
        if not self.rows:
            return
        before = self.sink.tell()
        table = pa.Table.from_batches(self.rows, self.schema)
        offsets = table.column("offset")
        self.first = offsets[0].as_py() if self.first is None else self.first
        self.end = offsets[-1].as_py() + 1
        self._stats.add(table)
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self.last_group_bytes = self.sink.tell() - before
        self.rows, self.buffered_bytes = [], 0

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
