"""DescribeQuorum (55): the controller quorum's leader, voters and observers (KIP-595, KIP-836, KIP-853).

Clients ask for partition 0 of `CLUSTER_METADATA_TOPIC`; there is no other. Request and response have
structs of the same names in Kafka; those of the request begin with Describe here.
"""

from __future__ import annotations

from typing import ClassVar

from kraft.protocol.api import ApiKey
from kraft.protocol.schema import (
    Message,
    array,
    int16,
    int32,
    int64,
    message,
    sentence,
    string,
    uint16,
    uuid,
)

CLUSTER_METADATA_TOPIC = "__cluster_metadata"


@message
class DescribePartition(Message):
    partition_index: int = int32("0+")


@message
class DescribeTopic(Message):
    topic_name: str = string("0+")
    partitions: list[DescribePartition] = array(DescribePartition, "0+")


@message
class DescribeQuorumRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.DESCRIBE_QUORUM

    topics: list[DescribeTopic] = array(DescribeTopic, "0+")


@message
class ReplicaState(Message):
    """Timestamps are Unix times in ms; -1 where nothing is known."""

    replica_id: int = int32("0+")
    replica_directory_id: bytes = uuid("2+", ignorable=True)
    log_end_offset: int = int64("0+")
    last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)


@message
class PartitionData(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = sentence("2+", ignorable=True)
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    high_watermark: int = int64("0+")
    current_voters: list[ReplicaState] = array(ReplicaState, "0+")
    observers: list[ReplicaState] = array(ReplicaState, "0+")


@message
class TopicData(Message):
    topic_name: str = string("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


@message
class Listener(Message):
    name: str = string("2+")
    host: str = string("2+")
    port: int = uint16("2+")


@message
class Node(Message):
    """A voter's addresses."""

    node_id: int = int32("2+")
    listeners: list[Listener] = array(Listener, "2+")


@message
class DescribeQuorumResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.DESCRIBE_QUORUM

    error_code: int = int16("0+")
    error_message: str | None = sentence("2+", ignorable=True)
    topics: list[TopicData] = array(TopicData, "0+")
    nodes: list[Node] = array(Node, "2+", ignorable=True)
