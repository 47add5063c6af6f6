"""What request handlers work with: one object for each broker, made once by `kraft.broker.server`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kraft.broker.authorization import Authorization, Judge
from kraft.broker.client_quotas import BrokerQuotas
from kraft.broker.coordinators.group_coordinator import GroupCoordinator, Verifier
from kraft.broker.coordinators.transaction_coordinator import TransactionCoordinator
from kraft.broker.membership.controller_client import ControllerClient
from kraft.broker.membership.lifecycle import BrokerLifecycle
from kraft.broker.membership.metadata_cache import MetadataCache
from kraft.broker.membership.metadata_loader import MetadataLoader
from kraft.broker.membership.producer_ids import ProducerIds
from kraft.broker.membership.recently_fenced import RecentlyFenced
from kraft.broker.membership.topic_creation import TopicCreation
from kraft.broker.replicas.read_replicas import ReadReplicas
from kraft.broker.replicas.replica_manager import ReplicaManager
from kraft.broker.replicas.replication_throttles import ReplicationThrottles
from kraft.broker.request import Request
from kraft.config import ServerConfig
from kraft.loggers import Loggers
from kraft.network.request_times import RequestTimes
from kraft.protocol.api import ApiKey
from partitions.log_manager import LogManager
from quorum.rpc.sparse_log import SparseLog


class Views(Protocol):
    """What a broker tells of itself; see `kraft.broker.views.views`."""

    async def tell(self, view: str, args: Mapping[str, Any]) -> list[tuple[str, Any]]: ...


@dataclass(frozen=True, slots=True)
class BrokerServices:
    """The parts of a running broker that handlers reach."""

    broker_id: int
    cluster_id: str
    config: ServerConfig
    loop: asyncio.AbstractEventLoop
    rng: random.Random
    metadata: MetadataCache
    recently_fenced: RecentlyFenced
    loader: MetadataLoader
    controller: ControllerClient
    lifecycle: BrokerLifecycle
    logs: LogManager
    replicas: ReplicaManager
    producer_ids: ProducerIds
    topic_creation: TopicCreation
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    verifier: Verifier
    read_replicas: ReadReplicas
    throttles: ReplicationThrottles
    quotas: BrokerQuotas
    request_times: Mapping[ApiKey, RequestTimes]
    loggers: Loggers
    refused_clients: SparseLog
    """Of clients whose authentication failed."""
    authorization: Authorization | None = None
    """None: everybody may do everything."""
    views: Views | None = None

    def judge(self, request: Request[Any]) -> Judge | None:
        """Who judges what the request names; None where there is no authorizer."""
        return None if self.authorization is None else self.authorization.judge(request)
