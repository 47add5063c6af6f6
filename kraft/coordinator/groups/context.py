"""What all groups of a shard share: settings, timers, topics, randomness, counters; and what every group is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

from kraft.coordinator.shard import ShardTimers
from kraft.protocol.errors import ErrorCode

INT_MAX = 2**31 - 1

MayDescribe = Callable[[str], bool]
"""Whether somebody may know of the topic of that name, now."""


def describes_all(topic: str) -> bool:
    """Where there is no authorizer everybody may know of every topic."""
    return True


class GroupType(StrEnum):
    """By their names in ListGroups (KIP-848)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The keys of server.properties that groups go by; names and defaults are Kafka's."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    groups_max: int = 10_000
    """group.coordinator.groups.max, of one shard."""
    max_size: int = INT_MAX
    """group.max.size, of classic groups."""
    consumer_max_size: int = INT_MAX
    consumer_session_timeout_ms: int = 45_000
    consumer_min_session_timeout_ms: int = 45_000
    consumer_max_session_timeout_ms: int = 60_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_min_heartbeat_interval_ms: int = 5_000
    consumer_max_heartbeat_interval_ms: int = 15_000
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 10_080 * 60_000
    offsets_retention_check_interval_ms: int = 600_000
    record_max_bytes: int = 1_048_588
    """message.max.bytes, by which the internal topic goes unless it has a limit of its own."""


class TopicPartitions(NamedTuple):
    """A topic that exists."""

    topic_id: bytes
    name: str
    partitions: int
    racks: tuple[frozenset[str], ...] = ()
    """For each partition the racks that its replicas are in; empty where no broker has one."""


class Topics(Protocol):
    """The topics of this broker's metadata, as they are now."""

    def named(self, name: str) -> TopicPartitions | None: ...

    def with_id(self, topic_id: bytes) -> TopicPartitions | None: ...

    def names(self) -> Iterable[str]:
        """Of all topics."""


@dataclass(slots=True)
class GroupCounters:
    """Counted since the start, for metrics; one object for all shards of a broker."""

    offset_commits: int = 0
    offset_expirations: int = 0
    offset_deletions: int = 0
    rebalances: dict[GroupType, int] = field(default_factory=lambda: dict.fromkeys(GroupType, 0))
    rebalance_ms: dict[GroupType, int] = field(default_factory=lambda: dict.fromkeys(GroupType, 0))
    """The sum of their lengths: from the first change of members to a stable group."""


@dataclass(frozen=True, slots=True)
class GroupContext:
    """One for each shard."""

    settings: GroupSettings
    timers: ShardTimers
    topics: Topics
    new_id: Callable[[], str]
    """A random UUID as text, for member ids."""
    counters: GroupCounters
    group_configs: Callable[[str], Mapping[str, str]] = lambda _group_id: {}
    """The dynamic configs of a group (the resource GROUP)."""
    topic_max_bytes: Callable[[], int | None] = lambda: None
    """max.message.bytes of the internal topic as it is now; None where that is not known."""
    authorizes: bool = False
    """Whether there is an authorizer: then an expression is matched for a member that has it, and for no other."""

    @property
    def record_max_bytes(self) -> int:
        """A group whose record would be larger is refused: an append that fails costs all groups their shard."""
        topic_max_bytes = self.topic_max_bytes()
        return self.settings.record_max_bytes if topic_max_bytes is None else topic_max_bytes


class Client(NamedTuple):
    """Who sent a request."""

    client_id: str
    host: str
    """As Kafka tells it: with a slash before the address."""


class Group(Protocol):
    """What the offsets of a group, and requests about groups of any type, ask of it."""

    group_id: str
    type: GroupType

    @property
    def state(self) -> str:
        """By Kafka's name: Empty, PreparingRebalance, CompletingRebalance, Stable, Dead; Assigning, Reconciling."""

    @property
    def protocol_type(self) -> str:
        """`consumer` where its members are consumers; empty of a group that only has offsets."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""

    @property
    def empty_since_ms(self) -> int | None:
        """Wall time when it became empty; None while that is not known."""

    def check_commit(
        self, member_id: str, generation: int, instance_id: str | None, version: int | None
    ) -> ErrorCode:
        """Whether a member may commit offsets; `generation` is the member epoch in a group of KIP-848, -1 with an
        empty member id that of somebody who is no member. `version` is that of the OffsetCommit; None: it is one in a
        transaction."""

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether the sender of an OffsetFetch may read offsets (version 9 and later tell who it is)."""

    def is_subscribed_to(self, topic: str) -> bool | None:
        """Whether any member reads the topic; None where members do not tell (protocols that are not consumers')."""
