"""The small text files in a partition's folder, besides the leader epoch checkpoint.

Guarantees: `partition.metadata` names the topic id that the folder belongs to, in Kafka's format;
`truncation-checkpoint` (ours; Kafka ignores it) caps the recovery point and the log start offset
that the data directory's checkpoints name, from a truncation until those are written again. Without
the cap, a crash in between would take a torn tail for damage to flushed data. Pure: bytes to values
and back; the log reads and writes them.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final, NamedTuple

from partitions.topic_partition import TOPIC_ID_BYTES

PARTITION_METADATA: Final = "partition.metadata"
TRUNCATION_CHECKPOINT: Final = "truncation-checkpoint"


class PartitionFileError(ValueError):
    """The bytes are not such a file."""


def topic_id_text(topic_id: bytes) -> str:
    """Kafka's text form of a 128-bit id: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode("ascii")


def parse_topic_id(text: str) -> bytes:
    """The 16 bytes of an id's text form. Raises PartitionFileError."""
    try:
        topic_id = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        raise PartitionFileError(f"{text!r} is no id: it is not base64") from None
    if len(topic_id) != TOPIC_ID_BYTES:
        raise PartitionFileError(
            f"{text!r} is no id: it has {len(topic_id)} bytes instead of {TOPIC_ID_BYTES}"
        )
    return topic_id


def encode_partition_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {topic_id_text(topic_id)}\n".encode("ascii")


def decode_partition_metadata(content: bytes) -> bytes:
    """The topic id in a `partition.metadata`. Raises PartitionFileError."""
    values: dict[str, str] = {}
    for line in content.decode("ascii", errors="replace").splitlines():
        name, _, value = line.partition(":")
        values[name.strip()] = value.strip()
    if values.get("version") != "0" or "topic_id" not in values:
        raise PartitionFileError("partition.metadata does not hold a version 0 and a topic_id")
    return parse_topic_id(values["topic_id"])


class TruncationCheckpoint(NamedTuple):
    """Upper limits for what the data directory's checkpoint files say about this log."""

    recovery_point: int
    log_start_offset: int


def encode_truncation_checkpoint(limits: TruncationCheckpoint) -> bytes:
    return f"0\n{limits.recovery_point}\n{limits.log_start_offset}\n".encode("ascii")


def decode_truncation_checkpoint(content: bytes) -> TruncationCheckpoint:
    """The limits in the file. Raises PartitionFileError."""
    lines = content.decode("ascii", errors="replace").splitlines()
    if len(lines) != 3 or lines[0] != "0" or not all(line.isdecimal() for line in lines):
        raise PartitionFileError("the truncation checkpoint does not hold a version 0 and two offsets")
    return TruncationCheckpoint(int(lines[1]), int(lines[2]))
