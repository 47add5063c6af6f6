"""The assignors by worked examples, and what they promise for any group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.coordinator.groups.assignors import (
    ASSIGNORS,
    Assignment,
    AssignorMember,
    range_assignor,
    uniform_assignor,
)
from kraft.coordinator.groups.context import TopicPartitions
from tests.support.examples import examples

SEVEN = TopicPartitions(b"a" * 16, "a", 7)


def topic(name: str, partitions: int) -> TopicPartitions:
    return TopicPartitions(name.encode().rjust(16), name, partitions)


def members(
    ids: str, topics: Sequence[TopicPartitions], current: Mapping[str, Assignment] | None = None
) -> list[AssignorMember]:
    shared = tuple(topics)
    return [AssignorMember(name, None, shared, (current or {}).get(name, {})) for name in ids.split()]


def plain(targets: Mapping[str, Assignment]) -> dict[str, list[int]]:
    """The partitions of each member, topic after topic."""
    return {
        name: [partition for topic_id in sorted(target) for partition in sorted(target[topic_id])]
        for name, target in targets.items()
    }


def size(target: Assignment) -> int:
    return sum(map(len, target.values()))


def lost(before: Mapping[str, Assignment], after: Mapping[str, Assignment]) -> int:
    """How many partitions members had to give up that are still there."""
    return sum(
        len(partitions - after[name].get(topic_id, frozenset()))
        for name, target in before.items()
        if name in after
        for topic_id, partitions in target.items()
    )


# Worked examples


def test_range_of_seven_partitions() -> None:
    assert plain(range_assignor(members("c0 c1 c2", [SEVEN]))) == {
        "c0": [0, 1, 2],
        "c1": [3, 4],
        "c2": [5, 6],
    }


def test_range_of_three_topics_of_seven_is_skewed() -> None:
    targets = range_assignor(members("c0 c1 c2", [topic(name, 7) for name in "abc"]))
    assert {name: size(target) for name, target in targets.items()} == {"c0": 9, "c1": 6, "c2": 6}


def test_range_gives_the_same_partitions_of_topics_of_one_size() -> None:
    for target in range_assignor(members("c0 c1 c2", [topic("a", 5), topic("b", 5)])).values():
        assert len(set(target.values())) == 1


def test_uniform_of_three_topics_of_seven_is_not() -> None:
    targets = uniform_assignor(members("c0 c1 c2", [topic(name, 7) for name in "abc"]))
    assert [size(target) for target in targets.values()] == [7, 7, 7]


def test_uniform_deals_partitions_in_turn_as_round_robin_does() -> None:
    assert plain(uniform_assignor(members("c0 c1 c2", [SEVEN]))) == {
        "c0": [0, 3, 6],
        "c1": [1, 4],
        "c2": [2, 5],
    }


@pytest.mark.parametrize("dies", ["c0", "c1", "c2"])
def test_sticky_when_one_of_three_dies(dies: str) -> None:
    before = uniform_assignor(members("c0 c1 c2", [SEVEN]))
    assert sorted(size(target) for target in before.values()) == [2, 2, 3]
    others = " ".join(sorted(before.keys() - {dies}))
    after = uniform_assignor(members(others, [SEVEN], before))
    assert sorted(size(target) for target in after.values()) == [3, 4]
    assert lost(before, after) == 0


def test_one_to_four_to_one() -> None:
    four = [topic("t", 4)]
    targets = uniform_assignor(members("c0", four))
    assert plain(targets) == {"c0": [0, 1, 2, 3]}
    targets = uniform_assignor(members("c0 c1 c2 c3", four, targets))
    assert [size(target) for target in targets.values()] == [1, 1, 1, 1]
    assert {partition for target in targets.values() for partition in target[four[0].topic_id]} == {
        0,
        1,
        2,
        3,
    }
    targets = uniform_assignor(members("c0", four, targets))
    assert plain(targets) == {"c0": [0, 1, 2, 3]}


def test_who_has_one_more_keeps_it() -> None:
    """Kafka gives the rest of the division to the first members, and moves a partition that need not move."""
    current = {"c0": {SEVEN.topic_id: frozenset({0, 1, 2})}, "c1": {SEVEN.topic_id: frozenset({3, 4, 5, 6})}}
    assert uniform_assignor(members("c0 c1", [SEVEN], current)) == current


def test_uniform_evens_out_what_different_subscriptions_left() -> None:
    """c0 reads a, c1 reads both, c2 reads b; c1 had all of both. It shares no topic with one that has two less."""
    a, b = topic("a", 6), topic("b", 6)
    had = {a.topic_id: frozenset(range(6)), b.topic_id: frozenset(range(6))}
    asked = [
        AssignorMember("c0", None, (a,), {}),
        AssignorMember("c1", None, (a, b), had),
        AssignorMember("c2", None, (b,), {}),
    ]
    assert [size(target) for target in uniform_assignor(asked).values()] == [5, 4, 3]


def test_a_static_member_keeps_its_range_under_a_new_member_id() -> None:
    first = AssignorMember("z", "instance-a", (SEVEN,), {})
    second = AssignorMember("c", "instance-b", (SEVEN,), {})
    again = range_assignor([first._replace(member_id="m"), second])
    assert again["m"] == range_assignor([first, second])["z"]


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
def test_nobody_and_nothing(assign: object) -> None:
    assert callable(assign)
    assert assign([]) == {}
    assert assign(members("c0 c1", [])) == {"c0": {}, "c1": {}}


# What holds for any group

TOPICS = [topic(name, partitions) for name, partitions in (("a", 1), ("b", 3), ("c", 4), ("d", 7))]


@st.composite
def groups(draw: st.DrawFn, *, one_subscription: bool) -> list[AssignorMember]:
    """Members with what they had by an assignment that need not fit any more; no partition had two owners."""
    count = draw(st.integers(1, 6))
    subscription = st.lists(st.sampled_from(TOPICS), unique=True).map(
        lambda of: tuple(sorted(of, key=lambda t: t.name))
    )
    shared = draw(subscription)
    had: list[dict[bytes, set[int]]] = [{} for _ in range(count)]
    for of in TOPICS:
        for partition in range(of.partitions + 1):  # one that is not there
            owner = draw(st.integers(-1, count - 1))
            if owner >= 0:
                had[owner].setdefault(of.topic_id, set()).add(partition)
    return [
        AssignorMember(
            f"m{place}",
            draw(st.sampled_from([None, f"i{place}"])),
            shared if one_subscription else draw(subscription),
            {topic_id: frozenset(partitions) for topic_id, partitions in had[place].items()},
        )
        for place in range(count)
    ]


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
@settings(max_examples=examples(150), deadline=None)
@given(
    group=st.booleans().flatmap(lambda one: groups(one_subscription=one)),
    order=st.randoms(use_true_random=False),
)
def test_every_partition_has_one_owner_who_asked_for_it(
    assign: object, group: list[AssignorMember], order: object
) -> None:
    assert callable(assign)
    targets = assign(group)
    assert targets.keys() == {member.member_id for member in group}
    owners = Counter(
        (topic_id, partition)
        for target in targets.values()
        for topic_id, partitions in target.items()
        for partition in partitions
    )
    read = {of for member in group for of in member.topics}
    assert owners == Counter((of.topic_id, partition) for of in read for partition in range(of.partitions))
    for member in group:
        assert targets[member.member_id].keys() <= {of.topic_id for of in member.topics}
        assert all(targets[member.member_id].values()), "a topic without partitions"
    shuffled = list(group)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    assert assign(shuffled) == targets


@settings(max_examples=examples(150), deadline=None)
@given(groups(one_subscription=True))
def test_uniform_is_balanced_and_moves_as_little_as_balance_allows(group: list[AssignorMember]) -> None:
    targets = uniform_assignor(group)
    sizes = sorted(size(target) for target in targets.values())
    assert sizes[-1] - sizes[0] <= 1
    quota, extras = divmod(sum(sizes), len(group))
    read = {of.topic_id: of.partitions for of in group[0].topics}
    had = sorted(
        (
            sum(1 for topic_id, parts in member.current.items() for p in parts if p < read.get(topic_id, 0))
            for member in group
        ),
        reverse=True,
    )
    must_go = sum(max(0, count - quota - (place < extras)) for place, count in enumerate(had))
    before = {
        member.member_id: {
            topic_id: frozenset(p for p in parts if p < read.get(topic_id, 0))
            for topic_id, parts in member.current.items()
        }
        for member in group
    }
    assert lost(before, targets) == must_go
    settled = [member._replace(current=targets[member.member_id]) for member in group]
    assert uniform_assignor(settled) == targets


@settings(max_examples=examples(150), deadline=None)
@given(groups(one_subscription=False))
def test_uniform_leaves_no_partition_that_a_less_loaded_subscriber_could_have(
    group: list[AssignorMember],
) -> None:
    targets = uniform_assignor(group)
    for donor in group:
        for taker in group:
            shared = {of.topic_id for of in taker.topics} & targets[donor.member_id].keys()
            if shared:
                assert size(targets[donor.member_id]) - size(targets[taker.member_id]) <= 1
