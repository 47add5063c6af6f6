"""Which APIs a broker serves, and in which versions: the one table that everything else reads.

`SUPPORTED` is what ApiVersions answers; a handler registry is checked against it, and the codec
finds an API's message classes through `APIS`. A range is widened here, and nowhere else, when the
new version is served in full. Every other key of the protocol has a name so that logs can say what
a client asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple


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


class Api(NamedTuple):
    """One served API.

    `versions` is the advertised range. From `flexible_from` on, bodies use compact lengths and
    tagged fields, and so do the headers (except where `headers` says otherwise). `module` holds
    the classes `<stem>Request` and `<stem>Response`; it is imported on first use.
    """

    versions: range
    flexible_from: int
    module: str
    stem: str


def _versions(first: int, last: int) -> range:
    return range(first, last + 1)


APIS: Mapping[ApiKey, Api] = MappingProxyType(
    {
        # Produce 0-2 are advertised because librdkafka before 2.11.1 silently stops compressing
        # without them; they carry record formats that no log here holds, so the handler answers
        # every partition of such a request with UNSUPPORTED_VERSION.
        ApiKey.PRODUCE: Api(_versions(0, 12), 9, "produce", "Produce"),
        ApiKey.FETCH: Api(_versions(4, 16), 12, "fetch", "Fetch"),
        ApiKey.LIST_OFFSETS: Api(_versions(1, 11), 6, "schemas.offsets", "ListOffsets"),
        ApiKey.METADATA: Api(_versions(0, 13), 9, "schemas.metadata", "Metadata"),
        ApiKey.API_VERSIONS: Api(_versions(0, 4), 3, "schemas.api_versions", "ApiVersions"),
        ApiKey.CREATE_TOPICS: Api(_versions(2, 7), 5, "schemas.topics", "CreateTopics"),
        ApiKey.DELETE_TOPICS: Api(_versions(1, 6), 4, "schemas.topics", "DeleteTopics"),
        ApiKey.DELETE_RECORDS: Api(_versions(0, 2), 2, "schemas.delete_records", "DeleteRecords"),
        ApiKey.INIT_PRODUCER_ID: Api(_versions(0, 5), 2, "schemas.producers", "InitProducerId"),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: Api(_versions(2, 4), 4, "schemas.offsets", "OffsetForLeaderEpoch"),
        ApiKey.DESCRIBE_CONFIGS: Api(_versions(1, 4), 4, "schemas.configs", "DescribeConfigs"),
        ApiKey.CREATE_PARTITIONS: Api(_versions(0, 3), 2, "schemas.topics", "CreatePartitions"),
        ApiKey.ALTER_CONFIGS: Api(_versions(0, 2), 2, "schemas.alter_configs", "AlterConfigs"),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: Api(
            _versions(0, 1), 1, "schemas.incremental_alter_configs", "IncrementalAlterConfigs"
        ),
        ApiKey.ELECT_LEADERS: Api(_versions(0, 2), 2, "schemas.elections", "ElectLeaders"),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: Api(
            _versions(0, 1), 0, "schemas.reassignments", "AlterPartitionReassignments"
        ),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: Api(
            _versions(0, 0), 0, "schemas.reassignments", "ListPartitionReassignments"
        ),
        ApiKey.DESCRIBE_QUORUM: Api(_versions(0, 2), 0, "schemas.quorum", "DescribeQuorum"),
        ApiKey.UPDATE_FEATURES: Api(_versions(0, 2), 0, "schemas.features", "UpdateFeatures"),
        ApiKey.UNREGISTER_BROKER: Api(_versions(0, 0), 0, "schemas.cluster", "UnregisterBroker"),
        ApiKey.DESCRIBE_CLUSTER: Api(_versions(0, 2), 0, "schemas.cluster", "DescribeCluster"),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: Api(
            _versions(0, 0), 0, "schemas.cluster", "DescribeTopicPartitions"
        ),
    }
)

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
