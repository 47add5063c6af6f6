"""The offsets of one shard, with topics, groups and a log that are plain values.

Everything that is written goes to the log. `check` loads the log anew and demands the same offsets: what lies in memory
is what the records say.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kraft.coordinator.groups.context import (
    GroupContext,
    GroupCounters,
    GroupSettings,
    GroupType,
    TopicPartitions,
)
from kraft.coordinator.groups.offsets import GroupOffsets
from kraft.coordinator.shard import (
    NO_PRODUCER_ID,
    Decisions,
    Marked,
    Moment,
    ProducerIdAndEpoch,
    Record,
    StoredMarker,
    StoredRecord,
    TransactionMarker,
)
from kraft.coordinator.timers import Timers
from kraft.protocol.errors import ErrorCode

Stored: TypeAlias = StoredRecord | StoredMarker


@dataclass
class FakeTopics:
    topics: dict[str, TopicPartitions] = field(default_factory=dict)
    made: int = 0

    def make(self, name: str, partitions: int) -> TopicPartitions:
        self.made += 1
        self.topics[name] = TopicPartitions(self.made.to_bytes(16, "big"), name, partitions)
        return self.topics[name]

    def named(self, name: str) -> TopicPartitions | None:
        return self.topics.get(name)

    def with_id(self, topic_id: bytes) -> TopicPartitions | None:
        return next((topic for topic in self.topics.values() if topic.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return self.topics


@dataclass
class FakeGroup:
    """A group as its offsets see it. `members` are member ids and their generations or epochs."""

    group_id: str
    type: GroupType = GroupType.CLASSIC
    state: str = "Empty"
    protocol_type: str = ""
    members: dict[str, int] = field(default_factory=dict)
    reads: set[str] | None = field(default_factory=set)
    empty_since_ms: int | None = None

    @property
    def is_empty(self) -> bool:
        return not self.members

    def check_commit(
        self, member_id: str, generation: int, instance_id: str | None, version: int | None
    ) -> ErrorCode:
        """Kafka's rules, less rebalances and static members."""
        if self.is_empty and generation < 0:
            return ErrorCode.NONE
        if version is None and self.type is GroupType.CLASSIC and generation < 0 and not member_id:
            return ErrorCode.NONE
        return self._check_member(member_id, generation)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        if self.type is GroupType.CLASSIC or (member_id is None and member_epoch < 0):
            return ErrorCode.NONE
        return self._check_member(member_id or "", member_epoch)

    def _check_member(self, member_id: str, generation: int) -> ErrorCode:
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if self.members[member_id] == generation:
            return ErrorCode.NONE
        is_classic = self.type is GroupType.CLASSIC
        return ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH

    def is_subscribed_to(self, topic: str) -> bool | None:
        return None if self.reads is None else topic in self.reads


