"""ElectLeaders (43): forwarded to the active controller (KIP-460)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kraft.broker.handlers.forwarding import Refusal, forward, timeout_s, too_long, too_many
from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.elections import (
    ElectionType,
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from kraft.protocol.texts import shortened
from quorum.rpc import messages

FIRST_VERSION_WITH_TOP_LEVEL_ERROR = 1
_ELECTION_TYPES = frozenset(election_type.value for election_type in ElectionType)


async def handle_elect_leaders(
    services: BrokerServices, request: Request[ElectLeadersRequest]
) -> ElectLeadersResponse:
    """Answers ElectLeaders. For all partitions only those are answered that an election was needed for."""
    body = request.body
    wanted = _wanted(body)
    if problem := too_many(len(wanted or ()), "partitions") or too_long(topic for topic, _ in wanted or ()):
        has_top_level = request.version >= FIRST_VERSION_WITH_TOP_LEVEL_ERROR
        return _refuse(request, () if has_top_level else wanted, problem)
    if problem := _problem(body, wanted):
        return _refuse(request, wanted, problem)
    call = messages.ElectLeadersRequest(body.election_type, wanted)
    forwarded = await forward(services, call, timeout_s(body.timeout_ms))
    if isinstance(forwarded, Refusal):
        return _refuse(request, wanted, forwarded)
    return ElectLeadersResponse(
        replica_election_results=_by_topic(
            (
                result.topic,
                _partition(result.partition, *forwarded.outcome(result.error, result.message)),
            )
            for result in forwarded.response.partitions
        )
    )


def _wanted(body: ElectLeadersRequest) -> tuple[tuple[str, int], ...] | None:
    if body.topic_partitions is None:
        return None
    return tuple(
        (topic.topic, partition) for topic in body.topic_partitions for partition in topic.partitions
    )


def _problem(body: ElectLeadersRequest, wanted: tuple[tuple[str, int], ...] | None) -> Refusal | None:
    if body.election_type not in _ELECTION_TYPES:
        return Refusal(ErrorCode.INVALID_REQUEST, f"{body.election_type} is no type of election")
    if wanted is None:
        return None
    twice = [partition for partition, count in Counter(wanted).items() if count > 1]
    if twice:
        topic, number = twice[0]
        sentence = f"partition {shortened(topic)}-{number} is named more than once"
        return Refusal(ErrorCode.INVALID_REQUEST, sentence)
    return None


def _refuse(
    request: Request[ElectLeadersRequest], partitions: Iterable[tuple[str, int]] | None, refusal: Refusal
) -> ElectLeadersResponse:
    code, message, _ = refusal
    response = ElectLeadersResponse(
        replica_election_results=_by_topic(
            (topic, _partition(partition, code, message)) for topic, partition in partitions or ()
        )
    )
    if request.version >= FIRST_VERSION_WITH_TOP_LEVEL_ERROR:
        response.error_code = code
    return response


def _partition(partition: int, code: ErrorCode, message: str | None) -> PartitionResult:
    return PartitionResult(partition_id=partition, error_code=code, error_message=message)


def _by_topic(results: Iterable[tuple[str, PartitionResult]]) -> list[ReplicaElectionResult]:
    topics: dict[str, ReplicaElectionResult] = {}
    for topic, result in results:
        topics.setdefault(topic, ReplicaElectionResult(topic=topic)).partition_result.append(result)
    return list(topics.values())
