"""Tables of results: for people on a terminal, and plain columns for awk where output is piped. Pure.

No character of a cell is ever cut away. On a terminal, columns without a value are left out, and rows that do not fit
beside each other are shown one value a line. Piped, each row is one line and has all columns: `-` stands for a cell
without a value, so that the number of a column does not depend on the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.text import Text

GAP = "  "
NOTHING = "-"

Cell = str | Text
"""Without blanks, so that a row has as many words as the table has columns. Text has a colour on terminals."""


@dataclass
class Rows:
    """A table; each row has a cell for each column."""

    columns: Sequence[str]
    rows: list[Sequence[Cell]] = field(default_factory=list)

    def add(self, *cells: Cell) -> None:
        assert len(cells) == len(self.columns), "a cell for each column"
        self.rows.append(cells)


def piped_lines(table: Rows) -> Iterator[str]:
    """A line with the columns' names, as one word each, and one for each row."""
    if not table.rows:
        return
    header = [Text(name.replace(" ", "-")) for name in table.columns]
    for line in _aligned([header, *([_text(cell, NOTHING) for cell in row] for row in table.rows)]):
        yield line.plain.rstrip()


def terminal_lines(table: Rows, columns_max: int | None) -> Iterator[Text]:
    """The table within so many columns; None: all in a line, columns without a value too."""
    if not table.rows:
        return
    numbers = [
        number
        for number in range(len(table.columns))
        if columns_max is None or any(row[number] for row in table.rows)
    ]
    header = [Text(table.columns[number], style="bold") for number in numbers]
    rows = [[_text(row[number]) for number in numbers] for row in table.rows]
    lines = _aligned([header, *rows])
    if columns_max is None or lines[0].cell_len <= columns_max:
        for line in lines:
            line.rstrip()
            yield line
        return
    name_width = max(name.cell_len for name in header)
    for number, row in enumerate(rows):
        if number:
            yield Text()
        for name, value in zip(header, row, strict=True):
            if value:
                yield Text.assemble(name, " " * (name_width - name.cell_len), GAP, value)


def _text(cell: Cell, nothing: str = "") -> Text:
    return cell if isinstance(cell, Text) and cell else Text(str(cell) or nothing)


def _aligned(rows: Sequence[Sequence[Text]]) -> list[Text]:
    """The rows as lines of the same width."""
    widths = [max(cell.cell_len for cell in column) for column in zip(*rows, strict=True)]
    return [
        Text(GAP).join(
            Text.assemble(cell, " " * (width - cell.cell_len))
            for cell, width in zip(row, widths, strict=True)
        )
        for row in rows
    ]
