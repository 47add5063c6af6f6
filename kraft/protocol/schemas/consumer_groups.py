"""ConsumerGroupHeartbeat (68) and ConsumerGroupDescribe (69): groups whose coordinator assigns (KIP-848)."""

from __future__ import annotations

from typing import ClassVar

from kraft.protocol.api import ApiKey
from kraft.protocol.schema import (
    INT32,
    STRING,
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

JOIN_GROUP_MEMBER_EPOCH = 0
LEAVE_GROUP_MEMBER_EPOCH = -1
LEAVE_GROUP_STATIC_MEMBER_EPOCH = -2
CONSUMER_GENERATED_MEMBER_ID_REQUIRED_VERSION = 1
AUTHORIZED_OPERATIONS_OMITTED = -(2**31)


@message
class HeartbeatTopicPartitions(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[int] = array(INT32, "0+")


@message
class ConsumerGroupHeartbeatRequest(Message):
    """None (-1 for the timeout) is what did not change since the member's last heartbeat."""

    API_KEY: ClassVar[ApiKey] = ApiKey.CONSUMER_GROUP_HEARTBEAT

    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    instance_id: str | None = string("0+", nullable="0+", default=None)
    rack_id: str | None = string("0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = int32("0+", default=-1)
    subscribed_topic_names: list[str] | None = array(STRING, "0+", nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string("0+", nullable="0+", default=None)
    topic_partitions: list[HeartbeatTopicPartitions] | None = array(
        HeartbeatTopicPartitions, "0+", nullable="0+", default=None
    )


@message
class HeartbeatAssignment(Message):
    topic_partitions: list[HeartbeatTopicPartitions] = array(HeartbeatTopicPartitions, "0+")


@message
class ConsumerGroupHeartbeatResponse(Message):
    """`assignment` None: as the member knows it."""

    API_KEY: ClassVar[ApiKey] = ApiKey.CONSUMER_GROUP_HEARTBEAT

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = sentence("0+")
    member_id: str | None = string("0+", nullable="0+", default=None)
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    assignment: HeartbeatAssignment | None = struct(HeartbeatAssignment, "0+", nullable="0+", default=None)


@message
class ConsumerGroupDescribeRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.CONSUMER_GROUP_DESCRIBE

    group_ids: list[str] = array(STRING, "0+")
    include_authorized_operations: bool = boolean("0+")


@message
class DescribedTopicPartitions(Message):
    topic_id: bytes = uuid("0+")
    topic_name: str = string("0+")
    partitions: list[int] = array(INT32, "0+")


@message
class DescribedAssignment(Message):
    topic_partitions: list[DescribedTopicPartitions] = array(DescribedTopicPartitions, "0+")


@message
class DescribedMember(Message):
    """`member_type`: 0 is the classic protocol, 1 the one of KIP-848, -1 is not known."""

    member_id: str = string("0+")
    instance_id: str | None = string("0+", nullable="0+", default=None)
    rack_id: str | None = string("0+", nullable="0+", default=None)
    member_epoch: int = int32("0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: list[str] = array(STRING, "0+")
    subscribed_topic_regex: str | None = string("0+", nullable="0+", default=None)
    assignment: DescribedAssignment = struct(DescribedAssignment, "0+")
    target_assignment: DescribedAssignment = struct(DescribedAssignment, "0+")
    member_type: int = int8("1+", default=-1, ignorable=True)


@message
class DescribedGroup(Message):
    error_code: int = int16("0+")
    error_message: str | None = sentence("0+")
    group_id: str = string("0+")
    group_state: str = string("0+")
    group_epoch: int = int32("0+")
    assignment_epoch: int = int32("0+")
    assignor_name: str = string("0+")
    members: list[DescribedMember] = array(DescribedMember, "0+")
    authorized_operations: int = int32("0+", default=AUTHORIZED_OPERATIONS_OMITTED)


@message
class ConsumerGroupDescribeResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.CONSUMER_GROUP_DESCRIBE

    throttle_time_ms: int = int32("0+")
    groups: list[DescribedGroup] = array(DescribedGroup, "0+")
