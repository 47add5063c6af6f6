"""The name of one partition, as it appears in folder names and on the wire."""

from __future__ import annotations

from typing import NamedTuple

TOPIC_ID_BYTES = 16
ZERO_TOPIC_ID = bytes(TOPIC_ID_BYTES)


class TopicPartition(NamedTuple):
    """A topic's name and a partition's number; a plain tuple, so it is cheap as a dictionary key."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


CLUSTER_METADATA_TOPIC = "__cluster_metadata"
"""The name of the controller quorum's own log: no topic of clients has it."""
CLUSTER_METADATA = TopicPartition(CLUSTER_METADATA_TOPIC, 0)
"""Its only partition; the folder of that name is a voter's journal."""