class OffsetsWorld:
    """`offsets` is the one under test; time begins at `NOW_MS`."""

    NOW_MS = 1_700_000_000_000

    def __init__(self, settings: GroupSettings | None = None) -> None:
        self.settings = settings or GroupSettings()
        self.topics = FakeTopics()
        self.counters = GroupCounters()
        self.groups: dict[str, FakeGroup] = {}
        self.log: list[Stored] = []
        self.now = Moment(0, self.NOW_MS)
        self.tokens = 0
        self.offsets = self.empty()

    def empty(self) -> GroupOffsets:
        context = GroupContext(self.settings, Timers(), self.topics, lambda: "id", self.counters)
        return GroupOffsets(context, self.make_group)

    def make_group(self, group_id: str) -> None:
        self.groups[group_id] = FakeGroup(group_id)

    def wait(self, ms: int) -> None:
        self.now = Moment(self.now.monotonic_ms + ms, self.now.wall_ms + ms)

    def take(self, decisions: Decisions) -> list[Record]:
        """Appends what was decided; returns the records."""
        records: list[Record] = []
        for one in decisions.written:
            offset = len(self.log)
            if isinstance(one, Marked):
                producer_id = one.marker.producer.producer_id
                self.log.append(StoredMarker(offset, producer_id, one.marker.is_commit))
                continue
            producer_id = NO_PRODUCER_ID if one.producer is None else one.producer.producer_id
            self.log.append(StoredRecord(offset, self.now.wall_ms, *one.record, producer_id))
            records.append(one.record)
        return records

    def commit(self, request: Any, version: int) -> tuple[Any, list[Record], bool]:
        """The response, the records, and whether the sender was let in."""
        decisions = Decisions()
        self.tokens += 1
        group = self.groups.get(request.group_id)
        is_let_in = self.offsets.commit(self.tokens, request, version, group, self.now, decisions)
        return self._reply(decisions), self.take(decisions), is_let_in

    def commit_in_transaction(self, request: Any) -> tuple[Any, list[Record]]:
        """The response and the records, which are the producer's."""
        decisions = Decisions()
        self.tokens += 1
        group = self.groups.get(request.group_id)
        self.offsets.commit_in_transaction(self.tokens, request, group, self.now, decisions)
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        assert all(not isinstance(one, Marked) and one.producer == producer for one in decisions.written)
        return self._reply(decisions), self.take(decisions)

    def end_transaction(self, producer_id: int, is_commit: bool) -> tuple[set[str], list[Record]]:
        """What the marker is about, and the tombstones behind it."""
        decisions = Decisions()
        self.tokens += 1
        marker = TransactionMarker(ProducerIdAndEpoch(producer_id, 0), is_commit, 0, 2)
        self.offsets.end_transaction(self.tokens, marker, decisions)
        assert self._reply(decisions) is ErrorCode.NONE
        marked = decisions.written[0]
        assert isinstance(marked, Marked)
        assert marked.marker == marker
        return set(marked.about), self.take(decisions)

    def delete(self, request: Any) -> tuple[Any, list[Record]]:
        decisions = Decisions()
        self.tokens += 1
        self.offsets.delete(self.tokens, request, self.groups.get(request.group_id), decisions)
        return self._reply(decisions), self.take(decisions)

    def drop_dead(self) -> list[Record]:
        """All steps."""
        decisions = Decisions()
        while self.offsets.drop_dead(decisions):
            pass
        return self.take(decisions)

    def expire(self) -> tuple[list[Record], list[str]]:
        """All steps: the tombstones, and the groups that may be deleted."""
        decisions, gone, more = Decisions(), [], True
        while more:
            more, found = self.offsets.expire(self.groups, self.now, decisions)
            gone += found
        return self.take(decisions), gone

    def delete_topic(self, name: str) -> None:
        topic = self.topics.topics.pop(name)
        self.offsets.topics_deleted([(name, topic.topic_id)])

    def loaded(self, log: Iterable[Stored]) -> GroupOffsets:
        """Another shard that read this log."""
        offsets = self.empty()
        for one in log:
            if isinstance(one, StoredMarker):
                offsets.replay_marker(one.producer_id, one.is_commit)
            else:
                offsets.replay(one, one.producer_id)
        offsets.on_loaded()
        return offsets

    def compacted(self) -> list[Stored]:
        """The log as a cleaner leaves it: up to the first open transaction the last record of each key, without
        tombstones and what was aborted; from there on everything."""
        ends: dict[int, bool] = {}
        counts: dict[int, bool | None] = {}
        for one in reversed(self.log):
            if isinstance(one, StoredMarker):
                ends[one.producer_id] = one.is_commit
            else:
                counts[one.offset] = one.producer_id == NO_PRODUCER_ID or ends.get(one.producer_id)
        stable = min((offset for offset, does in counts.items() if does is None), default=len(self.log))
        below = [one for one in self.log[:stable] if isinstance(one, StoredRecord) and counts[one.offset]]
        last = {one.key: one.offset for one in below}
        kept = {one.offset for one in below if one.offset == last[one.key] and one.value is not None}
        return [
            one
            for one in self.log
            if isinstance(one, StoredMarker) or one.offset >= stable or one.offset in kept
        ]

    def load(self) -> None:
        """This broker lost the shard and leads it again."""
        self.offsets = self.loaded(self.compacted())
        for group_id in sorted(self.offsets.group_ids()):
            if group_id not in self.groups:
                self.make_group(group_id)

    def check(self) -> None:
        """Beside what is dead and waits for its tombstone, a shard that loads has the same offsets."""
        mine = dict(places(self.offsets))
        for log in (self.log, self.compacted()):
            other = self.loaded(log)
            theirs = dict(places(other))
            assert theirs.keys() == mine.keys()
            assert other.count == self.offsets.count == len(mine)
            assert _pending(other) == _pending(self.offsets)
            for group_id in self.offsets.group_ids():
                for name, partitions in self.offsets.of_group(group_id).items():
                    for index, committed in partitions.items():
                        assert theirs[group_id, name, index] == committed

    def _reply(self, decisions: Decisions) -> Any:
        (reply,) = decisions.replies
        assert reply.token == self.tokens
        return reply.response


def places(offsets: GroupOffsets) -> Iterable[tuple[tuple[str, str, int], Any]]:
    for group_id, topics in offsets._groups.items():
        for name, partitions in topics.items():
            for index, committed in partitions.items():
                yield (group_id, name, index), committed


def _pending(offsets: GroupOffsets) -> dict[int, dict[Any, Any]]:
    return {
        producer_id: {place: (one.committed, one.stands) for place, one in pending.items()}
        for producer_id, pending in offsets._pending._by_producer.items()
    }
