"""Fewer, larger files in a table, and the removal of those that nothing needs.

`optimize` merges the small files of each partition value; a continuous run does the same of a Delta table by itself
(`ContinuousCompaction`). A merged file is durable before the one step of the log that puts it in the others' place, so
that a crash leaves either. Readers of a Delta table go on with the files they know until `vacuum`. A plain reader of a
folder of Parquet files has only their names: it never sees a row twice, but one that runs during `optimize` may miss a
file and fail; it then reads again. All of this is done under the table's claim (`claim.py`). `kraft/cli/ingest` and
`run.py` call it.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, PostCommitHookProperties, RemoveAction

from kraft.ingest.claim import claimed
from kraft.ingest.data_files import ROW_GROUP_BYTES, SliceFiles
from kraft.ingest.folder import sync
from kraft.ingest.model import Table, TableError, TableFile, WrittenFile
from kraft.ingest.parquet import ParquetTable
from kraft.ingest.partitioning import Part, partition_columns
from kraft.ingest.tables import open_table

MINUTE_FILE_BYTES = 32 << 20
"""A continuous run merges files up to this size only, and so rewrites no more a minute and partition value; `optimize`
makes them larger."""
_COMPACT_EVERY_S = 60.0
_MAX_BATCH_ROWS = 32 * 1024
_HOUR_S = 3600
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


class Compaction(NamedTuple):
    """What became of small files."""

    merged: int
    """Files that are no more in the table."""
    into: int
    """Files that hold their rows now."""
    bytes: int
    """Of these."""


def optimize(folder: Path, *, max_file_bytes: int) -> Compaction:
    """Merges the small files of a table, as long as two of a partition value fit into one.

    Raises TableError if the table is in use or is none, OSError.
    """
    with claimed(folder, "optimize"):
        table = open_table(folder)
        table.recover()
        return compact(folder, table, max_file_bytes=max_file_bytes)


def vacuum(folder: Path, *, retention_s: float, dry_run: bool = False) -> list[str]:
    """Removes data files that the table has not referenced for so long, and returns their paths. A reader that opened
    an older version of the table than that may miss them. Raises TableError, OSError.

    A Delta table counts in whole hours, rounded up.
    """
    with claimed(folder, "vacuum"):
        table = open_table(folder)
        table.recover()
        if isinstance(table, ParquetTable):
            return table.vacuum(time.time() - retention_s, dry_run=dry_run)
        if table.properties() is None:
            return []
        hours = math.ceil(retention_s / _HOUR_S)
        try:
            removed: list[str] = DeltaTable(str(folder)).vacuum(
                hours, dry_run=dry_run, enforce_retention_duration=False, full=True
            )
        except DeltaError as error:
            raise TableError(
                f"{folder}: the files that nothing needs could not be removed: {error}"
            ) from error
        return removed


class ContinuousCompaction:
    """Of a run that commits small files all the time: after each minute no partition value has more small files than
    the table has partitions of topics. A Parquet table is left alone: its plain readers would miss files."""

    def __init__(
        self, folder: Path, *, max_file_bytes: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder = folder
        self._target_bytes = min(max_file_bytes, MINUTE_FILE_BYTES)
        self._clock = clock
        self._next_s = clock() + _COMPACT_EVERY_S

    def __call__(self, table: Table) -> None:
        """Between two commits, under the claim: merges if a minute has passed. Raises TableError, OSError."""
        now_s = self._clock()
        if now_s < self._next_s or isinstance(table, ParquetTable):
            return
        self._next_s = now_s + _COMPACT_EVERY_S
        partitions = len(table.positions())
        compact(self._folder, table, max_file_bytes=self._target_bytes, at_least=partitions + 1)


def compact(folder: Path, table: Table, *, max_file_bytes: int, at_least: int = 2) -> Compaction:
    """Under the claim. Partition values with fewer small files than `at_least` are left alone."""
    done: list[tuple[int, WrittenFile]] = []
    properties, schema = table.properties(), table.schema()
    if properties is None or schema is None:
        return Compaction(0, 0, 0)
    of_folders = partition_columns(properties.partition_by)
    in_files = pa.schema([field for field in schema if field.name not in of_folders])
    for bin_ in list(plan(folder, table, max_file_bytes, at_least)):
        attempt = f"merged-{secrets.token_hex(8)}"
        files = SliceFiles(table.staging(attempt), attempt, max_file_bytes=2 * max_file_bytes)
        values = tuple((name, bin_[0].partition_values[name]) for name in of_folders)
        for batch in _batches([data_path(folder, table, file) for file in bin_], in_files):
            files.add(Part(values, batch))
        merged = files.close()
        if isinstance(table, ParquetTable):
            table.replace_files([file.path for file in bin_], [_table_file(file) for file in merged])
        else:
            _replace_in_delta(folder, bin_, merged)
        table.discard(attempt)
        done += [(len(bin_) if not number else 0, file) for number, file in enumerate(merged)]
    return Compaction(sum(count for count, _ in done), len(done), sum(file.size_bytes for _, file in done))


def data_path(folder: Path, table: Table, file: TableFile) -> Path:
    """Where a file of the table is now."""
    return table.data_path(file.path) if isinstance(table, ParquetTable) else folder / file.path


def _table_file(file: WrittenFile) -> TableFile:
    return TableFile(file.path, file.size_bytes, file.rows, file.partition_values)


def plan(folder: Path, table: Table, max_file_bytes: int, at_least: int = 2) -> Iterator[list[TableFile]]:
    """Files to merge with each other: two or more, in the order of their rows, of about `max_file_bytes` together."""
    by_values: dict[tuple[tuple[str, str | None], ...], list[TableFile]] = {}
    for file in table.files():
        if file.size_bytes < max_file_bytes:
            by_values.setdefault(tuple(sorted(file.partition_values.items())), []).append(file)
    for small in by_values.values():
        if len(small) < max(at_least, 2):
            continue
        ordered = sorted(small, key=lambda file: (first_row(data_path(folder, table, file)), file.path))
        yield from (bin_ for bin_ in bins(ordered, max_file_bytes) if len(bin_) > 1)


def bins(files: Iterable[TableFile], max_file_bytes: int) -> Iterator[list[TableFile]]:
    """The files in their order, in lists that are as long as their sizes allow. Pure."""
    bin_: list[TableFile] = []
    size = 0
    for file in files:
        if bin_ and size + file.size_bytes > max_file_bytes:
            yield bin_
            bin_, size = [], 0
        bin_.append(file)
        size += file.size_bytes
    if bin_:
        yield bin_


def first_row(path: Path) -> tuple[str, int, int]:
    """The least topic, partition and offset in a file, as its footer has them; for the order of files only. Raises
    TableError."""
    least: dict[str, str | int] = {"topic": "", "partition": -1, "offset": -1}
    try:
        found = pq.read_metadata(path)
    except pa.ArrowInvalid as error:
        raise TableError(
            f"{path} is damaged ({error}): see what `kraft ingest audit` says of the table."
        ) from error
    for index in range(found.num_columns) if found.num_row_groups else ():
        column = found.row_group(0).column(index)
        if column.path_in_schema in least and column.statistics is not None and column.statistics.has_min_max:
            least[column.path_in_schema] = column.statistics.min
    return str(least["topic"]), int(least["partition"]), int(least["offset"])


def _batches(sources: Sequence[Path], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of all sources, one after the other; columns that a source does not have yet are null."""
    for path in sources:
        with pq.ParquetFile(path) as file:
            groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
            row_bytes = sum(group.total_byte_size for group in groups) / max(1, file.metadata.num_rows)
            rows = int(ROW_GROUP_BYTES / 4 / max(row_bytes, 1.0))
            for batch in file.iter_batches(max(1, min(rows, _MAX_BATCH_ROWS))):
                yield in_schema(batch, schema)


def in_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """With the columns of the schema: those that the batch does not have are null."""
    present = set(batch.schema.names)
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in present
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _replace_in_delta(folder: Path, removed: Sequence[TableFile], added: Sequence[WrittenFile]) -> None:
    """One entry of the log, durable when it returns. It changes no data, as streams that read the table are told."""
    table = DeltaTable(str(folder))
    now_ms = time.time_ns() // 1_000_000
    gone = [
        RemoveAction(file.path, False, now_ms, file.size_bytes, file.partition_values) for file in removed
    ]
    new = [
        AddAction(file.path, file.size_bytes, file.partition_values, now_ms, False, file.stats)
        for file in added
    ]
    try:
        table.create_write_transaction(
            [*gone, *new],
            mode="append",
            schema=table.schema(),
            partition_by=table.metadata().partition_columns,
            post_commithook_properties=_NO_HOOKS,
        )
    except DeltaError as error:
        raise TableError(f"{folder} has not taken the merged files, and is as it was: {error}") from error
    log = folder / "_delta_log"
    table.update_incremental()
    sync(log / f"{table.version():020}.json")
    sync(log)
