"""Kafka's text format of the data directory's checkpoints: version, count, `topic partition offset` lines.

Guarantees: what was encoded decodes to the same mapping; a torn or foreign file is refused with a
sentence. Pure; `DataDirectory` reads and writes the files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from partitions.topic_partition import TopicPartition

_VERSION: Final = "0"


class CheckpointDamaged(ValueError):
    """The file was torn, is of another version, or is something else; the message names it."""


def encode_offset_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The file's content, in the order of the partitions' names."""
    lines = [f"{key.topic} {key.partition} {offset}" for key, offset in sorted(offsets.items())]
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode("ascii")


def decode_offset_checkpoint(content: bytes, path: str) -> dict[TopicPartition, int]:
    """Offset by partition. Raises CheckpointDamaged naming `path`."""
    lines = content.decode("ascii", errors="replace").splitlines()
    if len(lines) < 2 or lines[0] != _VERSION or not lines[1].isdecimal():
        raise CheckpointDamaged(f"{path} does not start with version {_VERSION} and a count")
    if len(lines) - 2 != int(lines[1]):
        raise CheckpointDamaged(f"{path} announces {lines[1]} entries and holds {len(lines) - 2}")
    offsets: dict[TopicPartition, int] = {}
    for line in lines[2:]:
        fields = line.split(" ")
        if len(fields) != 3 or not fields[1].isdecimal() or not fields[2].isdecimal():
            raise CheckpointDamaged(f"{path} has the malformed line {line!r}")
        offsets[TopicPartition(fields[0], int(fields[1]))] = int(fields[2])
    return offsets
