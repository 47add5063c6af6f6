"""`kraft ingest TOPIC…`, and its subcommands as first word: `audit`, `optimize`, `vacuum`.

A topic of such a name is given with --topic. The ingestion is imported when it runs: other commands start without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kraft.cli.ingest.audit import audit
from kraft.cli.ingest.optimize import optimize
from kraft.cli.ingest.vacuum import vacuum
from kraft.cli.shared.command_config import config_of
from kraft.cli.shared.options import (
    DEFAULT_BOOTSTRAP,
    AllowHoles,
    Bootstrap,
    ClientOption,
    Json,
    parse_pairs,
    reflowed,
    require_text,
)
from kraft.user_error import EXIT_USAGE, UserError

_TOPICS = "(topics)"
"""The command behind `kraft ingest TOPIC…`: no topic and no word that a user types has this name."""
FORMATS = ("delta", "parquet")
VALUES = ("bytes", "string", "json")


class IngestGroup(TyperGroup):
    """A first word that is no subcommand is a topic, or an option of the ingestion."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] == _TOPICS or args[0] not in self.commands:
            args = [_TOPICS, *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return ("" if name == _TOPICS else name), command, rest


app = typer.Typer(cls=IngestGroup, help="Topics into Delta or Parquet tables, exactly once, audited.")


def ingest(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC", help="The topics to ingest.", show_default=False)
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="The table's folder.", show_default=False)
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="NAME", help="One more topic, of whatever name.", show_default=False),
    ] = None,
    table_format: Annotated[
        str,
        typer.Option("--format", metavar="F", help="delta, or parquet: plain files that any reader takes."),
    ] = "delta",
    partition_by: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD", help="date or hour of the record's timestamp, or a column.", show_default=False
        ),
    ] = None,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Up to the topics' ends of now, then end (the default).")
    ] = False,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Go on until SIGTERM or Ctrl-C; small files are compacted.")
    ] = False,
    trigger: Annotated[str, typer.Option(metavar="T", help="Continuous: a commit so often.")] = "2s",
    max_file_size: Annotated[
        str, typer.Option(metavar="SIZE", help="Data files are ended at about this size.")
    ] = "128MB",
    values: Annotated[
        str, typer.Option(metavar="V", help="Values as bytes, string, or json: a column for each field.")
    ] = "bytes",
    schema: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The JSON fields: Spark's schema JSON, or `a INT, b STRING`. Without it they are inferred.",
            show_default=False,
        ),
    ] = None,
    commit_group: Annotated[
        str | None,
        typer.Option(
            metavar="G", help="Tell this consumer group the offsets, for lag tools.", show_default=False
        ),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Spark's master. [default: all cores of this host]", show_default=False
        ),
    ] = None,
    allow_holes: AllowHoles = False,
    client_option: ClientOption = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Serve /metrics there, on loopback; 0: on a free port.", show_default=False
        ),
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Load topics into a table: rows and offsets in one commit, so that after any crash the next run goes on where the
    table ends.

    Exit 0 when all up to the captured end is committed, or after SIGTERM when the commit at hand is made. A first word
    audit, optimize or vacuum is a command of its own: see `kraft ingest audit --help`.
    """
    if to is None:
        raise UserError("name the table's folder: kraft ingest TOPIC… --to DIR", EXIT_USAGE)
    if ":/" in str(to):
        raise UserError(f"--to is a folder that this host has mounted, and no URL: {to}", EXIT_USAGE)
    if available_now and continuous:
        raise UserError("--available-now and --continuous exclude each other", EXIT_USAGE)
    from kraft.cli.ingest.run import Request, run

    run(
        Request(
            topics=[require_text(name, "a topic's name") for name in [*(topics or []), *(topic or [])]],
            to=to,
            table_format=_one_of(table_format, FORMATS, "--format"),
            values=_one_of(values, VALUES, "--values"),
            partition_by=partition_by,
            continuous=continuous,
            trigger=trigger,
            max_file_size=max_file_size,
            schema=schema,
            commit_group=commit_group,
            master=master,
            allow_holes=allow_holes,
            client_options={
                **config_of(bootstrap_server).options,
                **dict(parse_pairs(client_option or [], "--client-option")),
            },
            metrics_port=metrics_port,
            bootstrap=bootstrap_server,
        ),
        as_json=as_json,
    )


def _one_of(word: str, known: tuple[str, ...], option: str) -> str:
    if word.lower() not in known:
        raise UserError(f"{option} is one of {', '.join(known)}, not {word!r}", EXIT_USAGE)
    return word.lower()


app.command(_TOPICS, hidden=True)(reflowed(ingest))
app.command()(reflowed(audit))
app.command()(reflowed(optimize))
app.command()(reflowed(vacuum))
