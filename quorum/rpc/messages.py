"""The messages of the controller listener: requests, and the responses to them.

A request declares itself once (`rpc`): its method, its response, whether it writes, and the errors by which it may
meet its own traces. `METHODS` has all declarations; `quorum.rpc.message_codec` turns messages into dicts and back.
Refusals of a whole request travel beside these as (Kafka error name, sentence); errors of one topic or partition are
fields (`error`, "NONE" when there is none). Epochs and partition epochs fence every call, so all of them may be
repeated (KIP-497, KIP-631, KIP-903). Ids of topics and incarnations are 16 bytes. Timestamps are Unix times in ms,
-1 where nothing is known.

Some messages have the name of one of Kafka's (`kraft.protocol.schemas`): the same concept on the other wire. Modules
that know both import this module and write `messages.CreateTopicsRequest`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, TypeVar, get_args

from quorum.metadata import records, wire
from quorum.metadata.acls import Acl, AclFilter, acl, acl_filter
from quorum.metadata.records import Listeners

RECOVERED = records.RECOVERED
NO_ERROR = "NONE"


class ControllerResponse:
    """The answer to one class of requests."""

    __slots__ = ()


Response_co = TypeVar("Response_co", bound=ControllerResponse, covariant=True)


class RpcRequest(Generic[Response_co]):
    """A request to a voter, by the class of its response."""

    __slots__ = ()
    RPC: ClassVar[Rpc]


class ControllerRequest(RpcRequest[Response_co]):
    """A request that the active controller decides (`quorum.controller.requests` says how)."""

    __slots__ = ()


class Rpc(NamedTuple):
    """The facts of one RPC method."""

    method: str
    request: type[RpcRequest[Any]]
    response: type[ControllerResponse]
    writes: bool
    """Whether it may change the metadata: then a call without an answer may have been carried out."""
    own_traces: frozenset[str]
    """Errors that tell of one thing that the same request may have done already, in an earlier attempt."""


_Declared = TypeVar("_Declared", bound=RpcRequest[Any])
_DECLARED: dict[str, Rpc] = {}


def rpc(
    method: str, *, writes: bool = True, own_traces: frozenset[str] = frozenset()
) -> Callable[[type[_Declared]], type[_Declared]]:
    """Declares the class of a method's requests; its base names the response."""

    def declare(request: type[_Declared]) -> type[_Declared]:
        (response,) = get_args(request.__orig_bases__[0])  # type: ignore[attr-defined]
        assert method not in _DECLARED, f"{method} is declared twice"
        request.RPC = _DECLARED[method] = Rpc(method, request, response, writes, own_traces)
        return request

    return declare


# Broker life


@dataclass(frozen=True, slots=True)
class RegisterBrokerResponse(ControllerResponse):
    """`broker_epoch` is the metadata offset of the registration."""

    broker_epoch: int


@rpc("register_broker")
@dataclass(frozen=True, slots=True)
class RegisterBrokerRequest(ControllerRequest[RegisterBrokerResponse]):
    """A broker's process (incarnation) asks to join; it starts fenced.

    `previous_broker_epoch` is the epoch in which its logs were closed cleanly, -1 after an unclean stop.
    `features` are (name, first, last supported level).
    """

    broker_id: int
    incarnation_id: bytes
    cluster_id: str
    listeners: Listeners
    rack: str | None = None
    log_dirs: tuple[bytes, ...] = ()
    previous_broker_epoch: int = -1
    features: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class HeartbeatResponse(ControllerResponse):
    is_fenced: bool
    is_caught_up: bool
    should_shutdown: bool


@rpc("heartbeat")
@dataclass(frozen=True, slots=True)
class HeartbeatRequest(ControllerRequest[HeartbeatResponse]):
    """Sent every heartbeat interval. `current_metadata_offset` is the offset the broker has applied."""

    broker_id: int
    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool = False
    want_shutdown: bool = False


