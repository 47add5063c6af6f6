"""What a round asks of whom, and what it makes of the answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.coordinator.groups.context import GroupContext, GroupCounters, GroupSettings, GroupType
from kraft.coordinator.groups.lag import (
    PARTITIONS_PER_FETCH,
    ROWS_PER_STEP,
    FoundTime,
    Led,
    LogStart,
    PartitionLag,
    ShardLags,
    Survey,
    TimeSearch,
    TopicLag,
    Unlisted,
    Unread,
    by_leader,
    lags,
    summed,
    survey,
    unread,
)
from kraft.coordinator.groups.offset_records import NO_EXPIRY_MS, Committed, Place, encode
from kraft.coordinator.groups.shard import GroupShard
from kraft.coordinator.shard import Decisions, Moment, StoredRecord
from kraft.coordinator.timers import Timers
from partitions.records.builder import build_batch
from partitions.records.header import DELETE_HORIZON_BIT, LOG_APPEND_TIME_BIT, parse_header
from quorum.steps import finished
from tests.support.forged_batches import with_fields
from tests.support.offsets_world import FakeTopics

NOW_MS = 1_700_000_000_000
STATES = {(GroupType.CLASSIC, "Stable"): 1}


def led(topic: str = "t", partition: int = 0, leader: int = 1) -> Led:
    return Led(topic, topic.encode().ljust(16), partition, leader, 5)


def batch(offset: int, *times_ms: int, **fields: Any) -> bytes:
    return build_batch([(time_ms, None, b"x", ()) for time_ms in times_ms], base_offset=offset, **fields)


def marker(offset: int) -> bytes:
    return batch(offset, NOW_MS, is_control=True)


def surveyed(rows: Iterable[tuple[Place, Led | None, int]]) -> Survey:
    rows = list(rows)
    leds = list(dict.fromkeys(one for _, one, _ in rows if one))
    return Survey(
        STATES, leds, [(*place, leds.index(one) if one else -1, offset) for place, one, offset in rows]
    )


def round_of(
    rows: Mapping[str, tuple[Led | None, int]],
    ends: Mapping[Led, int],
    times: Mapping[Unread, int] | None = None,
    before: Iterable[Place] = (),
    listed_max: int = 100,
) -> ShardLags:
    """One shard, whose groups have one offset each."""
    surveys = {
        7: surveyed(
            (Place(group_id, one.topic if one else "t", one.partition if one else 0), one, offset)
            for group_id, (one, offset) in rows.items()
        )
    }
    found: dict[Led, dict[int, FoundTime]] = {}
    for one, time_ms in (times or {}).items():
        found.setdefault(one.led, {})[one.offset] = (time_ms, 0.0)
    return finished(lags(surveys, ends, found, NOW_MS, set(before), listed_max))[7]


def row(shard: ShardLags, group_id: str) -> PartitionLag:
    (found,) = shard.groups[group_id]
    return PartitionLag(*found)


class TestLags:
    def test_records_and_the_age_of_the_oldest(self) -> None:
        shard = round_of({"g": (led(), 3)}, {led(): 10}, {Unread(led(), 3): NOW_MS - 2_500})
        assert row(shard, "g") == PartitionLag("g", "t", 0, 3, 10, 7, 2.5)

    def test_at_the_end_there_is_no_age(self) -> None:
        assert row(round_of({"g": (led(), 10)}, {led(): 10}), "g")[4:] == (10, 0, None)

    def test_behind_the_end_nothing_is_left_to_read(self) -> None:
        """The log lost its end in an unclean election."""
        assert row(round_of({"g": (led(), 12)}, {led(): 10}), "g")[4:] == (10, 0, None)

    def test_a_producer_whose_clock_is_ahead(self) -> None:
        shard = round_of({"g": (led(), 3)}, {led(): 10}, {Unread(led(), 3): NOW_MS + 1_000})
        assert row(shard, "g").lag_s == 0

    @pytest.mark.parametrize("where", [None, led()])
    def test_what_was_not_told_is_none(self, where: Led | None) -> None:
        shard = round_of({"g": (where, 3)}, {}, {Unread(led(), 3): NOW_MS})
        assert row(shard, "g")[3:] == (3, None, None, None)
        assert shard.topics == []

    def test_an_answer_of_another_leadership_does_not_count(self) -> None:
        assert row(round_of({"g": (led(), 3)}, {led()._replace(leader_epoch=6): 10}), "g").lag is None

    def test_topics_are_summed_over_what_is_known(self) -> None:
        one = surveyed((Place("g", "t", n), led("t", n), 0) for n in range(3))
        shards = finished(lags({7: one}, {led("t", 0): 4, led("t", 2): 5}, {}, NOW_MS, (), 100))
        assert shards[7].topics == [TopicLag("g", "t", 9)]
        assert (shards[7].offsets, shards[7].states) == (3, STATES)


class TestListed:
    ROWS = {f"g{n}": (led("t", n), 0) for n in range(10)}  # noqa: RUF012
    ENDS = {led("t", n): n for n in range(10)}  # noqa: RUF012

    def listed(self, **arguments: Any) -> list[str]:
        return [one.group_id for one in round_of(self.ROWS, self.ENDS, **arguments).listed]

    def test_all_where_there_is_room(self) -> None:
        assert len(self.listed(listed_max=10)) == 10

    def test_else_those_that_lag_most_and_the_rest_is_summed(self) -> None:
        times = {Unread(led("t", n), 0): NOW_MS - n * 1_000 for n in range(10)}
        shard = round_of(self.ROWS, self.ENDS, times, listed_max=3)
        assert {one.group_id for one in shard.listed} == {"g7", "g8", "g9"}
        assert shard.unlisted == Unlisted(7, 21, 6.0)
        assert {topic.group_id for topic in shard.topics} == {"g7", "g8", "g9"}
        assert len(shard.groups) == 10, "whoever asks for one is told"

    def test_who_was_listed_stays(self) -> None:
        before = [Place("g1", "t", 1), Place("gone", "t", 0)]
        assert self.listed(listed_max=3, before=before) == ["g1", "g8", "g9"]

    def test_none_at_all(self) -> None:
        assert self.listed(listed_max=0) == []

    def test_of_all_shards(self) -> None:
        surveys = {
            number: surveyed([(Place(f"g{number}", "t", 0), led("t", number), 0)]) for number in (1, 2, 3)
        }
        ends = {led("t", number): number for number in (1, 2, 3)}
        shards = finished(lags(surveys, ends, {}, NOW_MS, (), 2))
        assert [len(shards[number].listed) for number in (1, 2, 3)] == [0, 1, 1]
        assert summed(shard.unlisted for shard in shards.values()) == Unlisted(1, 1, None)

    @given(
        st.dictionaries(st.integers(0, 30), st.integers(0, 9)),
        st.sets(st.integers(0, 30)),
        st.integers(0, 12),
    )
    def test_nobody_is_lost_or_told_twice(self, ends: dict[int, int], before: set[int], room: int) -> None:
        was = sorted(before)[:room]
        shard = round_of(
            {f"g{n}": (led("t", n), 0) for n in ends},
            {led("t", n): end for n, end in ends.items()},
            before=[Place(f"g{n}", "t", n) for n in was],
            listed_max=room,
        )
        listed = {one.partition for one in shard.listed}
        assert len(listed) == len(shard.listed) == min(room, len(ends))
        assert listed >= set(was) & set(ends)
        assert shard.unlisted.partitions == len(ends) - len(listed)
        assert sum(one.lag or 0 for one in shard.listed) + shard.unlisted.lag == sum(ends.values())


class TestTimes:
    def test_the_first_record_of_a_batch(self) -> None:
        assert parse_header(batch(0, 5, 9)).oldest_time_ms == 5

    @pytest.mark.parametrize("attributes", [LOG_APPEND_TIME_BIT, DELETE_HORIZON_BIT])
    def test_the_newest_where_the_header_has_no_first(self, attributes: int) -> None:
        assert parse_header(with_fields(batch(0, 5, 9), attributes=attributes)).oldest_time_ms == 9

    def test_in_the_middle_of_a_batch_it_is_the_batchs(self) -> None:
        one = Unread(led(), 1)
        search = TimeSearch({one: 3})
        asked = search.next_fetch()
        assert asked == [(one, 1)]
        search.take(asked, {led(): batch(0, 5, 9, 7) + batch(3, 99)})
        assert (search.found, search.next_fetch()) == ({one: 5}, [])

    def test_records_without_a_time_have_no_age(self) -> None:
        one = Unread(led(), 0)
        search = TimeSearch({one: 3})
        search.take(search.next_fetch(), {led(): batch(0, -1)})
        assert (search.found, search.next_fetch()) == ({}, [])

    def test_markers_are_passed_over(self) -> None:
        one = Unread(led(), 2)
        search = TimeSearch({one: 9})
        search.take(search.next_fetch(), {led(): marker(2) + marker(3)})
        assert search.next_fetch() == [(one, 4)]
        search.take([(one, 4)], {led(): marker(4) + batch(5, 77)})
        assert (search.found, search.next_fetch()) == ({one: 77}, [])

    def test_only_markers_are_left(self) -> None:
        one = Unread(led(), 2)
        search = TimeSearch({one: 4})
        search.take(search.next_fetch(), {led(): marker(2) + marker(3)})
        assert (search.found, search.next_fetch()) == ({}, [])

    def test_the_log_begins_behind_the_offset(self) -> None:
        one = Unread(led(), 2)
        search = TimeSearch({one: 9})
        search.take(search.next_fetch(), {led(): LogStart(6)})
        assert search.next_fetch() == [(one, 6)]
        search.take([(one, 6)], {led(): LogStart(6)})
        assert search.next_fetch() == [], "the leader contradicts itself"

    def test_a_batch_that_did_not_fit_comes_first_in_the_next_fetch(self) -> None:
        places = [Unread(led("t", n), 0) for n in range(3)]
        search = TimeSearch(dict.fromkeys(places, 5))
        search.take(search.next_fetch(), {places[0].led: batch(0, 1), places[1].led: b"", places[2].led: b""})
        assert search.next_fetch() == [(places[1], 0), (places[2], 0)]
        search.take([(places[1], 0), (places[2], 0)], {places[1].led: b"", places[2].led: batch(0, 2)})
        assert search.next_fetch() == [], "what is empty although it comes first is empty"
        assert search.found == {places[0]: 1, places[2]: 2}

    @pytest.mark.parametrize("answer", [None, b"no batch at all"])
    def test_an_error_ends_the_search_there(self, answer: bytes | None) -> None:
        one = Unread(led(), 0)
        search = TimeSearch({one: 3})
        search.take(search.next_fetch(), {led(): answer})
        assert (search.found, search.next_fetch()) == ({}, [])

    def test_a_fetch_names_each_partition_once_and_not_too_many(self) -> None:
        places = [Unread(led("t", n), offset) for n in range(100) for offset in (0, 1)]
        search = TimeSearch(dict.fromkeys(places, 5))
        seen: list[Unread] = []
        while asked := search.next_fetch():
            assert len({one.led for one, _ in asked}) == len(asked) <= PARTITIONS_PER_FETCH
            seen += [one for one, _ in asked]
            search.take(asked, {one.led: batch(0, 4, 4) for one, _ in asked})
        assert sorted(seen) == sorted(places)
        assert search.found == dict.fromkeys(places, 4)


def shard_with(committed: Iterable[tuple[Place, int]], topics: FakeTopics) -> GroupShard:
    """A shard that has loaded these offsets."""
    shard = GroupShard(GroupContext(GroupSettings(), Timers(), topics, lambda: "m", GroupCounters()))
    for number, (place, offset) in enumerate(committed):
        topic = topics.named(place.topic)
        assert topic is not None
        record = encode(place, Committed(offset, -1, "", NOW_MS, NO_EXPIRY_MS, topic.topic_id))
        shard.replay(StoredRecord(number, NOW_MS, record.key, record.value))
    shard.on_loaded(Moment(0, NOW_MS), Decisions())
    return shard


class TestSurvey:
    def test_groups_and_who_leads_what_they_read(self) -> None:
        topics = FakeTopics()
        topics.make("t", 2)
        shard = shard_with(
            [(Place("a", "t", 0), 4), (Place("a", "t", 1), 5), (Place("b", "t", 0), 6)], topics
        )
        found = finished(survey(shard, lambda topic, n: led(topic, n, leader=n) if n else None))
        assert found.states == {(GroupType.CLASSIC, "Empty"): 2}
        assert found.committed == [
            ("a", "t", 0, -1, 4),
            ("a", "t", 1, 0, 5),
            ("b", "t", 0, -1, 6),
        ]
        assert found.leds == [led("t", 1, leader=1)]
        assert finished(by_leader([found, found])) == {1: {led("t", 1, leader=1): {5}}}

    def test_only_where_something_is_left_anybody_asks(self) -> None:
        wanted = {led("t", 0): {3, 5, 7}, led("t", 1): {1}}
        assert finished(unread(wanted, {led("t", 0): 5})) == {led("t", 0): [3]}

    def test_many_offsets_take_many_steps(self) -> None:
        topics = FakeTopics()
        topics.make("t", 10)
        count = 20 * ROWS_PER_STEP
        shard = shard_with(((Place(f"g{n // 10}", "t", n % 10), n) for n in range(count)), topics)
        steps = survey(shard, lambda topic, n: led(topic, n))
        found: list[Survey] = []

        def keeping() -> Iterator[None]:
            found.append((yield from steps))

        yields = sum(1 for _ in keeping())
        assert len(found[0].committed) == count
        assert yields >= 20

    def test_groups_may_come_and_go_between_steps(self) -> None:
        topics = FakeTopics()
        topics.make("t", 1)
        shard = shard_with(((Place(f"g{n}", "t", 0), n) for n in range(2 * ROWS_PER_STEP)), topics)
        steps = survey(shard, lambda topic, n: led(topic, n))
        next(steps)
        shard.on_topics({"t"}, {topics.topics.pop("t").topic_id: "t"}, Moment(0, NOW_MS), Decisions())
        assert finished(steps).committed == []
