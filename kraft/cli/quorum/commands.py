"""`kraft quorum`: shows the controller quorum as Kafka's own tool does."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli.shared.admin_client import run_admin
from kraft.cli.shared.bootstrap import DEFAULT_BOOTSTRAP_HELP, default_bootstrap
from kraft.cli.shared.options import ConfigFile, Json, reflowed
from kraft.cli.shared.output import print_json, print_line
from kraft.user_error import EXIT_UNDECIDED, EXIT_USAGE, UserError

if TYPE_CHECKING:
    from kraft.cli.quorum.view import QuorumView

app = typer.Typer(help="The controller quorum: its leader, its voters, and who follows.")


@app.callback()
def quorum() -> None:
    """The controller quorum: its leader, its voters, and who follows."""


@app.command()
@reflowed
def describe(
    status: Annotated[bool, typer.Option("--status", help="Only the summary.")] = False,
    replication: Annotated[
        bool, typer.Option("--replication", help="Only the table: how far each node is.")
    ] = False,
    human_readable: Annotated[
        bool, typer.Option("--human-readable", help="Times as ages, not as Unix times in ms.")
    ] = False,
    bootstrap_server: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT[,…]", help="Brokers to ask.", show_default=DEFAULT_BOOTSTRAP_HELP),
    ] = None,
    bootstrap_controller: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT[,…]",
            help="Controllers to ask instead; needs --config, or the cluster in ./.kraft.",
        ),
    ] = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Show who leads the quorum, its voters and observers, and how far each has the metadata log.

    Offsets and lags count entries of the metadata log, times are Unix times in ms; -1: not known.
    Brokers are asked or, with --config alone, the controllers that the file names: dedicated controllers
    answer no other way. Of a voter that is gone, offset and lag are what the leader knew last: the time of its
    last fetch says of when. Exit code 0: shown; 1: failed; 2: wrong usage; 3: nobody answers.
    """
    if human_readable and status and not replication:
        raise UserError("--human-readable is for the table: use it with --replication", EXIT_USAGE)
    view = _ask(bootstrap_server, bootstrap_controller, config)
    shows_all = status == replication
    document: dict[str, Any] = {}
    if status or shows_all:
        document |= view.status()
    if replication or shows_all:
        document["replication"] = view.replication()
    if as_json:
        print_json(document)
        return
    _print(document, human_readable)


def _ask(bootstrap_server: str | None, bootstrap_controller: str | None, config: Path | None) -> QuorumView:
    from kraft.cli.quorum.controllers import controllers_of_config, require_config
    from kraft.cli.quorum.sources import describe_through_broker, describe_through_controllers

    if bootstrap_controller is None and config is None:
        servers = default_bootstrap() if bootstrap_server is None else bootstrap_server
        return run_admin(servers, describe_through_broker, unanswered=EXIT_UNDECIDED)
    if bootstrap_server is not None:
        raise UserError("brokers or controllers: name one of them to ask", EXIT_USAGE)
    return describe_through_controllers(controllers_of_config(require_config(config), bootstrap_controller))


def _print(document: dict[str, Any], human_readable: bool) -> None:
    from kraft.cli.quorum.view import replication_lines, silence_lines, status_lines

    if "cluster_id" in document:
        for line in status_lines(document):
            print_line(line)
    if "replication" in document:
        if "cluster_id" in document:
            print_line("")
        now_ms = time.time_ns() // 1_000_000 if human_readable else None
        for line in replication_lines(document["replication"], ages_at_ms=now_ms):
            print_line(line)
        for line in silence_lines(document["replication"]):
            print_line(line)
