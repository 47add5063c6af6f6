"""FindCoordinator (10): the broker that leads the partition of the internal topic that a group, or a transactional id,
belongs to.

The first request has the internal topic made. Until that is done, and while the partition has no leader that the
client can reach, the answer is COORDINATOR_NOT_AVAILABLE: clients ask again. Share groups are not served, which is said
so that a client ends instead of asking for ever.
"""

from __future__ import annotations

from collections.abc import Awaitable

from kraft.broker.coordinators.internal_topic import InternalTopic
from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.find_coordinator import (
    Coordinator,
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from quorum.metadata.records import NO_LEADER

FIRST_VERSION_WITH_SEVERAL_KEYS = 4
FIRST_VERSION_WITH_TYPES = 1


def handle_find_coordinator(
    services: BrokerServices, request: Request[FindCoordinatorRequest]
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    """Answers FindCoordinator; at once unless the internal topic has to be made first."""
    topic = _topic(services, request)
    if topic is not None and not topic.exists:
        return _create_then_answer(services, request, topic)
    return _answer(services, request, None)


async def _create_then_answer(
    services: BrokerServices, request: Request[FindCoordinatorRequest], topic: InternalTopic
) -> FindCoordinatorResponse:
    return _answer(services, request, await make_topic(services, topic))


async def make_topic(services: BrokerServices, topic: InternalTopic) -> str | None:
    """Has an internal topic made; a sentence on why it was refused."""
    new = topic.as_new()
    refused = (await services.topic_creation.ensure([new])).get(new.name)
    if refused is ErrorCode.INVALID_REPLICATION_FACTOR:
        return (
            f"{new.name} cannot be made: {topic.replication_factor_key}={new.replication_factor}, and fewer brokers"
            " are there"
        )
    return None if refused is None else f"{new.name} cannot be made: {refused.name}"


def _topic(services: BrokerServices, request: Request[FindCoordinatorRequest]) -> InternalTopic | None:
    """That of the kind of coordinator asked for; None where there is no such kind."""
    kind = _type(request)
    if kind == CoordinatorType.GROUP:
        return services.groups.topic
    return services.transactions.topic if kind == CoordinatorType.TRANSACTION else None


def _type(request: Request[FindCoordinatorRequest]) -> int:
    return request.body.key_type if request.version >= FIRST_VERSION_WITH_TYPES else CoordinatorType.GROUP


def _answer(
    services: BrokerServices, request: Request[FindCoordinatorRequest], problem: str | None
) -> FindCoordinatorResponse:
    """`problem`: why there is no coordinator of any key."""
    body = request.body
    if request.version >= FIRST_VERSION_WITH_SEVERAL_KEYS:
        found = [_find(services, request, key, problem) for key in dict.fromkeys(body.coordinator_keys)]
        return FindCoordinatorResponse(coordinators=found)
    one = _find(services, request, body.key, problem)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _find(
    services: BrokerServices, request: Request[FindCoordinatorRequest], key: str, problem: str | None
) -> Coordinator:
    topic = _topic(services, request)
    if topic is None:
        return _refused(key, ErrorCode.INVALID_REQUEST, f"there are no coordinators of type {_type(request)}")
    leader = topic.leader_of(key)
    endpoint = None if leader is None else services.metadata.endpoint(leader, request.session.listener_name)
    if leader is None or endpoint is None:
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, problem)
    return Coordinator(key=key, node_id=leader, host=endpoint.host, port=endpoint.port)


def _refused(key: str, code: ErrorCode, message: str | None) -> Coordinator:
    return Coordinator(
        key=key, error_code=code, error_message=message or code.name, node_id=NO_LEADER, host="", port=-1
    )
