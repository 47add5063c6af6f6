"""What commands print: results on standard output, progress and notes on standard error."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kraft.cli.shared.documents import Document
from kraft.cli.shared.tables import Rows, piped_lines, terminal_lines
from kraft.user_error import UserError

console = Console(stderr=True, highlight=False)
"""Notes and progress."""


PIPED_COLUMNS = 500
NAMED_MAX = 3
"""Partitions that are named with a reason that concerns more."""

Wide = Annotated[bool, typer.Option("--wide", help="All columns, however wide; as where output is piped.")]


def is_terminal() -> bool:
    """Whether people read the results: where they are piped, programs do."""
    return sys.stdout.isatty()


def print_rows(table: Rows, *, wide: bool = False) -> None:
    """A table of results, on standard output (`kraft.cli.shared.tables`)."""
    if not is_terminal():
        sys.stdout.write("".join(f"{line}\n" for line in piped_lines(table)))
        sys.stdout.flush()
        return
    screen = _tables()
    for line in terminal_lines(table, None if wide else screen.width):
        screen.print(line, soft_wrap=True)


def show_rows(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table whose cells are shown as text; None is a cell without a value. Prints nothing if it has no rows."""
    table = Rows(columns)
    for row in rows:
        table.add(*("" if value is None else str(value) for value in row))
    print_rows(table)


def print_table(table: Any) -> None:
    """A result for people, on standard output; as wide as it needs where that is no terminal."""
    _tables().print(table)


def output_columns() -> int:
    """How wide a table may be."""
    return _tables().width


def _tables() -> Console:
    return Console(highlight=False, width=None if is_terminal() else PIPED_COLUMNS)


def print_line(text: str) -> None:
    """One line of a result."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def print_json(document: Any) -> None:
    """The one JSON object of a command with --json."""
    print_line(json.dumps(document))


def note_client_errors() -> Callable[[Any], None]:
    """An error callback for librdkafka: tells each kind of trouble once, however often it is retried."""
    told: set[int] = set()

    def note(error: Any) -> None:
        if error.code() not in told:
            told.add(error.code())
            console.print(f"[dim]{escape(error.str())}[/dim]", soft_wrap=True)

    return note


def complain(message: object) -> None:
    """Tells of an error, on standard error."""
    console.print(f"[red]error:[/red] {escape(str(message))}", soft_wrap=True)


def note_failed(rows: Iterable[Document]) -> None:
    """Tells of partitions that were refused: each `message` and `error` of their rows once, however many have it."""
    concerned: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        concerned.setdefault((row["message"], row["error"]), []).append(f"{row['topic']}-{row['partition']}")
    for (message, error), names in concerned.items():
        more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
        text = f"{', '.join(names[:NAMED_MAX])}{more}: {message} ({error})"
        console.print(text, markup=False, soft_wrap=True)


def fail(message: str, exit_code: int = 1) -> NoReturn:
    """Ends the command with a sentence."""
    raise UserError(message, exit_code)


@contextlib.contextmanager
def progress(label: str, total: float | None) -> Iterator[Callable[[float], None]]:
    """A progress bar on standard error; yields `advance(amount)`. Silent where there is no terminal."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=False,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task(label, total=total)
        yield lambda amount: bar.advance(task, amount)
