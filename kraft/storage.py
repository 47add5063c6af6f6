"""What a node has on this host's disk before it starts: its server.properties, and data directories with an identity.

`kraft storage format` writes the identity (meta.properties), as Kafka's tool does; so does a local cluster. What a user
can mend is a UserError.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from kraft.config import ConfigError, ServerConfig, load_config
from kraft.runtime.disk import RealDisk
from kraft.user_error import EXIT_USAGE, UserError
from partitions.log.errors import DataDirectoryError
from partitions.log.node_logs.meta_properties import (
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from quorum.bootstrap_checkpoint import write_bootstrap
from quorum.metadata.features import unsupported_level

UUID_CHARACTERS = 22
DEFAULT_LEVELS: Final[Mapping[str, int]] = MappingProxyType({})


def new_uuid() -> str:
    """A random id as Kafka writes them: 16 bytes in base64 for URLs, 22 characters, no leading dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def read_config(path: Path | str) -> ServerConfig:
    """Reads a server.properties. Raises UserError naming the file."""
    try:
        return load_config(Path(path).read_text())
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (ConfigError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {error}") from error


def format_node(
    cluster_id: str,
    config_path: Path,
    *,
    ignore_formatted: bool,
    features: Mapping[str, int] = DEFAULT_LEVELS,
) -> list[str]:
    """Writes meta.properties into every data directory of a node. Returns the folders formatted now.

    `features` are levels by name. They go into a controller's metadata folder, unless it was formatted before: a new
    cluster starts at those of its first active controller. Raises UserError.
    """
    _check_cluster_id(cluster_id)
    _check_features(features)
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
            if features and config.is_controller and folder == config.metadata_log_dir:
                write_bootstrap(disk, absolute, features)
            write_meta_properties(disk, absolute, MetaProperties(cluster_id, config.node_id, new_uuid()))
        except OSError as error:
            raise UserError(f"cannot format {folder}: {error.strerror}") from error
        formatted.append(folder)
    return formatted


def _check_features(levels: Mapping[str, int]) -> None:
    for name, level in levels.items():
        if problem := unsupported_level(name, level):
            raise UserError(f"--feature {name}={level}: {problem}", EXIT_USAGE)


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