@dataclass(frozen=True, slots=True)
class UnregisterBrokerResponse(ControllerResponse):
    """It is out."""


@rpc("unregister_broker", own_traces=frozenset({"BROKER_ID_NOT_REGISTERED"}))
@dataclass(frozen=True, slots=True)
class UnregisterBrokerRequest(ControllerRequest[UnregisterBrokerResponse]):
    """Takes a broker out of the cluster. Refused with BROKER_ID_NOT_REGISTERED if there is none."""

    broker_id: int


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
class AlterPartitionResponse(ControllerResponse):
    topics: tuple[AlterPartitionTopicResult, ...]


@rpc("alter_partition")
@dataclass(frozen=True, slots=True)
class AlterPartitionRequest(ControllerRequest[AlterPartitionResponse]):
    """All that one leader broker proposes at once; answered partition by partition."""

    broker_id: int
    broker_epoch: int
    topics: tuple[AlterPartitionTopic, ...]


# Offline replicas
#
# A replica is offline when its broker lives but its log cannot be served. Kafka reports whole directories (KIP-112,
# KIP-858); here each replica is named, since damage to one log takes nothing else offline. A broker repeats a report
# until it is answered. It reports anew after every registration, which clears all its marks, before it asks to be
# unfenced.

DIRECTORY = "directory"
"""The log's directory failed. What was in it may be whole: the replica stays eligible as any absent one."""
DAMAGED = "damaged"
"""The log is damaged inside the range that was durable. Its records cannot be trusted any more."""

MAX_REPLICA_STATES = 10_000
"""Replicas that one request may name; a broker with more sends several requests."""


@dataclass(frozen=True, slots=True)
class ReplicaStateResult:
    """`error`: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER (the broker has no
    replica of the partition), INVALID_REQUEST (unknown kind, or named twice). None is worth a retry.
    """

    topic_id: bytes
    partition: int
    error: str = NO_ERROR


@dataclass(frozen=True, slots=True)
class ReplicaStatesResponse(ControllerResponse):
    """One result for each replica of the request, in its order: first those offline, then those online."""

    partitions: tuple[ReplicaStateResult, ...]


@rpc("replica_states")
@dataclass(frozen=True, slots=True)
class ReplicaStatesRequest(ControllerRequest[ReplicaStatesResponse]):
    """`offline` are (topic id, partition, kind), kind DIRECTORY or DAMAGED; `online` (topic id, partition).

    A replica is reported online once its log can be served again: repaired, or made anew, empty, after
    the metadata showed it outside ISR and ELR.
    """

    broker_id: int
    broker_epoch: int
    offline: tuple[tuple[bytes, int, str], ...] = ()
    online: tuple[tuple[bytes, int], ...] = ()


# Topics


@dataclass(frozen=True, slots=True)
class Mutator:
    """For whom a broker has partitions created or deleted: whose quota they are taken from (KIP-599).

    A `strict` client knows of the quota, and is refused what exceeds it; others have to wait afterwards.
    """

    user: str
    client_id: str
    strict: bool = False


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
class CreateTopicsResponse(ControllerResponse):
    """`throttle_time_ms`: how long the client has to wait."""

    topics: tuple[CreateTopicResult, ...]
    throttle_time_ms: int = 0


@rpc("create_topics", own_traces=frozenset({"TOPIC_ALREADY_EXISTS"}))
@dataclass(frozen=True, slots=True)
class CreateTopicsRequest(ControllerRequest[CreateTopicsResponse]):
    topics: tuple[NewTopic, ...]
    validate_only: bool = False
    mutator: Mutator | None = None


@dataclass(frozen=True, slots=True)
class TopicToDelete:
    """Named by exactly one of name and topic id."""

    name: str | None = None
    topic_id: bytes | None = None


@dataclass(frozen=True, slots=True)
class DeleteTopicResult:
    name: str | None
    topic_id: bytes | None
    error: str = NO_ERROR
    message: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteTopicsResponse(ControllerResponse):
    """`throttle_time_ms`: how long the client has to wait."""

    topics: tuple[DeleteTopicResult, ...]
    throttle_time_ms: int = 0


