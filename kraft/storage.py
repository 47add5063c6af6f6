"""What a node has on this host's disk before it starts: its server.properties, and data directories with an identity.

`kraft storage format` writes the identity (meta.properties), as Kafka's tool does; so does a local cluster. What a user
can mend is a UserError.
"""

from __future__ import annotations

import base64
import contextlib
import os
import secrets
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from kraft.added_users import parse_added_user
from kraft.config import NO_VARIABLES, ConfigError, ServerConfig, load_config, taken_from
from kraft.runtime.disk import RealDisk
from kraft.security.scram import SALT_BYTES
from kraft.user_error import EXIT_USAGE, UserError
from partitions.log.errors import DataDirectoryError
from partitions.log.node_logs.meta_properties import (
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from quorum.bootstrap_checkpoint import Bootstrap, write_bootstrap
from quorum.metadata.features import unsupported_level
from quorum.metadata.records import UserScramCredential

UUID_CHARACTERS = 22
DEFAULT_LEVELS: Final[Mapping[str, int]] = MappingProxyType({})


def new_uuid() -> str:
    """A random id as Kafka writes them: 16 bytes in base64 for URLs, 22 characters, no leading dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def read_config(path: Path | str, environment: Mapping[str, str] = NO_VARIABLES) -> ServerConfig:
    """Reads a server.properties; the environment's variables go over it. Raises UserError naming the file."""
    try:
        return load_config(Path(path).read_text(), environment)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (ConfigError, UnicodeDecodeError) as error:
        variables = ", ".join(taken_from(environment))
        where = f"{path}, with {variables} over it" if variables else path
        raise UserError(f"{where}: {error}") from error


def format_node(
    cluster_id: str,
    config_path: Path,
    *,
    ignore_formatted: bool,
    features: Mapping[str, int] = DEFAULT_LEVELS,
    users: Sequence[UserScramCredential] = (),
) -> list[str]:
    """`format_configured` for the node of a server.properties that lists the voters of its quorum."""
    return format_configured(
        cluster_id,
        read_config(config_path),
        ignore_formatted=ignore_formatted,
        standalone=False,
        features=features,
        users=users,
    )


def format_configured(
    cluster_id: str,
    config: ServerConfig,
    *,
    ignore_formatted: bool,
    standalone: bool,
    features: Mapping[str, int] = DEFAULT_LEVELS,
    users: Sequence[UserScramCredential] = (),
) -> list[str]:
    """Writes meta.properties into every data directory of a node. Returns the folders formatted now.

    `standalone`: its controller is the whole quorum. That has to be said where nothing lists the voters, as to Kafka's
    own tool, lest each node of a quorum becomes one of its own. `features` are levels by name. They, and `users`, go
    into a controller's metadata folder, unless it was formatted before: a new cluster starts with those of its first
    active controller. Raises UserError.
    """
    _check_cluster_id(cluster_id)
    _check_features(features)
    _check_quorum(config, standalone=standalone)
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
            if (features or users) and config.is_controller and folder == config.metadata_log_dir:
                with _private_files():
                    write_bootstrap(disk, absolute, Bootstrap(features, tuple(users)))
            write_meta_properties(disk, absolute, MetaProperties(cluster_id, config.node_id, new_uuid()))
        except OSError as error:
            raise UserError(f"cannot format {folder}: {error.strerror}") from error
        formatted.append(folder)
    return formatted


def added_users(texts: Sequence[str]) -> list[UserScramCredential]:
    """The users of --add-scram. Raises UserError, which shows no password."""
    users: dict[tuple[str, int], UserScramCredential] = {}
    for text in texts:
        try:
            user = parse_added_user(
                text, lambda path: Path(path).read_text(), lambda: secrets.token_bytes(SALT_BYTES)
            )
        except OSError as error:
            raise UserError(f"--add-scram: cannot read {error.filename}: {error.strerror}") from error
        except ValueError as error:
            reason = "the file of a password is not UTF-8" if isinstance(error, UnicodeError) else error
            raise UserError(f"--add-scram: {reason}", EXIT_USAGE) from None
        if (user.name, user.mechanism) in users:
            raise UserError(f"--add-scram names {user.name} twice by one mechanism", EXIT_USAGE)
        users[user.name, user.mechanism] = user
    return list(users.values())


@contextlib.contextmanager
def _private_files() -> Iterator[None]:
    """Files made meanwhile are for this user alone."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _check_features(levels: Mapping[str, int]) -> None:
    for name, level in levels.items():
        if problem := unsupported_level(name, level):
            raise UserError(f"--feature {name}={level}: {problem}", EXIT_USAGE)


def _check_quorum(config: ServerConfig, *, standalone: bool) -> None:
    if config.is_standalone and not standalone:
        raise UserError(
            "controller.quorum.voters is not set: say with --standalone that this node's controller is the whole"
            " quorum, or list all controllers in controller.quorum.voters",
            EXIT_USAGE,
        )
    others = sorted(config.voters.keys() - {config.node_id})
    if standalone and (others or not config.is_controller):
        raise UserError(
            "--standalone makes this node's controller the whole quorum, and controller.quorum.voters names"
            f" {', '.join(map(str, others))}; leave one of the two out",
            EXIT_USAGE,
        )


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
