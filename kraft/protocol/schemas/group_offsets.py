"""OffsetCommit (8), OffsetFetch (9), TxnOffsetCommit (28) and OffsetDelete (47): the stored offsets of groups.

Topics go by name up to version 9 of the first two, by id from version 10 on (KIP-848). An OffsetFetch asks for one
group up to version 7, and for several from version 8 on (KIP-709); a null list of topics asks for all of them.
"""

from __future__ import annotations

from typing import ClassVar

from kraft.protocol.api import ApiKey
from kraft.protocol.schema import (
    INT32,
    Message,
    array,
    boolean,
    int16,
    int32,
    int64,
    message,
    string,
    uuid,
)

NO_RETENTION_MS = -1
"""The commit is kept as long as the broker's settings say."""
NO_GENERATION = -1
"""Neither a generation nor a member epoch: the sender is no member."""
NO_LEADER_EPOCH = -1
NO_OFFSET = -1
"""Nothing is committed for the partition."""


@message
class OffsetCommitRequestPartition(Message):
    partition_index: int = int32("0+")
    committed_offset: int = int64("0+")
    committed_leader_epoch: int = int32("6+", default=NO_LEADER_EPOCH, ignorable=True)
    committed_metadata: str | None = string("0+", nullable="0+")


@message
class OffsetCommitRequestTopic(Message):
    name: str = string("0-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition, "0+")


@message
class OffsetCommitRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.OFFSET_COMMIT

    group_id: str = string("0+")
    generation_id_or_member_epoch: int = int32("1+", default=NO_GENERATION, ignorable=True)
    member_id: str = string("1+", ignorable=True)
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("2-4", default=NO_RETENTION_MS, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic, "0+")


@message
class OffsetCommitResponsePartition(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@message
class OffsetCommitResponseTopic(Message):
    name: str = string("0-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition, "0+")


@message
class OffsetCommitResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.OFFSET_COMMIT

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic, "0+")


@message
class OffsetFetchRequestTopic(Message):
    """Of the one group that versions up to 7 ask for."""

    name: str = string("0-7")
    partition_indexes: list[int] = array(INT32, "0-7")


@message
class OffsetFetchRequestTopics(Message):
    name: str = string("8-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partition_indexes: list[int] = array(INT32, "8+")


@message
class OffsetFetchRequestGroup(Message):
    """`topics` None asks for all partitions that the group has offsets of."""

    group_id: str = string("8+")
    member_id: str | None = string("9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = int32("9+", default=NO_GENERATION, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, "8+", nullable="8+")


@message
class OffsetFetchRequest(Message):
    """`group_id` and `topics` up to version 7, `groups` from version 8 on."""

    API_KEY: ClassVar[ApiKey] = ApiKey.OFFSET_FETCH

    group_id: str = string("0-7")
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, "0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")


@message
class OffsetFetchResponsePartition(Message):
    partition_index: int = int32("0-7")
    committed_offset: int = int64("0-7")
    committed_leader_epoch: int = int32("5-7", default=NO_LEADER_EPOCH, ignorable=True)
    metadata: str | None = string("0-7", nullable="0-7")
    error_code: int = int16("0-7")


@message
class OffsetFetchResponseTopic(Message):
    name: str = string("0-7")
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, "0-7")


@message
class OffsetFetchResponsePartitions(Message):
    partition_index: int = int32("8+")
    committed_offset: int = int64("8+")
    committed_leader_epoch: int = int32("8+", default=NO_LEADER_EPOCH, ignorable=True)
    metadata: str | None = string("8+", nullable="8+")
    error_code: int = int16("8+")


@message
class OffsetFetchResponseTopics(Message):
    name: str = string("8-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, "8+")


@message
class OffsetFetchResponseGroup(Message):
    group_id: str = string("8+")
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, "8+")
    error_code: int = int16("8+")


@message
class OffsetFetchResponse(Message):
    """`topics` and `error_code` up to version 7, `groups` from version 8 on; version 1 has partitions' errors only."""

    API_KEY: ClassVar[ApiKey] = ApiKey.OFFSET_FETCH

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7")
    error_code: int = int16("2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")


@message
class TxnOffsetCommitRequestPartition(Message):
    partition_index: int = int32("0+")
    committed_offset: int = int64("0+")
    committed_leader_epoch: int = int32("2+", default=NO_LEADER_EPOCH, ignorable=True)
    committed_metadata: str | None = string("0+", nullable="0+")


@message
class TxnOffsetCommitRequestTopic(Message):
    name: str = string("0+")
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition, "0+")


@message
class TxnOffsetCommitRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.TXN_OFFSET_COMMIT

    transactional_id: str = string("0+")
    group_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    generation_id: int = int32("3+", default=NO_GENERATION)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic, "0+")


@message
class TxnOffsetCommitResponsePartition(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@message
class TxnOffsetCommitResponseTopic(Message):
    name: str = string("0+")
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition, "0+")


@message
class TxnOffsetCommitResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.TXN_OFFSET_COMMIT

    throttle_time_ms: int = int32("0+", ignorable=True)
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic, "0+")


@message
class OffsetDeleteRequestPartition(Message):
    partition_index: int = int32("0+")


@message
class OffsetDeleteRequestTopic(Message):
    name: str = string("0+")
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition, "0+")


@message
class OffsetDeleteRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.OFFSET_DELETE

    group_id: str = string("0+")
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic, "0+")


@message
class OffsetDeleteResponsePartition(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@message
class OffsetDeleteResponseTopic(Message):
    name: str = string("0+")
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition, "0+")


@message
class OffsetDeleteResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.OFFSET_DELETE

    error_code: int = int16("0+")
    throttle_time_ms: int = int32("0+", ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic, "0+")
