"""Produce (0): appends batches as leader; answers at once, or when the high watermark has passed them.

Work is per partition: batches are appended as they came, no record is looked at, unless the topic asks
for it; what takes long then goes through the replica manager's `record_checks`. With acks=0 there is no
answer; an error then closes the connection, so that the client asks for metadata again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import NamedTuple

from kraft.broker.purgatory.offset_waits import Outcome
from kraft.broker.record_check_lanes import CheckAgain, TooManyChecks
from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.network.connection import CloseConnectionError
from kraft.network.response import Deferred
from kraft.protocol.errors import ErrorCode
from kraft.protocol.leader_hints import LeaderIdAndEpoch, NodeEndpoint
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
from partitions.log.errors import AppendError, InvalidRecords, LogError
from partitions.log.validation import CheckedBatches
from partitions.partition import AckStatus, Partition
from partitions.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES
from partitions.records.compression import Codec
from partitions.records.header import ATTRIBUTES_LOW_POSITION, CODEC_MASK
from partitions.topic_partition import TopicPartition

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
    refusal = _refusal(request)
    pending: _Pending = {}
    waiting: list[tuple[TopicPartition, PartitionProduceResponse]] = []
    checks: list[_Check] = []
    topics = []
    for topic in body.topic_data:
        answers: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            key = TopicPartition(topic.name, data.index)
            if refusal is not None:
                answer = PartitionProduceResponse(index=data.index, error_code=refusal, base_offset=-1)
            elif (later := _append_later(services, key, data.records, body.acks)) is not None:
                answer = PartitionProduceResponse(index=data.index)
                checks.append(_Check(key, answers, len(answers), later))
            else:
                answer, required = _append(services, key, data.records, body.acks)
                if required is not None:
                    pending[key] = required.with_earlier(pending.get(key))
                    waiting.append((key, answer))
            answers.append(answer)
        topics.append(TopicProduceResponse(name=topic.name, partition_responses=answers))
    response = ProduceResponse(responses=topics)
    if checks:
        return _when_checked(services, request, response, waiting, pending, checks)
    return _conclude(services, request, response, waiting, pending)


class _Required(NamedTuple):
    """What has to be committed before an append is acknowledged."""

    partition: Partition
    """As it was when it appended: a topic of the same name that was made since is another."""
    offset: int
    leader_epoch: int
    """Of the append: if this broker stopped leading since, somebody else's records may be at the offset."""

    @property
    def status(self) -> AckStatus:
        return self.partition.ack_status(self.offset, self.leader_epoch)

    def with_earlier(self, earlier: _Required | None) -> _Required:
        """Both of a request's appends to one partition, which are acknowledged together."""
        if earlier is None:
            return self
        # A duplicate's offset may be below that of what was appended before it.
        return earlier._replace(offset=max(earlier.offset, self.offset))


_Answer = ProduceResponse | Deferred[dict[TopicPartition, Outcome], ProduceResponse] | None
_Appended = tuple[PartitionProduceResponse, _Required | None]
"""A partition's answer, and what to wait for if it has to wait."""
_Pending = dict[TopicPartition, _Required]


class _Check(NamedTuple):
    """A partition whose records are being checked: where its answer goes, and what brings it."""

    key: TopicPartition
    answers: list[PartitionProduceResponse]
    place: int
    later: asyncio.Future[_Appended]


async def _when_checked(
    services: BrokerServices,
    request: Request[ProduceRequest],
    response: ProduceResponse,
    waiting: list[tuple[TopicPartition, PartitionProduceResponse]],
    pending: _Pending,
    checks: list[_Check],
) -> ProduceResponse | None:
    """The answer to a request of which some records were checked, and then appended, by a lane."""
    for check in checks:
        answer, required = await check.later
        check.answers[check.place] = answer
        if required is not None:
            pending[check.key] = required.with_earlier(pending.get(check.key))
            waiting.append((check.key, answer))
    # Nobody registered for these offsets while the lanes were at work: what is decided by now is told now.
    for key in list(pending):
        status = pending[key].status
        if status != AckStatus.PENDING:
            del pending[key]
            decided = [answer for waiting_key, answer in waiting if waiting_key == key]
            waiting = [entry for entry in waiting if entry[0] != key]
            for answer in decided if status != AckStatus.OK else ():
                answer.error_code, answer.base_offset = ErrorCode[status.value], -1
    answer_now = _conclude(services, request, response, waiting, pending)
    return await answer_now if isinstance(answer_now, Deferred) else answer_now


