"""The facts of each API that a broker serves, one row each: the table that all others are keyed by.

`SUPPORTED` is what ApiVersions answers. The codec finds an API's message classes through `APIS`, requests wait for
the partitions that its row says they name, and the tables of handlers and of forwarded requests
(`kraft.broker.dispatch`, `kraft.broker.handlers.forwarding`) are checked against it at import. A row's permissions are
what Kafka's broker and controller ask their authorizer, and what `kraft.broker.authorization` asks this one's. A range
is widened here, and nowhere else, when the new version is served in full. Every other key of the protocol has a name
so that logs can say what a client asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple


class ApiKey(IntEnum):
    """The API keys of Kafka 4.3. A name here says nothing about whether the API is served."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class ServedBy(Enum):
    """Who decides a request; its answer comes from the broker that its client is connected to."""

    BROKER = "broker"
    CONTROLLER = "controller"
    """The active controller; the broker forwards what its client may ask for."""
    QUORUM = "quorum"
    """The Raft lane of the quorum's leader; the broker forwards the question."""


class ResourceType(IntEnum):
    """What an ACL is about, by Kafka's codes. No API here asks about delegation tokens and users."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclOperation(IntEnum):
    """What an ACL allows, by Kafka's codes. ALL stands for each of the others, and nobody asks for it."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Right(NamedTuple):
    """An operation on a resource: on the cluster, on a topic or transactional id that the request names."""

    operation: AclOperation
    resource: ResourceType


class Denial(Enum):
    """What is answered where no right is there."""

    REFUSE = "refuse"
    """The error of the right's resource: for one topic, or for the whole request where it is the cluster's."""
    FILTER = "filter"
    """Nothing: the answer leaves out what it would have told."""


class Permission(NamedTuple):
    """One question for an authorizer. Any one of `rights` is enough.

    `when` tells of a decoded body whether it needs the permission; None where each does.
    """

    rights: tuple[Right, ...]
    denial: Denial
    when: Callable[[Any], bool] | None


NamedPartition = tuple[str | bytes, int]
"""A topic's name, or its id where the request has no name, and a partition's number."""
PartitionsOf = Callable[[Any], Iterator[NamedPartition]]
"""The partitions that a decoded body names, in its order."""


class Api(NamedTuple):
    """One served API.

    `versions` is the advertised range. From `flexible_from` on, bodies use compact lengths and
    tagged fields, and so do the headers (except where `kraft.protocol.headers` says otherwise). `module` holds
    the classes `<stem>Request` and `<stem>Response`; it is imported on first use. A right on topics is
    asked for each topic that the request names.
    """

    key: ApiKey
    versions: range
    flexible_from: int
    module: str
    served_by: ServedBy
    permissions: tuple[Permission, ...]
    partitions: PartitionsOf | None = None

    @property
    def stem(self) -> str:
        """The API's name as its schemas write it."""
        return self.key.name.title().replace("_", "")


def _api(
    key: ApiKey,
    versions: tuple[int, int],
    flexible_from: int,
    module: str,
    served_by: ServedBy,
    *permissions: Permission,
    names: PartitionsOf | None = None,
) -> Api:
    """A row. `versions` are the first and the last."""
    first, last = versions
    return Api(key, range(first, last + 1), flexible_from, module, served_by, permissions, names)


# The questions for an authorizer, in words that the rows below are made of


def _refuse(*rights: Right, when: Callable[[Any], bool] | None = None) -> Permission:
    return Permission(rights, Denial.REFUSE, when)


def _filter(*rights: Right, when: Callable[[Any], bool] | None = None) -> Permission:
    return Permission(rights, Denial.FILTER, when)


def _topic(operation: AclOperation) -> Right:
    return Right(operation, ResourceType.TOPIC)


def _group(operation: AclOperation) -> Right:
    return Right(operation, ResourceType.GROUP)


def _cluster(operation: AclOperation) -> Right:
    return Right(operation, ResourceType.CLUSTER)


_Op = AclOperation
_BROKER, _CONTROLLER, _QUORUM = ServedBy
_WRITE_TRANSACTION = Right(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)
_DESCRIBE_TRANSACTION = Right(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)


def _is_transactional(body: Any) -> bool:
    return body.transactional_id is not None


def _is_not_transactional(body: Any) -> bool:
    return body.transactional_id is None


def _adds_for_others(body: Any) -> bool:
    """A broker asks, of several producers at once; in versions before that a client asks for itself."""
    return bool(body.transactions)


def _adds_for_itself(body: Any) -> bool:
    return not body.transactions


