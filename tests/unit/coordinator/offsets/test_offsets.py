"""What stories do not show: steps, open transactions, records that cannot be read, the forms of OffsetFetch."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from kraft.coordinator.groups import offsets as module
from kraft.coordinator.groups.context import GroupSettings
from kraft.coordinator.groups.offset_fetch import asked_groups, merged
from kraft.coordinator.groups.offset_records import Committed, Place, decode_key, encode, encode_tombstone
from kraft.coordinator.shard import Decisions, StoredRecord
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas import group_offsets as s
from tests.support.offsets_world import FakeGroup, OffsetsWorld

PRODUCER = 4_711


def commit_request(group_id: str, name: str, *indexes: int, offset: int = 1) -> s.OffsetCommitRequest:
    partitions = [s.OffsetCommitRequestPartition(index, offset, -1, "") for index in indexes]
    return s.OffsetCommitRequest(group_id, topics=[s.OffsetCommitRequestTopic(name, partitions=partitions)])


def fetched(world: OffsetsWorld, group_id: str, *indexes: int, stable: bool = True) -> list[tuple[int, int]]:
    request = s.OffsetFetchRequestGroup(
        group_id, topics=[s.OffsetFetchRequestTopics("t", b"", list(indexes))]
    )
    group = world.offsets.fetch_group(request, 9, world.groups.get(group_id), stable)
    return [(part.committed_offset, part.error_code) for part in group.topics[0].partitions]


@pytest.fixture
def world() -> OffsetsWorld:
    world = OffsetsWorld()
    world.topics.make("t", 10_000)
    return world


class TestSteps:
    def test_an_expiry_looks_at_a_bounded_number_of_offsets_a_call(self, world: OffsetsWorld) -> None:
        for number in range(5):
            world.commit(commit_request(f"g{number}", "t", *range(module.STEP_OFFSETS)), 9)
        world.wait(world.settings.offsets_retention_ms)
        sizes, gone, more = [], [], True
        while more:
            decisions = Decisions()
            more, found = world.offsets.expire(world.groups, world.now, decisions)
            sizes.append(len(world.take(decisions)))
            gone += found
            world.check()
        assert [size for size in sizes if size] == [module.STEP_OFFSETS] * 5
        assert gone == [f"g{number}" for number in range(5)]
        assert world.counters.offset_expirations == 5 * module.STEP_OFFSETS
        assert world.offsets.count == 0

    def test_a_commit_between_two_steps_of_a_deletion_stands(self, world: OffsetsWorld) -> None:
        for number in range(3):
            world.commit(commit_request(f"g{number}", "t", *range(module.STEP_OFFSETS)), 9)
        world.delete_topic("t")
        world.topics.make("t", 1)
        decisions = Decisions()
        assert world.offsets.drop_dead(decisions)
        world.take(decisions)
        world.commit(commit_request("g2", "t", 0, offset=5), 9)
        records = world.drop_dead()
        assert len(records) == 2 * module.STEP_OFFSETS - 1
        assert fetched(world, "g2", 0, 1) == [(5, 0), (-1, 0)]
        world.check()

    def test_many_deletions_of_topics_wait_without_nesting(self, world: OffsetsWorld) -> None:
        for _ in range(3_000):
            world.topics.make("u", 1)
            world.commit(commit_request("g", "u", 0), 9)
            world.delete_topic("u")
        assert [decode_key(record.key) for record in world.drop_dead()] == [Place("g", "u", 0)]
        assert world.drop_dead() == []

    def test_a_check_after_a_load_goes_in_steps_too(self, world: OffsetsWorld) -> None:
        for number in range(3):
            world.commit(commit_request(f"g{number}", "t", *range(module.STEP_OFFSETS)), 9)
        del world.topics.topics["t"]
        world.load()
        decisions = Decisions()
        assert world.offsets.drop_dead(decisions)
        assert len(decisions.written) == module.STEP_OFFSETS
        world.take(decisions)
        assert len(world.drop_dead()) == 2 * module.STEP_OFFSETS
        assert world.offsets.group_ids() == set()

    def test_a_check_that_is_asked_for_again_begins_anew_and_is_one(self, world: OffsetsWorld) -> None:
        for number in range(3):
            world.commit(commit_request(f"g{number}", "t", *range(module.STEP_OFFSETS)), 9)
        for _ in range(5):
            world.offsets.on_loaded()
            assert world.offsets.drop_dead(Decisions())
        assert len(world.offsets._dead) == 1
        del world.topics.topics["t"]
        world.offsets.on_loaded()
        assert len(world.drop_dead()) == 3 * module.STEP_OFFSETS


class TestDeletedGroups:
    def test_all_offsets_of_the_group_get_a_tombstone(self, world: OffsetsWorld) -> None:
        world.commit(commit_request("g", "t", 0, 3, 1), 9)
        world.commit(commit_request("h", "t", 0), 9)
        decisions = Decisions()
        assert world.offsets.delete_group("g", decisions) == 3
        assert decisions.written == [
            ("g", encode_tombstone(Place("g", "t", index)), None) for index in (0, 1, 3)
        ]
        world.take(decisions)
        world.check()
        assert world.counters.offset_deletions == 3
        assert world.offsets.of_group("g") == {}
        assert world.offsets.group_ids() == {"h"}


class TestOpenTransactions:
    def put(self, world: OffsetsWorld, index: int, offset: int, producer_id: int = PRODUCER) -> None:
        topic = world.topics.named("t")
        assert topic is not None
        record = encode(Place("g", "t", index), Committed(offset, -1, "", 1, -1, topic.topic_id))
        world.offsets.replay(StoredRecord(0, 0, *record), producer_id)

    def test_an_offset_is_unstable_until_the_transaction_ends(self, world: OffsetsWorld) -> None:
        world.commit(commit_request("g", "t", 0, offset=1), 9)
        self.put(world, 0, 5)
        unstable = [(-1, ErrorCode.UNSTABLE_OFFSET_COMMIT), (-1, 0)]
        assert fetched(world, "g", 0, 1) == unstable
        assert fetched(world, "g", 0, 1, stable=False) == [(1, 0), (-1, 0)]
        assert {index: one.offset for index, one in world.offsets.of_group("g")["t"].items()} == {0: 1}
        world.offsets.replay_marker(PRODUCER, is_commit=True)
        assert fetched(world, "g", 0, 1) == [(5, 0), (-1, 0)]
        assert world.offsets.count == 1

    def test_an_aborted_transaction_leaves_what_was_there(self, world: OffsetsWorld) -> None:
        world.commit(commit_request("g", "t", 0, offset=1), 9)
        self.put(world, 0, 5)
        self.put(world, 1, 5)
        world.offsets.replay_marker(PRODUCER, is_commit=False)
        assert fetched(world, "g", 0, 1) == [(1, 0), (-1, 0)]
        world.offsets.replay_marker(PRODUCER, is_commit=True)
        assert fetched(world, "g", 0, 1) == [(1, 0), (-1, 0)]

    def test_the_later_commit_stands_whichever_way_it_came(self, world: OffsetsWorld) -> None:
        self.put(world, 0, 5)
        world.commit(commit_request("g", "t", 0, offset=6), 9)
        self.put(world, 0, 7, PRODUCER + 1)
        world.offsets.replay_marker(PRODUCER, is_commit=True)
        assert fetched(world, "g", 0, stable=False) == [(6, 0)]
        assert fetched(world, "g", 0) == [(-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)]
        world.offsets.replay_marker(PRODUCER + 1, is_commit=True)
        assert fetched(world, "g", 0) == [(7, 0)]

    def test_the_later_record_stands_when_a_shard_loads(self, world: OffsetsWorld) -> None:
        world.commit(commit_request("g", "t", 0, offset=6), 9)
        self.put(world, 0, 5)
        world.offsets.replay(world.log[0])
        world.offsets.replay_marker(PRODUCER, is_commit=True)
        assert fetched(world, "g", 0) == [(6, 0)]

    def test_a_group_with_nothing_but_an_open_transaction_stays(self, world: OffsetsWorld) -> None:
        world.make_group("g")
        self.put(world, 0, 5)
        world.offsets.on_loaded()
        assert world.offsets.group_ids() == {"g"}
        assert world.expire() == ([], [])
        world.offsets.replay_marker(PRODUCER, is_commit=False)
        assert world.expire() == ([], ["g"])

    def test_a_tombstone_takes_what_is_pending_too(self, world: OffsetsWorld) -> None:
        self.put(world, 0, 5)
        decisions = Decisions()
        assert world.offsets.delete_group("g", decisions) == 1
        assert decisions.written == [("g", encode_tombstone(Place("g", "t", 0)), None)]
        world.offsets.replay_marker(PRODUCER, is_commit=True)
        assert fetched(world, "g", 0) == [(-1, 0)]

    def test_a_tombstone_of_the_log_does_the_same(self, world: OffsetsWorld) -> None:
        self.put(world, 0, 5)
        self.put(world, 1, 5)
        world.offsets.replay(StoredRecord(1, 0, encode_tombstone(Place("g", "t", 0)).key, None))
        world.offsets.replay_marker(PRODUCER, is_commit=True)
        assert fetched(world, "g", 0, 1) == [(-1, 0), (5, 0)]

    def test_a_deleted_topic_takes_what_is_pending_too(self, world: OffsetsWorld) -> None:
        self.put(world, 0, 5)
        world.delete_topic("t")
        world.topics.make("t", 1)
        assert len(world.drop_dead()) == 1
        world.offsets.replay_marker(PRODUCER, is_commit=True)
        assert fetched(world, "g", 0) == [(-1, 0)]
        assert world.offsets.count == 0

    def test_neither_the_offset_nor_its_group_expires_while_a_transaction_is_open(
        self, world: OffsetsWorld
    ) -> None:
        world.commit(commit_request("g", "t", 0, 1), 9)
        self.put(world, 0, 5)
        world.wait(world.settings.offsets_retention_ms)
        records, gone = world.expire()
        assert ([decode_key(record.key).partition for record in records], gone) == ([1], [])
        world.offsets.replay_marker(PRODUCER, is_commit=False)
        records, gone = world.expire()
        assert ([decode_key(record.key).partition for record in records], gone) == ([0], ["g"])


class TestReplay:
    def test_a_record_that_cannot_be_read_is_left_out_and_logged(self, world: OffsetsWorld) -> None:
        world.commit(commit_request("g", "t", 0, offset=3), 9)
        good = world.log[0]
        with capture_logs() as logs:
            loaded = world.loaded(
                [
                    good,
                    good._replace(offset=1, value=b"\0\7rest"),
                    good._replace(offset=2, value=b""),
                    good._replace(offset=3, key=good.key[:-1]),
                ]
            )
        assert [entry["offset"] for entry in logs] == [1, 2, 3]
        assert loaded.of_group("g")["t"][0].offset == 3

    def test_a_key_may_come_back_after_its_tombstone(self, world: OffsetsWorld) -> None:
        world.commit(commit_request("g", "t", 0, offset=3), 9)
        record = world.log[0]
        loaded = world.loaded([record, record._replace(value=None), record])
        assert loaded.count == 1
        assert loaded.of_group("g")["t"][0].offset == 3
        assert world.loaded([record, record._replace(value=None)]).group_ids() == set()

    def test_few_keys_are_remembered(self, world: OffsetsWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "MAX_KNOWN_KEYS", 2)
        for offset in range(3):
            world.commit(commit_request("g", "t", *range(5), offset=offset), 9)
        world.check()
        offsets = world.empty()
        for record in world.log:
            offsets.replay(record)
            assert len(offsets._tables) == len(offsets._indexes) <= 2

    def test_what_loading_needed_is_given_back(self, world: OffsetsWorld) -> None:
        world.commit(commit_request("g", "t", *range(5)), 9)
        loaded = world.loaded(world.log)
        assert not loaded._tables
        assert not loaded._indexes
        assert not loaded._topic_ids


class TestCommits:
    def test_only_what_is_written_counts(self, world: OffsetsWorld) -> None:
        world.commit(commit_request("g", "t", 0, 1, 20_000), 9)
        assert world.counters.offset_commits == 2

    def test_an_endless_retention_of_its_own_fits_its_record(self, world: OffsetsWorld) -> None:
        request = commit_request("g", "t", 0)
        request.retention_time_ms = 2**63 - 1
        world.commit(request, 3)
        assert world.offsets.of_group("g")["t"][0].expire_ms == 2**63 - 1
        world.check()

    def test_one_request_fills_a_batch_to_the_last_byte(self) -> None:
        topics = OffsetsWorld()
        topics.topics.make("t", 10)
        request = commit_request("g", "t", 0, 1, 2)
        _, records, _ = topics.commit(request, 9)
        size = module._batch_bytes(records)
        for limit, error in ((size, ErrorCode.NONE), (size - 1, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)):
            world = OffsetsWorld(GroupSettings(record_max_bytes=limit))
            world.topics.make("t", 10)
            response, records, _ = world.commit(request, 9)
            assert [part.error_code for part in response.topics[0].partitions] == [error] * 3
            assert world.offsets.count == len(records) == (0 if error else 3)


class TestFormsOfOffsetFetch:
    def request(self) -> s.OffsetFetchRequest:
        return s.OffsetFetchRequest("g", [s.OffsetFetchRequestTopic("t", [0, 4])])

    def test_one_group_is_asked_for_up_to_version_7(self) -> None:
        expected = s.OffsetFetchRequestGroup(
            "g", None, -1, [s.OffsetFetchRequestTopics("t", bytes(16), [0, 4])]
        )
        assert asked_groups(self.request(), 7) == [expected]
        everything = s.OffsetFetchRequest("g", None)
        assert asked_groups(everything, 2) == [s.OffsetFetchRequestGroup("g", topics=None)]

    def test_several_are_asked_for_from_version_8_on(self) -> None:
        groups = [s.OffsetFetchRequestGroup("g"), s.OffsetFetchRequestGroup("h")]
        request = s.OffsetFetchRequest(groups=groups)
        assert asked_groups(request, 8) == groups
        parts = [
            s.OffsetFetchResponseGroup("g"),
            s.OffsetFetchResponseGroup("h", [], ErrorCode.NOT_COORDINATOR),
        ]
        assert merged(request, 8, parts).groups == parts

    def test_version_1_tells_each_partition_of_the_error_of_its_group(self) -> None:
        part = s.OffsetFetchResponseGroup("g", [], ErrorCode.NOT_COORDINATOR)
        response = merged(self.request(), 1, [part])
        assert response.error_code == ErrorCode.NONE
        partitions = response.topics[0].partitions
        assert [(p.partition_index, p.error_code) for p in partitions] == [
            (0, ErrorCode.NOT_COORDINATOR),
            (4, ErrorCode.NOT_COORDINATOR),
        ]
        response = merged(self.request(), 2, [part])
        assert (response.topics, response.error_code) == ([], ErrorCode.NOT_COORDINATOR)


def test_a_group_that_is_dead_is_answered_as_one_that_does_not_exist() -> None:
    class Dead(FakeGroup):
        def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
            return ErrorCode.GROUP_ID_NOT_FOUND

    world = OffsetsWorld()
    world.topics.make("t", 1)
    world.commit(commit_request("g", "t", 0), 9)
    world.groups["g"] = Dead("g")
    assert fetched(world, "g", 0) == [(-1, 0)]


def test_of_group_tells_nothing_dead() -> None:
    world = OffsetsWorld()
    world.topics.make("t", 1)
    world.topics.make("u", 1)
    world.commit(commit_request("g", "t", 0), 9)
    world.commit(commit_request("g", "u", 0), 9)
    world.delete_topic("u")
    assert list(world.offsets.of_group("g")) == ["t"]
