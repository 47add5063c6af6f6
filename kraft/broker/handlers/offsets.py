"""ListOffsets (2) and OffsetForLeaderEpoch (23): what a leader knows of its offsets and epochs.

A debugging client (replica id -2) may ask any replica where its log ends, whoever leads; that is how
tools see each replica's log end offset. Lookups by time open batches on the event loop, within a budget each and
one for the request (`partitions.lookup_budget`); other requests get their turn between them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterator, Mapping
from typing import Final

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
from partitions.lookup_budget import LOOKUP_COST_BYTES, LookupBudget
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
REQUEST_COST_BYTES: Final = 1024 * 1024 * 1024
"""What the lookups of one request may spend in all: a thousand partitions may have a batch of 1 MiB opened each."""
STEP_COST_BYTES: Final = 8 * 1024 * 1024
"""What is spent before others get their turn, but for the lookup that goes beyond it."""
PARTITION_COST_BYTES: Final = 8 * 1024
"""What a partition costs that has no batch opened."""


def handle_list_offsets(
    services: BrokerServices, request: Request[ListOffsetsRequest]
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    """Answers ListOffsets; at once, unless that would hold up others for long."""
    response = ListOffsetsResponse()
    steps = _list_in_steps(services, request, response)
    for _ in steps:
        return _go_on(steps, response)
    return response


async def _go_on(steps: Iterator[None], response: ListOffsetsResponse) -> ListOffsetsResponse:
    await asyncio.sleep(0)
    for _ in steps:
        await asyncio.sleep(0)
    return response


def _list_in_steps(
    services: BrokerServices, request: Request[ListOffsetsRequest], response: ListOffsetsResponse
) -> Iterator[None]:
    """Fills the response, and stops where others should get their turn."""
    body = request.body
    named = Counter(
        TopicPartition(topic.name, wanted.partition_index)
        for topic in body.topics
        for wanted in topic.partitions
    )
    left_bytes, step_bytes = REQUEST_COST_BYTES, 0
    for topic in body.topics:
        answers: list[ListOffsetsPartitionResponse] = []
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        for wanted in topic.partitions:
            if step_bytes >= STEP_COST_BYTES:
                step_bytes = 0
                yield
            step_bytes += PARTITION_COST_BYTES
            key = TopicPartition(topic.name, wanted.partition_index)
            if named[key] > 1:
                # As in Kafka: whoever reads the answers tells them apart by their partitions alone.
                answers.append(
                    ListOffsetsPartitionResponse(
                        partition_index=key.partition, error_code=ErrorCode.INVALID_REQUEST
                    )
                )
                continue
            granted_bytes = min(LOOKUP_COST_BYTES, left_bytes)
            budget = LookupBudget(granted_bytes)
            answers.append(_list(services, key, wanted, body, request.version, budget))
            spent_bytes = granted_bytes - budget.left_bytes
            left_bytes -= spent_bytes
            step_bytes += spent_bytes


def _is_known(timestamp: int, version: int) -> bool:
    first = _FIRST_VERSION_OF.get(timestamp)
    return first is not None and version >= first


def _list(
    services: BrokerServices,
    key: TopicPartition,
    wanted: ListOffsetsPartition,
    body: ListOffsetsRequest,
    version: int,
    budget: LookupBudget,
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
            budget=budget,
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
