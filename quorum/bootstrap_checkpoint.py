"""`bootstrap.checkpoint`: the levels of features that an operator chose for a cluster that has no metadata yet.

`kraft storage format --feature` writes the file into a controller's metadata folder before the folder counts as
formatted. The node reads it at every start; the first active controller of a new cluster records the levels, and no
other cluster takes notice (KIP-584, KIP-1022). The text is Kafka's form of checkpoints: version, number of entries, a
line `name level` each. A feature that the file does not name starts at its default level.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from partitions.disk import Disk, write_atomically
from partitions.log.errors import DataDirectoryError

BOOTSTRAP_CHECKPOINT: Final = "bootstrap.checkpoint"
_VERSION: Final = "0"


def encode_bootstrap(levels: Mapping[str, int]) -> bytes:
    """The file's content for these levels, by name."""
    lines = [f"{name} {levels[name]}" for name in sorted(levels)]
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()


def decode_bootstrap(content: bytes, path: str) -> dict[str, int]:
    """The levels in the file, by name. Raises DataDirectoryError naming `path`."""
    lines = content.decode(errors="replace").splitlines()
    entries = [line.split() for line in lines[2:]]
    levels = {entry[0]: int(entry[1]) for entry in entries if len(entry) == 2 and entry[1].isdecimal()}
    header = [_VERSION, str(len(entries))]
    if lines[:2] != header or len(levels) != len(entries) or not content.endswith(b"\n"):
        raise DataDirectoryError(
            f"{path} is damaged or of another version; restore it, or remove it: a cluster that has been started"
            " before does not need it"
        )
    return levels


def read_bootstrap(disk: Disk, folder: str) -> dict[str, int]:
    """The levels that were chosen when the folder was formatted; empty if none were. Raises DataDirectoryError,
    OSError."""
    path = f"{folder}/{BOOTSTRAP_CHECKPOINT}"
    try:
        content = disk.read_bytes(path)
    except FileNotFoundError:
        return {}
    return decode_bootstrap(content, path)


def write_bootstrap(disk: Disk, folder: str, levels: Mapping[str, int]) -> None:
    """Writes the file, durably. Raises OSError."""
    write_atomically(disk, f"{folder}/{BOOTSTRAP_CHECKPOINT}", encode_bootstrap(levels))
