"""The rules that a history can be played under: today's, and those that it made obsolete.

Each old rule is one seam: it puts something else in the place of what the product would do there, and leaves all
the rest alone. Nothing of this is in the product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, cast

from fetcher.follower_log import FollowerLog
from leader_epoch.epoch_cache import EpochCache
from partitions.partition import FollowerFetch, Partition
from quorum.metadata.image import MetadataImage
from quorum.rpc.messages import AlterPartitionRequest, BrokerState

NO_EPOCH = -1

LeaderOf = Callable[[], Partition]
"""The replica that leads now."""


class Rule:
    """What today's Kafka does, and this product."""

    name = "current"
    features: Mapping[str, int] = MappingProxyType({})
    """Levels of the cluster's features that differ from a new cluster's."""
    transaction_version = 2
    """By which clients, coordinator and partitions go."""
    verifies = True
    """Whether leaders ask the coordinator before a batch opens a transaction."""

    def subscribe(self, replica: Partition, leader: LeaderOf) -> FollowerLog:
        """What the fetcher of a new follower works on."""
        return replica

    def arriving_fetch(self, fetch: FollowerFetch, leader: Partition) -> FollowerFetch:
        """A follower's fetch as the leader reads it."""
        return fetch

    def arriving_proposal(
        self, request: AlterPartitionRequest, image: MetadataImage
    ) -> AlterPartitionRequest:
        """A leader's AlterPartition as the controller reads it."""
        return request


class LeaderEpoch(Rule):
    """Today's rule where truncation is what changed (KIP-101, KIP-279)."""

    name = "leader-epoch"


class HighWatermark(Rule):
    """Before KIP-101: a new follower cuts its log to its high watermark, and compares nothing."""

    name = "high-watermark"

    def subscribe(self, replica: Partition, leader: LeaderOf) -> FollowerLog:
        replica.truncate_to(replica.high_watermark, leader_epoch=replica.leader_epoch)
        return cast(FollowerLog, _ComparesNothing(replica))


class EpochEndOnly(Rule):
    """KIP-101 before KIP-279: the leader says where the follower's last epoch ended, by the start of its own next
    one, and does not say whether it knows that epoch; the follower cuts there."""

    name = "kip-101"

    def subscribe(self, replica: Partition, leader: LeaderOf) -> FollowerLog:
        own_epoch = replica.epochs.latest_epoch
        if own_epoch is not None:
            leads = leader()
            later = (entry.start_offset for entry in leads.epochs.entries if entry.epoch > own_epoch)
            end_offset = next(later, leads.log_end_offset)
            cut = min(end_offset, replica.log_end_offset)
            replica.truncate_to(cut, leader_epoch=replica.leader_epoch)
        return cast(FollowerLog, _ComparesNothing(replica))


class UnfencedFetch(Rule):
    """Before KIP-320: a fetch does not say in which leader epoch its sender takes the receiver for the leader."""

    name = "old"

    def arriving_fetch(self, fetch: FollowerFetch, leader: Partition) -> FollowerFetch:
        return fetch._replace(current_leader_epoch=leader.leader_epoch, last_fetched_epoch=NO_EPOCH)


class UnnamedIncarnation(Rule):
    """Before KIP-903: AlterPartition names brokers and not their registrations."""

    name = "old"

    def arriving_proposal(
        self, request: AlterPartitionRequest, image: MetadataImage
    ) -> AlterPartitionRequest:
        topics = []
        for topic in request.topics:
            items = []
            for item in topic.partitions:
                isr = tuple(
                    BrokerState(member.broker_id, image.brokers[member.broker_id].epoch)
                    for member in item.new_isr_with_epochs
                )
                items.append(replace(item, new_isr_with_epochs=isr))
            topics.append(replace(topic, partitions=tuple(items)))
        return replace(request, topics=tuple(topics))


class WithoutEligibleLeaders(Rule):
    """Before KIP-966: whoever was last in the ISR stays in it, and is the only one who may lead again."""

    name = "old"
    features = MappingProxyType({"eligible.leader.replicas.version": 0})


class UnverifiedTransactions(Rule):
    """Before KIP-890 and KIP-1228: all transactions of a producer have one epoch, and nobody verifies a batch."""

    name = "old"
    transaction_version = 1
    verifies = False


class _ComparesNothing:
    """A follower's replica whose fetches do not say what epoch its log ends in; all else is the replica's."""

    def __init__(self, replica: Partition) -> None:
        self._replica = replica
        self.epochs = EpochCache()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._replica, name)
