"""The transaction coordinator of one broker: its shards of __transaction_state, and where other ids are coordinated.

Owned by the broker's server. Handlers and the verifier ask `submit`; the replica manager's leadership events and the
metadata loader tell it of elections and of topics. Markers are written by its `MarkerSender`. The internal topic is
made on first use, with the partitions, replicas and segments that `transaction.state.log.*` say; until enough brokers
are registered there is no coordinator. (KIP-98, KIP-890.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, Final

from kraft.broker.coordinators.internal_topic import InternalTopic
from kraft.broker.coordinators.shard_log import batch_limit, hosting
from kraft.broker.coordinators.topics import touched_topics
from kraft.broker.coordinators.transaction_markers import MarkerSender, WriteHere
from kraft.broker.membership.metadata_cache import MetadataCache
from kraft.broker.replicas.peer_connection import PeerConnection
from kraft.broker.replicas.replica_manager import ReplicaManager
from kraft.config import ServerConfig
from kraft.coordinator.runtime import Runtime
from kraft.coordinator.timers import Timers
from kraft.coordinator.transactions.context import (
    TransactionContext,
    TransactionCounters,
    TransactionSettings,
)
from kraft.coordinator.transactions.markers import Acknowledged
from kraft.coordinator.transactions.requests import TransactionRequest
from kraft.coordinator.transactions.shard import TransactionShard
from kraft.environment import Environment
from partitions.topic_partition import TopicPartition
from quorum.controller.topic_names import TRANSACTION_STATE
from quorum.metadata.changes import MetadataChanges
from quorum.metadata.features import TRANSACTION_VERSION, level
from quorum.metadata.image import MetadataImage
from quorum.rpc.messages import NewTopic

APPEND_TIMEOUT_S: Final = 5.0
"""How long a request waits for the replicas until it is told that they could not; as that of groups' commits."""


class TransactionCoordinator:
    """All on the event loop. (A listener of leadership events, as its runtime is.)"""

    def __init__(
        self,
        config: ServerConfig,
        environment: Environment,
        metadata: MetadataCache,
        replicas: ReplicaManager,
        loop: asyncio.AbstractEventLoop,
        peer: Callable[[int], PeerConnection],
        write_here: WriteHere,
    ) -> None:
        """`peer` makes a connection to another broker, `write_here` writes markers into partitions that this one
        leads."""
        self._metadata = metadata
        self._now_ms = environment.now_ms
        self._replicas = replicas
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config.get("transaction.state.log.min.isr")),
            "unclean.leader.election.enable": "false",
        }
        self.topic = InternalTopic(TRANSACTION_STATE, "transaction.state.log", configs, config, metadata)
        self.settings = transaction_settings(config)
        self.counters = TransactionCounters()
        self._serials = count(1)
        self.markers = MarkerSender(
            config.node_id, metadata, write_here, peer, loop, environment.halt, self._on_markers_written
        )
        self.runtime: Runtime[TransactionRequest, TransactionShard] = hosting(
            TRANSACTION_STATE,
            self._make_shard,
            replicas,
            environment,
            loop,
            append_timeout_s=APPEND_TIMEOUT_S,
            perform=self.markers.perform,
        )

    async def close(self) -> None:
        await self.markers.close()
        await self.runtime.close()

    @property
    def transaction_version(self) -> int:
        """The finalized level of the feature transaction.version."""
        return level(self._metadata.image.features, TRANSACTION_VERSION)

    @property
    def oldest_open_ms(self) -> int | None:
        """The age of the transaction that is open for longest, or ends; None if there is none here."""
        started = (shard.oldest_open_since_ms for _, shard in self.runtime.shards())
        since_ms = min((one for one in started if one is not None), default=None)
        return None if since_ms is None else max(self._now_ms() - since_ms, 0)

    # -- where a transactional id is

    def partition_of(self, transactional_id: str) -> int | None:
        """The partition of __transaction_state that keeps it; None while there is no such topic."""
        return self.topic.partition_of(transactional_id)

    def leader_of(self, transactional_id: str) -> int | None:
        """The broker that coordinates it; None where there is none now."""
        return self.topic.leader_of(transactional_id)

    def internal_topic(self) -> NewTopic:
        """__transaction_state as it is to be made."""
        return self.topic.as_new()

    # -- requests and metadata

    def submit(
        self, transactional_id: str, request: TransactionRequest, *, reads: bool = False
    ) -> asyncio.Future[Any]:
        """Asks the shard of the transactional id; see `Runtime.submit`."""
        number = self.partition_of(transactional_id)
        return self.runtime.submit(-1 if number is None else number, request, reads=reads)

    def on_metadata(self, changes: MetadataChanges, image: MetadataImage) -> None:
        """Deleted topics leave all transactions, and markers follow the leaders."""
        changed, deleted = touched_topics(changes, image)
        if deleted:
            names = frozenset(deleted.values())
            self.runtime.each(lambda shard, now, out: shard.on_topics_deleted(names, now, out))
        if changed:
            self.markers.on_topics(changed)

    def on_elected(self, partition: TopicPartition, leader_epoch: int) -> None:
        """The runtime is told too: the shard loads, and sends what is to be sent."""

    def on_resigned(self, partition: TopicPartition, leader_epoch: int) -> None:
        if partition.topic == TRANSACTION_STATE:
            self.markers.end_leadership(partition.partition)

    def on_deleted(self, partition: TopicPartition, topic_id: bytes) -> None:
        """It has resigned before."""

    def _on_markers_written(self, told: Acknowledged) -> None:
        self.runtime.tell(
            told.number,
            told.leader_epoch,
            lambda shard, now, out: shard.on_markers_written(
                told.sent, told.partitions, now, out, is_overtaken=told.is_overtaken
            ),
        )

    def _make_shard(self, number: int) -> TransactionShard:
        return TransactionShard(
            TransactionContext(
                settings=self.settings,
                timers=Timers(),
                counters=self.counters,
                serials=self._serials,
                transaction_version=lambda: self.transaction_version,
                topic_max_bytes=partial(
                    batch_limit, self._replicas, TopicPartition(TRANSACTION_STATE, number)
                ),
            )
        )


def transaction_settings(config: ServerConfig) -> TransactionSettings:
    """What server.properties says of transactions."""
    get: Callable[[str], Any] = config.get
    return TransactionSettings(
        max_timeout_ms=get("transaction.max.timeout.ms"),
        id_expiration_ms=get("transactional.id.expiration.ms"),
        id_expiration_check_interval_ms=get("transaction.remove.expired.transaction.cleanup.interval.ms"),
        ids_max=get("transaction.coordinator.ids.max"),
        record_max_bytes=config.log_defaults.max_message_bytes,
    )
