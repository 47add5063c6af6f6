"""The records of a group of KIP-848 in `__consumer_offsets`: Kafka's structures, by the type of their keys.

A group's shard reads with `decode` those whose type is in `CONSUMER_GROUP_RECORDS`, and hands them to
`ConsumerGroup.replay`; the group writes what it decides with `encode`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

from kraft.coordinator.record_schema import RecordSchema, type_of_key
from kraft.coordinator.shard import Record
from kraft.protocol.schema import INT32, STRING, Message, array, int8, int32, int64, message, string, uuid

Change: TypeAlias = tuple[Message, Message | None]
"""A key and its value; None deletes."""


@message
class ConsumerGroupMetadataKey(Message):
    group_id: str = string("3")


@message
class ConsumerGroupMetadataValue(Message):
    """`metadata_hash` is of the subscribed topics as they were when the epoch began (KIP-1101)."""

    epoch: int = int32("0+")
    metadata_hash: int = int64("0+", tag=0)


@message
class ConsumerGroupPartitionMetadataKey(Message):
    group_id: str = string("4")


@message
class RecordedPartitionRacks(Message):
    partition: int = int32("0+")
    racks: list[str] = array(STRING, "0+")


@message
class RecordedTopicMetadata(Message):
    topic_id: bytes = uuid("0+")
    topic_name: str = string("0+")
    num_partitions: int = int32("0+")
    partition_metadata: list[RecordedPartitionRacks] = array(RecordedPartitionRacks, "0+")


@message
class ConsumerGroupPartitionMetadataValue(Message):
    """Kafka wrote it before 4.1. Nothing uses what it tells; a tombstone ends it."""

    topics: list[RecordedTopicMetadata] = array(RecordedTopicMetadata, "0+")


@message
class ConsumerGroupMemberMetadataKey(Message):
    group_id: str = string("5")
    member_id: str = string("5")


@message
class ConsumerGroupMemberMetadataValue(Message):
    instance_id: str | None = string("0+", nullable="0+", default=None)
    rack_id: str | None = string("0+", nullable="0+", default=None)
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: list[str] = array(STRING, "0+")
    subscribed_topic_regex: str | None = string("0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = int32("0+", default=-1)
    server_assignor: str | None = string("0+", nullable="0+", default=None)


@message
class ConsumerGroupTargetAssignmentMetadataKey(Message):
    group_id: str = string("6")


@message
class ConsumerGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: int = int32("0+")
    assignment_timestamp_ms: int = int64("0+", tag=0)
    """Wall time."""


@message
class ConsumerGroupTargetAssignmentMemberKey(Message):
    group_id: str = string("7")
    member_id: str = string("7")


@message
class RecordedTopicPartitions(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[int] = array(INT32, "0+")


@message
class ConsumerGroupTargetAssignmentMemberValue(Message):
    topic_partitions: list[RecordedTopicPartitions] = array(RecordedTopicPartitions, "0+")


@message
class ConsumerGroupCurrentMemberAssignmentKey(Message):
    group_id: str = string("8")
    member_id: str = string("8")


@message
class ConsumerGroupCurrentMemberAssignmentValue(Message):
    """`state` is a `MemberState`."""

    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    assigned_partitions: list[RecordedTopicPartitions] = array(RecordedTopicPartitions, "0+")
    partitions_pending_revocation: list[RecordedTopicPartitions] = array(RecordedTopicPartitions, "0+")


@message
class ConsumerGroupRegularExpressionKey(Message):
    group_id: str = string("16")
    regular_expression: str = string("16")


@message
class ConsumerGroupRegularExpressionValue(Message):
    """The topics that the expression matched. `version` is of Kafka's metadata image: 0 here."""

    topics: list[str] = array(STRING, "0+")
    version: int = int64("0+")
    timestamp_ms: int = int64("0+")


class RecordFormat(NamedTuple):
    key: RecordSchema[Any]
    value: RecordSchema[Any]


def _format(number: int, key: type[Message], value: type[Message]) -> RecordFormat:
    return RecordFormat(
        RecordSchema(key, number, read=range(number, number + 1), flexible_from=None),
        RecordSchema(value, 0, read=range(1), flexible_from=0),
    )


_TABLE: Final[tuple[tuple[int, type[Message], type[Message]], ...]] = (
    (3, ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    (4, ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    (5, ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    (6, ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    (7, ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    (8, ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    (16, ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
)
CONSUMER_GROUP_RECORDS: Final = {number: _format(number, key, value) for number, key, value in _TABLE}
"""By the type of the key. Every key has a `group_id`."""
_BY_CLASS: Final = {key: CONSUMER_GROUP_RECORDS[number] for number, key, _ in _TABLE}


def encode(change: Change) -> Record:
    """Raises ProtocolError for a value that cannot be carried."""
    key, value = change
    of = _BY_CLASS[type(key)]
    return Record(of.key.encode(key), None if value is None else of.value.encode(value))


def decode(key: bytes, value: bytes | None) -> Change:
    """Of a key whose type is in the table. Raises ProtocolError for what is malformed or of a later version."""
    of = CONSUMER_GROUP_RECORDS[type_of_key(key)]
    return of.key.decode(key), None if value is None else of.value.decode(value)
