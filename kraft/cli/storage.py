"""`kraft storage`: gives data directories their identity, as Kafka's own tool does."""

from __future__ import annotations

import base64
import uuid
from pathlib import Path
from typing import Annotated

import typer

from kraft.cli.errors import EXIT_USAGE, UserError
from kraft.cli.options import Json
from kraft.cli.output import console, print_json, print_line
from kraft.config import ConfigError, ServerConfig, load_config
from kraft.runtime.disk import RealDisk
from partitions.log.errors import DataDirectoryError
from partitions.log.meta_properties import MetaProperties, read_meta_properties, write_meta_properties

app = typer.Typer(help="Formats a node's data directories.")

UUID_CHARACTERS = 22


def new_uuid() -> str:
    """A random id as Kafka writes them: 16 bytes in base64 for URLs, 22 characters, no leading dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def read_config(path: Path) -> ServerConfig:
    """Reads a server.properties. Raises UserError naming the file."""
    try:
        return load_config(path.read_text())
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (ConfigError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {error}") from error


def format_node(cluster_id: str, config_path: Path, *, ignore_formatted: bool) -> list[str]:
    """Writes meta.properties into every data directory of a node. Returns the folders formatted now."""
    _check_cluster_id(cluster_id)
    config = read_config(config_path)
    folders = list(dict.fromkeys((*config.log_dirs, config.metadata_log_dir)))
    disk = RealDisk()
    formatted = []
    for folder in folders:
        absolute = str(Path(folder).absolute())
        try:
            existing = read_meta_properties(disk, absolute)
        except DataDirectoryError as error:
            raise UserError(str(error)) from error
        if existing is not None:
            if existing.cluster_id != cluster_id or existing.node_id != config.node_id:
                raise UserError(
                    f"{folder} belongs to node {existing.node_id} of cluster {existing.cluster_id} already;"
                    " remove its contents first if that is what you want"
                )
            if not ignore_formatted:
                raise UserError(f"{folder} is formatted already; use --ignore-formatted to go on")
            continue
        try:
            disk.make_dirs(absolute)
            write_meta_properties(disk, absolute, MetaProperties(cluster_id, config.node_id, new_uuid()))
        except OSError as error:
            raise UserError(f"cannot format {folder}: {error.strerror}") from error
        formatted.append(folder)
    return formatted


def _check_cluster_id(cluster_id: str) -> None:
    try:
        valid = len(cluster_id) == UUID_CHARACTERS and len(base64.urlsafe_b64decode(cluster_id + "==")) == 16
    except ValueError:
        valid = False
    if not valid:
        raise UserError(
            f"{cluster_id!r} is no cluster id (22 characters); make one with `kraft storage random-uuid`",
            EXIT_USAGE,
        )


@app.command("random-uuid")
def random_uuid(as_json: Json = False) -> None:
    """Print a new random id, for a cluster."""
    if as_json:
        print_json({"uuid": new_uuid()})
    else:
        print_line(new_uuid())


@app.command("format")
def format_(
    cluster_id: Annotated[
        str, typer.Option("--cluster-id", "-t", help="The cluster's id, the same on every node.")
    ],
    config: Annotated[Path, typer.Option("--config", "-c", help="The node's server.properties.")],
    ignore_formatted: Annotated[
        bool, typer.Option("--ignore-formatted", "-g", help="Skip formatted folders.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Format a node's data directories for a cluster."""
    formatted = format_node(cluster_id, config, ignore_formatted=ignore_formatted)
    if as_json:
        print_json({"cluster_id": cluster_id, "formatted": formatted})
    for folder in formatted:
        console.print(f"formatted {folder}", soft_wrap=True)
