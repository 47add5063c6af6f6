"""The internal topic of a kind of coordinators, and where the coordinator of a key is: the leader of its partition.

Both the group coordinator and the transaction coordinator have one. The topic is made on first use; until enough
brokers are registered for its replicas there is no coordinator (KIP-115).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kraft.broker.membership.metadata_cache import MetadataCache
from kraft.config import ServerConfig
from kraft.coordinator.groups.partitioning import group_partition
from quorum.rpc.messages import NewTopic


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """`keys` is how the keys of server.properties about it begin, `configs` what it is made with beside its segments'
    size."""

    name: str
    keys: str
    configs: Mapping[str, str]
    config: ServerConfig
    metadata: MetadataCache

    @property
    def exists(self) -> bool:
        return self.name in self.metadata.image.topic_ids

    def partition_of(self, key: str) -> int | None:
        """The partition that keeps a group, or a transactional id; None while there is no such topic."""
        topic = self.metadata.image.topic(self.name)
        return None if topic is None else group_partition(key, len(topic.partitions))

    def leader_of(self, key: str) -> int | None:
        """The broker that coordinates it; None where there is none now."""
        topic = self.metadata.image.topic(self.name)
        if topic is None:
            return None
        state = topic.partitions[group_partition(key, len(topic.partitions))]
        return state.leader if state.has_leader and self.metadata.is_live(state.leader) else None

    @property
    def replication_factor_key(self) -> str:
        return f"{self.keys}.replication.factor"

    def as_new(self) -> NewTopic:
        """As it is to be made."""
        get = self.config.get
        configs = {**self.configs, "segment.bytes": str(get(f"{self.keys}.segment.bytes"))}
        return NewTopic(
            self.name,
            get(f"{self.keys}.num.partitions"),
            get(self.replication_factor_key),
            configs=tuple(configs.items()),
        )
