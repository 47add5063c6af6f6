"""Metadata (3): the brokers, and the leader and replicas of each partition.

In version 0 an empty list of topics asks for all of them, from version 1 on null does. Topic ids
are sent from version 10 (KIP-516) and may be asked for from version 12.
"""

from __future__ import annotations

from typing import ClassVar

from kraft.protocol.api import ApiKey
from kraft.protocol.schema import INT32, Message, array, boolean, int16, int32, message, string, uuid

UNKNOWN_OPERATIONS = -(2**31)
"""Authorized operations that were not asked for, or are unknown."""


@message
class MetadataRequestTopic(Message):
    topic_id: bytes = uuid("10+", ignorable=True)
    name: str | None = string("0+", nullable="10+")


@message
class MetadataRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.METADATA

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, "0+", nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


@message
class MetadataResponseBroker(Message):
    node_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("1+", nullable="1+", default=None, ignorable=True)


@message
class MetadataResponsePartition(Message):
    error_code: int = int16("0+")
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("7+", default=-1, ignorable=True)
    replica_nodes: list[int] = array(INT32, "0+")
    isr_nodes: list[int] = array(INT32, "0+")
    offline_replicas: list[int] = array(INT32, "5+", ignorable=True)


@message
class MetadataResponseTopic(Message):
    error_code: int = int16("0+")
    name: str | None = string("0+", nullable="12+")
    topic_id: bytes = uuid("10+", ignorable=True)
    is_internal: bool = boolean("1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition, "0+")
    topic_authorized_operations: int = int32("8+", default=UNKNOWN_OPERATIONS)


@message
class MetadataResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.METADATA

    throttle_time_ms: int = int32("3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker, "0+")
    cluster_id: str | None = string("2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic, "0+")
    cluster_authorized_operations: int = int32("8-10", default=UNKNOWN_OPERATIONS)
    error_code: int = int16("13+", ignorable=True)