@rpc("delete_topics", own_traces=frozenset({"UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID"}))
@dataclass(frozen=True, slots=True)
class DeleteTopicsRequest(ControllerRequest[DeleteTopicsResponse]):
    topics: tuple[TopicToDelete, ...]
    mutator: Mutator | None = None


@dataclass(frozen=True, slots=True)
class MorePartitions:
    """`count` is the new total; `assignments` names the replicas of each added partition, in order."""

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class CreatePartitionsResult:
    name: str
    error: str = NO_ERROR
    message: str | None = None


@dataclass(frozen=True, slots=True)
class CreatePartitionsResponse(ControllerResponse):
    """`throttle_time_ms`: how long the client has to wait."""

    topics: tuple[CreatePartitionsResult, ...]
    throttle_time_ms: int = 0


@rpc("create_partitions", own_traces=frozenset({"INVALID_PARTITIONS"}))
@dataclass(frozen=True, slots=True)
class CreatePartitionsRequest(ControllerRequest[CreatePartitionsResponse]):
    topics: tuple[MorePartitions, ...]
    validate_only: bool = False
    mutator: Mutator | None = None


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
    """`resource_type` is "topic", "broker" or "group"; the broker named "" is the default of all brokers.

    With `replace_all` the changes, all of them SET, are the resource's whole configuration afterwards;
    else keys that are not named stay as they are.
    """

    resource_type: str
    resource_name: str
    changes: tuple[ConfigChange, ...]
    replace_all: bool = False


@dataclass(frozen=True, slots=True)
class AlterConfigsResult:
    resource_type: str
    resource_name: str
    error: str = NO_ERROR
    message: str | None = None


@dataclass(frozen=True, slots=True)
class AlterConfigsResponse(ControllerResponse):
    resources: tuple[AlterConfigsResult, ...]


@rpc("alter_configs")
@dataclass(frozen=True, slots=True)
class AlterConfigsRequest(ControllerRequest[AlterConfigsResponse]):
    """Answered resource by resource: the changes of one are all made or none."""

    resources: tuple[ConfigResourceChange, ...]
    validate_only: bool = False


# Quotas (KIP-546)


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """A quota is set, or (value None) removed."""

    key: str
    value: float | None


@dataclass(frozen=True, slots=True)
class ClientQuotaAlteration:
    """`entity` is (type, name) of each part, by ascending type; an empty name stands for the default."""

    entity: tuple[tuple[str, str], ...]
    changes: tuple[QuotaChange, ...]


@dataclass(frozen=True, slots=True)
class ClientQuotaResult:
    """`error`: INVALID_REQUEST; nothing of this entity was changed then."""

    error: str = NO_ERROR
    message: str | None = None


@dataclass(frozen=True, slots=True)
class AlterClientQuotasResponse(ControllerResponse):
    """In the order of the request."""

    entities: tuple[ClientQuotaResult, ...]


@rpc("alter_client_quotas")
@dataclass(frozen=True, slots=True)
class AlterClientQuotasRequest(ControllerRequest[AlterClientQuotasResponse]):
    """Answered entity by entity: the changes of one are all made or none."""

    entities: tuple[ClientQuotaAlteration, ...]
    validate_only: bool = False


# Producer ids


@dataclass(frozen=True, slots=True)
class AllocateProducerIdsResponse(ControllerResponse):
    """Producer ids `first` … `first + count - 1` belong to the broker."""

    first: int
    count: int


@rpc("allocate_producer_ids")
@dataclass(frozen=True, slots=True)
class AllocateProducerIdsRequest(ControllerRequest[AllocateProducerIdsResponse]):
    broker_id: int
    broker_epoch: int


# Elections (KIP-460)

