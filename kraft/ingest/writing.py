"""What a worker does: it reads one slice and writes its rows to Parquet files of the table's layout.

Each committed record of the slice is in exactly one file when `write_slice` returns, and every offset is accounted for;
else it raises and removes what it wrote. It needs less than 300 MB. Spark's workers call it (`spark_job.py`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from kraft.ingest.data_files import SliceFiles
from kraft.ingest.model import MAX_NAMED_HOLES, RangeAudit, SliceResult, SliceTask
from kraft.ingest.partitioning import Partitioner
from kraft.ingest.values.rows import RowMaker
from kraft.spark.columns import COLUMN_NAMES
from kraft.spark.data_loss import LossPolicy
from kraft.spark.decode import SliceAudit
from kraft.spark.options import parse_options
from kraft.spark.reading import slice_client
from kraft.spark.slice_reader import SliceReader

_ADVICE = "Nothing of this cut was ingested: run the command again, which plans from what the table has."


def write_slice(task: SliceTask) -> SliceResult:
    """Raises ConnectorError, OSError."""
    try:
        return _write(task, task.layout.schema)
    except _OutdatedError as error:
        return _write(task, error.schema)


class _OutdatedError(Exception):
    """A field that the table does not have yet was written as BIGINT, and turned out to be a DOUBLE."""

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__("the slice must be written again")
        self.schema = schema
        """All that the slice has: a second pass finds nothing more."""


def _write(task: SliceTask, known: pa.Schema) -> SliceResult:
    maker = RowMaker(task.layout, known)
    partitioner = Partitioner(task.layout.partition_by)
    files = SliceFiles(Path(task.folder), task.name, max_file_bytes=task.layout.max_file_bytes)
    options = replace(parse_options(task.options), read_committed=True)
    try:
        with slice_client(options) as client:
            reader = SliceReader(client, task.part, columns=COLUMN_NAMES, loss=LossPolicy(advice=_ADVICE))
            for batch in reader.batches():
                rows = maker.rows_of(batch)
                for part in () if maker.is_outdated else partitioner.split(rows):
                    files.add(part)
        if maker.is_outdated:
            raise _OutdatedError(maker.schema)
        written = files.close()
    except BaseException:
        files.remove()
        raise
    audit = _range_audit(reader.audit, maker.dead_letters)
    return SliceResult(task.part, written, audit, maker.schema, partitioner.late_rows)


def _range_audit(audit: SliceAudit, dead_letters: int) -> RangeAudit:
    holes = tuple(audit.holes[:MAX_NAMED_HOLES])
    return RangeAudit(audit.records, audit.control, audit.aborted, audit.gaps, holes, dead_letters)
