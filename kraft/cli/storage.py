"""`kraft storage`: gives data directories their identity, as Kafka's own tool does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from kraft.cli.features import Features, parse_features
from kraft.cli.shared.options import Json, reflowed
from kraft.cli.shared.output import console, print_json, print_line

app = typer.Typer(help="Formats a node's data directories.")


@app.command("random-uuid")
def random_uuid(as_json: Json = False) -> None:
    """Print a new random id, for a cluster."""
    from kraft.storage import new_uuid

    if as_json:
        print_json({"uuid": new_uuid()})
    else:
        print_line(new_uuid())


@app.command("format")
@reflowed
def format_(
    cluster_id: Annotated[
        str, typer.Option("--cluster-id", "-t", help="The cluster's id, the same on every node.")
    ],
    config: Annotated[Path, typer.Option("--config", "-c", help="The node's server.properties.")],
    feature: Features = None,
    add_scram: Annotated[
        list[str] | None,
        typer.Option(
            "--add-scram",
            "-S",
            metavar="MECHANISM=[name=NAME,password=@FILE]",
            help="A user that the cluster starts with; may be repeated. Also password=TEXT, iterations=N, and"
            " saltedpassword=BASE64 with salt=BASE64, as Kafka's tool takes them.",
        ),
    ] = None,
    ignore_formatted: Annotated[
        bool, typer.Option("--ignore-formatted", "-g", help="Skip formatted folders.")
    ] = False,
    standalone: Annotated[
        bool,
        typer.Option(
            "--standalone", "-s", help="This node's controller is the whole quorum (no voters are listed)."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Format a node's data directories for a cluster.

    Environment variables go over the file, as for `kraft server`: KAFKA_LOG_DIRS is log.dirs.

    A new cluster starts at the levels of features, and with the users, that its first active controller was formatted
    with: name the same on every controller. Each feature that is not named starts at this software's default.
    """
    from kraft.storage import added_users, format_configured, read_config

    users = added_users(add_scram or [])
    levels = parse_features(feature or [])
    settings = read_config(config, os.environ)
    if settings.from_environment:
        console.print(f"taken from the environment: {', '.join(settings.from_environment)}", soft_wrap=True)
    formatted = format_configured(
        cluster_id,
        settings,
        ignore_formatted=ignore_formatted,
        standalone=standalone,
        features=levels,
        users=users,
    )
    if as_json:
        print_json({"cluster_id": cluster_id, "formatted": formatted})
    for folder in formatted:
        console.print(f"formatted {folder}", soft_wrap=True)
    for option, chosen, command in (("--feature", levels, "features"), ("--add-scram", users, "users")):
        if chosen and not settings.is_controller:
            console.print(
                f"{option} has no effect here: controllers start a cluster, and this node is none",
                soft_wrap=True,
            )
        elif chosen and settings.metadata_log_dir not in formatted:
            console.print(
                f"{option} has no effect: {settings.metadata_log_dir} was formatted before; use `kraft {command}` on"
                " the running cluster",
                soft_wrap=True,
            )
