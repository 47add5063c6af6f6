"""The group coordinator of one broker: its shards of __consumer_offsets, and where those of other groups are.

Owned by the broker's server. Handlers ask `submit`; the replica manager's leadership events and the metadata loader
tell it of elections and of topics. The internal topic is made on first use, with the partitions, replicas and
segments that `offsets.topic.*` say; until enough brokers are registered there is no coordinator (KIP-115).

Offsets in transactions: the coordinator of the transaction is asked before they are appended, under a guard, and what
the log says of the producer is looked at in the same call that appends (KIP-890). A marker ends them through the shard.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol

from kraft.broker.coordinators.internal_topic import InternalTopic
from kraft.broker.coordinators.shard_log import batch_limit, hosting
from kraft.broker.coordinators.topics import MetadataTopics, touched_topics
from kraft.broker.membership.metadata_cache import MetadataCache
from kraft.broker.replicas.appends import ASKED_AT_MOST
from kraft.broker.replicas.replica_manager import ReplicaManager
from kraft.config import ServerConfig
from kraft.coordinator.groups.context import Client, GroupContext, GroupCounters, GroupSettings
from kraft.coordinator.groups.shard import AwaitCommitted, EndTransaction, GroupRequest, GroupShard
from kraft.coordinator.runtime import Runtime, ShardLog
from kraft.coordinator.shard import ProducerIdAndEpoch, TransactionMarker
from kraft.coordinator.timers import Timers
from kraft.environment import Environment
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.group_offsets import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from partitions.errors import PartitionError
from partitions.log.errors import AppendError
from partitions.log.producers.producer_state import EPOCH_FOR_EACH_TRANSACTION
from partitions.log.producers.verifications import VERIFICATION_OFF, VerificationGuard
from partitions.partition import Partition
from partitions.records.control import ControlType
from partitions.records.markers import EndTransactionMarker
from partitions.topic_partition import TopicPartition
from quorum.controller.topic_names import CONSUMER_OFFSETS
from quorum.metadata.changes import MetadataChanges
from quorum.metadata.features import TRANSACTION_VERSION, consumer_groups_enabled, level
from quorum.metadata.image import MetadataImage

MINUTE_MS: Final = 60_000
FIRST_TXN_COMMIT_VERSION_THAT_ADDS: Final = 5
"""Of TxnOffsetCommit: from it on the group's partition joins the transaction with the commit (KIP-890)."""
_NOTHING_TO_END: Final = object()


class Verifier(Protocol):
    """Asks transaction coordinators; `TransactionVerifier` fits."""

    async def verify(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partition: TopicPartition,
        *,
        adds: bool,
        timeout_s: float,
    ) -> ErrorCode:
        """NONE if the partition is in the producer's open transaction; with `adds` it is added."""


