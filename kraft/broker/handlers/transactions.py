"""AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26), DescribeTransactions (65), ListTransactions (66): what
producers, other brokers and tools ask a transaction coordinator (KIP-98, KIP-664, KIP-890).

The shard of the transactional id decides; here its answers become responses, in words that the version's clients know.
InitProducerId is in `producers`, TxnOffsetCommit in `group_offsets`, WriteTxnMarkers in `txn_markers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kraft.broker.handlers.find_coordinator import make_topic
from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.coordinator.shard import ProducerIdAndEpoch
from kraft.coordinator.transactions.requests import (
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    InitProducer,
    ListTransactions,
    ProducerIdNeeded,
)
from kraft.coordinator.transactions.transaction import BUMPING_VERSION, STATES_BY_NAME
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from partitions.topic_partition import TopicPartition
from quorum.controller.topic_names import CONSUMER_OFFSETS, is_internal
from quorum.rpc.envelope import RpcError

FIRST_ADD_PARTITIONS_OF_BROKERS: Final = 4
"""Whose requests have several transactions; clients send up to the version before."""
FIRST_END_TXN_THAT_BUMPS: Final = 5
FIRST_WITH_PRODUCER_FENCED: Final = 2
"""Of AddPartitionsToTxn, AddOffsetsToTxn, EndTxn: older clients know INVALID_PRODUCER_EPOCH alone."""

Codes = Mapping[TopicPartition, ErrorCode]


def fenced_as_known(
    code: ErrorCode, version: int, first_with_fenced: int = FIRST_WITH_PRODUCER_FENCED
) -> ErrorCode:
    """What a client of this version is told of an older instance."""
    if code is ErrorCode.PRODUCER_FENCED and version < first_with_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


async def ask_with_producer_id(services: BrokerServices, asked: InitProducer | EndTransaction) -> Any:
    """The shard's reply to what may need a fresh producer id, which is taken only then; or an ErrorCode."""
    submit, transactional_id = services.transactions.submit, asked.transactional_id
    reply = await submit(transactional_id, asked)
    if isinstance(reply, ProducerIdNeeded):
        try:
            producer_id = await services.producer_ids.next()
        except RpcError:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # as in Kafka: clients ask again
        reply = await submit(transactional_id, asked._replace(new_producer_id=producer_id))
    return reply


# -- what is in a transaction


async def handle_add_partitions_to_txn(
    services: BrokerServices, request: Request[AddPartitionsToTxnRequest]
) -> AddPartitionsToTxnResponse:
    """Answers AddPartitionsToTxn: all transactions are asked about before the first is waited for."""
    body, version = request.body, request.version
    if version < FIRST_ADD_PARTITIONS_OF_BROKERS:
        asked = AddPartitions(
            body.v3_and_below_transactional_id,
            ProducerIdAndEpoch(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch),
            _partitions(body.v3_and_below_topics),
            verify_only=False,
            transaction_version=0,
        )
        codes = await _added(services, asked, version)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(codes, version))
    several = [
        AddPartitions(
            one.transactional_id,
            ProducerIdAndEpoch(one.producer_id, one.producer_epoch),
            _partitions(one.topics),
            verify_only=one.verify_only,
            transaction_version=0 if one.verify_only else BUMPING_VERSION,
            waits=False,
        )
        for one in body.transactions
    ]
    answers = [_added(services, asked, version) for asked in several]
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=asked.transactional_id, topic_results=_results(await answer, version)
            )
            for asked, answer in zip(several, answers, strict=True)
        ]
    )


def _added(services: BrokerServices, asked: AddPartitions, version: int) -> asyncio.Future[Codes]:
    """Where one partition cannot be added, none is, as in Kafka."""
    wrong = {
        key: code for key in asked.partitions if (code := _why_never(services, key, version)) is not None
    }
    answer: asyncio.Future[Codes] = services.loop.create_future()
    if wrong:
        answer.set_result(dict.fromkeys(asked.partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | wrong)
        return answer

    def told(done: asyncio.Future[Any]) -> None:
        if answer.done() or done.cancelled():
            return
        reply = done.result()
        answer.set_result(dict.fromkeys(asked.partitions, reply) if isinstance(reply, ErrorCode) else reply)

    services.transactions.submit(asked.transactional_id, asked).add_done_callback(told)
    return answer


def _why_never(services: BrokerServices, key: TopicPartition, version: int) -> ErrorCode | None:
    """Why a partition is added to nobody's transaction. Coordinators alone write to internal topics; brokers ask
    about them for groups."""
    if version < FIRST_ADD_PARTITIONS_OF_BROKERS and is_internal(key.topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = services.metadata.image.topic(key.topic)
    if topic is None or not 0 <= key.partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return None


def _partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic.name, number) for topic in topics for number in topic.partitions)


