"""DeleteRecords (21): moves the start of logs that this broker leads (KIP-107).

The answer comes when every live replica's log starts there. Followers learn of it from their next fetches; until
then the request waits in purgatory. The files go with the next round of retention.
"""

from __future__ import annotations

from functools import partial

from kraft.broker.purgatory.offset_waits import Outcome
from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.network.response import Deferred
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.delete_records import (
    HIGH_WATERMARK,
    UNKNOWN_LOW_WATERMARK,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from partitions.errors import PartitionError
from partitions.log.errors import LogError
from partitions.topic_partition import TopicPartition
from quorum.controller.topic_names import is_internal

TIMEOUT_MAX_MS = 3_600_000
_Waiting = list[tuple[TopicPartition, DeleteRecordsPartitionResult]]


def handle_delete_records(
    services: BrokerServices, request: Request[DeleteRecordsRequest]
) -> DeleteRecordsResponse | Deferred[dict[TopicPartition, Outcome], DeleteRecordsResponse]:
    """Answers DeleteRecords."""
    pending: dict[TopicPartition, int] = {}
    waiting: _Waiting = []
    topics = []
    for topic in request.body.topics:
        results = []
        for wanted in topic.partitions:
            key = TopicPartition(topic.name, wanted.partition_index)
            result, required_offset = _delete(services, key, wanted)
            if required_offset is not None:
                pending[key] = max(required_offset, pending.get(key, 0))
                waiting.append((key, result))
            results.append(result)
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    response = DeleteRecordsResponse(topics=topics)
    if not pending:
        return response
    timeout_s = min(max(request.body.timeout_ms, 0), TIMEOUT_MAX_MS) / 1000
    decided = services.replicas.delete_records_purgatory.wait(pending, timeout_s)
    return Deferred(decided, partial(_when_known, services, response, waiting))


def _delete(
    services: BrokerServices, key: TopicPartition, wanted: DeleteRecordsPartition
) -> tuple[DeleteRecordsPartitionResult, int | None]:
    """One partition's result, and the offset that all replicas have to start at if that is not so yet."""
    result = DeleteRecordsPartitionResult(partition_index=key.partition, low_watermark=UNKNOWN_LOW_WATERMARK)
    if is_internal(key.topic):
        result.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
        return result, None
    try:
        partition = services.replicas.partition(key)
        offset = None if wanted.offset == HIGH_WATERMARK else wanted.offset
        required_offset = partition.delete_records(offset)
    except (PartitionError, LogError) as error:
        result.error_code = ErrorCode[error.code]
        return result, None
    low_watermark = partition.low_watermark
    if low_watermark < required_offset:
        return result, required_offset
    result.low_watermark = low_watermark
    return result, None


def _when_known(
    services: BrokerServices,
    response: DeleteRecordsResponse,
    waiting: _Waiting,
    outcomes: dict[TopicPartition, Outcome],
) -> DeleteRecordsResponse:
    for key, result in waiting:
        code = outcomes[key]
        if code is None:
            try:
                result.low_watermark = services.replicas.partition(key).low_watermark
            except PartitionError as error:
                code = error.code
        if code is not None:
            result.error_code = ErrorCode[code]
    return response