PREFERRED_ELECTION = 0
UNCLEAN_ELECTION = 1


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
class ElectLeadersResponse(ControllerResponse):
    """In the order of the request; for all partitions, by topic name and partition."""

    partitions: tuple[ElectLeadersResult, ...]


@rpc("elect_leaders")
@dataclass(frozen=True, slots=True)
class ElectLeadersRequest(ControllerRequest[ElectLeadersResponse]):
    """`election_type` is PREFERRED_ELECTION or UNCLEAN_ELECTION; `partitions` are (topic name, partition).

    None asks for all partitions; those with nothing to elect (ELECTION_NOT_NEEDED) are then left out of
    the answer.
    """

    election_type: int
    partitions: tuple[tuple[str, int], ...] | None = None


# Reassignments (KIP-455)


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
class ReassignmentResult:
    """`error`: INVALID_REPLICA_ASSIGNMENT, NO_REASSIGNMENT_IN_PROGRESS, UNKNOWN_TOPIC_OR_PARTITION, …"""

    topic: str
    partition: int
    error: str = NO_ERROR
    message: str | None = None


@dataclass(frozen=True, slots=True)
class AlterPartitionReassignmentsResponse(ControllerResponse):
    """In the order of the request."""

    partitions: tuple[ReassignmentResult, ...]


@rpc("alter_partition_reassignments", own_traces=frozenset({"NO_REASSIGNMENT_IN_PROGRESS"}))
@dataclass(frozen=True, slots=True)
class AlterPartitionReassignmentsRequest(ControllerRequest[AlterPartitionReassignmentsResponse]):
    """Without `allow_replication_factor_change` a target of another size is refused, partition by
    partition, with INVALID_REPLICATION_FACTOR (KIP-860).
    """

    topics: tuple[TopicReassignments, ...]
    allow_replication_factor_change: bool = True


@dataclass(frozen=True, slots=True)
class TopicPartitions:
    name: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OngoingReassignment:
    """`replicas` are all that hold the partition now, those that come and those that go included."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ListPartitionReassignmentsResponse(ControllerResponse):
    """By topic name and partition."""

    partitions: tuple[OngoingReassignment, ...]


@rpc("list_partition_reassignments", writes=False)
@dataclass(frozen=True, slots=True)
class ListPartitionReassignmentsRequest(ControllerRequest[ListPartitionReassignmentsResponse]):
    """None asks for all that are under way. Partitions that do not exist or do not move are left out."""

    topics: tuple[TopicPartitions, ...] | None = None


# Users (KIP-554)

MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16_384
"""Of a SCRAM credential, as in Kafka: fewer give passwords away, more keep clients busy."""
MAX_USER_NAME_CHARACTERS = 255
MAX_SALT_BYTES = 1024


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    """`mechanism` is Kafka's code; any number may stand there, as a client sent it."""

    user: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """The keys are those that a broker made of a salted password: that itself goes no further."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ScramAlterationResult:
    """`error`: UNACCEPTABLE_CREDENTIAL, UNSUPPORTED_SASL_MECHANISM, RESOURCE_NOT_FOUND, DUPLICATE_RESOURCE."""

    user: str
    error: str = NO_ERROR
    message: str | None = None


@dataclass(frozen=True, slots=True)
class AlterUserScramCredentialsResponse(ControllerResponse):
    """One result a user, in the order in which the request names them first."""

    users: tuple[ScramAlterationResult, ...]


@rpc("alter_user_scram_credentials", own_traces=frozenset({"RESOURCE_NOT_FOUND"}))
@dataclass(frozen=True, slots=True)
class AlterUserScramCredentialsRequest(ControllerRequest[AlterUserScramCredentialsResponse]):
    """Answered user by user: one credential of each."""

    deletions: tuple[ScramDeletion, ...]
    upsertions: tuple[ScramUpsertion, ...]


# Features (KIP-584)

FEATURE_UPDATE_FAILED = "FEATURE_UPDATE_FAILED"
"""Of a feature that was not updated because of another one in the request."""

UPGRADE = 1
SAFE_DOWNGRADE = 2
UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """Level 0 removes the feature. `upgrade_type`: UPGRADE, SAFE_DOWNGRADE or UNSAFE_DOWNGRADE."""

    name: str
    level: int
    upgrade_type: int = UPGRADE


@dataclass(frozen=True, slots=True)
class FeatureUpdateResult:
    """`error`: INVALID_UPDATE_VERSION, FEATURE_UPDATE_FAILED or INVALID_REQUEST. If any update has one,
    none was made.
    """

    name: str
    error: str = NO_ERROR
    message: str | None = None


@dataclass(frozen=True, slots=True)
class UpdateFeaturesResponse(ControllerResponse):
    """In the order of the request."""

    features: tuple[FeatureUpdateResult, ...]


@rpc("update_features")
@dataclass(frozen=True, slots=True)
class UpdateFeaturesRequest(ControllerRequest[UpdateFeaturesResponse]):
    """All updates are made, or none."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False


