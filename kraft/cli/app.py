"""All commands of `kraft`, and how their errors end.

A command is imported when it is named: each brings libraries that the others do without. Their list is imported whole
only for help, for wrong usage and for shells that complete words.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, NamedTuple

import typer

from kraft.cli.shared.options import Json, reflowed, secure_all, secured
from kraft.cli.shared.output import complain, print_json, print_line
from kraft.cli.shared.streams import ReaderGoneError
from kraft.user_error import EXIT_DONE, UserError

NAME = "kraft"
"""In usage lines and for shells, however the command was called: `python -m kraft`, say."""


class Entry(NamedTuple):
    """Where a command is."""

    name: str
    module: str
    """Below `kraft.cli`."""
    attribute: str = "app"
    """A function, or a Typer with commands of its own."""
    is_reflowed: bool = False
    """The docstring of a function is its help; its lines are folded anew."""


COMMANDS = (
    Entry("cluster", "cluster"),
    Entry("topics", "topics.commands"),
    Entry("configs", "configs"),
    Entry("features", "features"),
    Entry("quotas", "quotas"),
    Entry("users", "users"),
    Entry("groups", "groups.commands"),
    Entry("transactions", "transactions.commands"),
    Entry("acls", "acls"),
    Entry("profile", "profiles"),
    Entry("reassign", "reassign.commands"),
    Entry("quorum", "quorum.commands"),
    Entry("metadata", "metadata.commands"),
    Entry("log", "log.commands"),
    Entry("storage", "storage"),
    Entry("top", "top.command", "top", is_reflowed=True),
    Entry("log-dirs", "log_dirs", "log_dirs", is_reflowed=True),
    Entry("chaos", "chaos.commands"),
    Entry("produce", "produce.command", "produce"),
    Entry("consume", "consume.command", "consume"),
    Entry("audit", "audit.command", "audit", is_reflowed=True),
    Entry("ingest", "ingest.commands"),
    Entry("demo", "demo.run", "demo"),
)
"""In the order of the help."""


def server(
    file: Annotated[str, typer.Argument(help="The node's server.properties.", show_default=False)],
) -> None:
    """Run one node in the foreground; SIGTERM is a controlled shutdown."""
    from kraft.cli.server import run_server

    raise typer.Exit(run_server(file))


def version(as_json: Json = False) -> None:
    """Print the version."""
    if as_json:
        print_json({"version": _version()})
    else:
        print_line(_version())


def _version() -> str:
    from importlib.metadata import version as installed

    return installed("kraft")


def _version_option(wanted: bool) -> None:
    if wanted:
        print_line(_version())
        raise typer.Exit


def kraft(
    version: Annotated[
        bool, typer.Option("--version", callback=_version_option, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A self-managed, replicated log that speaks Kafka's protocol."""


def application(entries: Sequence[Entry] = COMMANDS) -> typer.Typer:
    """The command line with these commands, which it imports, and those of this module."""
    app = typer.Typer(
        name=NAME,
        help="A self-managed, replicated log that speaks Kafka's protocol.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    for entry in entries:
        found = getattr(import_module(f"kraft.cli.{entry.module}"), entry.attribute)
        if isinstance(found, typer.Typer):
            secure_all(found)
            app.add_typer(found, name=entry.name)
        else:
            app.command(entry.name)(secured(reflowed(found) if entry.is_reflowed else found))
    app.command()(server)
    app.command()(version)
    app.callback()(kraft)
    return app


def _named_first(arguments: Sequence[str]) -> Sequence[Entry]:
    """The command that the first word is; all, where it is none: it is an option, a typing error, or there is none."""
    named = [entry for entry in COMMANDS if arguments and entry.name == arguments[0]]
    return named or COMMANDS


def run(arguments: list[str]) -> int:
    """Runs one command and returns its exit code."""
    app = application(_named_first(arguments))
    try:
        try:
            app(arguments, prog_name=NAME)
        finally:
            sys.stdout.flush()  # at the end of the process nobody could make sense of a failure
    except ReaderGoneError:
        return EXIT_DONE
    except UserError as error:
        complain(error)
        return error.exit_code
    except SystemExit as ended:  # how the command-line library ends, also after wrong usage (2)
        return ended.code if isinstance(ended.code, int) else EXIT_DONE
    return EXIT_DONE