class GroupCoordinator:
    """All on the event loop."""

    def __init__(
        self,
        config: ServerConfig,
        environment: Environment,
        metadata: MetadataCache,
        replicas: ReplicaManager,
        loop: asyncio.AbstractEventLoop,
        verifier: Verifier,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._replicas = replicas
        self._topics = MetadataTopics(metadata)
        configs = {"cleanup.policy": "compact", "compression.type": "producer"}
        self.topic = InternalTopic(CONSUMER_OFFSETS, "offsets.topic", configs, config, metadata)
        self._rng = environment.rng
        self._verifier = verifier
        self._commit_timeout_s = config.get("offsets.commit.timeout.ms") / 1000
        self.settings = group_settings(config)
        self._authorizes = bool(config.get("authorizer.class.name"))
        self.counters = GroupCounters()
        self.protocols: tuple[str, ...] = config.get("group.coordinator.rebalance.protocols")
        """The group protocols that clients may use."""
        self.runtime: Runtime[GroupRequest, GroupShard] = hosting(
            CONSUMER_OFFSETS,
            self._make_shard,
            replicas,
            environment,
            loop,
            append_timeout_s=self._commit_timeout_s,
        )

    @property
    def serves_consumer_protocol(self) -> bool:
        """Whether this broker and the cluster's finalized features allow groups of KIP-848."""
        return "consumer" in self.protocols and consumer_groups_enabled(self._metadata.image.features)

    @property
    def transactions_add_partitions(self) -> bool:
        """Whether producers may leave it to brokers to add partitions to their transactions (KIP-890)."""
        return level(self._metadata.image.features, TRANSACTION_VERSION) >= EPOCH_FOR_EACH_TRANSACTION

    async def close(self) -> None:
        await self.runtime.close()

    # -- where a group is

    def partition_of(self, group_id: str) -> int | None:
        """The partition of __consumer_offsets that keeps a group; None while there is no such topic."""
        return self.topic.partition_of(group_id)

    # -- requests

    def submit(self, group_id: str, request: GroupRequest, *, reads: bool = False) -> asyncio.Future[Any]:
        """Asks the shard of the group; see `Runtime.submit`."""
        number = self.partition_of(group_id)
        return self.runtime.submit(-1 if number is None else number, request, reads=reads)

    # -- transactions

    async def commit_in_transaction(self, request: GroupRequest) -> TxnOffsetCommitResponse | ErrorCode:
        """Asks the shard of the group to take a TxnOffsetCommit into the producer's transaction. An ErrorCode says why
        it was not asked, as `Runtime.submit` does; or what the transaction's coordinator said of it, or the log:
        INVALID_TXN_STATE if the transaction ended meanwhile, INVALID_PRODUCER_EPOCH."""
        body: TxnOffsetCommitRequest = request.body
        producer = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
        number = self.partition_of(body.group_id)
        if number is None or number not in self.runtime.hosted:
            return ErrorCode.NOT_COORDINATOR
        key = TopicPartition(CONSUMER_OFFSETS, number)
        adds = request.version >= FIRST_TXN_COMMIT_VERSION_THAT_ADDS and self.transactions_add_partitions
        guard: VerificationGuard | None = VERIFICATION_OFF
        for _ in range(ASKED_AT_MOST):
            try:
                partition = self._replicas.partition(key)
                if adds or self._config.get("transaction.partition.verification.enable"):
                    guard = partition.begin_verification(*producer, supports_epoch_bump=adds)
            except PartitionError:
                return ErrorCode.NOT_COORDINATOR
            if guard is None or guard is VERIFICATION_OFF:
                break
            error = await self._verifier.verify(
                body.transactional_id, producer, key, adds=adds, timeout_s=self._commit_timeout_s
            )
            if error:
                return error
            if partition.is_verified(guard, producer.producer_id):
                break

        def refusal(_log: ShardLog) -> ErrorCode | None:
            return _refusal_in_transaction(partition, producer, guard)

        response: TxnOffsetCommitResponse | ErrorCode = await self.runtime.submit(
            number, request, precondition=refusal
        )
        return response

    def end_transaction(self, number: int, marker: TransactionMarker) -> asyncio.Future[ErrorCode]:
        """Writes a marker to that partition of __consumer_offsets, if there is anything to end: what the transaction
        committed then stands, or is forgotten. NONE when all of it is committed; else the error of
        `Runtime.submit`, or that by which the log refuses the marker (`Partition.judge_marker`)."""

        def judge(_log: ShardLog) -> Any:
            try:
                partition = self._replicas.partition(TopicPartition(CONSUMER_OFFSETS, number))
                kind = ControlType.COMMIT if marker.is_commit else ControlType.ABORT
                end = EndTransactionMarker(kind, marker.coordinator_epoch)
                is_due = partition.judge_marker(*marker.producer, end, marker.transaction_version)
            except PartitionError:
                return ErrorCode.NOT_COORDINATOR
            except AppendError as error:
                return ErrorCode[error.code]
            return None if is_due else _NOTHING_TO_END

        ended = self.runtime.submit(number, _request_of_broker(EndTransaction(marker)), precondition=judge)
        if ended.done() and ended.result() is _NOTHING_TO_END:
            return self.runtime.submit(number, _request_of_broker(AwaitCommitted()), reads=True)
        return ended

    # -- metadata

    def on_metadata(self, changes: MetadataChanges, image: MetadataImage) -> None:
        """Tells the shards which topics changed, and of ACLs."""
        if self._authorizes and changes.changed_acls:
            self.runtime.each(lambda shard, now, out: shard.on_acls())
        changed, deleted = touched_topics(changes, image)
        if changed:
            self.runtime.each(lambda shard, now, out: shard.on_topics(changed, deleted, now, out))

    def _make_shard(self, number: int) -> GroupShard:
        return GroupShard(
            GroupContext(
                settings=self.settings,
                timers=Timers(),
                topics=self._topics,
                new_id=partial(_random_uuid, self._rng),
                counters=self.counters,
                group_configs=self._group_configs,
                topic_max_bytes=partial(
                    batch_limit, self._replicas, TopicPartition(CONSUMER_OFFSETS, number)
                ),
                authorizes=self._authorizes,
            )
        )

    def _group_configs(self, group_id: str) -> Mapping[str, str]:
        return self._metadata.image.configs.get(("group", group_id), {})


def _request_of_broker(body: Any) -> GroupRequest:
    return GroupRequest(body, 0, Client("", ""))


def _refusal_in_transaction(
    partition: Partition, producer: ProducerIdAndEpoch, guard: VerificationGuard | None
) -> ErrorCode | None:
    """Why records in this producer's transaction are not appended now. Without a guard it is open here: that was looked
    at in the same call."""
    try:
        partition.check_transactional(*producer)
        if guard is not None:
            partition.check_verified(guard, producer.producer_id)
    except AppendError as error:
        return ErrorCode[error.code]
    return None


def _random_uuid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def group_settings(config: ServerConfig) -> GroupSettings:
    """What server.properties says of groups."""
    get: Callable[[str], Any] = config.get
    return GroupSettings(
        min_session_timeout_ms=get("group.min.session.timeout.ms"),
        max_session_timeout_ms=get("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=get("group.initial.rebalance.delay.ms"),
        max_size=get("group.max.size"),
        groups_max=get("group.coordinator.groups.max"),
        consumer_max_size=get("group.consumer.max.size"),
        consumer_session_timeout_ms=get("group.consumer.session.timeout.ms"),
        consumer_min_session_timeout_ms=get("group.consumer.min.session.timeout.ms"),
        consumer_max_session_timeout_ms=get("group.consumer.max.session.timeout.ms"),
        consumer_heartbeat_interval_ms=get("group.consumer.heartbeat.interval.ms"),
        consumer_min_heartbeat_interval_ms=get("group.consumer.min.heartbeat.interval.ms"),
        consumer_max_heartbeat_interval_ms=get("group.consumer.max.heartbeat.interval.ms"),
        consumer_assignors=get("group.consumer.assignors"),
        offset_metadata_max_bytes=get("offset.metadata.max.bytes"),
        offsets_retention_ms=get("offsets.retention.minutes") * MINUTE_MS,
        offsets_retention_check_interval_ms=get("offsets.retention.check.interval.ms"),
        record_max_bytes=config.log_defaults.max_message_bytes,
    )
