"""The requests that brokers send to the controller, and the answers, as frozen dataclasses.

`METHODS` maps the RPC method to its request and response class; `quorum.rpc.message_codec` turns them
into dicts and back. Refusals of a whole request travel beside these as (Kafka error name, sentence);
errors of one topic or partition are fields (`error`, "NONE" when there is none). Epochs and partition
epochs fence every call, so all of them may be repeated (KIP-497, KIP-631, KIP-903). Ids of topics and
incarnations are 16 bytes. Elections, reassignments, features, the quorum: `quorum.rpc.admin_messages`;
offline replicas: `quorum.rpc.replica_messages`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quorum.metadata import records, wire
from quorum.metadata.records import Listener
from quorum.rpc import admin_messages as admin
from quorum.rpc.admin_messages import NO_ERROR as NO_ERROR
from quorum.rpc.replica_messages import ReplicaStatesRequest as ReplicaStatesRequest
from quorum.rpc.replica_messages import ReplicaStatesResponse as ReplicaStatesResponse

RECOVERED = records.RECOVERED

# Broker life


@dataclass(frozen=True, slots=True)
class RegisterBrokerRequest:
    """A broker's process (incarnation) asks to join; it starts fenced.

    `previous_broker_epoch` is the epoch in which its logs were closed cleanly, -1 after an unclean stop.
    `features` are (name, first, last supported level).
    """

    broker_id: int
    incarnation_id: bytes
    cluster_id: str
    listeners: tuple[Listener, ...]
    rack: str | None = None
    log_dirs: tuple[bytes, ...] = ()
    previous_broker_epoch: int = -1
    features: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class RegisterBrokerResponse:
    """`broker_epoch` is the metadata offset of the registration."""

    broker_epoch: int


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """Sent every heartbeat interval. `current_metadata_offset` is the offset the broker has applied."""

    broker_id: int
    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool = False
    want_shutdown: bool = False


@dataclass(frozen=True, slots=True)
class HeartbeatResponse:
    is_fenced: bool
    is_caught_up: bool
    should_shutdown: bool


# ISR changes


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A member of a proposed ISR with its registration epoch (KIP-903)."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class AlterPartitionItem:
    """What the leader of one partition proposes."""

    partition: int
    leader_epoch: int
    new_isr_with_epochs: tuple[BrokerState, ...]
    partition_epoch: int
    leader_recovery_state: int = RECOVERED


@dataclass(frozen=True, slots=True)
class AlterPartitionTopic:
    topic_id: bytes
    partitions: tuple[AlterPartitionItem, ...]


@dataclass(frozen=True, slots=True)
class AlterPartitionRequest:
    """All that one leader broker proposes at once; answered partition by partition."""

    broker_id: int
    broker_epoch: int
    topics: tuple[AlterPartitionTopic, ...]


@dataclass(frozen=True, slots=True)
class AlterPartitionResult:
    """The partition's state after the change, or an error (the state fields are then defaults)."""

    partition: int
    error: str = NO_ERROR
    leader: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1
    leader_recovery_state: int = RECOVERED
    elr: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterPartitionTopicResult:
    topic_id: bytes
    partitions: tuple[AlterPartitionResult, ...]


@dataclass(frozen=True, slots=True)
class AlterPartitionResponse:
    topics: tuple[AlterPartitionTopicResult, ...]


# Topics


@dataclass(frozen=True, slots=True)
class PartitionAssignment:
    """The replicas that the client chose for one partition, preferred leader first."""

    partition: int
    broker_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NewTopic:
    """-1 asks for the cluster's default; with `assignments` both numbers must be -1."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: tuple[PartitionAssignment, ...] | None = None
    configs: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class CreateTopicsRequest:
    topics: tuple[NewTopic, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class CreateTopicResult:
    """`configs` are the topic's own configs, by ascending key."""

    name: str
    error: str = NO_ERROR
    message: str | None = None
    topic_id: bytes = bytes(wire.UUID_BYTES)
    partitions: int = -1
    replication_factor: int = -1
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CreateTopicsResponse:
    topics: tuple[CreateTopicResult, ...]


@dataclass(frozen=True, slots=True)
class TopicToDelete:
    """Named by exactly one of name and topic id."""

    name: str | None = None
    topic_id: bytes | None = None


@dataclass(frozen=True, slots=True)
class DeleteTopicsRequest:
    topics: tuple[TopicToDelete, ...]


@dataclass(frozen=True, slots=True)
class DeleteTopicResult:
    name: str | None
    topic_id: bytes | None
    error: str = NO_ERROR
    message: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteTopicsResponse:
    topics: tuple[DeleteTopicResult, ...]


