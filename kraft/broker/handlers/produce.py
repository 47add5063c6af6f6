"""Produce (0): appends batches as leader; answers at once, or when the high watermark has passed them.

Work is per partition: batches are appended as they came, no record is looked at. With acks=0 there is
no answer; an error then closes the connection, so that the client asks for metadata again.
"""

from __future__ import annotations

from functools import partial

from kraft.broker.purgatory import Outcome
from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.network.connection import CloseConnectionError
from kraft.network.response import Deferred
from kraft.protocol.errors import ErrorCode
from kraft.protocol.leader_hints import LeaderIdAndEpoch, NodeEndpoint
from kraft.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from partitions.errors import PartitionError
from partitions.log.errors import LogError
from partitions.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES
from partitions.topic_partition import TopicPartition

FIRST_VERSION_SERVED = 3
FIRST_VERSION_WITH_LEADER_HINTS = 10
ACKS_ALL, ACKS_LEADER, ACKS_NONE = -1, 1, 0
TIMEOUT_MAX_MS = 3_600_000


def handle_produce(
    services: BrokerServices, request: Request[ProduceRequest]
) -> ProduceResponse | Deferred[dict[TopicPartition, Outcome], ProduceResponse] | None:
    """Answers Produce."""
    body = request.body
    refusal = _refusal(request)
    pending: dict[TopicPartition, int] = {}
    waiting: list[tuple[TopicPartition, PartitionProduceResponse]] = []
    topics = []
    for topic in body.topic_data:
        answers = []
        for data in topic.partition_data:
            key = TopicPartition(topic.name, data.index)
            if refusal is not None:
                answer = PartitionProduceResponse(index=data.index, error_code=refusal, base_offset=-1)
            else:
                answer, required_offset = _append(services, key, data.records, body.acks)
                if required_offset is not None:
                    pending[key] = max(required_offset, pending.get(key, 0))
                    waiting.append((key, answer))
            answers.append(answer)
        topics.append(TopicProduceResponse(name=topic.name, partition_responses=answers))
    response = ProduceResponse(responses=topics)
    if body.acks == ACKS_NONE:
        _close_on_error(response)
        return None
    if pending:
        timeout_s = min(max(body.timeout_ms, 0), TIMEOUT_MAX_MS) / 1000
        decided = services.replicas.produce_purgatory.wait(pending, timeout_s)
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
    return None


def _append(
    services: BrokerServices, key: TopicPartition, records: bytes | bytearray | memoryview | None, acks: int
) -> tuple[PartitionProduceResponse, int | None]:
    """Appends to one partition. Returns its answer, and the offset to wait for if it has to wait."""
    replicas = services.replicas
    try:
        partition = replicas.partition(key)
        if not records:
            raise EmptyProduce(f"the request has no records for {key}")
        if HEADER_BYTES <= _first_batch_bytes(records) < len(records):
            raise SeveralBatches(f"the request has more than one record batch for {key}")
        info = partition.append_records(records, acks=acks, now_ms=replicas.monotonic_ms())
    except (PartitionError, LogError) as error:
        replicas.metrics.failed_produce_requests += 1
        code = ErrorCode[error.code]
        return PartitionProduceResponse(
            index=key.partition, error_code=code, base_offset=-1, error_message=str(error)
        ), None
    replicas.metrics.on_produced(info.last_offset - info.first_offset + 1, len(records))
    answer = PartitionProduceResponse(
        index=key.partition,
        base_offset=info.first_offset,
        log_append_time_ms=info.log_append_time,
        log_start_offset=info.log_start_offset,
    )
    if acks != ACKS_ALL:
        return answer, None
    required_offset = info.last_offset + 1
    status = partition.ack_status(required_offset)
    if status == "PENDING":
        return answer, required_offset
    if status != "OK":
        answer.error_code = ErrorCode[status]
    return answer, None


def _first_batch_bytes(records: bytes | bytearray | memoryview) -> int:
    """How long the first batch says it is; 0 if there is not even that. The log checks the rest."""
    if len(records) < LOG_OVERHEAD_BYTES:
        return 0
    return int.from_bytes(records[8:LOG_OVERHEAD_BYTES], "big", signed=True) + LOG_OVERHEAD_BYTES


class EmptyProduce(PartitionError):
    """A partition without a batch."""

    code = "INVALID_RECORD"


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
                    f"a produce without acknowledgement to {topic.name}-{answer.index} failed:"
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
