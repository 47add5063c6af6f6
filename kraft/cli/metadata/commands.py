"""`kraft metadata`: shows the metadata log and image of a cluster, from disk or from its controllers."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from kraft.cli.shared.bootstrap import DEFAULT_BOOTSTRAP_HELP, default_bootstrap
from kraft.cli.shared.options import ConfigFile, Json, reflowed
from kraft.cli.shared.output import complain, console, print_json, print_line
from kraft.user_error import EXIT_DONE, EXIT_UNDECIDED, EXIT_USAGE, UserError

if TYPE_CHECKING:
    from kraft.cli.metadata.sources import MetadataSource, OffsetRange, SourceEntry

app = typer.Typer(
    help="The metadata of a cluster: its log and its image, from disk or from the controllers.",
    rich_markup_mode="markdown",
)

Directory = Annotated[
    Path | None,
    typer.Option("--dir", help="A controller's metadata.log.dir (or first log.dir); it may be running."),
]
BootstrapServer = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT[,…]",
        help="Brokers of a running cluster, which name its controllers.",
        show_default=f"if no other source is named, {DEFAULT_BOOTSTRAP_HELP}",
    ),
]


@app.command()
@reflowed
def dump(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Snapshots (.checkpoint) and journal segments (.log)."),
    ] = None,
    directory: Directory = None,
    bootstrap_server: BootstrapServer = None,
    config: ConfigFile = None,
    first: Annotated[int | None, typer.Option("--from", min=0, help="First offset to show.")] = None,
    last: Annotated[int | None, typer.Option("--to", min=0, help="Last offset to show.")] = None,
    as_json: Json = False,
) -> None:
    """Print metadata records, one a line: offset, epoch, type, fields.

    A snapshot is shown as the records that its image amounts to, at the last offset it covers; so is the
    image of running controllers, unless --from or --to asks for the entries that they still have apart.
    Nothing is ever written. The last entries of a journal on disk may not be committed yet.

    Exit code 0: shown; 1: failed, or damaged: file and byte are told, after what is sound before; 2: wrong
    usage; 3: the files changed while they were read, or brokers did not answer.
    """
    from kraft.cli.metadata.sources import OffsetRange

    if first is not None and last is not None and first > last:
        raise UserError(f"--from {first} is above --to {last}", EXIT_USAGE)
    source = open_source(files or [], directory, bootstrap_server, config)
    raise typer.Exit(_dump(source, OffsetRange(first, last), as_json))


@app.command()
@reflowed
def shell(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="One command to run; without: many.")
    ] = None,
    directory: Directory = None,
    file: Annotated[
        list[Path] | None, typer.Option("--file", help="A snapshot or a journal segment; several in order.")
    ] = None,
    bootstrap_server: BootstrapServer = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Browse an image as a tree: ls, cd, cat, pwd, tree, find, history, help, exit.

    /brokers, /topics/by-name, /topics/by-id, /configs, /features, /voters, /producerIds, /local. With a
    COMMAND (say, ls /brokers) runs it and ends; otherwise lines are read from standard input, with prompt
    and completion on a terminal. --json is for one COMMAND: its lines, in an object.

    Exit code 0: done; 1: no such path, or the metadata cannot be read; 2: wrong usage; 3: the files changed
    while they were read, or brokers did not answer.
    """
    from kraft.cli.metadata.shell import Leave, MetadataShell, ShellError, ShellUsageError, interact
    from kraft.metadata_view.tree import metadata_tree

    if as_json and not command:
        raise UserError(
            "--json is for one COMMAND: name it, as in `kraft metadata shell --json ls`", EXIT_USAGE
        )
    source = open_source(file or [], directory, bootstrap_server, config)
    with _readable():
        image = source.image()
    _print_notes(source)
    browser = MetadataShell(metadata_tree(image, source.name))
    if not command:
        raise typer.Exit(interact(browser, complain))
    try:
        lines = browser.run(command)
        if as_json:
            print_json({"command": command, "lines": list(lines)})
            return
        for line in lines:
            print_line(line)
    except ShellUsageError as error:
        raise UserError(str(error), EXIT_USAGE) from error
    except ShellError as error:
        raise UserError(str(error)) from error
    except Leave:
        if as_json:
            print_json({"command": command, "lines": []})