@dataclass(frozen=True, slots=True)
class MorePartitions:
    """`count` is the new total; `assignments` names the replicas of each added partition, in order."""

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class CreatePartitionsRequest:
    topics: tuple[MorePartitions, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class CreatePartitionsResult:
    name: str
    error: str = NO_ERROR
    message: str | None = None


@dataclass(frozen=True, slots=True)
class CreatePartitionsResponse:
    topics: tuple[CreatePartitionsResult, ...]


# Configs

SET, DELETE, APPEND, SUBTRACT = "SET", "DELETE", "APPEND", "SUBTRACT"


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """SET a key, DELETE (back to the default; `value` is None), or APPEND to or SUBTRACT from a list."""

    key: str
    value: str | None
    operation: str = SET


@dataclass(frozen=True, slots=True)
class ConfigResourceChange:
    """`resource_type` is "topic" or "broker"; the broker named "" is the default of all brokers.

    With `replace_all` the changes, all of them SET, are the resource's whole configuration afterwards;
    else keys that are not named stay as they are.
    """

    resource_type: str
    resource_name: str
    changes: tuple[ConfigChange, ...]
    replace_all: bool = False


@dataclass(frozen=True, slots=True)
class AlterConfigsRequest:
    """Answered resource by resource: the changes of one are all made or none."""

    resources: tuple[ConfigResourceChange, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AlterConfigsResult:
    resource_type: str
    resource_name: str
    error: str = NO_ERROR
    message: str | None = None


@dataclass(frozen=True, slots=True)
class AlterConfigsResponse:
    resources: tuple[AlterConfigsResult, ...]


# Producer ids


@dataclass(frozen=True, slots=True)
class AllocateProducerIdsRequest:
    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class AllocateProducerIdsResponse:
    """Producer ids `first` … `first + count - 1` belong to the broker."""

    first: int
    count: int


# The metadata log


@dataclass(frozen=True, slots=True)
class FetchMetadataRequest:
    """A long poll: what was committed after `offset` (-1 = from the start), which was of term `epoch`."""

    node_id: int
    epoch: int
    offset: int
    max_wait_ms: int
    max_bytes: int = 1024 * 1024


@dataclass(frozen=True, slots=True)
class MetadataEntry:
    """One committed Raft entry; `records` as `quorum.metadata.records` encodes them."""

    offset: int
    epoch: int
    records: bytes


@dataclass(frozen=True, slots=True)
class FetchMetadataResponse:
    """Either entries that follow the requested offset without a gap, or a whole image as snapshot.

    `committed_offset` is how far the answering controller has applied.
    """

    committed_offset: int
    entries: tuple[MetadataEntry, ...] = ()
    snapshot: bytes | None = None
    leader_id: int | None = None


METHODS: Mapping[str, tuple[type[Any], type[Any]]] = {
    "register_broker": (RegisterBrokerRequest, RegisterBrokerResponse),
    "heartbeat": (HeartbeatRequest, HeartbeatResponse),
    "alter_partition": (AlterPartitionRequest, AlterPartitionResponse),
    "replica_states": (ReplicaStatesRequest, ReplicaStatesResponse),
    "create_topics": (CreateTopicsRequest, CreateTopicsResponse),
    "delete_topics": (DeleteTopicsRequest, DeleteTopicsResponse),
    "create_partitions": (CreatePartitionsRequest, CreatePartitionsResponse),
    "alter_configs": (AlterConfigsRequest, AlterConfigsResponse),
    "allocate_producer_ids": (AllocateProducerIdsRequest, AllocateProducerIdsResponse),
    "elect_leaders": (admin.ElectLeadersRequest, admin.ElectLeadersResponse),
    "alter_partition_reassignments": (
        admin.AlterPartitionReassignmentsRequest,
        admin.AlterPartitionReassignmentsResponse,
    ),
    "list_partition_reassignments": (
        admin.ListPartitionReassignmentsRequest,
        admin.ListPartitionReassignmentsResponse,
    ),
    "update_features": (admin.UpdateFeaturesRequest, admin.UpdateFeaturesResponse),
    "unregister_broker": (admin.UnregisterBrokerRequest, admin.UnregisterBrokerResponse),
    "describe_quorum": (admin.DescribeQuorumRequest, admin.DescribeQuorumResponse),
    "fetch_metadata": (FetchMetadataRequest, FetchMetadataResponse),
}
"""RPC method name → (request class, response class)."""

METHOD_OF: Mapping[type[Any], str] = {request: method for method, (request, _) in METHODS.items()}
"""Request class → RPC method name."""

ControllerRequest = (
    RegisterBrokerRequest
    | HeartbeatRequest
    | AlterPartitionRequest
    | ReplicaStatesRequest
    | CreateTopicsRequest
    | DeleteTopicsRequest
    | CreatePartitionsRequest
    | AlterConfigsRequest
    | AllocateProducerIdsRequest
    | admin.ElectLeadersRequest
    | admin.AlterPartitionReassignmentsRequest
    | admin.ListPartitionReassignmentsRequest
    | admin.UpdateFeaturesRequest
    | admin.UnregisterBrokerRequest
)
"""Requests that the active controller decides.

`fetch_metadata` is answered from the committed log, `describe_quorum` from the Raft lane.
"""

ControllerResponse = (
    RegisterBrokerResponse
    | HeartbeatResponse
    | AlterPartitionResponse
    | ReplicaStatesResponse
    | CreateTopicsResponse
    | DeleteTopicsResponse
    | CreatePartitionsResponse
    | AlterConfigsResponse
    | AllocateProducerIdsResponse
    | admin.ElectLeadersResponse
    | admin.AlterPartitionReassignmentsResponse
    | admin.ListPartitionReassignmentsResponse
    | admin.UpdateFeaturesResponse
    | admin.UnregisterBrokerResponse
)
