"""What configuration the log of a topic's partition goes by on this broker.

Guarantees: a topic's own value goes first, then what was set for this broker while it runs, then for all
brokers, then the broker's file. `ReplicaManager` asks for each log that is made, and when configs change.
"""

from __future__ import annotations

from kraft.dynamic_configs import dynamic_log_defaults
from partitions.log.config import LogConfig
from quorum.metadata.changes import MetadataChanges
from quorum.metadata.image import MetadataImage
from quorum.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE


class TopicLogConfigs:
    """The defaults of one broker as they are now, and topics' configs over them."""

    def __init__(self, broker_id: int, file_defaults: LogConfig) -> None:
        """`file_defaults` are those of the broker's configuration file."""
        self._broker_id = broker_id
        self._file_defaults = file_defaults
        self._defaults = file_defaults

    def of_topic(self, image: MetadataImage, topic: str) -> LogConfig:
        """The configuration of each log of this topic."""
        return self._defaults.with_overrides(image.config(TOPIC_RESOURCE, topic))

    def update_defaults(self, changes: MetadataChanges, image: MetadataImage) -> bool:
        """Takes over changed configs of this broker; whether the defaults are others now."""
        if not any(resource_type == BROKER_RESOURCE for resource_type, _ in changes.changed_configs):
            return False
        before = self._defaults
        self._defaults = dynamic_log_defaults(self._file_defaults, image, self._broker_id)
        return self._defaults != before


def changed_topics(changes: MetadataChanges) -> list[str]:
    """The topics that have configs of their own which changed."""
    return [name for resource_type, name in changes.changed_configs if resource_type == TOPIC_RESOURCE]
