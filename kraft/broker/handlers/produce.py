"""Produce (0): appends batches as leader; answers at once, or when the high watermark has passed them.

Work is per partition: batches are appended as they came, and no record is looked at unless the topic asks for it
(`kraft.broker.replicas.appends`). acks=0 is done in the same call, and so is acks=1 unless flush.messages made a flush
due; what waits keeps nothing of the request's records. With acks=0 there is no answer; an error then closes the
connection, so that the client asks for metadata again. A batch of a transaction goes through `produce_transactions`,
which has its coordinator asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from kraft.broker.handlers.produce_transactions import FIRST_VERSION_WITH_ABORTABLE, ProducedTransaction
from kraft.broker.purgatory.offset_waits import Outcomes
from kraft.broker.replicas.appends import AckCondition, Appended
from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.network.connection import CloseConnectionError
from kraft.network.response import Deferred
from kraft.protocol.errors import ErrorCode
from kraft.protocol.leader_hints import NodeEndpoint
from kraft.protocol.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kraft.protocol.texts import shortened
from partitions.disk import Buffer
from partitions.errors import PartitionError
from partitions.log.errors import InvalidRecords, LogError, NotVerified
from partitions.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES
from partitions.records.compression import Codec
from partitions.records.header import ATTRIBUTES_LOW_POSITION, CODEC_MASK, TRANSACTIONAL_BIT
from partitions.topic_partition import TopicPartition
from quorum.controller.topic_names import is_internal

FIRST_VERSION_SERVED = 3
FIRST_VERSION_WITH_ZSTD = 7
FIRST_VERSION_WITH_LEADER_HINTS = 10
ACKS_ALL, ACKS_LEADER, ACKS_NONE = -1, 1, 0
TIMEOUT_MAX_MS = 3_600_000


def handle_produce(
    services: BrokerServices, request: Request[ProduceRequest]
) -> _Answer | Awaitable[ProduceResponse | None]:
    """Answers Produce."""
    body = request.body
    refusal, transaction = _refusal(request), None
    if body.transactional_id is not None and refusal is None:
        transaction = ProducedTransaction.of(services, request)
        refusal = transaction.refusal
    reply = _Reply(services, request.version, request.session.listener_name, body.acks, body.timeout_ms)
    later: list[tuple[TopicPartition, PartitionProduceResponse, asyncio.Future[Appended]]] = []
    for topic in body.topic_data:
        answers: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            answer = PartitionProduceResponse(index=data.index)
            answers.append(answer)
            if refusal is not None:
                answer.error_code, answer.base_offset = refusal, -1
                continue
            key = TopicPartition(topic.name, data.index)
            try:
                if is_internal(topic.name):
                    raise InternalTopic(topic.name)
                appended = _append(services, key, data.records, body.acks, transaction)
            except (PartitionError, LogError) as error:
                reply.refuse(key, answer, error)
                continue
            if isinstance(appended, Appended):
                reply.note(key, answer, appended)
            else:
                later.append((key, answer, appended))
        reply.response.responses.append(TopicProduceResponse(name=topic.name, partition_responses=answers))
    return _when_appended(reply, later) if later else reply.conclude()


_Answer = ProduceResponse | Deferred[Outcomes, ProduceResponse] | None


def _append(
    services: BrokerServices,
    key: TopicPartition,
    records: Buffer | None,
    acks: int,
    transaction: ProducedTransaction | None,
) -> Appended | asyncio.Future[Appended]:
    """Appends what one partition was sent. Raises PartitionError, LogError."""
    replicas = services.replicas
    if not records:
        replicas.partition(key)
        raise EmptyProduce(f"the request has no records for {key}")
    if HEADER_BYTES <= _first_batch_bytes(records) < len(records):
        raise SeveralBatches(f"the request has more than one record batch for {key}")
    if len(records) >= HEADER_BYTES and records[ATTRIBUTES_LOW_POSITION] & TRANSACTIONAL_BIT:
        if transaction is None:
            raise NoTransactionalId(key)
        return replicas.appends.append_transactional(key, records, transaction.batch(key, records), acks=acks)
    return replicas.appends.append(key, records, acks=acks)


async def _when_appended(
    reply: _Reply,
    later: list[tuple[TopicPartition, PartitionProduceResponse, asyncio.Future[Appended]]],
) -> ProduceResponse | None:
    """The answer to a request of which some records have to be checked before they are appended."""
    for key, answer, appended in later:
        try:
            reply.note(key, answer, await appended)
        except (PartitionError, LogError) as error:
            reply.refuse(key, answer, error)
    answer_now = reply.conclude()
    return await answer_now if isinstance(answer_now, Deferred) else answer_now


class _Reply:
    """What is kept of a request until its answer: nothing of its records, which are views of the frame."""

    __slots__ = (
        "acks",
        "listener_name",
        "pending",
        "response",
        "services",
        "timeout_ms",
        "version",
        "waiting",
    )

    def __init__(
        self, services: BrokerServices, version: int, listener_name: str, acks: int, timeout_ms: int
    ) -> None:
        self.services = services
        self.version = version
        self.listener_name = listener_name
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.response = ProduceResponse(responses=[])
        self.pending: dict[TopicPartition, AckCondition] = {}
        self.waiting: list[tuple[TopicPartition, PartitionProduceResponse]] = []
        """The answers for what is pending: a partition may be named twice."""

    def note(self, key: TopicPartition, answer: PartitionProduceResponse, appended: Appended) -> None:
        """Records were appended; with acks=all they have to be committed, too, with acks=1 flushed if that is due."""
        info = appended.info
        answer.base_offset = info.first_offset
        answer.log_append_time_ms = info.log_append_time
        answer.log_start_offset = info.log_start_offset
        awaits_flush = self.acks == ACKS_LEADER and appended.condition.partition.awaits_flush
        if self.acks == ACKS_ALL or awaits_flush:
            condition, earlier = appended.condition, self.pending.get(key)
            self.pending[key] = condition if earlier is None else earlier.and_then(condition)
            self.waiting.append((key, answer))

    def refuse(
        self, key: TopicPartition, answer: PartitionProduceResponse, error: PartitionError | LogError
    ) -> None:
        """Nothing was appended; records at fault are named (KIP-467)."""
        self.services.replicas.metrics.on_produce_failed(key.topic)
        is_abortable = self.version >= FIRST_VERSION_WITH_ABORTABLE and isinstance(error, NotVerified)
        answer.error_code = ErrorCode.TRANSACTION_ABORTABLE if is_abortable else ErrorCode[error.code]
        answer.base_offset = -1
        answer.error_message = str(error)
        if isinstance(error, InvalidRecords):
            answer.record_errors = [
                BatchIndexAndErrorMessage(
                    batch_index=record.batch_index, batch_index_error_message=record.message
                )
                for record in error.record_errors
            ]

    def conclude(self) -> _Answer:
        """The answer, once everything is appended or refused."""
        if self.acks == ACKS_NONE:
            _close_on_error(self.response)
            return None
        if not self.pending:
            return self.with_leader_hints()
        timeout_s = min(max(self.timeout_ms, 0), TIMEOUT_MAX_MS) / 1000
        appends = self.services.replicas.appends
        wait = appends.when_committed if self.acks == ACKS_ALL else appends.when_flushed
        outcomes = wait(self.pending, timeout_s)
        if isinstance(outcomes, dict):
            return self.committed(outcomes)
        return Deferred(outcomes, self.committed)

    def committed(self, outcomes: Outcomes) -> ProduceResponse:
        """The answer once every partition's records are committed, or it is known that they may not be."""
        for key, answer in self.waiting:
            code = outcomes[key]
            if code is not None:
                answer.error_code = ErrorCode[code]
                answer.base_offset = -1
        return self.with_leader_hints()

    def with_leader_hints(self) -> ProduceResponse:
        """Adds who leads now to the answers of a former leader (KIP-951)."""
        response = self.response
        if self.version < FIRST_VERSION_WITH_LEADER_HINTS:
            return response
        endpoints: dict[int, NodeEndpoint] = {}
        for topic in response.responses:
            for answer in topic.partition_responses:
                if answer.error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
                    key = TopicPartition(topic.name, answer.index)
                    answer.current_leader = self.services.metadata.leader_hint(
                        key, self.listener_name, endpoints
                    )
        if endpoints:
            response.node_endpoints = list(endpoints.values())
        return response


