"""The group coordinator of one broker: its shards of __consumer_offsets, and where those of other groups are.

Owned by the broker's server. Handlers ask `submit`; the replica manager's leadership events and the metadata loader
tell it of elections and of topics. The internal topic is made on first use, with the partitions, replicas and
segments that `offsets.topic.*` say; until enough brokers are registered there is no coordinator (KIP-115).
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from kraft.broker.coordinators.shard_log import PartitionShardLog, max_batch_bytes
from kraft.broker.coordinators.topics import MetadataTopics
from kraft.broker.membership.metadata_cache import MetadataCache
from kraft.broker.replicas.replica_manager import ReplicaManager
from kraft.broker.vital_task import start_vital_task
from kraft.config import ServerConfig
from kraft.coordinator.groups.context import GroupContext, GroupCounters, GroupSettings
from kraft.coordinator.groups.partitioning import group_partition
from kraft.coordinator.groups.shard import GroupRequest, GroupShard
from kraft.coordinator.runtime import Environment as RuntimeEnvironment
from kraft.coordinator.runtime import Runtime
from kraft.coordinator.timers import Timers
from kraft.environment import Environment
from partitions.errors import PartitionError
from partitions.topic_partition import TopicPartition
from quorum.controller.topic_names import CONSUMER_OFFSETS
from quorum.metadata.changes import MetadataChanges
from quorum.metadata.features import consumer_groups_enabled
from quorum.metadata.image import MetadataImage
from quorum.rpc.messages import NewTopic

MINUTE_MS: Final = 60_000


class GroupCoordinator:
    """All on the event loop."""

    def __init__(
        self,
        config: ServerConfig,
        environment: Environment,
        metadata: MetadataCache,
        replicas: ReplicaManager,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._replicas = replicas
        self._topics = MetadataTopics(metadata)
        self._rng = environment.rng
        self.settings = group_settings(config)
        self.counters = GroupCounters()
        self.protocols: tuple[str, ...] = config.get("group.coordinator.rebalance.protocols")
        """The group protocols that clients may use."""
        self.runtime: Runtime[GroupRequest, GroupShard] = Runtime(
            CONSUMER_OFFSETS,
            self._make_shard,
            lambda key, epoch: PartitionShardLog(replicas, environment.executor, loop, key, epoch),
            RuntimeEnvironment(
                loop,
                environment.now_ms,
                lambda work, name: start_vital_task(work, name, environment.halt),
            ),
            append_timeout_s=config.get("offsets.commit.timeout.ms") / 1000,
        )

    @property
    def serves_consumer_protocol(self) -> bool:
        """Whether this broker and the cluster's finalized features allow groups of KIP-848."""
        return "consumer" in self.protocols and consumer_groups_enabled(self._metadata.image.features)

    async def close(self) -> None:
        await self.runtime.close()

    # -- where a group is

    @property
    def has_topic(self) -> bool:
        """Whether __consumer_offsets exists."""
        return CONSUMER_OFFSETS in self._metadata.image.topic_ids

    def partition_of(self, group_id: str) -> int | None:
        """The partition of __consumer_offsets that keeps a group; None while there is no such topic."""
        topic = self._metadata.image.topic(CONSUMER_OFFSETS)
        return None if topic is None else group_partition(group_id, len(topic.partitions))

    def leader_of(self, group_id: str) -> int | None:
        """The broker that coordinates a group; None where there is none now."""
        topic = self._metadata.image.topic(CONSUMER_OFFSETS)
        if topic is None:
            return None
        state = topic.partitions[group_partition(group_id, len(topic.partitions))]
        return state.leader if state.has_leader and self._metadata.is_live(state.leader) else None

    def internal_topic(self) -> NewTopic:
        """__consumer_offsets as it is to be made."""
        get = self._config.get
        return NewTopic(
            CONSUMER_OFFSETS,
            get("offsets.topic.num.partitions"),
            get("offsets.topic.replication.factor"),
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", str(get("offsets.topic.segment.bytes"))),
            ),
        )

    # -- requests

    def submit(self, group_id: str, request: GroupRequest, *, reads: bool = False) -> asyncio.Future[Any]:
        """Asks the shard of the group; see `Runtime.submit`."""
        number = self.partition_of(group_id)
        return self.runtime.submit(-1 if number is None else number, request, reads=reads)

    # -- metadata

    def on_metadata(self, changes: MetadataChanges, image: MetadataImage) -> None:
        """Tells the shards which topics changed."""
        if not changes.changed_topics and not changes.deleted_topics:
            return
        deleted = {topic.topic_id: topic.name for topic in changes.deleted_topics.values()}
        changed = {
            image.topics[topic_id].name for topic_id in changes.changed_topics if topic_id in image.topics
        }
        changed.update(deleted.values())
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
                topic_max_bytes=partial(self._topic_max_bytes, TopicPartition(CONSUMER_OFFSETS, number)),
            )
        )

    def _topic_max_bytes(self, key: TopicPartition) -> int | None:
        try:
            return max_batch_bytes(self._replicas.partition(key))
        except PartitionError:
            return None  # it has just gone elsewhere

    def _group_configs(self, group_id: str) -> Mapping[str, str]:
        return self._metadata.image.configs.get(("group", group_id), {})


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