def _from_follower(body: Any) -> bool:
    return bool(body.replica_id >= 0)


def _from_consumer(body: Any) -> bool:
    return bool(body.replica_id < 0)


def _finds_group(body: Any) -> bool:
    return bool(body.key_type == _GROUP_COORDINATOR)


def _finds_other(body: Any) -> bool:
    return bool(body.key_type != _GROUP_COORDINATOR)


_GROUP_COORDINATOR = 0
"""Kafka's code of a group as what a coordinator is looked for."""


def _subscribes_by_name(body: Any) -> bool:
    return bool(body.subscribed_topic_names)


def _names_topics(body: Any) -> bool:
    return bool(body.topics)


def _names_no_topic(body: Any) -> bool:
    """It asks for all: the answer must not tell of those that its client may not see."""
    return not body.topics


def _may_create_topics(body: Any) -> bool:
    return bool(body.topics and body.allow_auto_topic_creation)


def _asks_what_is_allowed(body: Any) -> bool:
    return bool(body.include_cluster_authorized_operations)


def _names_topics_configs(body: Any) -> bool:
    return any(resource.resource_type == _TOPIC_CONFIGS for resource in body.resources)


def _names_groups_configs(body: Any) -> bool:
    return any(resource.resource_type == _GROUP_CONFIGS for resource in body.resources)


def _names_other_configs(body: Any) -> bool:
    """Those of brokers: they are the cluster's."""
    others = (_TOPIC_CONFIGS, _GROUP_CONFIGS, _VIEWS)
    return any(resource.resource_type not in others for resource in body.resources)


def _names_views(body: Any) -> bool:
    """What brokers ask each other."""
    return any(resource.resource_type == _VIEWS for resource in body.resources)


_TOPIC_CONFIGS = 2
"""Kafka's code of a topic as the resource that configs belong to."""

_GROUP_CONFIGS = 32
"""Its code of a group."""

_VIEWS = 120
"""The code, not Kafka's, of what a broker tells of itself."""


# The partitions that requests name


def _produced(body: Any) -> Iterator[NamedPartition]:
    return ((topic.name, data.index) for topic in body.topic_data for data in topic.partition_data)


def _fetched(body: Any) -> Iterator[NamedPartition]:
    for topic in body.topics:
        name = topic.topic or topic.topic_id
        for wanted in topic.partitions:
            yield name, wanted.partition


def _indexed(body: Any) -> Iterator[NamedPartition]:
    return ((topic.name, wanted.partition_index) for topic in body.topics for wanted in topic.partitions)


def _of_epochs(body: Any) -> Iterator[NamedPartition]:
    return ((topic.topic, wanted.partition) for topic in body.topics for wanted in topic.partitions)


def _elected(body: Any) -> Iterator[NamedPartition]:
    return ((topic.topic, number) for topic in body.topic_partitions or () for number in topic.partitions)


def _moving(body: Any) -> Iterator[NamedPartition]:
    return ((topic.name, number) for topic in body.topics or () for number in topic.partition_indexes)


def _described_producers(body: Any) -> Iterator[NamedPartition]:
    return ((topic.name, number) for topic in body.topics for number in topic.partition_indexes)


def _marked(body: Any) -> Iterator[NamedPartition]:
    return (
        (topic.name, number)
        for marker in body.markers
        for topic in marker.topics
        for number in topic.partition_indexes
    )


def _of_quorum(body: Any) -> Iterator[NamedPartition]:
    return (
        (topic.topic_name, wanted.partition_index) for topic in body.topics for wanted in topic.partitions
    )


