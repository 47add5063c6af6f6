"""The rows of a table as its files hold them, found by topic, partition and offset; for the audit.

An index of row groups, made of the files' footers, says where rows of a range may be; only those are read. A file that
is referenced twice is read twice. `audit.py` calls it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kraft.ingest.model import TableFile
from partitions.topic_partition import TopicPartition

WINDOW_BYTES = 32 << 20
"""Of rows as they are in memory, about; one row group is always read."""
_PLACE = ("topic", "partition", "offset")
_TYPES = {"topic": pa.string(), "partition": pa.int32()}


class RowGroup(NamedTuple):
    """A row group, and the least and greatest of what its rows are of; None where the footer does not say."""

    file: int
    number: int
    rows: int
    size_bytes: int
    topics: tuple[str, str] | None
    partitions: tuple[int, int] | None
    offsets: tuple[int, int] | None

    def may_have(self, partition: TopicPartition) -> bool:
        return _holds(self.topics, partition.topic) and _holds(self.partitions, partition.partition)

    def meets(self, start: int, end: int) -> bool:
        return self.offsets is None or (self.offsets[0] < end and self.offsets[1] >= start)


class Window(NamedTuple):
    """Offsets that are looked at together."""

    start: int
    end: int
    groups: Sequence[RowGroup]
    """That may have rows of them."""


class TableRows:
    """All row groups of these files. `lost` and `damaged` name the files that cannot be read, with the reason."""

    def __init__(self, files: Iterable[tuple[TableFile, Path]]) -> None:
        self.lost: list[str] = []
        self.damaged: list[str] = []
        self.rows = 0
        self._files: list[tuple[TableFile, Path]] = []
        self._groups: list[RowGroup] = []
        for file, path in files:
            try:
                found = list(_row_groups(len(self._files), file, path))
            except FileNotFoundError:
                self.lost.append(file.path)
                continue
            except (OSError, pa.ArrowInvalid) as error:
                self._note_damaged(file, error)
                continue
            self._files.append((file, path))
            self._groups += found
            self.rows += sum(group.rows for group in found)

    def groups_of(self, partition: TopicPartition) -> list[RowGroup]:
        """That may have rows of it."""
        return [group for group in self._groups if group.may_have(partition)]

    def read(self, group: RowGroup, partition: TopicPartition, start: int, end: int) -> pa.Table | None:
        """The rows of these offsets, with the columns that the file has. None: the file is damaged."""
        file, path = self._files[group.file]
        try:
            with pq.ParquetFile(path) as opened:
                rows = opened.read_row_group(group.number, use_threads=False)
        except (OSError, pa.ArrowInvalid) as error:
            self._note_damaged(file, error)
            return None
        for name, kind in _TYPES.items():
            if name not in rows.schema.names and name in file.partition_values:
                value = pa.scalar(file.partition_values[name]).cast(kind)
                rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
        offsets = rows.column("offset")
        wanted = pc.and_(
            pc.and_(
                pc.equal(rows.column("topic"), partition.topic),
                pc.equal(rows.column("partition"), partition.partition),
            ),
            pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end)),
        )
        return rows.filter(wanted)

    def _note_damaged(self, file: TableFile, error: Exception) -> None:
        sentence = f"{file.path}: {error}"
        if sentence not in self.damaged:
            self.damaged.append(sentence)


def windows(groups: Sequence[RowGroup], start: int, end: int) -> Iterator[Window]:
    """Covers the range; each has row groups of about WINDOW_BYTES, or the one that is larger. Pure."""
    waiting = [group for group in groups if group.meets(start, end)]
    ends = sorted(
        (end if group.offsets is None else min(group.offsets[1] + 1, end), group.size_bytes)
        for group in waiting
    )
    at, last, size = start, start, 0
    for stop, size_bytes in [*ends, (end, WINDOW_BYTES)]:
        if size + size_bytes > WINDOW_BYTES and last > at:
            yield Window(at, last, [group for group in waiting if group.meets(at, last)])
            at, size = last, 0
        last, size = max(last, stop), size + size_bytes
    if end > at:
        yield Window(at, end, [group for group in waiting if group.meets(at, end)])


def _row_groups(number: int, file: TableFile, path: Path) -> Iterator[RowGroup]:
    """Raises OSError, ArrowInvalid."""
    found = pq.read_metadata(path)
    columns: dict[str, int] = {}
    if found.num_row_groups:
        first = found.row_group(0)
        columns = {
            first.column(index).path_in_schema: index
            for index in range(found.num_columns)
            if first.column(index).path_in_schema in _PLACE
        }
    for index in range(found.num_row_groups):
        group = found.row_group(index)
        bounds = [_bounds(group, columns, file.partition_values, name) for name in _PLACE]
        yield RowGroup(number, index, group.num_rows, group.total_byte_size, *bounds)


def _bounds(
    group: Any, columns: Mapping[str, int], partition_values: Mapping[str, str | None], name: str
) -> Any:
    if name not in columns:
        value = partition_values.get(name)
        if value is None:
            return None
        constant = int(value) if name == "partition" else value
        return constant, constant
    statistics = group.column(columns[name]).statistics
    if statistics is None or not statistics.has_min_max:
        return None
    return statistics.min, statistics.max


def _holds(bounds: tuple[Any, Any] | None, value: Any) -> bool:
    return bounds is None or bounds[0] <= value <= bounds[1]
