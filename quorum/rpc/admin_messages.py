"""What brokers ask the controller on behalf of admin clients, beside topics and configs.

Elections (KIP-460), reassignments (KIP-455), features (KIP-584), unregistration (KIP-631) and the state
of the quorum itself (KIP-595, KIP-853). Part of the table in `quorum.rpc.messages`, by whose rules errors
travel: `error` fields hold Kafka's error names, "NONE" when there is none, and a refusal of the whole
request is a `ControllerError`. Timestamps are Unix times in ms, -1 where nothing is known.
"""

from __future__ import annotations

from dataclasses import dataclass

NO_ERROR = "NONE"
FEATURE_UPDATE_FAILED = "FEATURE_UPDATE_FAILED"
"""Of a feature that was not updated because of another one in the request."""

PREFERRED_ELECTION = 0
UNCLEAN_ELECTION = 1

UPGRADE = 1
SAFE_DOWNGRADE = 2
UNSAFE_DOWNGRADE = 3

# Elections


@dataclass(frozen=True, slots=True)
class ElectLeadersRequest:
    """`election_type` is PREFERRED_ELECTION or UNCLEAN_ELECTION; `partitions` are (topic name, partition).

    None asks for all partitions; those with nothing to elect (ELECTION_NOT_NEEDED) are then left out of
    the answer.
    """

    election_type: int
    partitions: tuple[tuple[str, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class ElectLeadersResult:
    """`error`: ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE,
    UNKNOWN_TOPIC_OR_PARTITION.
    """

    topic: str
    partition: int
    error: str = NO_ERROR
    message: str | None = None


@dataclass(frozen=True, slots=True)
class ElectLeadersResponse:
    """In the order of the request; for all partitions, by topic name and partition."""

    partitions: tuple[ElectLeadersResult, ...]


# Reassignments


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """`replicas`, preferred leader first, are the target; None cancels what is under way."""

    partition: int
    replicas: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TopicReassignments:
    name: str
    partitions: tuple[PartitionReassignment, ...]


@dataclass(frozen=True, slots=True)
class AlterPartitionReassignmentsRequest:
    """Without `allow_replication_factor_change` a target of another size is refused, partition by
    partition, with INVALID_REPLICATION_FACTOR (KIP-860).
    """

    topics: tuple[TopicReassignments, ...]
    allow_replication_factor_change: bool = True


@dataclass(frozen=True, slots=True)
class ReassignmentResult:
    """`error`: INVALID_REPLICA_ASSIGNMENT, NO_REASSIGNMENT_IN_PROGRESS, UNKNOWN_TOPIC_OR_PARTITION, …"""

    topic: str
    partition: int
    error: str = NO_ERROR
    message: str | None = None


@dataclass(frozen=True, slots=True)
class AlterPartitionReassignmentsResponse:
    """In the order of the request."""

    partitions: tuple[ReassignmentResult, ...]


@dataclass(frozen=True, slots=True)
class TopicPartitions:
    name: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ListPartitionReassignmentsRequest:
    """None asks for all that are under way. Partitions that do not exist or do not move are left out."""

    topics: tuple[TopicPartitions, ...] | None = None


@dataclass(frozen=True, slots=True)
class OngoingReassignment:
    """`replicas` are all that hold the partition now, those that come and those that go included."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ListPartitionReassignmentsResponse:
    """By topic name and partition."""

    partitions: tuple[OngoingReassignment, ...]


# Features


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """Level 0 removes the feature. `upgrade_type`: UPGRADE, SAFE_DOWNGRADE or UNSAFE_DOWNGRADE."""

    name: str
    level: int
    upgrade_type: int = UPGRADE


@dataclass(frozen=True, slots=True)
class UpdateFeaturesRequest:
    """All updates are made, or none."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class FeatureUpdateResult:
    """`error`: INVALID_UPDATE_VERSION, FEATURE_UPDATE_FAILED or INVALID_REQUEST. If any update has one,
    none was made.
    """

    name: str
    error: str = NO_ERROR
    message: str | None = None


@dataclass(frozen=True, slots=True)
class UpdateFeaturesResponse:
    """In the order of the request."""

    features: tuple[FeatureUpdateResult, ...]


# Brokers


@dataclass(frozen=True, slots=True)
class UnregisterBrokerRequest:
    """Takes a broker out of the cluster. Refused with BROKER_ID_NOT_REGISTERED if there is none."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class UnregisterBrokerResponse:
    """It is out."""


# The quorum


@dataclass(frozen=True, slots=True)
class DescribeQuorumRequest:
    """Answered by the active controller from its Raft lane; nothing is proposed."""


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """How far one node follows the metadata log.

    `directory_id` is 16 bytes, zeros if it is not known. `log_end_offset` is -1 for a voter that this
    leader has not heard of yet. `last_fetch_ms` is when it was heard of last, `last_caught_up_ms` when it
    last had everything that the leader had.
    """

    replica_id: int
    directory_id: bytes
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class DescribeQuorumResponse:
    """`high_watermark` is one past the last committed entry. Voters and observers by ascending id."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
