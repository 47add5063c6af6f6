"""All commands of `kraft`, and how their errors end."""

from __future__ import annotations

import pkgutil
import sys
from typing import Annotated

import typer

from kraft.cli.shared.options import Json
from kraft.cli.shared.output import complain, print_json, print_line
from kraft.cli.shared.streams import ReaderGoneError
from kraft.user_error import EXIT_DONE, UserError

NAME = "kraft"
"""In usage lines and for shells, however the command was called: `python -m kraft`, say."""

COMMANDS = {
    "cluster": "kraft.cli.cluster:app",
    "topics": "kraft.cli.topics.commands:app",
    "configs": "kraft.cli.configs:app",
    "features": "kraft.cli.features:app",
    "groups": "kraft.cli.groups.commands:app",
    "transactions": "kraft.cli.transactions.commands:app",
    "reassign": "kraft.cli.reassign.commands:app",
    "quorum": "kraft.cli.quorum.commands:app",
    "metadata": "kraft.cli.metadata.commands:app",
    "log": "kraft.cli.log.commands:app",
    "storage": "kraft.cli.storage:app",
    "log-dirs": "kraft.cli.log_dirs:log_dirs",
    "chaos": "kraft.cli.chaos.commands:app",
    "produce": "kraft.cli.produce.command:produce",
    "consume": "kraft.cli.consume.command:consume",
    "audit": "kraft.cli.audit.command:audit",
    "ingest": "kraft.cli.ingest.commands:app",
    "demo": "kraft.cli.demo.run:demo",
    "server": "kraft.cli.app:server",
    "version": "kraft.cli.app:version",
}
"""By name, in the order of the help: where each is, a group of commands or a function. A call imports what it needs of
them, since all together take most of a second."""


def application(*names: str) -> typer.Typer:
    """The command line with these of its COMMANDS; with all without names."""
    app = typer.Typer(
        name=NAME,
        help="A self-managed, replicated log that speaks Kafka's protocol.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(kraft)
    for name in names or COMMANDS:
        command = pkgutil.resolve_name(COMMANDS[name])
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app


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


def run(arguments: list[str]) -> int:
    """Runs one command and returns its exit code."""
    asked = next((word for word in arguments if not word.startswith("-")), "")
    try:
        try:
            application(*{asked} & COMMANDS.keys())(arguments, prog_name=NAME)
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