def _results(codes: Codes, version: int) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for key in sorted(codes):
        told = AddPartitionsToTxnPartitionResult(
            partition_index=key.partition, partition_error_code=fenced_as_known(codes[key], version)
        )
        topics.setdefault(key.topic, []).append(told)
    return [
        AddPartitionsToTxnTopicResult(name=name, results_by_partition=results)
        for name, results in topics.items()
    ]


async def handle_add_offsets_to_txn(
    services: BrokerServices, request: Request[AddOffsetsToTxnRequest]
) -> AddOffsetsToTxnResponse:
    """Answers AddOffsetsToTxn: the group's partition of __consumer_offsets joins the transaction. The topic is made
    if need be: a producer asks for its group's coordinator only afterwards."""
    body = request.body
    if not body.group_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    if not services.groups.topic.exists:
        await make_topic(services, services.groups.topic)
    number = services.groups.partition_of(body.group_id)
    if number is None:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    key = TopicPartition(CONSUMER_OFFSETS, number)
    asked = AddPartitions(
        body.transactional_id,
        ProducerIdAndEpoch(body.producer_id, body.producer_epoch),
        frozenset({key}),
        verify_only=False,
        transaction_version=0,
    )
    reply = await services.transactions.submit(body.transactional_id, asked)
    code = reply if isinstance(reply, ErrorCode) else reply[key]
    return AddOffsetsToTxnResponse(error_code=fenced_as_known(code, request.version))


async def handle_end_txn(services: BrokerServices, request: Request[EndTxnRequest]) -> EndTxnResponse:
    """Answers EndTxn as soon as the outcome stands; the markers follow."""
    body = request.body
    asked = EndTransaction(
        body.transactional_id,
        ProducerIdAndEpoch(body.producer_id, body.producer_epoch),
        body.committed,
        BUMPING_VERSION if request.version >= FIRST_END_TXN_THAT_BUMPS else 0,
        new_producer_id=None,
    )
    reply = await ask_with_producer_id(services, asked)
    answer = EndTxnResponse(error_code=reply) if isinstance(reply, ErrorCode) else reply
    answer.error_code = fenced_as_known(ErrorCode(answer.error_code), request.version)
    return answer


# -- what tools ask


async def handle_describe_transactions(
    services: BrokerServices, request: Request[DescribeTransactionsRequest]
) -> DescribeTransactionsResponse:
    """Answers DescribeTransactions, for those ids that this broker coordinates."""
    ids = list(dict.fromkeys(request.body.transactional_ids))
    submit = services.transactions.submit
    replies = [submit(one, DescribeTransaction(one), reads=True) for one in ids]
    return DescribeTransactionsResponse(
        transaction_states=[_described(one, await reply) for one, reply in zip(ids, replies, strict=True)]
    )


def _described(transactional_id: str, reply: Any) -> DescribedTransaction:
    if isinstance(reply, ErrorCode):
        return DescribedTransaction(error_code=reply, transactional_id=transactional_id)
    assert isinstance(reply, DescribedTransaction), "the shard describes"
    return reply


async def handle_list_transactions(
    services: BrokerServices, request: Request[ListTransactionsRequest]
) -> ListTransactionsResponse:
    """Answers ListTransactions with the transactions that this broker coordinates."""
    body = request.body
    asked = ListTransactions(
        tuple(body.state_filters),
        frozenset(body.producer_id_filters),
        body.duration_filter,
        body.transactional_id_pattern,
    )
    runtime = services.transactions.runtime
    asked_for: list[asyncio.Future[Any]] = []
    for number in runtime.hosted:
        asked_for.append(runtime.submit(number, asked, reads=True))
        await asyncio.sleep(0)  # a shard may have 100,000 ids: others have their turn before the next one
    replies = [await reply for reply in asked_for]
    refusals = [
        reply
        for reply in replies
        if isinstance(reply, ErrorCode)
        and reply is not ErrorCode.NOT_COORDINATOR  # it has just gone elsewhere
    ]
    if refusals:
        return ListTransactionsResponse(error_code=refusals[0])
    return ListTransactionsResponse(
        unknown_state_filters=[name for name in body.state_filters if name not in STATES_BY_NAME],
        transaction_states=[one for reply in replies if not isinstance(reply, ErrorCode) for one in reply[0]],
    )
