"""All coordinators of one broker: of groups, of transactions, who asks those of transactions, and the lag of groups.

Made by the broker's server, which starts and closes them. They need one another: markers go through the coordinator of
groups, offsets in transactions are verified with the coordinators of transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from kraft.broker.coordinators import group_lag, transaction_markers, transaction_verification
from kraft.broker.coordinators.group_coordinator import GroupCoordinator
from kraft.broker.coordinators.group_lag import GroupLag
from kraft.broker.coordinators.marker_writes import Codes, MarkerWrite, write_markers
from kraft.broker.coordinators.transaction_coordinator import TransactionCoordinator
from kraft.broker.coordinators.transaction_verification import TransactionVerifier
from kraft.broker.membership.metadata_cache import MetadataCache
from kraft.broker.membership.metadata_loader import MetadataLoader
from kraft.broker.replicas.peer_connection import PeerConnection
from kraft.broker.replicas.replica_manager import ReplicaManager
from kraft.config import ServerConfig
from kraft.environment import Environment
from kraft.network.client import DEFAULT_MAX_RESPONSE_BYTES

Peer = Callable[[int, str, int], PeerConnection]
"""Makes a connection to another broker: its id, what it calls itself there, the largest answer in bytes."""


class Coordinators:
    """Made before the broker has metadata."""

    def __init__(
        self,
        config: ServerConfig,
        environment: Environment,
        metadata: MetadataCache,
        replicas: ReplicaManager,
        loop: asyncio.AbstractEventLoop,
        peer: Peer,
    ) -> None:
        self._replicas = replicas
        self.transactions = TransactionCoordinator(
            config,
            environment,
            metadata,
            replicas,
            loop,
            lambda broker_id: peer(broker_id, transaction_markers.CLIENT_ID, DEFAULT_MAX_RESPONSE_BYTES),
            self._write_markers,
        )
        self.verifier = TransactionVerifier(
            config.node_id,
            self.transactions,
            lambda broker_id: peer(broker_id, transaction_verification.CLIENT_ID, DEFAULT_MAX_RESPONSE_BYTES),
            loop,
            environment.halt,
            retry_backoff_ms=config.get("add.partitions.to.txn.retry.backoff.ms"),
            retry_max_ms=config.get("add.partitions.to.txn.retry.backoff.max.ms"),
        )
        self.groups = GroupCoordinator(config, environment, metadata, replicas, loop, self.verifier)
        self.group_lag = GroupLag(
            config.node_id,
            self.groups,
            metadata,
            replicas,
            environment,
            loop,
            lambda broker_id: peer(broker_id, group_lag.CLIENT_ID, group_lag.RESPONSE_MAX_BYTES),
            interval_ms=config.get("metrics.groups.interval.ms"),
            listed_max=config.get("metrics.groups.max"),
        )

    def subscribe(self, loader: MetadataLoader) -> None:
        """To metadata and leaderships; after the replicas have subscribed to the metadata."""
        for coordinator in (self.groups, self.transactions):
            loader.add_publisher(coordinator)
            self._replicas.leaderships.add(coordinator.runtime)
        self._replicas.leaderships.add(self.transactions)

    async def close(self) -> None:
        """Who asks goes before who is asked."""
        await self.group_lag.close()
        await self.verifier.close()
        await self.transactions.close()
        await self.groups.close()

    def _write_markers(self, writes: Sequence[MarkerWrite], timeout_s: float) -> Awaitable[list[Codes]]:
        return write_markers(self._replicas.appends, self.groups, writes, timeout_s)
