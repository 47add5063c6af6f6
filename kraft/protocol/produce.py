"""Produce (0): record batches for partitions; for each an error, or the offset of the first record.

Record sets in a request are views of its frame and keep the frame alive. Versions 0 to 2, which carry record formats
older than batch v2, are decoded so that they can be refused partition by partition. From version 8 a refused batch can
name the records at fault (KIP-467); from version 10 the answer of a former leader can name the new one (KIP-951).
"""

from __future__ import annotations

from typing import ClassVar

from kraft.protocol.api import ApiKey
from kraft.protocol.leader_hints import LeaderIdAndEpoch, NodeEndpoint
from kraft.protocol.primitives import Buffer
from kraft.protocol.schema import (
    Message,
    array,
    binary,
    int16,
    int32,
    int64,
    message,
    sentence,
    string,
    struct,
)


@message
class PartitionProduceData(Message):
    """The record batches for one partition."""

    index: int = int32("0+")
    records: Buffer | None = binary("0+", nullable="0+", default=None, view=True)


@message
class TopicProduceData(Message):
    """The partitions of one topic to write to."""

    name: str = string("0+")
    partition_data: list[PartitionProduceData] = array(PartitionProduceData, "0+")


@message
class ProduceRequest(Message):
    """Produce (0). `acks` is 0, 1, or -1 for all of the ISR."""

    API_KEY: ClassVar[ApiKey] = ApiKey.PRODUCE

    transactional_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
    acks: int = int16("0+")
    timeout_ms: int = int32("0+")
    topic_data: list[TopicProduceData] = array(TopicProduceData, "0+")


@message
class BatchIndexAndErrorMessage(Message):
    """The fault of one record of a refused batch."""

    batch_index: int = int32("8+")
    batch_index_error_message: str | None = sentence("8+")


@message
class PartitionProduceResponse(Message):
    """`log_append_time_ms` is -1 unless the topic's timestamps are those of the append."""

    index: int = int32("0+")
    error_code: int = int16("0+")
    base_offset: int = int64("0+")
    log_append_time_ms: int = int64("2+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+", ignorable=True)
    error_message: str | None = sentence("8+", ignorable=True)
    current_leader: LeaderIdAndEpoch | None = struct(
        LeaderIdAndEpoch, "10+", tag=0, default=None, ignorable=True
    )


@message
class TopicProduceResponse(Message):
    """The partitions of one topic."""

    name: str = string("0+")
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse, "0+")


@message
class ProduceResponse(Message):
    """The answer to Produce (0); there is none to acks=0."""

    API_KEY: ClassVar[ApiKey] = ApiKey.PRODUCE

    responses: list[TopicProduceResponse] = array(TopicProduceResponse, "0+")
    throttle_time_ms: int = int32("1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0, ignorable=True)
