"""Random lives of stored offsets, beside a model: a dictionary of what each group committed last for a topic.

A fetch returns the last commit that was accepted, unless it was deleted, expired or died with its topic. No topic made
anew under a name inherits an offset. The log, compacted or not, gives the same offsets as lie in memory.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kraft.coordinator.groups import offsets as module
from kraft.coordinator.groups.context import GroupSettings
from kraft.coordinator.shard import Decisions
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas import group_offsets as s
from tests.support.offsets_world import FakeGroup, OffsetsWorld

NAMES = ("a", "b")
PARTITIONS = 3
SIMPLE = ("g", "h")
READING = "m"
"""A stable group with a member that reads `READ`."""
READ = "a"
RETENTION_MS = 10_000

names = st.sampled_from(NAMES)
groups = st.sampled_from([*SIMPLE, READING])
indexes = st.lists(st.integers(0, PARTITIONS - 1), min_size=1, max_size=PARTITIONS, unique=True)


class Last(NamedTuple):
    """The last commit for a place."""

    offset: int
    commit_ms: int
    own_expiry_ms: int | None

    @property
    def has_topic_id(self) -> bool:
        return self.own_expiry_ms is None


class OffsetsLife(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.step_offsets, module.STEP_OFFSETS = module.STEP_OFFSETS, 2
        self.world = OffsetsWorld(GroupSettings(offsets_retention_ms=RETENTION_MS))
        self.model: dict[tuple[str, str, int], Last] = {}
        self.committed = 0
        member = FakeGroup(READING, state="Stable", protocol_type="consumer", members={"m1": 1}, reads={READ})
        self.world.groups[READING] = member

    def teardown(self) -> None:
        if hasattr(self, "step_offsets"):
            module.STEP_OFFSETS = self.step_offsets

    @rule(name=names)
    def make_topic(self, name: str) -> None:
        if self.world.topics.named(name) is None:
            self.world.topics.make(name, PARTITIONS)

    @rule(name=names)
    def delete_topic(self, name: str) -> None:
        if self.world.topics.named(name) is not None:
            self.world.delete_topic(name)
            self.forget([place for place in self.model if place[1] == name])

    @rule(
        name=names,
        group=groups,
        at=indexes,
        by_id=st.booleans(),
        retention=st.none() | st.integers(0, 30_000),
    )
    def commit(self, name: str, group: str, at: list[int], by_id: bool, retention: int | None) -> None:
        self.committed += 1
        topic = self.world.topics.named(name)
        version = 4 if retention is not None else 10 if by_id else 9
        request = s.OffsetCommitRequest(group, topics=[s.OffsetCommitRequestTopic(name)])
        if group == READING:
            request.member_id, request.generation_id_or_member_epoch = "m1", 1
        if retention is not None:
            request.retention_time_ms = retention
        if by_id and topic is not None:
            request.topics[0].topic_id = topic.topic_id
        request.topics[0].partitions = [
            s.OffsetCommitRequestPartition(index, self.committed, -1, "") for index in at
        ]
        response, records, _ = self.world.commit(request, version)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if version == 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        expected = unknown if topic is None else ErrorCode.NONE
        assert [part.error_code for part in response.topics[0].partitions] == [expected] * len(at)
        assert len(records) == (0 if topic is None else len(at))
        now_ms = self.world.now.wall_ms
        own_expiry_ms = None if retention is None else now_ms + retention
        for index in at if topic is not None else ():
            self.model[group, name, index] = Last(self.committed, now_ms, own_expiry_ms)

    @rule(name=names, group=groups, at=indexes)
    def delete(self, name: str, group: str, at: list[int]) -> None:
        if group not in self.world.groups:
            return
        request = s.OffsetDeleteRequest(group, [s.OffsetDeleteRequestTopic(name)])
        request.topics[0].partitions = [s.OffsetDeleteRequestPartition(index) for index in at]
        self.world.delete(request)
        if self.world.topics.named(name) is not None and not self.is_read(group, name):
            self.forget([(group, name, index) for index in at])

    @rule(ms=st.integers(1, RETENTION_MS))
    def wait(self, ms: int) -> None:
        self.world.wait(ms)

    @rule()
    def expire(self) -> None:
        self.world.expire()
        now_ms = self.world.now.wall_ms
        self.forget(
            [
                (group, name, index)
                for (group, name, index), last in self.model.items()
                if not self.is_read(group, name)
                and now_ms >= (last.own_expiry_ms or last.commit_ms + RETENTION_MS)
            ]
        )

    @rule()
    def one_step(self) -> None:
        decisions = Decisions()
        self.world.offsets.drop_dead(decisions)
        self.world.take(decisions)

    @rule()
    def sweep(self) -> None:
        """Afterwards nothing is left that nobody is told of."""
        self.world.drop_dead()
        assert self.world.offsets.count == len(self.model)

    @rule()
    def load(self) -> None:
        """Once the tombstones of dead offsets are written: records that do not tell a topic's id need them."""
        self.world.drop_dead()
        self.world.load()

    @rule(name=names, is_made_anew=st.booleans())
    def miss_a_deletion(self, name: str, is_made_anew: bool) -> None:
        """While the shard is elsewhere. What does not tell its topic's id goes to the next topic of the name."""
        self.world.drop_dead()
        if self.world.topics.topics.pop(name, None) is None:
            return
        if is_made_anew:
            self.world.topics.make(name, PARTITIONS)
        self.world.load()
        self.world.drop_dead()
        self.forget(
            [
                place
                for place, last in self.model.items()
                if place[1] == name and (last.has_topic_id or not is_made_anew)
            ]
        )

    @invariant()
    def what_is_fetched_is_what_was_committed_last(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.check()
        for group in (*SIMPLE, READING):
            topics = [s.OffsetFetchRequestTopics(name, b"", list(range(PARTITIONS))) for name in NAMES]
            request = s.OffsetFetchRequestGroup(group, topics=topics)
            response = self.world.offsets.fetch_group(request, 9, self.world.groups.get(group), True)
            found = {
                (group, topic.name, part.partition_index): part.committed_offset
                for topic in response.topics
                for part in topic.partitions
                if part.committed_offset != s.NO_OFFSET
            }
            assert found == {place: last.offset for place, last in self.model.items() if place[0] == group}
            request.topics = None
            response = self.world.offsets.fetch_group(request, 9, self.world.groups.get(group), True)
            assert sum(len(topic.partitions) for topic in response.topics) == len(found)

    def is_read(self, group: str, name: str) -> bool:
        return (group, name) == (READING, READ)

    def forget(self, places: list[tuple[str, str, int]]) -> None:
        for place in places:
            self.model.pop(place, None)


TestOffsetsLife = OffsetsLife.TestCase
TestOffsetsLife.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