def _conclude(
    services: BrokerServices,
    request: Request[ProduceRequest],
    response: ProduceResponse,
    waiting: list[tuple[TopicPartition, PartitionProduceResponse]],
    pending: _Pending,
) -> _Answer:
    """The answer, or the wait for the high watermark before it."""
    body = request.body
    if body.acks == ACKS_NONE:
        _close_on_error(response)
        return None
    if pending:
        timeout_s = min(max(body.timeout_ms, 0), TIMEOUT_MAX_MS) / 1000
        # Registered at once: from here on, the end of this broker's leadership ends the wait.
        offsets = {key: required.offset for key, required in pending.items()}
        decided = services.replicas.produce_purgatory.wait(offsets, timeout_s)
        # Holds nothing of the request: its records are views of the frame, which would stay in memory.
        finish = partial(_when_committed, services, request.version, request.listener_name, response, waiting)
        return Deferred(decided, finish)
    return _with_leader_hints(services, request.version, request.listener_name, response)


def _refusal(request: Request[ProduceRequest]) -> ErrorCode | None:
    """Why the whole request cannot be served; every partition is answered with it."""
    if request.version < FIRST_VERSION_SERVED:
        return ErrorCode.UNSUPPORTED_VERSION
    if request.body.acks not in (ACKS_ALL, ACKS_LEADER, ACKS_NONE):
        return ErrorCode.INVALID_REQUIRED_ACKS
    if request.body.transactional_id is not None:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
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


def _append_later(
    services: BrokerServices, key: TopicPartition, records: Buffer | None, acks: int
) -> asyncio.Future[_Appended] | None:
    """Has records checked beside the event loop and then appended; None where `_append` is to be called."""
    replicas = services.replicas
    lanes = replicas.record_checks
    if not records:
        return None
    try:
        partition = replicas.partition(key)
        job = partition.log.check_beside(records)
        if job is None and not lanes.is_busy(key):
            return None
        partition.check_append(acks)  # nothing is opened in vain
        _check_shape(key, records)
    except (PartitionError, LogError):
        return None  # which refuses it in the same words
    size_bytes = len(records)
    log, config = partition.log, partition.log.config

    def then(checked: Buffer | CheckedBatches | AppendError) -> _Appended:
        nonlocal config
        try:
            if replicas.partition(key).log is not log:
                raise CheckedForAnotherLog(key)
            if log.config != config:  # judged anew in its place, which what came behind it cannot take
                config = log.config
                again = log.check_beside(records)
                if again is not None:
                    raise CheckAgain(again)
                checked = records
        except (PartitionError, LogError) as error:
            return _refused(services, key, error)
        if isinstance(checked, AppendError):
            return _refused(services, key, checked)
        return _append_checked(services, key, checked, size_bytes, acks)

    try:
        return lanes.submit(key, job or (lambda: records), then, size_bytes)
    except TooManyChecks as error:
        done: asyncio.Future[_Appended] = services.loop.create_future()
        done.set_result(_refused(services, key, error))
        return done


def _append(services: BrokerServices, key: TopicPartition, records: Buffer | None, acks: int) -> _Appended:
    """Appends to one partition."""
    try:
        if not records:
            services.replicas.partition(key)
            raise EmptyProduce(f"the request has no records for {key}")
        _check_shape(key, records)
    except PartitionError as error:
        return _refused(services, key, error)
    return _append_checked(services, key, records, len(records), acks)


def _append_checked(
    services: BrokerServices,
    key: TopicPartition,
    records: Buffer | CheckedBatches,
    size_bytes: int,
    acks: int,
) -> _Appended:
    replicas = services.replicas
    try:
        partition = replicas.newest_partition(key)
        info = partition.append_records(records, acks=acks, now_ms=replicas.monotonic_ms())
    except (PartitionError, LogError) as error:
        replicas.refusals.on_refused(key, error)
        return _refused(services, key, error)
    replicas.metrics.on_produced(info.last_offset - info.first_offset + 1, size_bytes)
    answer = PartitionProduceResponse(
        index=key.partition,
        base_offset=info.first_offset,
        log_append_time_ms=info.log_append_time,
        log_start_offset=info.log_start_offset,
    )
    if acks != ACKS_ALL:
        return answer, None
    required = _Required(partition, info.last_offset + 1, partition.leader_epoch)
    status = required.status
    if status is AckStatus.PENDING:
        return answer, required
    if status is not AckStatus.OK:
        answer.error_code = ErrorCode[status.value]
    return answer, None


