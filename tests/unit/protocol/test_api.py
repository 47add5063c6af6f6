"""The one table of served APIs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.index import api_key_map

from kraft.broker.handlers.broker_views import view_request
from kraft.protocol import SUPPORTED, ApiKey, UnsupportedVersion, api_name, decode_request, is_supported
from kraft.protocol.api import APIS, is_flexible
from kraft.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from kraft.protocol.messages import request_class, request_codec, response_class, response_codec
from kraft.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kraft.protocol.schema import Message
from kraft.protocol.schemas.configs import ConfigResourceType
from kraft.protocol.schemas.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kraft.protocol.schemas.elections import ElectLeadersRequest, TopicPartitions
from kraft.protocol.schemas.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kraft.protocol.schemas.producers import DescribeProducersRequest, DescribeProducersTopic
from kraft.protocol.schemas.quorum import DescribePartition, DescribeQuorumRequest, DescribeTopic
from kraft.protocol.schemas.reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)


def test_what_is_advertised() -> None:
    assert {key.name: (versions[0], versions[-1]) for key, versions in SUPPORTED.items()} == {
        "PRODUCE": (0, 12),
        "FETCH": (4, 16),
        "LIST_OFFSETS": (1, 11),
        "METADATA": (0, 13),
        "API_VERSIONS": (0, 4),
        "SASL_HANDSHAKE": (1, 1),
        "SASL_AUTHENTICATE": (0, 2),
        "DESCRIBE_USER_SCRAM_CREDENTIALS": (0, 0),
        "ALTER_USER_SCRAM_CREDENTIALS": (0, 0),
        "CREATE_TOPICS": (2, 7),
        "DELETE_TOPICS": (1, 6),
        "DELETE_RECORDS": (0, 2),
        "DESCRIBE_LOG_DIRS": (1, 5),
        "INIT_PRODUCER_ID": (0, 5),
        "ADD_PARTITIONS_TO_TXN": (0, 5),
        "ADD_OFFSETS_TO_TXN": (0, 4),
        "END_TXN": (0, 5),
        "WRITE_TXN_MARKERS": (1, 2),
        "DESCRIBE_TRANSACTIONS": (0, 0),
        "LIST_TRANSACTIONS": (0, 2),
        "OFFSET_FOR_LEADER_EPOCH": (2, 4),
        "DESCRIBE_CONFIGS": (1, 4),
        "CREATE_PARTITIONS": (0, 3),
        "ALTER_CONFIGS": (0, 2),
        "INCREMENTAL_ALTER_CONFIGS": (0, 1),
        "ELECT_LEADERS": (0, 2),
        "ALTER_PARTITION_REASSIGNMENTS": (0, 1),
        "LIST_PARTITION_REASSIGNMENTS": (0, 0),
        "DESCRIBE_QUORUM": (0, 2),
        "UPDATE_FEATURES": (0, 2),
        "DESCRIBE_CLIENT_QUOTAS": (0, 1),
        "ALTER_CLIENT_QUOTAS": (0, 1),
        "UNREGISTER_BROKER": (0, 0),
        "DESCRIBE_CLUSTER": (0, 2),
        "DESCRIBE_PRODUCERS": (0, 0),
        "LIST_CONFIG_RESOURCES": (0, 1),
        "DESCRIBE_TOPIC_PARTITIONS": (0, 0),
        "FIND_COORDINATOR": (0, 6),
        "JOIN_GROUP": (0, 9),
        "HEARTBEAT": (0, 4),
        "LEAVE_GROUP": (0, 5),
        "SYNC_GROUP": (0, 5),
        "OFFSET_COMMIT": (2, 10),
        "TXN_OFFSET_COMMIT": (0, 5),
        "OFFSET_FETCH": (1, 10),
        "OFFSET_DELETE": (0, 0),
        "DESCRIBE_GROUPS": (0, 6),
        "LIST_GROUPS": (0, 5),
        "DELETE_GROUPS": (0, 2),
        "CONSUMER_GROUP_HEARTBEAT": (0, 1),
        "CONSUMER_GROUP_DESCRIBE": (0, 1),
        "DESCRIBE_ACLS": (1, 3),
        "CREATE_ACLS": (1, 3),
        "DELETE_ACLS": (1, 3),
    }


def test_the_keys_are_kafkas() -> None:
    assert {(key.name, int(key)) for key in ApiKey} == {
        (name.upper(), key) for key, name in api_key_map.items()
    }


@pytest.mark.parametrize("api_key", APIS)
def test_flexible_versions_are_kafkas(api_key: ApiKey) -> None:
    for version in APIS[api_key].versions:
        if api_key != ApiKey.PRODUCE or version >= 3:
            assert is_flexible(api_key, version) == load_request_schema(int(api_key), version).__flexible__


@pytest.mark.parametrize("api_key", APIS)
def test_message_classes_know_their_api(api_key: ApiKey) -> None:
    for of, suffix in ((request_class(api_key), "Request"), (response_class(api_key), "Response")):
        assert of.API_KEY is api_key
        assert of.__name__ == APIS[api_key].stem + suffix


@pytest.mark.parametrize("api_key", SUPPORTED)
def test_versions_outside_the_range_have_no_codec(api_key: ApiKey) -> None:
    for version in (SUPPORTED[api_key][0] - 1, SUPPORTED[api_key][-1] + 1):
        assert not is_supported(api_key, version)
        for codec in (request_codec, response_codec):
            with pytest.raises(UnsupportedVersion):
                codec(api_key, version)


def test_apis_that_are_not_served() -> None:
    assert not is_supported(ApiKey.VOTE, 0)
    assert not is_supported(12345, 0)
    with pytest.raises(UnsupportedVersion, match="API key 52 version 0 is not supported here"):
        decode_request(ApiKey.VOTE, 0, b"")


def test_names_for_logs() -> None:
    assert api_name(10) == "FIND_COORDINATOR"
    assert api_name(999) == "API key 999"


def test_importing_the_protocol_loads_neither_messages_nor_the_network() -> None:
    code = (
        "import sys; import kraft.protocol; "
        "unwanted = ('asyncio', 'socket', 'threading', 'dataclasses', 'inspect', 'kraft.protocol.compiler', "
        "'kraft.protocol.fetch', 'kraft.protocol.schemas', 'partitions', 'kraft.broker'); "
        "print([name for name in unwanted if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# What an authorizer is asked

FOLLOWER, CONSUMER = SimpleNamespace(replica_id=2), SimpleNamespace(replica_id=-1)
TRANSACTIONAL, IDEMPOTENT = SimpleNamespace(transactional_id="x"), SimpleNamespace(transactional_id=None)
ALL, NAMED = (
    SimpleNamespace(
        topics=topics, allow_auto_topic_creation=False, include_cluster_authorized_operations=False
    )
    for topics in (None, ["t"])
)
CREATING = SimpleNamespace(
    topics=["t"], allow_auto_topic_creation=True, include_cluster_authorized_operations=True
)


def configs_of(*kinds: ConfigResourceType) -> SimpleNamespace:
    return SimpleNamespace(resources=[SimpleNamespace(resource_type=kind) for kind in kinds])


@pytest.mark.parametrize(
    ("api_key", "body", "asked"),
    [
        (ApiKey.PRODUCE, IDEMPOTENT, "refuse WRITE TOPIC"),
        (ApiKey.PRODUCE, TRANSACTIONAL, "refuse WRITE TRANSACTIONAL_ID, refuse WRITE TOPIC"),
        (ApiKey.FETCH, FOLLOWER, "refuse CLUSTER_ACTION CLUSTER"),
        (ApiKey.FETCH, CONSUMER, "refuse READ TOPIC"),
        (ApiKey.LIST_OFFSETS, CONSUMER, "refuse DESCRIBE TOPIC"),
        (ApiKey.METADATA, ALL, "filter DESCRIBE TOPIC"),
        (ApiKey.METADATA, NAMED, "refuse DESCRIBE TOPIC"),
        (
            ApiKey.METADATA,
            CREATING,
            "refuse DESCRIBE TOPIC, refuse CREATE CLUSTER or CREATE TOPIC, filter DESCRIBE CLUSTER",
        ),
        (ApiKey.API_VERSIONS, None, ""),
        (ApiKey.CREATE_TOPICS, None, "refuse CREATE CLUSTER or CREATE TOPIC, filter DESCRIBE_CONFIGS TOPIC"),
        (
            ApiKey.DELETE_TOPICS,
            None,
            "refuse DELETE CLUSTER or DELETE TOPIC, filter DELETE CLUSTER or DESCRIBE TOPIC",
        ),
        (ApiKey.DELETE_RECORDS, None, "refuse DELETE TOPIC"),
        (ApiKey.DESCRIBE_LOG_DIRS, None, "refuse DESCRIBE CLUSTER"),
        (ApiKey.INIT_PRODUCER_ID, TRANSACTIONAL, "refuse WRITE TRANSACTIONAL_ID"),
        (ApiKey.INIT_PRODUCER_ID, IDEMPOTENT, "refuse IDEMPOTENT_WRITE CLUSTER or WRITE TOPIC"),
        (ApiKey.WRITE_TXN_MARKERS, None, "refuse ALTER CLUSTER or CLUSTER_ACTION CLUSTER"),
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, FOLLOWER, "refuse CLUSTER_ACTION CLUSTER or DESCRIBE TOPIC"),
        (ApiKey.DESCRIBE_CONFIGS, configs_of(ConfigResourceType.TOPIC), "refuse DESCRIBE_CONFIGS TOPIC"),
        (ApiKey.DESCRIBE_CONFIGS, configs_of(ConfigResourceType.BROKER), "refuse DESCRIBE_CONFIGS CLUSTER"),
        (ApiKey.DESCRIBE_CONFIGS, configs_of(ConfigResourceType.GROUP), "refuse DESCRIBE_CONFIGS GROUP"),
        (
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            configs_of(ConfigResourceType.GROUP),
            "refuse ALTER_CONFIGS GROUP",
        ),
        (
            ApiKey.ALTER_CONFIGS,
            configs_of(ConfigResourceType.GROUP, ConfigResourceType.BROKER),
            "refuse ALTER_CONFIGS GROUP, refuse ALTER_CONFIGS CLUSTER",
        ),
        (ApiKey.CREATE_PARTITIONS, None, "refuse ALTER TOPIC"),
        (
            ApiKey.ALTER_CONFIGS,
            configs_of(ConfigResourceType.BROKER, ConfigResourceType.TOPIC),
            "refuse ALTER_CONFIGS TOPIC, refuse ALTER_CONFIGS CLUSTER",
        ),
        (
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            configs_of(ConfigResourceType.TOPIC),
            "refuse ALTER_CONFIGS TOPIC",
        ),
        (ApiKey.ELECT_LEADERS, None, "refuse ALTER CLUSTER"),
        (ApiKey.ALTER_PARTITION_REASSIGNMENTS, None, "refuse ALTER CLUSTER"),
        (ApiKey.LIST_PARTITION_REASSIGNMENTS, None, "refuse DESCRIBE CLUSTER"),
        (ApiKey.DESCRIBE_QUORUM, None, "refuse DESCRIBE CLUSTER"),
        (ApiKey.UPDATE_FEATURES, None, "refuse ALTER CLUSTER"),
        (ApiKey.UNREGISTER_BROKER, None, "refuse ALTER CLUSTER"),
        (
            ApiKey.DESCRIBE_CONFIGS,
            configs_of(ConfigResourceType.BROKER_LOGGER),
            "refuse DESCRIBE_CONFIGS CLUSTER",
        ),
        (ApiKey.DESCRIBE_CONFIGS, view_request("summary", {}), "refuse CLUSTER_ACTION CLUSTER"),
        (
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            configs_of(ConfigResourceType.BROKER_LOGGER),
            "refuse ALTER_CONFIGS CLUSTER",
        ),
        (ApiKey.DESCRIBE_PRODUCERS, None, "refuse READ TOPIC"),
        (ApiKey.LIST_CONFIG_RESOURCES, None, "refuse DESCRIBE_CONFIGS CLUSTER"),
        (ApiKey.DESCRIBE_CLUSTER, NAMED, ""),
        (ApiKey.DESCRIBE_CLUSTER, CREATING, "filter DESCRIBE CLUSTER"),
        (ApiKey.DESCRIBE_ACLS, None, "refuse DESCRIBE CLUSTER"),
        (ApiKey.CREATE_ACLS, None, "refuse ALTER CLUSTER"),
        (ApiKey.DELETE_ACLS, None, "refuse ALTER CLUSTER"),
        (ApiKey.DESCRIBE_TOPIC_PARTITIONS, ALL, "filter DESCRIBE TOPIC"),
        (ApiKey.DESCRIBE_TOPIC_PARTITIONS, NAMED, "refuse DESCRIBE TOPIC"),
    ],
)
def test_what_an_authorizer_is_asked(api_key: ApiKey, body: Any, asked: str) -> None:
    """Kafka's own table of ACLs, by API."""
    questions = [
        f"{permission.denial.value} "
        + " or ".join(f"{right.operation.name} {right.resource.name}" for right in permission.rights)
        for permission in APIS[api_key].permissions
        if permission.when is None or permission.when(body)
    ]
    assert ", ".join(questions) == asked


