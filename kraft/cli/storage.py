"""`kraft storage`: gives data directories their identity, as Kafka's own tool does."""

from __future__ import annotations

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
    ignore_formatted: Annotated[
        bool, typer.Option("--ignore-formatted", "-g", help="Skip formatted folders.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Format a node's data directories for a cluster.

    A new cluster starts at the levels of features that its first active controller was formatted with: name the same
    on every controller. Each feature that is not named starts at this software's default.
    """
    from kraft.storage import format_node, read_config

    levels = parse_features(feature or [])
    formatted = format_node(cluster_id, config, ignore_formatted=ignore_formatted, features=levels)
    if as_json:
        print_json({"cluster_id": cluster_id, "formatted": formatted})
    for folder in formatted:
        console.print(f"formatted {folder}", soft_wrap=True)
    node = read_config(config)
    if levels and not node.is_controller:
        console.print(
            "--feature has no effect here: controllers start a cluster, and this node is none", soft_wrap=True
        )
    elif levels and node.metadata_log_dir not in formatted:
        console.print(
            f"--feature has no effect: {node.metadata_log_dir} was formatted before; use `kraft features` on the"
            " running cluster",
            soft_wrap=True,
        )
