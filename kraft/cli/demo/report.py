"""The end of the demo on the screen: the audit as a table, and a summary of the Parquet that Spark reads back."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from kraft.cli.demo.audit import Audit
from kraft.cli.demo.stream import Ledger

SUMMARY_ROWS_MAX = 12


@dataclass(frozen=True)
class Summary:
    """Rows read back from the Parquet: (group, records, bytes), and the time range (ms since the epoch)."""

    groups: list[tuple[str, int, int]]
    records: int
    first_timestamp: str
    last_timestamp: str


def summarise(spark: Any, parquet: Path, ledger: Ledger) -> Summary:
    """Counts records and bytes by source with Spark SQL; the source is the key up to its last colon."""
    frame = spark.read.parquet(str(parquet))
    frame.createOrReplaceTempView("ingested")
    groups = spark.sql(
        r"""
        SELECT regexp_extract(decode(key, 'UTF-8'), '([^/:]*)(:.*)?:[0-9]+$', 1) AS source,
               count(*) AS records, sum(length(value)) AS bytes
        FROM ingested GROUP BY source ORDER BY records DESC, source
        """
    ).collect()
    total, first, last = spark.sql("SELECT count(*), min(timestamp), max(timestamp) FROM ingested").first()
    return Summary(
        [(row.source, row.records, row.bytes) for row in groups[:SUMMARY_ROWS_MAX]],
        total,
        str(first),
        str(last),
    )


def print_audit(audit: Audit, summary: Summary, *, to_stderr: bool) -> None:
    """Prints both tables and where the Parquet is."""
    console = Console(file=sys.stderr if to_stderr else sys.stdout, highlight=False)
    console.print(_audit_table(audit))
    console.print(_summary_table(summary))
    console.print(
        f"killed broker {audit.killed}; {audit.acked_after_kill} of {audit.acked} records acknowledged after the kill",
        soft_wrap=True,
    )
    console.print(f"parquet: {audit.parquet}", soft_wrap=True)
    drawn = audit.picture or "none: matplotlib draws it, pip install 'kraft[examples]'"
    console.print(f"picture: {drawn}", soft_wrap=True, markup=False)
    if not audit.failures():
        console.print("[green]held: nothing acknowledged was lost, nothing was doubled[/green]")


def _audit_table(audit: Audit) -> Table:
    table = Table(title="audit, by identity", show_footer=True)
    rows = audit.partitions
    columns = ("sent", "acked", "ingested", "lost", "duplicated", "leaderless_ms")
    table.add_column("partition", footer="all")
    for column in columns:
        values = [getattr(row, column) for row in rows]
        total = max(values) if column == "leaderless_ms" else sum(values)
        table.add_column(column.replace("_ms", " ms"), justify="right", footer=str(total))
    for row in rows:
        table.add_row(str(row.partition), *(str(getattr(row, column)) for column in columns))
    return table


def _summary_table(summary: Summary) -> Table:
    table = Table(title="read back from the Parquet with Spark", show_footer=True)
    table.add_column("source", footer=f"{summary.first_timestamp} … {summary.last_timestamp}")
    table.add_column("records", justify="right", footer=str(summary.records))
    table.add_column("bytes", justify="right")
    for source, records, size in summary.groups:
        table.add_row(source, str(records), str(size))
    return table
