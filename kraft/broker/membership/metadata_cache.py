"""The committed metadata as handlers ask for it: brokers by listener, topics by name or id.

Updated by the metadata loader in one assignment, so that a handler sees one image throughout. Also
answers what partitions ask about brokers (`BrokerEligibility`).
"""

from __future__ import annotations

from collections.abc import Iterator

from quorum.metadata.changes import MetadataChanges
from quorum.metadata.image import EMPTY, BrokerImage, MetadataImage, TopicImage
from quorum.metadata.records import Listener


class MetadataCache:
    """A publisher that keeps the newest image."""

    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY

    def on_metadata(self, changes: MetadataChanges, image: MetadataImage) -> None:
        self.image = image

    # -- brokers

    def live_brokers(self) -> Iterator[BrokerImage]:
        """Unfenced brokers, by ascending id."""
        brokers = self.image.brokers
        return (brokers[broker_id] for broker_id in sorted(brokers) if not brokers[broker_id].fenced)

    def is_live(self, broker_id: int) -> bool:
        broker = self.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def endpoint(self, broker_id: int, listener_name: str) -> Listener | None:
        """Where a broker can be reached on a listener of that name; None if it has none."""
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            return None
        return next((listener for listener in broker.listeners if listener.name == listener_name), None)

    # -- BrokerEligibility

    def registered_epoch(self, broker_id: int) -> int | None:
        broker = self.image.brokers.get(broker_id)
        return None if broker is None else broker.epoch

    def may_join_isr(self, broker_id: int) -> bool:
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.is_active

    # -- topics

    def topic_name(self, topic_id: bytes) -> str | None:
        topic = self.image.topics.get(topic_id)
        return None if topic is None else topic.name

    def topics_by_name(self) -> list[TopicImage]:
        """All topics in the order of their names."""
        image = self.image
        return [image.topics[image.topic_ids[name]] for name in sorted(image.topic_ids)]
