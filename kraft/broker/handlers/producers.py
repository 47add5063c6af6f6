"""InitProducerId (22): ids for idempotent producers, and the epochs of transactional ids (KIP-98, KIP-360).
DescribeProducers (61): what the log of a replica here knows of its producers (KIP-664).
"""

from __future__ import annotations

from collections import Counter

from kraft.broker.handlers.transactions import ask_with_producer_id, fenced_as_known
from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.coordinator.shard import ProducerIdAndEpoch
from kraft.coordinator.transactions.requests import InitProducer
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.producers import (
    DescribeProducersPartition,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResult,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProducerState,
)
from partitions.errors import PartitionError
from partitions.topic_partition import TopicPartition
from quorum.rpc.envelope import RpcError

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
FIRST_WITH_PRODUCER_FENCED = 4
"""Of InitProducerId."""


async def handle_init_producer_id(
    services: BrokerServices, request: Request[InitProducerIdRequest]
) -> InitProducerIdResponse:
    """A new producer id with epoch 0, or what the coordinator of the transactional id gives its newest instance."""
    body = request.body
    if (body.producer_id == NO_PRODUCER_ID) != (body.producer_epoch == NO_PRODUCER_EPOCH):
        return _refused(ErrorCode.INVALID_REQUEST)
    if body.transactional_id is not None:
        return await _init_transactional(services, request)
    try:
        # A producer without transactional id that names its old id gets a new one: nobody else remembers
        # its epoch, and a new id is as good (Kafka does the same).
        producer_id = await services.producer_ids.next()
    except RpcError:
        # As in Kafka, whatever the reason: producers try again on this one. COORDINATOR_NOT_AVAILABLE
        # would send them looking for a coordinator, which an idempotent producer has none of.
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


async def _init_transactional(
    services: BrokerServices, request: Request[InitProducerIdRequest]
) -> InitProducerIdResponse:
    body = request.body
    assert body.transactional_id is not None, "an idempotent producer has no coordinator"
    if not body.transactional_id:
        return _refused(ErrorCode.INVALID_REQUEST)
    knows = body.producer_id != NO_PRODUCER_ID
    asked = InitProducer(
        body.transactional_id,
        body.transaction_timeout_ms,
        ProducerIdAndEpoch(body.producer_id, body.producer_epoch) if knows else None,
        new_producer_id=None,
    )
    reply = await ask_with_producer_id(services, asked)
    answer = _refused(reply) if isinstance(reply, ErrorCode) else reply
    code = ErrorCode(answer.error_code)
    answer.error_code = fenced_as_known(code, request.version, FIRST_WITH_PRODUCER_FENCED)
    return answer


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )


def handle_describe_producers(
    services: BrokerServices, request: Request[DescribeProducersRequest]
) -> DescribeProducersResponse:
    """Answers DescribeProducers. Any replica answers, leader or not, as in Kafka: that is how tools compare them."""
    named = Counter(
        (topic.name, number) for topic in request.body.topics for number in topic.partition_indexes
    )
    return DescribeProducersResponse(
        topics=[
            DescribeProducersTopicResult(
                name=topic.name,
                partitions=[
                    _described(services, TopicPartition(topic.name, number), named[topic.name, number])
                    for number in topic.partition_indexes
                ],
            )
            for topic in request.body.topics
        ]
    )


def _described(services: BrokerServices, key: TopicPartition, named: int) -> DescribeProducersPartition:
    """One partition's answer. One that is named often is refused: its producers may be many times the request."""
    answer = DescribeProducersPartition(partition_index=key.partition)
    if named > 1:
        answer.error_code = ErrorCode.INVALID_REQUEST
        answer.error_message = "Each partition must appear at most once."
        return answer
    try:
        partition = services.replicas.partition(key)
    except PartitionError as error:
        answer.error_code = ErrorCode[error.code]
        answer.error_message = str(error)
        return answer
    answer.active_producers = [
        ProducerState(
            producer_id=producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=entry.transaction_first_offset,
        )
        for producer_id, entry in partition.log.active_producers.items()
    ]
    return answer
