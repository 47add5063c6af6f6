"""Random lives of stored offsets, beside a model: the commits of each group for a topic, in their order.

A fetch returns the last commit that counts, unless it was deleted, expired or died with its topic; one in a transaction
counts once that is committed, and is unstable until it ends. No topic made anew under a name inherits an offset. The
log, compacted or not, gives the same offsets as lie in memory, and the same open transactions.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kraft.coordinator.groups import offsets as module
from kraft.coordinator.groups.context import GroupSettings
from kraft.coordinator.shard import Decisions
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas import group_offsets as s
from tests.support.examples import examples
from tests.support.offsets_world import FakeGroup, OffsetsWorld, places

NAMES = ("a", "b")
PARTITIONS = 2
SIMPLE = ("g",)
READING = "m"
"""A stable group with a member that reads `READ`."""
READ = "a"
RETENTION_MS = 10_000

names = st.sampled_from(NAMES)
groups = st.sampled_from([*SIMPLE, READING])
producers = st.integers(1, 2)
indexes = st.lists(st.integers(0, PARTITIONS - 1), min_size=1, max_size=PARTITIONS, unique=True)


class Commit(NamedTuple):
    """A commit for a place."""

    producer: int | None
    """Whose open transaction it is in."""
    offset: int
    commit_ms: int
    own_expiry_ms: int | None

    @property
    def has_topic_id(self) -> bool:
        return self.own_expiry_ms is None


Place = tuple[str, str, int]


class OffsetsLife(RuleBasedStateMachine):
    @initialize(has_transactions=st.booleans())
    def begin(self, has_transactions: bool) -> None:
        """A life has transactions, or commits that ask for a retention of their own: what does not tell its topic's id
        may outlive its topic where a transaction is in the way of its tombstone."""
        self.has_transactions = has_transactions
        self.step_offsets, module.STEP_OFFSETS = module.STEP_OFFSETS, 2
        self.world = OffsetsWorld(GroupSettings(offsets_retention_ms=RETENTION_MS))
        for name in NAMES:
            self.world.topics.make(name, PARTITIONS)
        self.history: dict[Place, list[Commit]] = defaultdict(list)
        """In their order; nothing stands behind one that counts."""
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
            self.forget([place for place in self.history if place[1] == name])

    @rule(
        name=names,
        group=groups,
        at=indexes,
        by_id=st.booleans(),
        retention=st.none() | st.integers(0, 30_000),
    )
    def commit(self, name: str, group: str, at: list[int], by_id: bool, retention: int | None) -> None:
        self.committed += 1
        if self.has_transactions:
            retention = None
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
            self.history[group, name, index].append(Commit(None, self.committed, now_ms, own_expiry_ms))

    @rule(name=names, group=groups, at=indexes, producer=producers)
    def commit_in_transaction(self, name: str, group: str, at: list[int], producer: int) -> None:
        self.committed += 1
        if not self.has_transactions:
            return
        request = s.TxnOffsetCommitRequest("a transaction", group, producer, 0)
        if group == READING:
            request.member_id, request.generation_id = "m1", 1
        parts = [s.TxnOffsetCommitRequestPartition(index, self.committed, -1, "") for index in at]
        request.topics = [s.TxnOffsetCommitRequestTopic(name, parts)]
        response, records = self.world.commit_in_transaction(request)
        exists = self.world.topics.named(name) is not None
        expected = ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [part.error_code for part in response.topics[0].partitions] == [expected] * len(at)
        assert len(records) == (len(at) if exists else 0)
        for index in at if exists else ():
            commit = Commit(producer, self.committed, self.world.now.wall_ms, None)
            self.history[group, name, index].append(commit)

    @rule(producer=producers, is_commit=st.booleans(), again=st.booleans())
    def end_transaction(self, producer: int, is_commit: bool, again: bool) -> None:
        about, _ = self.world.end_transaction(producer, is_commit)
        mine = {place[0] for place, commits in self.history.items() if producer in _producers(commits)}
        assert about >= mine
        for place, commits in self.history.items():
            kept = [one for one in commits if is_commit or one.producer != producer]
            self.history[place] = [
                one._replace(producer=None if one.producer == producer else one.producer) for one in kept
            ]
        if again:
            assert self.world.end_transaction(producer, not is_commit) == (set(), [])

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
                place
                for place, last in self.standing().items()
                if not self.is_read(place[0], place[1])
                and not self.is_unstable(place)
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
        """Afterwards nothing is left that nobody is told of, but where a tombstone would take what is pending."""
        self.world.drop_dead()
        left = dict(places(self.world.offsets)).keys() - self.standing().keys()
        assert all(self.is_unstable(place) for place in left)

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
                for place, commits in self.history.items()
                if place[1] == name and (not is_made_anew or all(one.has_topic_id for one in commits[-1:]))
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
            standing = {place: one.offset for place, one in self.standing().items() if place[0] == group}
            assert self.fetched(request, False)[0] == standing
            told, unstable = self.fetched(request, True)
            assert unstable == {
                place for place in self.history if place[0] == group and self.is_unstable(place)
            }
            assert told == {place: offset for place, offset in standing.items() if place not in unstable}
            request.topics = None
            assert self.fetched(request, True) == (told, unstable & standing.keys())

    def fetched(
        self, request: s.OffsetFetchRequestGroup, require_stable: bool
    ) -> tuple[dict[Place, int], set[Place]]:
        """The offsets, and where they are unstable."""
        group = self.world.groups.get(request.group_id)
        response = self.world.offsets.fetch_group(request, 9, group, require_stable)
        parts = {
            (request.group_id, topic.name, part.partition_index): part
            for topic in response.topics
            for part in topic.partitions
        }
        return (
            {place: one.committed_offset for place, one in parts.items() if one.committed_offset != -1},
            {place for place, one in parts.items() if one.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT},
        )

    def standing(self) -> dict[Place, Commit]:
        """What counts, by place."""
        last = {place: self.counting(commits)[-1:] for place, commits in self.history.items()}
        return {place: found[0] for place, found in last.items() if found}

    def counting(self, commits: list[Commit]) -> list[Commit]:
        return [one for one in commits if one.producer is None]

    def is_unstable(self, place: Place) -> bool:
        return any(one.producer is not None for one in self.history.get(place, ()))

    def is_read(self, group: str, name: str) -> bool:
        return (group, name) == (READING, READ)

    def forget(self, places: list[Place]) -> None:
        for place in places:
            self.history.pop(place, None)


def _producers(commits: list[Commit]) -> set[int | None]:
    return {one.producer for one in commits}


TestOffsetsLife = OffsetsLife.TestCase
TestOffsetsLife.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)
