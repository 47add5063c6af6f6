"""The order in which coordinators wrote: who was fenced, and what may be told."""

from __future__ import annotations

import pytest

from kraft.chaos.group_history import GroupAction, GroupHistory, GroupProtocol, LogPlace, Sender
from kraft.chaos.oracles.group_log import Commit, Generation, GroupLog, MemberEpoch
from kraft.chaos.oracles.probes_groups import entries_of
from kraft.chaos.verdict import Verdicts
from kraft.chaos.world.simulation import Simulation
from kraft.coordinator.groups import consumer_records, group_metadata, offset_records
from partitions.records.builder import build_batch

KEY = (b"t" * 16, 0)
FIRST = Generation("g", 1, frozenset("ab"))
SECOND = Generation("g", 2, frozenset("a"))


class Told:
    """A log whose verdicts can be asked."""

    def __init__(self) -> None:
        self.history = GroupHistory()
        self.high_watermark = 0
        self.is_excused = False
        with Simulation(1) as simulation:
            self.verdicts = Verdicts(simulation.scheduler)
        self.log = GroupLog(
            self.verdicts,
            self.history.commits,
            lambda number: self.high_watermark,
            lambda number: self.is_excused,
        )

    def begins(
        self, tag: str, member: str, generation: int, protocol: GroupProtocol = GroupProtocol.CLASSIC
    ) -> Commit:
        sender = Sender("g", protocol, member, generation)
        self.history.ask(GroupAction.COMMIT, sender, 0, key=KEY, offset=7, tag=tag)
        return Commit(tag)

    @property
    def oracles(self) -> list[str]:
        return [violation.oracle for violation in self.verdicts.violations]


@pytest.fixture
def told() -> Told:
    return Told()


def test_members_of_the_newest_generation_commit(told):
    told.log.appended(0, 0, 0, [FIRST, told.begins("c1", "a", 1), None, told.begins("c2", "b", 1)])
    told.log.appended(0, 0, 4, [SECOND, told.begins("c3", "a", 2)])
    assert told.oracles == []
    assert told.log.places == {"c1": LogPlace(1, 0), "c2": LogPlace(3, 0), "c3": LogPlace(5, 0)}


@pytest.mark.parametrize(("member", "generation"), [("a", 1), ("b", 2), ("c", 2), ("a", 3)])
def test_whoever_is_not_in_it_does_not(told, member, generation):
    told.log.appended(0, 0, 0, [FIRST, SECOND, told.begins("c1", member, generation)])
    assert told.oracles == ["fenced-commit"]


def test_those_who_are_no_members_are_not_judged(told):
    told.log.appended(0, 0, 0, [told.begins("c1", "", -1)])
    assert told.oracles == []


def test_a_generation_that_was_cut_fences_nobody(told):
    told.log.appended(0, 0, 0, [FIRST, SECOND])
    told.log.appended(0, 1, 1, [told.begins("c1", "b", 1)])
    assert told.oracles == []


def test_a_deposed_coordinator_changes_nothing(told):
    told.log.appended(0, 1, 0, [FIRST])
    told.log.appended(0, 0, 1, [SECOND, told.begins("late", "b", 1)])
    told.log.appended(0, 1, 1, [told.begins("c1", "b", 1)])
    assert told.oracles == []
    assert set(told.log.places) == {"c1"}


@pytest.mark.parametrize(("epoch", "oracles"), [(2, []), (1, ["fenced-commit"]), (3, ["fenced-commit"])])
def test_a_member_commits_at_its_newest_epoch(told, epoch, oracles):
    commit = told.begins("c1", "a", epoch, GroupProtocol.CONSUMER)
    told.log.appended(0, 0, 0, [MemberEpoch("g", "a", 1), MemberEpoch("g", "a", 2), commit])
    assert told.oracles == oracles


def test_who_is_no_member_any_more_does_not_commit(told):
    commit = told.begins("c1", "a", 1, GroupProtocol.CONSUMER)
    told.log.appended(0, 0, 0, [MemberEpoch("g", "a", 1), MemberEpoch("g", "a", None), commit])
    assert told.oracles == ["fenced-commit"]


def test_after_an_excused_loss_nobody_knows_who_was_fenced(told):
    told.is_excused = True
    told.log.appended(0, 0, 0, [SECOND, told.begins("c1", "b", 1)])
    told.log.told(0, "c1", "that it was accepted")
    assert told.oracles == []


@pytest.mark.parametrize(("high_watermark", "oracles"), [(2, []), (1, ["told-uncommitted"])])
def test_what_is_told_is_committed(told, high_watermark, oracles):
    told.log.appended(0, 0, 0, [FIRST, told.begins("c1", "a", 1)])
    told.high_watermark = high_watermark
    told.log.told(0, "c1", "that it was accepted")
    assert told.oracles == oracles


def test_what_was_cut_is_not_told(told):
    told.log.appended(0, 0, 0, [FIRST, told.begins("c1", "a", 1)])
    told.log.appended(0, 1, 1, [None, None])
    told.high_watermark = 3
    told.log.told(0, "c1", "what is committed")
    assert told.oracles == ["told-uncommitted"]


def test_records_are_read_as_coordinators_write_them():
    offset = offset_records.encode(
        offset_records.Place("g", "orders", 0), offset_records.Committed(7, -1, "c1", 0, -1, KEY[0])
    )
    members = [group_metadata.MemberMetadata(member_id="a"), group_metadata.MemberMetadata(member_id="b")]
    generation = group_metadata.GroupMetadataValue(
        generation=1, protocol="range", leader="a", members=members
    )
    member_key = consumer_records.ConsumerGroupCurrentMemberAssignmentKey("g", "a")
    member = consumer_records.ConsumerGroupCurrentMemberAssignmentValue(member_epoch=4)
    group_key = group_metadata.KEY.encode(group_metadata.GroupMetadataKey("g"))
    records = [
        offset,
        (offset.key, None),
        (group_key, group_metadata.VALUE.encode(generation)),
        (group_key, None),
        consumer_records.encode((member_key, member)),
        consumer_records.encode((member_key, None)),
        consumer_records.encode((consumer_records.ConsumerGroupMetadataKey("g"), None)),
    ]
    assert entries_of(build_batch([(0, key, value, ()) for key, value in records])) == [
        Commit("c1"),
        None,
        FIRST,
        Generation("g", -1, frozenset()),
        MemberEpoch("g", "a", 4),
        MemberEpoch("g", "a", None),
        None,
    ]
