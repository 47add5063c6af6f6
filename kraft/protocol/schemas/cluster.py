"""The cluster for admin clients: DescribeCluster (60), UnregisterBroker (64), DescribeTopicPartitions (75).

DescribeTopicPartitions (KIP-966) answers a page of partitions at a time: `next_cursor` names the start of the next
page.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

from kraft.protocol.api import ApiKey
from kraft.protocol.schema import (
    INT32,
    Message,
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    sentence,
    string,
    struct,
    uuid,
)
from kraft.protocol.schemas.metadata import UNKNOWN_OPERATIONS


class EndpointType(IntEnum):
    """The nodes that DescribeCluster lists (KIP-919)."""

    BROKER = 1
    CONTROLLER = 2


@message
class DescribeClusterRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.DESCRIBE_CLUSTER

    include_cluster_authorized_operations: bool = boolean("0+")
    endpoint_type: int = int8("1+", default=EndpointType.BROKER.value)
    include_fenced_brokers: bool = boolean("2+")


@message
class DescribeClusterBroker(Message):
    broker_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("0+", nullable="0+", default=None)
    is_fenced: bool = boolean("2+", ignorable=True)


@message
class DescribeClusterResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.DESCRIBE_CLUSTER

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = sentence("0+")
    endpoint_type: int = int8("1+", default=EndpointType.BROKER.value)
    cluster_id: str = string("0+")
    controller_id: int = int32("0+", default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker, "0+")
    cluster_authorized_operations: int = int32("0+", default=UNKNOWN_OPERATIONS)


@message
class UnregisterBrokerRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.UNREGISTER_BROKER

    broker_id: int = int32("0+")


@message
class UnregisterBrokerResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.UNREGISTER_BROKER

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = sentence("0+")


@message
class Cursor(Message):
    topic_name: str = string("0+")
    partition_index: int = int32("0+")


@message
class TopicRequest(Message):
    name: str = string("0+")


@message
class DescribeTopicPartitionsRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.DESCRIBE_TOPIC_PARTITIONS

    topics: list[TopicRequest] = array(TopicRequest, "0+")
    response_partition_limit: int = int32("0+", default=2000)
    cursor: Cursor | None = struct(Cursor, "0+", nullable="0+", default=None)


@message
class DescribeTopicPartitionsResponsePartition(Message):
    error_code: int = int16("0+")
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+", default=-1, ignorable=True)
    replica_nodes: list[int] = array(INT32, "0+")
    isr_nodes: list[int] = array(INT32, "0+")
    eligible_leader_replicas: list[int] | None = array(INT32, "0+", nullable="0+", default=None)
    last_known_elr: list[int] | None = array(INT32, "0+", nullable="0+", default=None)
    offline_replicas: list[int] = array(INT32, "0+", ignorable=True)


@message
class DescribeTopicPartitionsResponseTopic(Message):
    error_code: int = int16("0+")
    name: str | None = string("0+", nullable="0+")
    topic_id: bytes = uuid("0+", ignorable=True)
    is_internal: bool = boolean("0+", ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition, "0+"
    )
    topic_authorized_operations: int = int32("0+", default=UNKNOWN_OPERATIONS)


@message
class DescribeTopicPartitionsResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.DESCRIBE_TOPIC_PARTITIONS

    throttle_time_ms: int = int32("0+", ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic, "0+")
    next_cursor: Cursor | None = struct(Cursor, "0+", nullable="0+", default=None)
