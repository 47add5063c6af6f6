"""All commands of `kraft`, and how their errors end."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from kraft.cli import acls, cluster, configs, features, storage, users
from kraft.cli.audit.command import audit
from kraft.cli.chaos import commands as chaos
from kraft.cli.consume.command import consume
from kraft.cli.demo.run import demo
from kraft.cli.groups import commands as groups
from kraft.cli.ingest import commands as ingest
from kraft.cli.log import commands as log
from kraft.cli.log_dirs import log_dirs
from kraft.cli.metadata import commands as metadata
from kraft.cli.produce.command import produce
from kraft.cli.quorum import commands as quorum
from kraft.cli.reassign import commands as reassign
from kraft.cli.shared.options import Json, reflowed, secured
from kraft.cli.shared.output import complain, print_json, print_line
from kraft.cli.shared.streams import ReaderGoneError
from kraft.cli.topics import commands as topics
from kraft.cli.transactions import commands as transactions
from kraft.user_error import EXIT_DONE, UserError

NAME = "kraft"
"""In usage lines and for shells, however the command was called: `python -m kraft`, say."""

app = typer.Typer(
    name=NAME,
    help="A self-managed, replicated log that speaks Kafka's protocol.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(cluster.app, name="cluster")
app.add_typer(topics.app, name="topics")
app.add_typer(configs.app, name="configs")
app.add_typer(features.app, name="features")
app.add_typer(users.app, name="users")
app.add_typer(groups.app, name="groups")
app.add_typer(transactions.app, name="transactions")
app.add_typer(acls.app, name="acls")
app.add_typer(reassign.app, name="reassign")
app.add_typer(quorum.app, name="quorum")
app.add_typer(metadata.app, name="metadata")
app.add_typer(log.app, name="log")
app.add_typer(storage.app, name="storage")
app.command("log-dirs")(reflowed(log_dirs))
app.add_typer(chaos.app, name="chaos")
app.command()(secured(produce))
app.command()(secured(consume))
app.command()(reflowed(audit))
app.add_typer(ingest.app, name="ingest")
app.command()(demo)


@app.command()
def server(
    file: Annotated[str, typer.Argument(help="The node's server.properties.", show_default=False)],
) -> None:
    """Run one node in the foreground; SIGTERM is a controlled shutdown."""
    from kraft.cli.server import run_server

    raise typer.Exit(run_server(file))


@app.command()
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


@app.callback()
def kraft(
    version: Annotated[
        bool, typer.Option("--version", callback=_version_option, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A self-managed, replicated log that speaks Kafka's protocol."""


def run(arguments: list[str]) -> int:
    """Runs one command and returns its exit code."""
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
