"""Fetch (1), as consumers and followers send it, and its answer, whose record sets are not copied either way.

A follower's id stands in `replica_id` up to version 14 and in a tagged field with its broker epoch from 15 on
(KIP-903); here both are plain fields in every version. Topics have names up to version 12 and ids from 13 on (KIP-516).
Sessions and forgotten topics are KIP-227's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from kraft.protocol.api import ApiKey
from kraft.protocol.leader_hints import LeaderIdAndEpoch, NodeEndpoint
from kraft.protocol.primitives import Buffer, Slice
from kraft.protocol.schema import (
    INT32,
    Message,
    array,
    binary,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
    uuid,
)


@message
class FetchPartition(Message):
    """The offset to read from in one partition, and the epochs that the reader knows (-1: none)."""

    partition: int = int32("0+")
    current_leader_epoch: int = int32("9+", default=-1, ignorable=True)
    fetch_offset: int = int64("0+")
    last_fetched_epoch: int = int32("12+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    partition_max_bytes: int = int32("0+")


@message
class FetchTopic(Message):
    """The partitions of one topic, named by `topic` up to version 12, by `topic_id` from 13 on."""

    topic: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition, "0+")


@message
class ForgottenTopic(Message):
    """Partitions that leave the fetch session."""

    topic: str = string("7-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partitions: list[int] = array(INT32, "7+")


@message
class FetchRequest(Message):
    """Fetch (1). `replica_id` is -1 for a consumer; `replica_epoch` is a follower's broker epoch."""

    API_KEY: ClassVar[ApiKey] = ApiKey.FETCH

    cluster_id: str | None = string("12+", nullable="12+", default=None, tag=0, ignorable=True)
    replica_id: int = int32("0+", default=-1, tag=1, tagged="15+")
    replica_epoch: int = int64("15+", default=-1, tag=1, ignorable=True)
    max_wait_ms: int = int32("0+")
    min_bytes: int = int32("0+")
    max_bytes: int = int32("3+", default=0x7FFFFFFF, ignorable=True)
    isolation_level: int = int8("4+", ignorable=True)
    session_id: int = int32("7+", ignorable=True)
    session_epoch: int = int32("7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic, "0+")
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+", ignorable=True)
    rack_id: str = string("11+", ignorable=True)


@message
class EpochEndOffset(Message):
    """The point where the fetcher's log departs from the leader's: the largest epoch up to it, and its end."""

    epoch: int = int32("12+", default=-1)
    end_offset: int = int64("12+", default=-1)


@message
class SnapshotId(Message):
    """The snapshot to fetch instead, from a log whose start has passed the requested offset."""

    end_offset: int = int64("12+", default=-1)
    epoch: int = int32("12+", default=-1)


@message
class AbortedTransaction(Message):
    """Readers skip this producer's records from this offset to the next abort marker."""

    producer_id: int = int64("4+")
    first_offset: int = int64("4+")


@message
class PartitionData(Message):
    """One partition's records, or why there are none.

    `records` is None, bytes, or slices of files in order; decoded, it is None or a memoryview. Slices must not change
    their length once they are encoded. `diverging_epoch`, `current_leader` and `snapshot_id` are None when the answer
    lacks them.
    """

    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    high_watermark: int = int64("0+")
    last_stable_offset: int = int64("4+", default=-1)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset | None = struct(EpochEndOffset, "12+", tag=0, default=None)
    current_leader: LeaderIdAndEpoch | None = struct(
        LeaderIdAndEpoch, "12+", tag=1, default=None, ignorable=True
    )
    snapshot_id: SnapshotId | None = struct(SnapshotId, "12+", tag=2, default=None)
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, "4+", nullable="4+", default=None
    )
    preferred_read_replica: int = int32("11+", default=-1)
    records: Buffer | Sequence[Slice] | None = binary("0+", nullable="0+", view=True)


@message
class FetchableTopicResponse(Message):
    """The partitions of one topic, named by `topic` up to version 12, by `topic_id` from 13 on."""

    topic: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partitions: list[PartitionData] = array(PartitionData, "0+")


@message
class FetchResponse(Message):
    """The answer to Fetch (1)."""

    API_KEY: ClassVar[ApiKey] = ApiKey.FETCH

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("7+", ignorable=True)
    session_id: int = int32("7+", ignorable=True)
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0, ignorable=True)
