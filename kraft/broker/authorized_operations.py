"""What a client may do, as bits by the codes of Kafka's operations, for answers that tell it (KIP-430).

Without an authorizer it is everything that there is for a kind of resource, as in Kafka.
"""

from __future__ import annotations

from typing import Any

from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.network.session import Session
from kraft.protocol.api import AclOperation, ResourceType
from quorum.metadata.acls import CLUSTER_NAME


def _bits(*operations: AclOperation) -> int:
    return sum(1 << operation for operation in operations)


CLUSTER_OPERATIONS = _bits(
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
)
TOPIC_OPERATIONS = _bits(
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
GROUP_OPERATIONS = _bits(
    AclOperation.READ,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
_OF = {
    ResourceType.CLUSTER: CLUSTER_OPERATIONS,
    ResourceType.TOPIC: TOPIC_OPERATIONS,
    ResourceType.GROUP: GROUP_OPERATIONS,
}


def cluster_operations(services: BrokerServices, request: Request[Any]) -> int:
    """What its client may do with the cluster: nothing is said to those who may not describe it."""
    judge = services.judge(request)
    if judge is not None and not judge.shows(ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return authorized_operations(services, request.session, ResourceType.CLUSTER)


def authorized_operations(
    services: BrokerServices, session: Session, resource: ResourceType, name: str = CLUSTER_NAME
) -> int:
    """What whoever is at the other end of the connection may do with a cluster, topic or group."""
    authorization = services.authorization
    everything = _OF[resource]
    return (
        everything
        if authorization is None
        else everything & authorization.operations(session, resource, name)
    )
