"""How tables of groups are shown: within the width of a terminal, and in plain columns, one row a line, where piped."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from kraft.cli.shared.output import print_line, print_table

NOTHING = "-"
"""Stands for what there is not, so that a column has the same number in every row."""
_GAP = "  "

Row = Sequence[object]
"""None is shown as `NOTHING`."""


def show_rows(columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Prints a table on standard output; nothing if it has no rows."""
    if not rows:
        return
    cells = [[NOTHING if value in (None, "") else str(value) for value in row] for row in rows]
    if not sys.stdout.isatty():
        for line in piped_lines(columns, cells):
            print_line(line)
        return
    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    print_table(table)


def piped_lines(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    """A line with the columns' names, as one word each, and one for each row, in columns."""
    header = [name.replace(" ", "-") for name in columns]
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
    return [
        _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (header, *cells)
    ]
