"""ListOffsets (2) and OffsetForLeaderEpoch (23): the offsets of a partition, as its leader knows them.

ListOffsets with `DEBUGGING_REPLICA_ID` is answered by any replica, with its own log end: tools so see each replica's
progress without a protocol of our own.
"""

from __future__ import annotations

from typing import ClassVar

from kraft.protocol.api import ApiKey
from kraft.protocol.schema import Message, array, int8, int16, int32, int64, message, string

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
"""Asks for the record with the largest timestamp (version 7, KIP-734)."""
EARLIEST_LOCAL_TIMESTAMP = -4
"""Asks for the first offset on the leader's own disk (version 8, KIP-405)."""
LATEST_TIERED_TIMESTAMP = -5
"""Asks for the last offset in tiered storage (version 9, KIP-1005)."""
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6
"""Asks for the first offset not yet in tiered storage (version 11, KIP-1023)."""

CONSUMER_REPLICA_ID = -1
DEBUGGING_REPLICA_ID = -2


@message
class ListOffsetsPartition(Message):
    partition_index: int = int32("0+")
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64("0+")


@message
class ListOffsetsTopic(Message):
    name: str = string("0+")
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition, "0+")


@message
class ListOffsetsRequest(Message):
    """A partition's `timestamp` is one of the constants above, or milliseconds since 1970."""

    API_KEY: ClassVar[ApiKey] = ApiKey.LIST_OFFSETS

    replica_id: int = int32("0+", default=CONSUMER_REPLICA_ID)
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic, "0+")
    timeout_ms: int = int32("10+", ignorable=True)


@message
class ListOffsetsPartitionResponse(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1, ignorable=True)


@message
class ListOffsetsTopicResponse(Message):
    name: str = string("0+")
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse, "0+")


@message
class ListOffsetsResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.LIST_OFFSETS

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse, "0+")


@message
class OffsetForLeaderPartition(Message):
    partition: int = int32("0+")
    current_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    leader_epoch: int = int32("0+")


@message
class OffsetForLeaderTopic(Message):
    topic: str = string("0+")
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition, "0+")


@message
class OffsetForLeaderEpochRequest(Message):
    """`replica_id` is a follower's broker id, or one of the two constants above."""

    API_KEY: ClassVar[ApiKey] = ApiKey.OFFSET_FOR_LEADER_EPOCH

    replica_id: int = int32("3+", default=DEBUGGING_REPLICA_ID, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic, "0+")


@message
class EpochEndOffset(Message):
    error_code: int = int16("0+")
    partition: int = int32("0+")
    leader_epoch: int = int32("1+", default=-1, ignorable=True)
    end_offset: int = int64("0+", default=-1)


@message
class OffsetForLeaderTopicResult(Message):
    topic: str = string("0+")
    partitions: list[EpochEndOffset] = array(EpochEndOffset, "0+")


@message
class OffsetForLeaderEpochResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.OFFSET_FOR_LEADER_EPOCH

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult, "0+")
