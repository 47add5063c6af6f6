"""The committed metadata as handlers ask for it: brokers by listener, topics by name or id.

Updated by the metadata loader in one assignment, so that a handler sees one image throughout. Also
answers what partitions ask about brokers (`BrokerEligibility`).
"""

from __future__ import annotations

from collections.abc import Iterator

from kraft.protocol.leader_hints import LeaderIdAndEpoch, NodeEndpoint
from partitions.topic_partition import TopicPartition
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

    def admin_broker(self, controller_id: int | None, broker_id: int) -> int:
        """A live broker to send admin requests to: the active controller if it is one, else this broker, else any.

        Any broker forwards such requests, so it need not be the controller itself (KIP-590). -1 if none is live.
        """
        if controller_id is not None and self.is_live(controller_id):
            return controller_id
        live = [broker.broker_id for broker in self.live_brokers()]
        return broker_id if broker_id in live else next(iter(live), -1)

    # -- BrokerEligibility

    def registered_epoch(self, broker_id: int) -> int | None:
        broker = self.image.brokers.get(broker_id)
        return None if broker is None else broker.epoch

    def may_join_isr(self, broker_id: int) -> bool:
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.is_active

    # -- topics

    def leader_hint(
        self, key: TopicPartition, listener_name: str, endpoints: dict[int, NodeEndpoint]
    ) -> LeaderIdAndEpoch | None:
        """Who leads a partition (KIP-951); its address goes to `endpoints`."""
        topic = self.image.topic(key.topic)
        if topic is None or not 0 <= key.partition < len(topic.partitions):
            return None
        state = topic.partitions[key.partition]
        endpoint = self.endpoint(state.leader, listener_name)
        if endpoint is not None:
            rack = self.image.brokers[state.leader].rack
            endpoints[state.leader] = NodeEndpoint(
                node_id=state.leader, host=endpoint.host, port=endpoint.port, rack=rack
            )
        return LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)

    def topic_name(self, topic_id: bytes) -> str | None:
        topic = self.image.topics.get(topic_id)
        return None if topic is None else topic.name

    def topics_by_name(self) -> list[TopicImage]:
        """All topics in the order of their names."""
        image = self.image
        return [image.topics[image.topic_ids[name]] for name in sorted(image.topic_ids)]
