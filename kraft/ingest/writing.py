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
from kraft.ingest.values.json_fields import WidenedError
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
    known = task.layout.schema
    while True:  # each time a field that the table does not have yet is a DOUBLE and no BIGINT any more
        try:
            return _write(task, known)
        except WidenedError as error:
            known = error.schema


def _write(task: SliceTask, known: pa.Schema) -> SliceResult:
    maker = RowMaker(task.layout, known)
    partitioner = Partitioner(task.layout.partition_by)
    files = SliceFiles(Path(task.folder), task.name, max_file_bytes=task.layout.max_file_bytes)
    options = replace(parse_options(task.options), read_committed=True)
    try:
        with slice_client(options) as client:
            reader = SliceReader(client, task.part, columns=COLUMN_NAMES, loss=LossPolicy(advice=_ADVICE))
            for batch in reader.batches():
                for part in partitioner.split(maker.rows_of(batch)):
                    files.add(part)
        written = files.close()
    except BaseException:
        files.remove()
        raise
    audit = _range_audit(reader.audit, maker.dead_letters)
    return SliceResult(task.part, written, audit, maker.schema, partitioner.late_rows)


def _range_audit(audit: SliceAudit, dead_letters: int) -> RangeAudit:
    holes = tuple(audit.holes[:MAX_NAMED_HOLES])
    return RangeAudit(audit.records, audit.control, audit.aborted, audit.gaps, holes, dead_letters)