_ROWS = (
    # Produce 0-2 are advertised because librdkafka before 2.11.1 silently stops compressing
    # without them; they carry record formats that no log here holds, so the handler answers
    # every partition of such a request with UNSUPPORTED_VERSION.
    _api(
        ApiKey.PRODUCE, (0, 12), 9, "produce", _BROKER,
        _refuse(_WRITE_TRANSACTION, when=_is_transactional),
        _refuse(_topic(_Op.WRITE)),
        names=_produced,
    ),
    _api(
        ApiKey.FETCH, (4, 16), 12, "fetch", _BROKER,
        _refuse(_cluster(_Op.CLUSTER_ACTION), when=_from_follower),
        _refuse(_topic(_Op.READ), when=_from_consumer),
        names=_fetched,
    ),
    _api(
        ApiKey.LIST_OFFSETS, (1, 11), 6, "schemas.offsets", _BROKER,
        _refuse(_topic(_Op.DESCRIBE)),
        names=_indexed,
    ),
    _api(
        ApiKey.METADATA, (0, 13), 9, "schemas.metadata", _BROKER,
        _refuse(_topic(_Op.DESCRIBE), when=_names_topics),
        _filter(_topic(_Op.DESCRIBE), when=_names_no_topic),
        _refuse(_cluster(_Op.CREATE), _topic(_Op.CREATE), when=_may_create_topics),  # topics that do not exist
        _filter(_cluster(_Op.DESCRIBE), when=_asks_what_is_allowed),
    ),
    _api(ApiKey.API_VERSIONS, (0, 4), 3, "schemas.api_versions", _BROKER),
    # Version 0 would mean tokens without a request around them.
    _api(ApiKey.SASL_HANDSHAKE, (1, 1), 2, "schemas.sasl", _BROKER),
    _api(ApiKey.SASL_AUTHENTICATE, (0, 2), 2, "schemas.sasl", _BROKER),
    _api(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, (0, 0), 0, "schemas.scram_credentials", _BROKER,
        _refuse(_cluster(_Op.DESCRIBE)),
    ),
    _api(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS, (0, 0), 0, "schemas.scram_credentials", _CONTROLLER,
        _refuse(_cluster(_Op.ALTER)),
    ),
    _api(
        ApiKey.CREATE_TOPICS, (2, 7), 5, "schemas.topics", _CONTROLLER,
        _refuse(_cluster(_Op.CREATE), _topic(_Op.CREATE)),
        _filter(_topic(_Op.DESCRIBE_CONFIGS)),  # what became of the new topic's configs and counts
    ),
    _api(
        ApiKey.DELETE_TOPICS, (1, 6), 4, "schemas.topics", _CONTROLLER,
        _refuse(_cluster(_Op.DELETE), _topic(_Op.DELETE)),
        _filter(_cluster(_Op.DELETE), _topic(_Op.DESCRIBE)),  # whether a name exists, and an id's name
    ),
    _api(
        ApiKey.DELETE_RECORDS, (0, 2), 2, "schemas.delete_records", _BROKER,
        _refuse(_topic(_Op.DELETE)),
        names=_indexed,
    ),
    _api(
        ApiKey.DESCRIBE_LOG_DIRS, (1, 5), 2, "schemas.log_dirs", _BROKER,
        _refuse(_cluster(_Op.DESCRIBE)),
    ),
    _api(
        ApiKey.INIT_PRODUCER_ID, (0, 5), 2, "schemas.producers", _BROKER,
        _refuse(_WRITE_TRANSACTION, when=_is_transactional),
        _refuse(_cluster(_Op.IDEMPOTENT_WRITE), _topic(_Op.WRITE), when=_is_not_transactional),  # any topic
    ),
    _api(
        ApiKey.ADD_PARTITIONS_TO_TXN, (0, 5), 3, "schemas.transactions", _BROKER,
        _refuse(_cluster(_Op.CLUSTER_ACTION), when=_adds_for_others),
        _refuse(_WRITE_TRANSACTION, when=_adds_for_itself),
        _refuse(_topic(_Op.WRITE), when=_adds_for_itself),
    ),
    _api(
        ApiKey.ADD_OFFSETS_TO_TXN, (0, 4), 3, "schemas.transactions", _BROKER,
        _refuse(_WRITE_TRANSACTION),
        _refuse(_group(_Op.READ)),
    ),
    _api(ApiKey.END_TXN, (0, 5), 3, "schemas.transactions", _BROKER, _refuse(_WRITE_TRANSACTION)),
    _api(
        ApiKey.DESCRIBE_TRANSACTIONS, (0, 0), 0, "schemas.transactions", _BROKER,
        _refuse(_DESCRIBE_TRANSACTION),
        _filter(_topic(_Op.DESCRIBE)),
    ),
    _api(
        ApiKey.LIST_TRANSACTIONS, (0, 2), 0, "schemas.transactions", _BROKER,
        _filter(_DESCRIBE_TRANSACTION),
    ),
    _api(
        ApiKey.WRITE_TXN_MARKERS, (1, 2), 1, "schemas.transactions", _BROKER,
        _refuse(_cluster(_Op.ALTER), _cluster(_Op.CLUSTER_ACTION)),
        names=_marked,
    ),
    _api(
        ApiKey.OFFSET_FOR_LEADER_EPOCH, (2, 4), 4, "schemas.offsets", _BROKER,
        _refuse(_cluster(_Op.CLUSTER_ACTION), _topic(_Op.DESCRIBE)),
        names=_of_epochs,
    ),
    _api(
        ApiKey.DESCRIBE_CONFIGS, (1, 4), 4, "schemas.configs", _BROKER,
        _refuse(_topic(_Op.DESCRIBE_CONFIGS), when=_names_topics_configs),
        _refuse(_group(_Op.DESCRIBE_CONFIGS), when=_names_groups_configs),
        _refuse(_cluster(_Op.DESCRIBE_CONFIGS), when=_names_other_configs),
        _refuse(_cluster(_Op.CLUSTER_ACTION), when=_names_views),
    ),
    _api(
        ApiKey.CREATE_PARTITIONS, (0, 3), 2, "schemas.topics", _CONTROLLER,
        _refuse(_topic(_Op.ALTER)),
    ),
    _api(
        ApiKey.ALTER_CONFIGS, (0, 2), 2, "schemas.alter_configs", _CONTROLLER,
        _refuse(_topic(_Op.ALTER_CONFIGS), when=_names_topics_configs),
        _refuse(_group(_Op.ALTER_CONFIGS), when=_names_groups_configs),
        _refuse(_cluster(_Op.ALTER_CONFIGS), when=_names_other_configs),
    ),
    _api(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, (0, 1), 1, "schemas.incremental_alter_configs", _CONTROLLER,
        _refuse(_topic(_Op.ALTER_CONFIGS), when=_names_topics_configs),
        _refuse(_group(_Op.ALTER_CONFIGS), when=_names_groups_configs),
        _refuse(_cluster(_Op.ALTER_CONFIGS), when=_names_other_configs),
    ),
    _api(
        ApiKey.ELECT_LEADERS, (0, 2), 2, "schemas.elections", _CONTROLLER,
        _refuse(_cluster(_Op.ALTER)),
        names=_elected,
    ),
    _api(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS, (0, 1), 0, "schemas.reassignments", _CONTROLLER,
        _refuse(_cluster(_Op.ALTER)),
        names=_indexed,
    ),
    _api(
        ApiKey.LIST_PARTITION_REASSIGNMENTS, (0, 0), 0, "schemas.reassignments", _CONTROLLER,
        _refuse(_cluster(_Op.DESCRIBE)),
        names=_moving,
    ),
    _api(
        ApiKey.DESCRIBE_QUORUM, (0, 2), 0, "schemas.quorum", _QUORUM,
        _refuse(_cluster(_Op.DESCRIBE)),
        names=_of_quorum,
    ),
    _api(
        ApiKey.UPDATE_FEATURES, (0, 2), 0, "schemas.features", _CONTROLLER,
        _refuse(_cluster(_Op.ALTER)),
    ),
    _api(
        ApiKey.DESCRIBE_CLIENT_QUOTAS, (0, 1), 1, "schemas.client_quotas", _BROKER,
        _refuse(_cluster(_Op.DESCRIBE_CONFIGS)),
    ),
    _api(
        ApiKey.ALTER_CLIENT_QUOTAS, (0, 1), 1, "schemas.client_quotas", _CONTROLLER,
        _refuse(_cluster(_Op.ALTER_CONFIGS)),
    ),
    _api(
        ApiKey.UNREGISTER_BROKER, (0, 0), 0, "schemas.cluster", _CONTROLLER,
        _refuse(_cluster(_Op.ALTER)),
    ),
    _api(
        ApiKey.DESCRIBE_CLUSTER, (0, 2), 0, "schemas.cluster", _BROKER,
        _filter(_cluster(_Op.DESCRIBE), when=_asks_what_is_allowed),
    ),
    _api(
        ApiKey.DESCRIBE_PRODUCERS, (0, 0), 0, "schemas.producers", _BROKER,
        _refuse(_topic(_Op.READ)),
        names=_described_producers,
    ),
    _api(
        ApiKey.LIST_CONFIG_RESOURCES, (0, 1), 0, "schemas.configs", _BROKER,
        _refuse(_cluster(_Op.DESCRIBE_CONFIGS)),
    ),
    _api(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS, (0, 0), 0, "schemas.cluster", _BROKER,
        _refuse(_topic(_Op.DESCRIBE), when=_names_topics),
        _filter(_topic(_Op.DESCRIBE), when=_names_no_topic),
    ),
    _api(
        ApiKey.FIND_COORDINATOR, (0, 6), 3, "schemas.find_coordinator", _BROKER,
        _refuse(_group(_Op.DESCRIBE), when=_finds_group),
        _refuse(_DESCRIBE_TRANSACTION, when=_finds_other),
    ),
    _api(ApiKey.JOIN_GROUP, (0, 9), 6, "schemas.classic_groups", _BROKER, _refuse(_group(_Op.READ))),
    _api(ApiKey.HEARTBEAT, (0, 4), 4, "schemas.classic_groups", _BROKER, _refuse(_group(_Op.READ))),
    _api(ApiKey.LEAVE_GROUP, (0, 5), 4, "schemas.classic_groups", _BROKER, _refuse(_group(_Op.READ))),
    _api(ApiKey.SYNC_GROUP, (0, 5), 4, "schemas.classic_groups", _BROKER, _refuse(_group(_Op.READ))),
    _api(
        ApiKey.OFFSET_COMMIT, (2, 10), 8, "schemas.group_offsets", _BROKER,
        _refuse(_group(_Op.READ)),
        _refuse(_topic(_Op.READ)),
    ),
    _api(
        ApiKey.TXN_OFFSET_COMMIT, (0, 5), 3, "schemas.group_offsets", _BROKER,
        _refuse(_WRITE_TRANSACTION),
        _refuse(_group(_Op.READ)),
        _refuse(_topic(_Op.READ)),
    ),
    _api(
        ApiKey.OFFSET_FETCH, (1, 10), 6, "schemas.group_offsets", _BROKER,
        _refuse(_group(_Op.DESCRIBE)),
        _filter(_topic(_Op.DESCRIBE)),  # refused where the topic is named
    ),
    _api(
        ApiKey.OFFSET_DELETE, (0, 0), 1, "schemas.group_offsets", _BROKER,
        _refuse(_group(_Op.DELETE)),
        _refuse(_topic(_Op.READ)),
    ),
    _api(ApiKey.DESCRIBE_GROUPS, (0, 6), 5, "schemas.group_admin", _BROKER, _refuse(_group(_Op.DESCRIBE))),
    _api(
        ApiKey.LIST_GROUPS, (0, 5), 3, "schemas.group_admin", _BROKER,
        _filter(_cluster(_Op.DESCRIBE), _group(_Op.DESCRIBE)),
    ),
    _api(ApiKey.DELETE_GROUPS, (0, 2), 2, "schemas.group_admin", _BROKER, _refuse(_group(_Op.DELETE))),
    _api(
        ApiKey.CONSUMER_GROUP_HEARTBEAT, (0, 1), 0, "schemas.consumer_groups", _BROKER,
        _refuse(_group(_Op.READ)),
        _refuse(_topic(_Op.DESCRIBE), when=_subscribes_by_name),
        _filter(_topic(_Op.DESCRIBE)),  # of the topics that an expression matches
    ),
    _api(
        ApiKey.CONSUMER_GROUP_DESCRIBE, (0, 1), 0, "schemas.consumer_groups", _BROKER,
        _refuse(_group(_Op.DESCRIBE)),
        _filter(_topic(_Op.DESCRIBE)),  # a group that has one topic which its reader may not see is not told
    ),
    _api(ApiKey.DESCRIBE_ACLS, (1, 3), 2, "schemas.acls", _BROKER, _refuse(_cluster(_Op.DESCRIBE))),
    _api(ApiKey.CREATE_ACLS, (1, 3), 2, "schemas.acls", _CONTROLLER, _refuse(_cluster(_Op.ALTER))),
    _api(ApiKey.DELETE_ACLS, (1, 3), 2, "schemas.acls", _CONTROLLER, _refuse(_cluster(_Op.ALTER))),
)  # fmt: skip

APIS: Mapping[ApiKey, Api] = MappingProxyType({api.key: api for api in _ROWS})
assert len(APIS) == len(_ROWS), "an API has one row"

SUPPORTED: Mapping[ApiKey, range] = MappingProxyType({key: api.versions for key, api in APIS.items()})


def is_supported(api_key: int, api_version: int) -> bool:
    """Whether a broker serves this version of this API. Any two numbers may be asked."""
    versions = SUPPORTED.get(api_key)  # type: ignore[call-overload]  # an int finds its member
    return versions is not None and api_version in versions


def is_flexible(api_key: ApiKey, api_version: int) -> bool:
    """Whether this version uses compact lengths and tagged fields. The API must be one of `APIS`."""
    return api_version >= APIS[api_key].flexible_from


def api_name(api_key: int) -> str:
    """The name people know the API by, for logs; the number if there is no such API."""
    try:
        return ApiKey(api_key).name
    except ValueError:
        return f"API key {api_key}"
