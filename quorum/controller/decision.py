"""The view that the controller decides on, and the decision that it makes.

Every control module reads a `ClusterView`: the speculative image with its index, and the cluster's settings. A
`Decision` is atomic units of records, and the response to give once the last of them is committed. Deciding changes
nothing: `ControllerState` applies, numbers and proposes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from quorum.controller.cluster_index import ClusterIndex
from quorum.controller.proposal import MAX_PROPOSAL_RECORDS_BYTES
from quorum.controller.topic_configs import ResourceConfigSchemas, TopicConfigSchema
from quorum.errors import ControllerError
from quorum.metadata.features import new_cluster_records
from quorum.metadata.image import BrokerImage, MetadataImage
from quorum.metadata.record_codec import MAX_RECORDS, encode_record
from quorum.metadata.records import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    FeatureLevel,
    Record,
    UserScramCredential,
)
from quorum.rpc.messages import ControllerResponse

ALL_BROKERS = ""
"""Name of the broker resource whose configs hold for all brokers."""


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """Settings of the cluster, with Kafka's defaults."""

    cluster_id: str
    default_partitions: int = 1
    """num.partitions"""
    default_replication_factor: int = 1
    """default.replication.factor"""
    session_timeout_ms: int = 9000
    """broker.session.timeout.ms"""
    auto_leader_rebalance: bool = True
    """auto.leader.rebalance.enable"""
    leader_imbalance_check_interval_ms: int = 300_000
    """leader.imbalance.check.interval.seconds"""
    leader_imbalance_per_broker_percentage: int = 10
    """leader.imbalance.per.broker.percentage"""
    new_cluster_features: tuple[FeatureLevel, ...] = new_cluster_records()
    """What a cluster without metadata starts with."""
    new_cluster_users: tuple[UserScramCredential, ...] = ()
    """The users that it starts with."""
    max_pending_requests: int = 5000
    """Requests that may wait for commits; more are answered THROTTLING_QUOTA_EXCEEDED. Their proposals fit into
    the Raft lane's queue of 10,000."""


class Unit:
    """Records that must be committed together, encoded once; a unit always fits into one proposal.

    Raises ControllerError POLICY_VIOLATION if it would not: a request asked for too much at once.
    """

    __slots__ = ("encoded", "records", "size_bytes")

    def __init__(self, *records: Record) -> None:
        self.records = records
        self.encoded = [encode_record(record) for record in records]
        self.size_bytes = sum(map(len, self.encoded))
        if self.size_bytes > MAX_PROPOSAL_RECORDS_BYTES or len(records) > MAX_RECORDS:
            raise ControllerError(
                "POLICY_VIOLATION",
                f"The change needs {len(records)} records of {self.size_bytes} bytes in all; at most {MAX_RECORDS} "
                f"and {MAX_PROPOSAL_RECORDS_BYTES} bytes can be committed at once. Ask for less, step by step.",
            )


class OnProposed(Protocol):
    """Is called with the future offset of the decision's last proposal, as soon as that is proposed."""

    def __call__(self, offset: int, /) -> None: ...


def nothing_to_note(offset: int, /) -> None:
    """For decisions that leave no trace outside the image."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Units in order, and the response, given the offset at which the last unit was committed."""

    units: tuple[Unit, ...]
    respond: Callable[[int], ControllerResponse]
    on_proposed: OnProposed = nothing_to_note


def decided(response: ControllerResponse, *units: Unit) -> Decision:
    """A decision whose response is known already."""
    return Decision(units, lambda offset: response)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The state on which a request is decided."""

    image: MetadataImage
    index: ClusterIndex
    config: ControllerConfig
    topic_configs: TopicConfigSchema
    resource_configs: ResourceConfigSchemas = field(default_factory=dict)

    def is_active(self, broker_id: int) -> bool:
        """Whether the broker is registered, unfenced and not shutting down."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def registered(self, broker_id: int, broker_epoch: int) -> BrokerImage:
        """The broker's registration. Raises ControllerError STALE_BROKER_EPOCH unless the epoch is its own."""
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            raise ControllerError(
                "STALE_BROKER_EPOCH", f"No broker registration found for broker id {broker_id}."
            )
        if broker.epoch != broker_epoch:
            raise ControllerError(
                "STALE_BROKER_EPOCH",
                f"Expected broker epoch {broker.epoch} of broker {broker_id}, but got {broker_epoch}.",
            )
        return broker

    def unclean_allowed(self, topic_id: bytes) -> bool:
        """Whether the topic permits electing a leader outside the ISR."""
        configs = self.image.config(TOPIC_RESOURCE, self.image.topics[topic_id].name)
        return self.topic_configs.unclean_leader_election_enable(configs, self.cluster_configs)

    def min_insync_replicas(self, topic_id: bytes) -> int:
        """The topic's effective min.insync.replicas; it may be more than a partition has replicas."""
        configs = self.image.config(TOPIC_RESOURCE, self.image.topics[topic_id].name)
        return self.topic_configs.min_insync_replicas(configs, self.cluster_configs)

    @property
    def cluster_configs(self) -> Mapping[str, str]:
        """The configs set at run time for all brokers."""
        return self.image.config(BROKER_RESOURCE, ALL_BROKERS)
