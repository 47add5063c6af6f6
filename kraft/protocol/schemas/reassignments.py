"""AlterPartitionReassignments (45) and ListPartitionReassignments (46): partitions that move (KIP-455)."""

from __future__ import annotations

from typing import ClassVar

from kraft.protocol.api import ApiKey
from kraft.protocol.schema import INT32, Message, array, boolean, int16, int32, message, sentence, string

TIMEOUT_DEFAULT_MS = 60_000


@message
class ReassignablePartition(Message):
    """`replicas` None cancels the reassignment under way."""

    partition_index: int = int32("0+")
    replicas: list[int] | None = array(INT32, "0+", nullable="0+", default=None)


@message
class ReassignableTopic(Message):
    name: str = string("0+")
    partitions: list[ReassignablePartition] = array(ReassignablePartition, "0+")


@message
class AlterPartitionReassignmentsRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.ALTER_PARTITION_REASSIGNMENTS

    timeout_ms: int = int32("0+", default=TIMEOUT_DEFAULT_MS)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic, "0+")


@message
class ReassignablePartitionResponse(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = sentence("0+")


@message
class ReassignableTopicResponse(Message):
    name: str = string("0+")
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse, "0+")


@message
class AlterPartitionReassignmentsResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.ALTER_PARTITION_REASSIGNMENTS

    throttle_time_ms: int = int32("0+")
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = sentence("0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse, "0+")


@message
class ListPartitionReassignmentsTopics(Message):
    name: str = string("0+")
    partition_indexes: list[int] = array(INT32, "0+")


@message
class ListPartitionReassignmentsRequest(Message):
    """`topics` None asks for all reassignments under way."""

    API_KEY: ClassVar[ApiKey] = ApiKey.LIST_PARTITION_REASSIGNMENTS

    timeout_ms: int = int32("0+", default=TIMEOUT_DEFAULT_MS)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, "0+", nullable="0+", default=None
    )


@message
class OngoingPartitionReassignment(Message):
    partition_index: int = int32("0+")
    replicas: list[int] = array(INT32, "0+")
    adding_replicas: list[int] = array(INT32, "0+")
    removing_replicas: list[int] = array(INT32, "0+")


@message
class OngoingTopicReassignment(Message):
    name: str = string("0+")
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment, "0+")


@message
class ListPartitionReassignmentsResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.LIST_PARTITION_REASSIGNMENTS

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = sentence("0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment, "0+")
