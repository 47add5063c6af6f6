"""How tables of groups are shown: as all tables of results (`kraft.cli.shared.tables`)."""

from __future__ import annotations

from collections.abc import Sequence

from kraft.cli.shared.output import print_rows
from kraft.cli.shared.tables import Rows

Row = Sequence[object]
"""None is a cell without a value."""


def show_rows(columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Prints a table on standard output; nothing if it has no rows."""
    table = Rows(columns)
    for row in rows:
        table.add(*("" if value is None else str(value) for value in row))
    print_rows(table)
