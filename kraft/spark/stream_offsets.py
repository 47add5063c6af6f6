"""Where a stream stands: per topic its id, per partition the next offset and the leader epoch that named it.

Spark keeps it as JSON in the checkpoint and hands it back after a restart:

    {"topics": {"orders": {"id": "mXb…", "offsets": {"0": 23}, "epochs": {"0": 4}}}}

With the id a topic that was deleted and created anew is told from its predecessor, with the epoch a log that was
truncated below what has been read (KIP-320). `stream_plan.py` works with it, `stream.py` translates.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from kraft.spark.errors import CheckpointError
from partitions.topic_partition import TOPIC_ID_BYTES


class Position(NamedTuple):
    """The next offset to read; every record before it has this leader epoch or a lower one."""

    offset: int
    leader_epoch: int


class TopicPositions(NamedTuple):
    """By partition, ascending."""

    topic_id: bytes
    partitions: Mapping[int, Position]


StreamOffset: TypeAlias = Mapping[str, TopicPositions]


def to_json(offset: StreamOffset) -> dict[str, Any]:
    """Equal offsets give equal texts: Spark compares these."""
    topics = {}
    for name in sorted(offset):
        topic_id, partitions = offset[name]
        ordered = sorted(partitions.items())
        topics[name] = {
            "id": base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode(),
            "offsets": {str(partition): position.offset for partition, position in ordered},
            "epochs": {str(partition): position.leader_epoch for partition, position in ordered},
        }
    return {"topics": topics}


def from_json(value: Any) -> StreamOffset:
    """Raises CheckpointError."""
    try:
        return {name: _topic(topic) for name, topic in value["topics"].items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"The checkpoint's offset {value!r} is not one of format kraft. To go on where a query of format kafka"
            " ended, give its offsets as startingOffsets and a new checkpointLocation."
        ) from error


def _topic(value: Any) -> TopicPositions:
    text = value["id"]
    topic_id = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(topic_id) != TOPIC_ID_BYTES or value["offsets"].keys() != value["epochs"].keys():
        raise ValueError("an id of 16 bytes, and an epoch for each offset")
    partitions = {
        int(partition): Position(int(offset), int(value["epochs"][partition]))
        for partition, offset in value["offsets"].items()
    }
    return TopicPositions(topic_id, dict(sorted(partitions.items())))