def test_every_api_but_the_first_of_a_connection_asks_for_something() -> None:
    unasked = [ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE]
    assert [key for key, api in APIS.items() if not api.permissions] == unasked


# The partitions that requests name


def two_topics(topic: Callable[[str, list[int]], Any]) -> list[Any]:
    return [topic("t", [1, 0]), topic("u", [2])]


@pytest.mark.parametrize(
    "body",
    [
        ProduceRequest(
            topic_data=two_topics(lambda t, ns: TopicProduceData(t, [PartitionProduceData(n) for n in ns]))
        ),
        FetchRequest(
            topics=two_topics(lambda t, ns: FetchTopic(t, partitions=[FetchPartition(n) for n in ns]))
        ),
        ListOffsetsRequest(
            topics=two_topics(lambda t, ns: ListOffsetsTopic(t, [ListOffsetsPartition(n) for n in ns]))
        ),
        OffsetForLeaderEpochRequest(
            topics=two_topics(
                lambda t, ns: OffsetForLeaderTopic(t, [OffsetForLeaderPartition(partition=n) for n in ns])
            )
        ),
        DeleteRecordsRequest(
            topics=two_topics(lambda t, ns: DeleteRecordsTopic(t, [DeleteRecordsPartition(n) for n in ns]))
        ),
        ElectLeadersRequest(topic_partitions=two_topics(TopicPartitions)),
        DescribeProducersRequest(topics=two_topics(DescribeProducersTopic)),
        AlterPartitionReassignmentsRequest(
            topics=two_topics(lambda t, ns: ReassignableTopic(t, [ReassignablePartition(n) for n in ns]))
        ),
        ListPartitionReassignmentsRequest(topics=two_topics(ListPartitionReassignmentsTopics)),
        DescribeQuorumRequest(
            topics=two_topics(lambda t, ns: DescribeTopic(t, [DescribePartition(n) for n in ns]))
        ),
    ],
    ids=lambda body: type(body).__name__,
)
def test_the_partitions_that_a_request_names(body: Message) -> None:
    partitions = APIS[body.API_KEY].partitions
    assert partitions is not None
    assert list(partitions(body)) == [("t", 1), ("t", 0), ("u", 2)]


def test_a_fetch_names_topics_by_their_ids() -> None:
    topic = FetchTopic(topic_id=b"i" * 16, partitions=[FetchPartition(3)])
    partitions = APIS[ApiKey.FETCH].partitions
    assert partitions is not None
    assert list(partitions(FetchRequest(topics=[topic]))) == [(b"i" * 16, 3)]


@pytest.mark.parametrize(
    "body", [ElectLeadersRequest(topic_partitions=None), ListPartitionReassignmentsRequest(topics=None)]
)
def test_who_asks_for_all_names_none(body: Message) -> None:
    partitions = APIS[body.API_KEY].partitions
    assert partitions is not None
    assert list(partitions(body)) == []