# ACLs (KIP-140)


@dataclass(frozen=True, slots=True)
class AclResult:
    """`error` is INVALID_REQUEST for an ACL that there cannot be."""

    error: str = NO_ERROR
    message: str | None = None


@dataclass(frozen=True, slots=True)
class CreateAclsResponse(ControllerResponse):
    """In the order of the request."""

    results: tuple[AclResult, ...]


@rpc("create_acls")
@dataclass(frozen=True, slots=True)
class CreateAclsRequest(ControllerRequest[CreateAclsResponse]):
    """All that nothing is wrong with are added together. One that is there already is not an error."""

    acls: Annotated[tuple[Acl, ...], wire.tuple_of(acl)]


@dataclass(frozen=True, slots=True)
class DeletedAcls:
    """What one filter named, and so removed, ascending; `error` is INVALID_REQUEST for a filter that is none."""

    acls: Annotated[tuple[Acl, ...], wire.tuple_of(acl)] = ()
    error: str = NO_ERROR
    message: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteAclsResponse(ControllerResponse):
    """In the order of the request."""

    results: tuple[DeletedAcls, ...]


@rpc("delete_acls")
@dataclass(frozen=True, slots=True)
class DeleteAclsRequest(ControllerRequest[DeleteAclsResponse]):
    """All that the filters name are removed together."""

    filters: Annotated[tuple[AclFilter, ...], wire.tuple_of(acl_filter)]


# The quorum (KIP-595, KIP-853)


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
class DescribeQuorumResponse(ControllerResponse):
    """`high_watermark` is one past the last committed entry. Voters and observers by ascending id."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]


@rpc("describe_quorum", writes=False)
@dataclass(frozen=True, slots=True)
class DescribeQuorumRequest(RpcRequest[DescribeQuorumResponse]):
    """Answered by the active controller from its Raft lane; nothing is proposed."""


# The metadata log


@dataclass(frozen=True, slots=True)
class MetadataEntry:
    """One committed Raft entry; `records` as `quorum.metadata.records` encodes them."""

    offset: int
    epoch: int
    records: bytes


@dataclass(frozen=True, slots=True)
class FetchMetadataResponse(ControllerResponse):
    """Either entries that follow the requested offset without a gap, or a whole image as snapshot.

    `committed_offset` is how far the answering controller has applied.
    """

    committed_offset: int
    entries: tuple[MetadataEntry, ...] = ()
    snapshot: bytes | None = None
    leader_id: int | None = None


@rpc("fetch_metadata", writes=False)
@dataclass(frozen=True, slots=True)
class FetchMetadataRequest(RpcRequest[FetchMetadataResponse]):
    """A long poll: what was committed after `offset` (-1 = from the start), which was of term `epoch`."""

    node_id: int
    epoch: int
    offset: int
    max_wait_ms: int
    max_bytes: int = 1024 * 1024


METHODS: Mapping[str, Rpc] = MappingProxyType(_DECLARED)
"""Every method that a voter serves, by its name."""
