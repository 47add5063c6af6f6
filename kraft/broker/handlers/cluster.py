"""DescribeCluster (60) and UnregisterBroker (64)."""

from __future__ import annotations

from kraft.broker.authorized_operations import cluster_operations
from kraft.broker.handlers.forwarding import Refusal, catch_up, forward
from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    EndpointType,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from kraft.protocol.schemas.metadata import UNKNOWN_OPERATIONS
from quorum.rpc import messages

UNREGISTER_TIMEOUT_S = 30.0
"""The request does not say how long its client waits."""


def handle_describe_cluster(
    services: BrokerServices, request: Request[DescribeClusterRequest]
) -> DescribeClusterResponse:
    """Answers DescribeCluster for brokers; controllers are not reachable by clients (KIP-919)."""
    body = request.body
    if body.endpoint_type != EndpointType.BROKER:
        return _wrong_endpoint_type(body.endpoint_type)
    image = services.metadata.image
    brokers = []
    for broker_id in sorted(image.brokers):
        broker = image.brokers[broker_id]
        endpoint = services.metadata.endpoint(broker_id, request.session.listener_name)
        if endpoint is None or (broker.fenced and not body.include_fenced_brokers):
            continue
        brokers.append(
            DescribeClusterBroker(
                broker_id=broker_id,
                host=endpoint.host,
                port=endpoint.port,
                rack=broker.rack,
                is_fenced=broker.fenced,
            )
        )
    may = UNKNOWN_OPERATIONS
    if body.include_cluster_authorized_operations:
        may = cluster_operations(services, request)
    return DescribeClusterResponse(
        cluster_id=services.cluster_id,
        controller_id=services.metadata.admin_broker(services.controller.leader_id, services.broker_id),
        brokers=brokers,
        cluster_authorized_operations=may,
    )


def _wrong_endpoint_type(endpoint_type: int) -> DescribeClusterResponse:
    if endpoint_type == EndpointType.CONTROLLER:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = (
            "this listener belongs to a broker; ask for endpoint type 1, controllers do not talk to clients"
        )
    else:
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = f"there is no endpoint type {endpoint_type}; ask for 1, the brokers"
    return DescribeClusterResponse(error_code=code, error_message=message)


async def handle_unregister_broker(
    services: BrokerServices, request: Request[UnregisterBrokerRequest]
) -> UnregisterBrokerResponse:
    """Answers UnregisterBroker: forwarded to the active controller."""
    call = messages.UnregisterBrokerRequest(request.body.broker_id)
    forwarded = await forward(services, call, UNREGISTER_TIMEOUT_S)
    if isinstance(forwarded, Refusal):
        return UnregisterBrokerResponse(error_code=forwarded.code, error_message=forwarded.message)
    await catch_up(services, forwarded.offset)
    return UnregisterBrokerResponse()
