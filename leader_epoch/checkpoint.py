"""Kafka's text format of `leader-epoch-checkpoint`: version, number of entries, `epoch start` lines.

`decode` returns what `encode` wrote. It refuses a file that is torn, from another version or out of order with a
sentence, instead of reading it in part. The partition log writes the bytes; a log whose checkpoint is refused rebuilds
it from its batches.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from leader_epoch.epoch_cache import EpochEntry

CHECKPOINT_FILE_NAME = "leader-epoch-checkpoint"
_VERSION = 0


class EpochCheckpointError(ValueError):
    """The bytes are not a leader epoch checkpoint that this version reads."""


def encode_checkpoint(entries: Iterable[EpochEntry]) -> bytes:
    """The file's content for these entries, oldest first."""
    lines = [f"{epoch} {start_offset}" for epoch, start_offset in entries]
    return "\n".join([str(_VERSION), str(len(lines)), *lines, ""]).encode("ascii")


def decode_checkpoint(content: bytes) -> tuple[EpochEntry, ...]:
    """The entries in the file, oldest first. Raises EpochCheckpointError with the reason."""
    lines = content.decode("ascii", errors="replace").splitlines()
    if len(lines) < 2:
        raise EpochCheckpointError("the leader epoch checkpoint ends before its entry count")
    if lines[0].strip() != str(_VERSION):
        raise EpochCheckpointError(
            f"the leader epoch checkpoint has version {lines[0]!r}, expected {_VERSION}"
        )
    if not lines[1].strip().isdecimal():
        raise EpochCheckpointError(f"the leader epoch checkpoint has no entry count but {lines[1]!r}")
    expected = int(lines[1])
    if len(lines) - 2 != expected or not content.endswith(b"\n"):
        raise EpochCheckpointError(
            f"the leader epoch checkpoint announces {expected} entries and holds {len(lines) - 2} lines"
        )
    entries = tuple(_parse_entry(line) for line in lines[2:])
    for before, after in pairwise(entries):
        if after.epoch <= before.epoch or after.start_offset <= before.start_offset:
            raise EpochCheckpointError(f"the leader epoch checkpoint goes back from {before} to {after}")
    return entries


def _parse_entry(line: str) -> EpochEntry:
    fields = line.split()
    if len(fields) != 2 or not all(field.isdecimal() for field in fields):
        raise EpochCheckpointError(f"the leader epoch checkpoint has the malformed line {line!r}")
    return EpochEntry(int(fields[0]), int(fields[1]))
