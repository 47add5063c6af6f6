"""One consumer group of KIP-848 without a broker: topics, a clock, timers, and the records that it wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kraft.coordinator.groups.consumer import ConsumerGroup
from kraft.coordinator.groups.consumer_records import decode
from kraft.coordinator.groups.context import (
    Client,
    GroupContext,
    GroupCounters,
    GroupSettings,
    TopicPartitions,
)
from kraft.coordinator.shard import Decisions, Moment, Record
from kraft.coordinator.timers import Timers
from kraft.protocol.schemas.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)

GROUP_ID = "g"
WALL_MS = 1_700_000_000_000
"""Wall time when the monotonic clock says 0."""


class WorldTopics:
    """The topics of a cluster; ids are their number."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicPartitions] = {}
        self._created = 0

    def put(self, name: str, partitions: int) -> None:
        """Creates or grows a topic."""
        known = self._topics.get(name)
        if known is None:
            self._created += 1
        topic_id = self._created.to_bytes(16, "big") if known is None else known.topic_id
        self._topics[name] = TopicPartitions(topic_id, name, partitions)

    def delete(self, name: str) -> None:
        del self._topics[name]

    def named(self, name: str) -> TopicPartitions | None:
        return self._topics.get(name)

    def with_id(self, topic_id: bytes) -> TopicPartitions | None:
        return next((topic for topic in self._topics.values() if topic.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return list(self._topics)


def state_of(group: ConsumerGroup) -> Any:
    """All that a coordinator knows of the group, but when its epoch began."""
    return (
        group.group_epoch,
        group.assignment_epoch,
        group.state,
        group._metadata_hash,
        group._members,
        group._static_members,
        group._target,
        {topic_id: owners for topic_id, owners in group._owners.items() if owners},
        group._resolved,
        {subscription: count for subscription, (_, count) in group._subscriptions.items()},
    )


class GroupWorld:
    def __init__(self, settings: GroupSettings | None = None) -> None:
        self.now_ms = 0
        self.topics = WorldTopics()
        self.timers: Timers[Any] = Timers()
        self.configs: dict[str, str] = {}
        self.counters = GroupCounters()
        self.settings = settings or GroupSettings()
        self.log: list[tuple[Record, int]] = []
        """Records, and the wall time of each."""
        self.hidden: dict[str, frozenset[str]] | None = None
        """The topics that each member may not describe, "*": that the others may not; None: there is no authorizer."""
        self._ids = iter(range(1, 10**9))
        self._tokens = iter(range(10**9))
        self.group = ConsumerGroup(GROUP_ID, self.context())

    def context(self) -> GroupContext:
        return GroupContext(
            settings=self.settings,
            timers=self.timers,
            topics=self.topics,
            new_id=lambda: f"id-{next(self._ids)}",
            counters=self.counters,
            group_configs=lambda _group_id: self.configs,
            authorizes=self.hidden is not None,
        )

    def hide(self, hidden: dict[str, frozenset[str]]) -> None:
        """ACLs change."""
        self.hidden = (self.hidden or {}) | hidden
        self.group._context = self.context()
        self.group.on_acls_changed()

    @property
    def now(self) -> Moment:
        return Moment(self.now_ms, WALL_MS + self.now_ms)

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, version: int = 1, client_id: str = "client"
    ) -> ConsumerGroupHeartbeatResponse:
        decisions, token = Decisions(), next(self._tokens)
        hidden = self.hidden_from(request.member_id)
        client = Client(client_id, "/10.0.0.1")
        self.group.heartbeat(
            token, request, client, version, self.now, decisions, lambda name: name not in hidden
        )
        (reply,) = decisions.replies
        assert (reply.token, reply.about) == (token, GROUP_ID)
        self.keep(decisions)
        response: ConsumerGroupHeartbeatResponse = reply.response
        return response

    def hidden_from(self, member_id: str) -> frozenset[str]:
        """What the member may not describe."""
        hidden = self.hidden or {}
        return hidden.get(member_id, hidden.get("*", frozenset()))

    def change_topics(self, *names: str) -> None:
        decisions = Decisions()
        self.group.on_topics_changed(names, self.now, decisions)
        assert not decisions.replies
        self.keep(decisions)

    def tick(self, ms: int) -> None:
        """Time passes, and every timer fires at its time."""
        until_ms = self.now_ms + ms
        while (next_ms := self.timers.next_ms) is not None and next_ms <= until_ms:
            self.now_ms = max(self.now_ms, next_ms)
            for action in self.timers.pop_due(self.now_ms):
                decisions = Decisions()
                action(self.now, decisions)
                self.keep(decisions)
        self.now_ms = until_ms

    def keep(self, decisions: Decisions) -> None:
        for written in decisions.written:
            assert written.about == GROUP_ID
            self.log.append((written.record, self.now.wall_ms))

    def replayed(self, *, compacted: bool) -> ConsumerGroup:
        """The group as the log alone tells it; compacted: from the last record of each key, in the log's order."""
        group = ConsumerGroup(GROUP_ID, self.context())
        last = {record.key: place for place, (record, _) in enumerate(self.log)}
        for place, (record, wall_ms) in enumerate(self.log):
            if not compacted or last[record.key] == place:
                group.replay(*decode(*record), wall_ms)
        return group

    def load(self) -> None:
        """Another broker becomes the coordinator."""
        group = self.replayed(compacted=True)
        self.timers = Timers()
        group._context = self.context()
        decisions = Decisions()
        group.on_loaded(self.now, decisions)
        assert not decisions.replies
        self.keep(decisions)
        self.group = group

    def owned_topics(self, partitions: Iterable[tuple[bytes, int]]) -> list[HeartbeatTopicPartitions]:
        by_topic: dict[bytes, list[int]] = {}
        for topic_id, partition in sorted(partitions):
            by_topic.setdefault(topic_id, []).append(partition)
        return [HeartbeatTopicPartitions(topic_id, parts) for topic_id, parts in by_topic.items()]

    def assigned(self, response: ConsumerGroupHeartbeatResponse) -> set[tuple[bytes, int]] | None:
        if response.assignment is None:
            return None
        return set(_flat(response.assignment.topic_partitions))


def _flat(topics: Iterable[HeartbeatTopicPartitions]) -> Iterator[tuple[bytes, int]]:
    for topic in topics:
        for partition in topic.partitions:
            yield topic.topic_id, partition
