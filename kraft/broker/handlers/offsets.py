"""ListOffsets (2) and OffsetForLeaderEpoch (23): what a leader knows of its offsets and epochs.

A debugging client (replica id -2) may ask any replica where its log ends, whoever leads; that is how
tools see each replica's log end offset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.offsets import (
    CONSUMER_REPLICA_ID,
    DEBUGGING_REPLICA_ID,
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from partitions.errors import OffsetNotAvailable, PartitionError
from partitions.log.errors import LogError
from partitions.topic_partition import TopicPartition

READ_COMMITTED = 1
"""The isolation level of a client to which the log ends at the last stable offset."""
_TIERED = (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP)
_FIRST_VERSION_OF: Mapping[int, int] = {
    LATEST_TIMESTAMP: 1,
    EARLIEST_TIMESTAMP: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
"""What a negative timestamp means, since when."""
_FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE = 5


def handle_list_offsets(
    services: BrokerServices, request: Request[ListOffsetsRequest]
) -> ListOffsetsResponse:
    """Answers ListOffsets."""
    body, version = request.body, request.version
    named = Counter(
        TopicPartition(topic.name, wanted.partition_index)
        for topic in body.topics
        for wanted in topic.partitions
    )

    def answer(key: TopicPartition, wanted: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        if named[key] > 1:
            # As in Kafka: whoever reads the answers tells them apart by their partitions alone.
            return ListOffsetsPartitionResponse(
                partition_index=key.partition, error_code=ErrorCode.INVALID_REQUEST
            )
        return _list(services, key, wanted, body, version)

    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    answer(TopicPartition(topic.name, wanted.partition_index), wanted)
                    for wanted in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


def _is_known(timestamp: int, version: int) -> bool:
    first = _FIRST_VERSION_OF.get(timestamp)
    return first is not None and version >= first


def _list(
    services: BrokerServices,
    key: TopicPartition,
    wanted: ListOffsetsPartition,
    body: ListOffsetsRequest,
    version: int,
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=key.partition)
    try:
        partition = services.replicas.partition(key)
        if body.replica_id == DEBUGGING_REPLICA_ID and wanted.timestamp == LATEST_TIMESTAMP:
            answer.offset = partition.log_end_offset
            answer.leader_epoch = partition.leader_epoch
            return answer
        if wanted.timestamp < 0 and not _is_known(wanted.timestamp, version):
            answer.error_code = ErrorCode.UNSUPPORTED_VERSION
            return answer
        if wanted.timestamp in _TIERED:
            partition.check_epoch(wanted.current_leader_epoch)
            return answer  # nothing is tiered
        found = partition.list_offset(
            wanted.timestamp,
            for_client=body.replica_id == CONSUMER_REPLICA_ID,
            current_leader_epoch=wanted.current_leader_epoch,
            read_committed=body.isolation_level == READ_COMMITTED,
        )
    except OffsetNotAvailable:
        is_told = version >= _FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE
        # Older clients know no such error, and take this one for what it is: ask again soon.
        answer.error_code = ErrorCode.OFFSET_NOT_AVAILABLE if is_told else ErrorCode.LEADER_NOT_AVAILABLE
        return answer
    except (PartitionError, LogError) as error:
        answer.error_code = ErrorCode[error.code]
        return answer
    if found is not None:
        answer.timestamp, answer.offset, answer.leader_epoch = found
    return answer


def handle_offset_for_leader_epoch(
    services: BrokerServices, request: Request[OffsetForLeaderEpochRequest]
) -> OffsetForLeaderEpochResponse:
    """Answers OffsetForLeaderEpoch (KIP-320)."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    _epoch_end(services, TopicPartition(topic.topic, wanted.partition), wanted)
                    for wanted in topic.partitions
                ],
            )
            for topic in request.body.topics
        ]
    )


def _epoch_end(
    services: BrokerServices, key: TopicPartition, wanted: OffsetForLeaderPartition
) -> EpochEndOffset:
    answer = EpochEndOffset(partition=key.partition)
    try:
        partition = services.replicas.partition(key)
        answer.leader_epoch, answer.end_offset = partition.end_offset_for_epoch(
            wanted.leader_epoch, current_leader_epoch=wanted.current_leader_epoch
        )
    except (PartitionError, LogError) as error:
        answer.error_code = ErrorCode[error.code]
    return answer
