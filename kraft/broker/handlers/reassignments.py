"""AlterPartitionReassignments (45) and ListPartitionReassignments (46): forwarded to the active
controller (KIP-455).

The list, too, is the controller's and not this broker's metadata: a client that asks whether a reassignment is
done which was just accepted must not be told by a broker that has not heard of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kraft.broker.handlers.forwarding import (
    MAX_REPLICAS,
    Refusal,
    forward,
    timeout_s,
    too_long,
    too_many,
)
from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from quorum.rpc import messages


async def handle_alter_partition_reassignments(
    services: BrokerServices, request: Request[AlterPartitionReassignmentsRequest]
) -> AlterPartitionReassignmentsResponse:
    """Answers AlterPartitionReassignments when the moves are begun or cancelled, not when they are done."""
    body = request.body
    if problem := _too_large(body):
        return AlterPartitionReassignmentsResponse(error_code=problem.code, error_message=problem.message)
    if problem := _problem(body):
        return _refuse_moves(body, problem)
    call = messages.AlterPartitionReassignmentsRequest(
        tuple(
            messages.TopicReassignments(
                topic.name,
                tuple(
                    messages.PartitionReassignment(
                        partition.partition_index,
                        None if partition.replicas is None else tuple(partition.replicas),
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in body.topics
        ),
        body.allow_replication_factor_change,
    )
    forwarded = await forward(services, call, timeout_s(body.timeout_ms))
    if isinstance(forwarded, Refusal):
        return _refuse_moves(body, forwarded)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=body.allow_replication_factor_change,
        responses=_by_topic(
            (
                result.topic,
                _reassignment(result.partition, *forwarded.outcome(result.error, result.message)),
            )
            for result in forwarded.response.partitions
        ),
    )


def _reassignment(partition: int, code: ErrorCode, message: str | None) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(partition_index=partition, error_code=code, error_message=message)


def _too_large(body: AlterPartitionReassignmentsRequest) -> Refusal | None:
    partitions = [partition for topic in body.topics for partition in topic.partitions]
    replicas = sum(len(partition.replicas or ()) for partition in partitions)
    return (
        too_many(len(partitions), "partitions")
        or too_many(replicas, "replicas", MAX_REPLICAS)
        or too_many(len(body.topics), "topics")
        or too_long(topic.name for topic in body.topics)
    )


def _problem(body: AlterPartitionReassignmentsRequest) -> Refusal | None:
    named = Counter(
        (topic.name, partition.partition_index) for topic in body.topics for partition in topic.partitions
    )
    twice = [partition for partition, count in named.items() if count > 1]
    if twice:
        topic, number = twice[0]
        sentence = f"partition {topic}-{number} is named more than once"
        return Refusal(ErrorCode.INVALID_REQUEST, sentence)
    return None


def _refuse_moves(
    body: AlterPartitionReassignmentsRequest, refusal: Refusal
) -> AlterPartitionReassignmentsResponse:
    code, message, _ = refusal
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=body.allow_replication_factor_change,
        error_code=code,
        error_message=message,
        responses=_by_topic(
            (topic.name, _reassignment(partition.partition_index, code, message))
            for topic in body.topics
            for partition in topic.partitions
        ),
    )


def _by_topic(
    results: Iterable[tuple[str, ReassignablePartitionResponse]],
) -> list[ReassignableTopicResponse]:
    topics: dict[str, ReassignableTopicResponse] = {}
    for name, result in results:
        topics.setdefault(name, ReassignableTopicResponse(name=name)).partitions.append(result)
    return list(topics.values())


async def handle_list_partition_reassignments(
    services: BrokerServices, request: Request[ListPartitionReassignmentsRequest]
) -> ListPartitionReassignmentsResponse:
    """Answers ListPartitionReassignments."""
    body = request.body
    named = body.topics or ()
    if problem := (
        too_many(sum(len(topic.partition_indexes) for topic in named), "partitions")
        or too_many(len(named), "topics")
        or too_long(topic.name for topic in named)
    ):
        return _refuse_list(problem)
    call = messages.ListPartitionReassignmentsRequest(
        None
        if body.topics is None
        else tuple(
            messages.TopicPartitions(topic.name, tuple(topic.partition_indexes)) for topic in body.topics
        )
    )
    forwarded = await forward(services, call, timeout_s(body.timeout_ms))
    if isinstance(forwarded, Refusal):
        return _refuse_list(forwarded)
    topics: dict[str, OngoingTopicReassignment] = {}
    for ongoing in forwarded.response.partitions:
        topic = topics.setdefault(ongoing.topic, OngoingTopicReassignment(name=ongoing.topic))
        topic.partitions.append(
            OngoingPartitionReassignment(
                partition_index=ongoing.partition,
                replicas=list(ongoing.replicas),
                adding_replicas=list(ongoing.adding_replicas),
                removing_replicas=list(ongoing.removing_replicas),
            )
        )
    return ListPartitionReassignmentsResponse(topics=list(topics.values()))


def _refuse_list(refusal: Refusal) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=refusal.code, error_message=refusal.message)
