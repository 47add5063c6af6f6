"""What `kraft groups reset-offsets` would change: always offsets of the log, each partition, once and for all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kraft.cli.groups.reset import Known, Target, To, plan
from kraft.user_error import UserError
from partitions.topic_partition import TopicPartition

OFFSETS = st.integers(0, 2**63 - 1)
KEYS = st.builds(TopicPartition, st.sampled_from(["a", "b-1", "c.c"]), st.integers(0, 20))


@st.composite
def known(draw: st.DrawFn) -> Known:
    start = draw(st.integers(0, 1000))
    end = start + draw(st.integers(0, 1000))
    current = draw(st.none() | st.integers(0, 3000))
    return Known(start, end, current, draw(st.none() | st.integers(start, end)))


PARTITIONS = st.dictionaries(KEYS, known(), min_size=1, max_size=8)


@st.composite
def targets(draw: st.DrawFn, keys: set[TopicPartition]) -> Target:
    kind = draw(st.sampled_from(To))
    number = draw(st.integers(-3000, 3000) if kind is To.SHIFT else st.integers(0, 3000))
    return Target(kind, number, {key: draw(OFFSETS) for key in keys} if kind is To.FILE else {})


@given(st.data(), PARTITIONS)
def test_each_partition_goes_to_an_offset_of_its_log(
    data: st.DataObject, partitions: dict[TopicPartition, Known]
) -> None:
    target = data.draw(targets(set(partitions)))
    try:
        changes = plan(partitions, target)
    except UserError:
        assert target.kind is To.SHIFT
        assert any(one.current is None for one in partitions.values())
        return
    assert [(change.topic, change.partition) for change in changes] == sorted(partitions)
    for change in changes:
        one = partitions[TopicPartition(change.topic, change.partition)]
        assert change.before == one.current
        if target.kind is To.CURRENT and one.current is not None:
            assert change.to == one.current
        else:
            assert one.start <= change.to <= one.end
        assert (change.note is None) == (change.to == asked_for(target, one, change.topic, change.partition))


def asked_for(target: Target, one: Known, topic: str, partition: int) -> int | None:
    """The offset that the target names; None where it names none that there is."""
    return {
        To.EARLIEST: one.start,
        To.LATEST: one.end,
        To.OFFSET: target.number,
        To.TIME: one.at_time,
        To.SHIFT: None if one.current is None else one.current + target.number,
        To.CURRENT: one.current,
        To.FILE: target.offsets.get(TopicPartition(topic, partition)),
    }[target.kind]


@given(st.data(), PARTITIONS)
def test_a_reset_that_was_made_changes_nothing_again(
    data: st.DataObject, partitions: dict[TopicPartition, Known]
) -> None:
    target = data.draw(targets(set(partitions)).filter(lambda one: one.kind is not To.SHIFT))
    made = {TopicPartition(change.topic, change.partition): change.to for change in plan(partitions, target)}
    after = {key: one._replace(current=made[key]) for key, one in partitions.items()}
    assert all(change.before == change.to for change in plan(after, target))


@given(st.integers(-2000, 2000), st.integers(0, 1000), st.integers(0, 1000))
def test_a_shift_there_and_back(by: int, current: int, end: int) -> None:
    key = TopicPartition("a", 0)
    there = plan({key: Known(0, end, min(current, end))}, Target(To.SHIFT, by))[0]
    back = plan({key: Known(0, end, there.to)}, Target(To.SHIFT, -by))[0]
    if there.note is None:
        assert back.to == min(current, end)
    assert 0 <= back.to <= end
