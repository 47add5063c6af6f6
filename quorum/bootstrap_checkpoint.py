"""`bootstrap.checkpoint`: what an operator chose for a cluster that has no metadata yet: features' levels, first users.

`kraft storage format --feature --add-scram` writes the file into a controller's metadata folder before the folder
counts as formatted. The node reads it at every start; the first active controller of a new cluster records what is in
it, and no other cluster takes notice (KIP-584, KIP-900, KIP-1022). The text is Kafka's form of checkpoints: version,
number of entries, a line for each. Version 0 has lines `name level`, version 1 `feature name level` and `user …`, bytes
in base64. A feature that the file does not name starts at its default level. A file with users is as secret as the
metadata log.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from partitions.disk import Disk, write_atomically
from partitions.log.errors import DataDirectoryError
from quorum.errors import MalformedRecordError
from quorum.metadata.record_codec import validate
from quorum.metadata.records import UserScramCredential

BOOTSTRAP_CHECKPOINT: Final = "bootstrap.checkpoint"
_LEVELS_ALONE: Final = "0"
_WITH_USERS: Final = "1"
_FEATURE: Final = "feature"
_USER: Final = "user"


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """What a new cluster starts with."""

    levels: Mapping[str, int] = field(default_factory=dict)
    """Of features, by name."""
    users: tuple[UserScramCredential, ...] = ()


def encode_bootstrap(chosen: Bootstrap) -> bytes:
    """The file's content."""
    levels = [f"{name} {chosen.levels[name]}" for name in sorted(chosen.levels)]
    if not chosen.users:
        return _text(_LEVELS_ALONE, levels)
    features = [f"{_FEATURE} {line}" for line in levels]
    return _text(_WITH_USERS, [*features, *map(_user_line, chosen.users)])


def decode_bootstrap(content: bytes, path: str) -> Bootstrap:
    """What the file says. Raises DataDirectoryError naming `path`."""
    lines = content.decode(errors="replace").splitlines()
    version, entries = "".join(lines[:1]), [line.split() for line in lines[2:]]
    try:
        if version not in (_LEVELS_ALONE, _WITH_USERS) or not content.endswith(b"\n"):
            raise ValueError
        if lines[1:2] != [str(len(entries))]:
            raise ValueError
        if version == _LEVELS_ALONE:
            entries = [[_FEATURE, *entry] for entry in entries]
        features = [_feature(*entry[1:]) for entry in entries if entry[0] == _FEATURE]
        users = tuple(_user(*entry[1:]) for entry in entries if entry[0] == _USER)
        levels = dict(features)
        if len(levels) + len(users) != len(entries):
            raise ValueError
    except (ValueError, TypeError, IndexError, MalformedRecordError) as error:
        raise DataDirectoryError(
            f"{path} is damaged or of another version; restore it, or remove it: a cluster that has been started"
            " before does not need it"
        ) from error
    return Bootstrap(levels, users)


def read_bootstrap(disk: Disk, folder: str) -> Bootstrap:
    """What was chosen when the folder was formatted; nothing if nothing was. Raises DataDirectoryError, OSError."""
    path = f"{folder}/{BOOTSTRAP_CHECKPOINT}"
    try:
        content = disk.read_bytes(path)
    except FileNotFoundError:
        return Bootstrap()
    return decode_bootstrap(content, path)


def write_bootstrap(disk: Disk, folder: str, chosen: Bootstrap) -> None:
    """Writes the file, durably. Raises OSError."""
    write_atomically(disk, f"{folder}/{BOOTSTRAP_CHECKPOINT}", encode_bootstrap(chosen))


def _text(version: str, lines: Sequence[str]) -> bytes:
    return "\n".join([version, str(len(lines)), *lines, ""]).encode()


def _feature(name: str, level: str) -> tuple[str, int]:
    if not level.isdecimal():
        raise ValueError(level)
    return name, int(level)


def _user_line(user: UserScramCredential) -> str:
    keys = (user.name.encode(), user.salt, user.stored_key, user.server_key)
    return " ".join([_USER, str(user.mechanism), str(user.iterations), *map(_base64, keys)])


def _user(
    mechanism: str, iterations: str, name: str, salt: str, stored: str, server: str
) -> UserScramCredential:
    user = UserScramCredential(
        name=_bytes(name).decode(),
        mechanism=int(mechanism),
        salt=_bytes(salt),
        stored_key=_bytes(stored),
        server_key=_bytes(server),
        iterations=int(iterations),
    )
    validate(user)
    return user


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