def open_source(
    files: list[Path], directory: Path | None, bootstrap_server: str | None, config: Path | None
) -> MetadataSource:
    """The one source that the options name; a running cluster without any. Raises UserError."""
    from kraft.cli.metadata.sources import ControllerSource, FileSource, FolderSource
    from kraft.cli.quorum.controllers import controllers_of_config
    from kraft.cli.quorum.sources import controllers_of_cluster

    if sum((bool(files), directory is not None, bootstrap_server is not None, config is not None)) > 1:
        raise UserError("name one source: files, --dir, --bootstrap-server or --config", EXIT_USAGE)
    with _readable():
        if files:
            return FileSource(files)
        if directory is not None:
            return FolderSource(directory)
        if config is not None:
            return ControllerSource(controllers_of_config(config))
        servers = default_bootstrap() if bootstrap_server is None else bootstrap_server
        return ControllerSource(controllers_of_cluster(servers))


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """Makes a sentence of what can go wrong with files."""
    from quorum.raft.inspection import DamageError, FolderChangedError

    try:
        yield
    except DamageError as error:
        raise UserError(str(error)) from error
    except FolderChangedError as error:
        raise UserError(f"{error}; try again", EXIT_UNDECIDED) from error
    except OSError as error:
        raise UserError(f"cannot read {error.filename or 'the metadata'}: {error.strerror}") from error


def _dump(source: MetadataSource, wanted: OffsetRange, as_json: bool) -> int:
    printer = _JsonPrinter(source.name, wanted) if as_json else _LinePrinter()
    failure: UserError | None = None
    try:
        with _readable():
            for entry in source.entries(wanted):
                printer.entry(entry)
    except UserError as error:
        failure = error
    printer.end(None if failure is None else str(failure))
    _print_notes(source)
    if failure is None:
        return EXIT_DONE
    complain(str(failure))
    return failure.exit_code


class _LinePrinter:
    """A line for each record."""

    def entry(self, entry: SourceEntry) -> None:
        from kraft.metadata_view.documents import record_line, value_text

        start = f"{entry.offset} {entry.epoch}"
        if entry.rejected is not None:
            print_line(f"{start} Rejected sequence={entry.sequence} reason={value_text(entry.rejected)}")
            return
        for record in entry.records:
            print_line(f"{start} {record_line(record)}")
        if not entry.records:
            print_line(f"{start} NoRecords")

    def end(self, error: str | None) -> None:
        """Nothing is open."""


class _JsonPrinter:
    """One object, written as the entries come: a journal need not fit into memory twice."""

    def __init__(self, source: str, wanted: OffsetRange) -> None:
        self._head: dict[str, Any] = {"source": source}
        self._offsets: list[int] = []
        self._wanted = wanted

    def entry(self, entry: SourceEntry) -> None:
        sys.stdout.write(", " if self._offsets else self._start())
        sys.stdout.write(json.dumps(entry.document()))
        self._offsets = [self._offsets[0] if self._offsets else entry.offset, entry.offset]

    def end(self, error: str | None) -> None:
        if not self._offsets:
            sys.stdout.write(self._start())
        first, last = self._offsets or (None, None)
        tail = {"from_offset": first, "to_offset": last, "error": error}
        print_line("], " + json.dumps(tail)[1:])

    def _start(self) -> str:
        return json.dumps(self._head)[:-1] + ', "entries": ['


def _print_notes(source: MetadataSource) -> None:
    for note in source.notes:
        console.print(f"[dim]{escape(note)}[/dim]", soft_wrap=True)