def _refused(services: BrokerServices, key: TopicPartition, error: PartitionError | LogError) -> _Appended:
    """A partition's answer that says why; records at fault are named (KIP-467)."""
    services.replicas.metrics.failed_produce_requests += 1
    answer = PartitionProduceResponse(
        index=key.partition, error_code=ErrorCode[error.code], base_offset=-1, error_message=str(error)
    )
    if isinstance(error, InvalidRecords):
        answer.record_errors = [
            BatchIndexAndErrorMessage(
                batch_index=record.batch_index, batch_index_error_message=record.message
            )
            for record in error.record_errors
        ]
    return answer, None


def _check_shape(key: TopicPartition, records: Buffer) -> None:
    if HEADER_BYTES <= _first_batch_bytes(records) < len(records):
        raise SeveralBatches(f"the request has more than one record batch for {key}")


def _first_batch_bytes(records: Buffer) -> int:
    """How long the first batch says it is; 0 if there is not even that. The log checks the rest."""
    if len(records) < LOG_OVERHEAD_BYTES:
        return 0
    return int.from_bytes(records[8:LOG_OVERHEAD_BYTES], "big", signed=True) + LOG_OVERHEAD_BYTES


class EmptyProduce(PartitionError):
    """A partition without a batch."""

    code = "INVALID_RECORD"


class CheckedForAnotherLog(PartitionError):
    """The topic was made anew, or its log opened anew, while the records were checked: a client sends them again."""

    code = "NOT_LEADER_OR_FOLLOWER"

    def __init__(self, key: TopicPartition) -> None:
        super().__init__(f"the records were checked for another log than that of {key} now")


class SeveralBatches(PartitionError):
    """Since record format 2 a client sends one batch for a partition in one request, as in Kafka."""

    code = "INVALID_RECORD"


def _when_committed(
    services: BrokerServices,
    version: int,
    listener_name: str,
    response: ProduceResponse,
    waiting: list[tuple[TopicPartition, PartitionProduceResponse]],
    outcomes: dict[TopicPartition, Outcome],
) -> ProduceResponse:
    """The answer once every partition's records are committed, or it is known that they may not be."""
    for key, answer in waiting:
        code = outcomes[key]
        if code is not None:
            answer.error_code = ErrorCode[code]
            answer.base_offset = -1
    return _with_leader_hints(services, version, listener_name, response)


def _close_on_error(response: ProduceResponse) -> None:
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code:
                raise CloseConnectionError(
                    f"a produce without acknowledgement to {shortened(topic.name)}-{answer.index} failed:"
                    f" {ErrorCode(answer.error_code).name}"
                )


def _with_leader_hints(
    services: BrokerServices, version: int, listener_name: str, response: ProduceResponse
) -> ProduceResponse:
    """Adds who leads now to the answers of a former leader (KIP-951)."""
    if version < FIRST_VERSION_WITH_LEADER_HINTS:
        return response
    endpoints: dict[int, NodeEndpoint] = {}
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
                hint = leader_hint(
                    services, TopicPartition(topic.name, answer.index), listener_name, endpoints
                )
                answer.current_leader = hint
    if endpoints:
        response.node_endpoints = list(endpoints.values())
    return response


def leader_hint(
    services: BrokerServices, key: TopicPartition, listener_name: str, endpoints: dict[int, NodeEndpoint]
) -> LeaderIdAndEpoch | None:
    """Who leads a partition by this broker's metadata; its address goes to `endpoints`."""
    topic = services.metadata.image.topic(key.topic)
    if topic is None or not 0 <= key.partition < len(topic.partitions):
        return None
    state = topic.partitions[key.partition]
    endpoint = services.metadata.endpoint(state.leader, listener_name)
    if endpoint is not None:
        rack = services.metadata.image.brokers[state.leader].rack
        endpoints[state.leader] = NodeEndpoint(
            node_id=state.leader, host=endpoint.host, port=endpoint.port, rack=rack
        )
    return LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)