def _refusal(request: Request[ProduceRequest]) -> ErrorCode | None:
    """Why the whole request cannot be served; every partition is answered with it."""
    if request.version < FIRST_VERSION_SERVED:
        return ErrorCode.UNSUPPORTED_VERSION
    if request.body.acks not in (ACKS_ALL, ACKS_LEADER, ACKS_NONE):
        return ErrorCode.INVALID_REQUIRED_ACKS
    if request.version < FIRST_VERSION_WITH_ZSTD and _has_zstd(request.body):
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    return None


def _has_zstd(body: ProduceRequest) -> bool:
    """Whether a batch is in zstd, which readers of that age cannot know (KIP-110)."""
    return any(
        data.records is not None
        and len(data.records) >= HEADER_BYTES
        and data.records[ATTRIBUTES_LOW_POSITION] & CODEC_MASK == Codec.ZSTD
        for topic in body.topic_data
        for data in topic.partition_data
    )


def _first_batch_bytes(records: Buffer) -> int:
    """How long the first batch says it is; 0 if there is not even that. The log checks the rest."""
    if len(records) < LOG_OVERHEAD_BYTES:
        return 0
    return int.from_bytes(records[8:LOG_OVERHEAD_BYTES], "big", signed=True) + LOG_OVERHEAD_BYTES


class InternalTopic(PartitionError):
    """A topic that coordinators alone write to."""

    code = "INVALID_TOPIC_EXCEPTION"

    def __init__(self, topic: str) -> None:
        super().__init__(f"{topic} is the cluster's own: clients may read it, not write to it")


class NoTransactionalId(PartitionError):
    """A transaction's batch in a request that names no transaction."""

    code = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"

    def __init__(self, key: TopicPartition) -> None:
        super().__init__(
            f"the batch for {key} is part of a transaction, and the request names no transactional id"
        )


class EmptyProduce(PartitionError):
    """A partition without a batch."""

    code = "INVALID_RECORD"


class SeveralBatches(PartitionError):
    """Since record format 2 a client sends one batch for a partition in one request, as in Kafka."""

    code = "INVALID_RECORD"


def _close_on_error(response: ProduceResponse) -> None:
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code:
                raise CloseConnectionError(
                    f"a produce without acknowledgement to {shortened(topic.name)}-{answer.index} failed:"
                    f" {ErrorCode(answer.error_code).name}"
                )
