"""Counts that are kept up agree with a walk over all partitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from quorum.metadata.delta import MetadataDelta
from quorum.metadata.image import EMPTY, MetadataImage, PartitionImage
from quorum.metadata.records import Partition, PartitionChange, Record, RemoveTopic, Topic
from quorum.metadata.tally import LedPartitions, PartitionCounts, PartitionTally

IDS = [bytes([number]) * 16 for number in (1, 2, 3)]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 15))))
def test_a_tally_counts_what_is_so(changes: list[tuple[int, int]]) -> None:
    tally = PartitionTally(listed=12)
    now: dict[int, int] = {}
    for number, bits in changes:
        tally.set((IDS[0], number), bits)
        now[number] = bits
    for bit in (1, 2, 4, 8):
        assert tally.count(bit) == sum(bool(bits & bit) for bits in now.values())
    listed = sorted(number for number, bits in now.items() if bits & 12)
    assert sorted(number for _, number in tally.listed()) == listed


def applied(image: MetadataImage, records: list[Record]) -> MetadataImage:
    delta = MetadataDelta(image)
    for record in records:
        delta.apply(record, image.offset + 1, 1)
    return delta.finish(image.offset + 1, 1)


@given(st.lists(st.tuples(st.sampled_from(["create", "remove", "lose", "elect", "swap"]), st.integers(0, 2))))
def test_a_controller_counts_partitions_as_a_walk_does(steps: list[tuple[str, int]]) -> None:
    image, counts = EMPTY, PartitionCounts()
    for step, which in steps:
        records = records_of(step, IDS[which], image)
        after = applied(image, records)
        counts.committed(image, after, records)
        image = after
        again = PartitionCounts()
        again.recount(image)
        states = [state for topic in image.topics.values() for state in topic.partitions]
        assert (counts.partitions, counts.offline) == (len(states), sum(not s.has_leader for s in states))
        assert counts.not_preferred == sum(state.leader != state.replicas[0] for state in states)
        assert (again.partitions, again.offline, again.not_preferred) == (
            counts.partitions,
            counts.offline,
            counts.not_preferred,
        )


def records_of(step: str, topic_id: bytes, image: MetadataImage) -> list[Record]:
    exists = topic_id in image.topics
    if step == "create":
        partitions = [Partition(topic_id, number, (1, 2), (1, 2), 1) for number in range(3)]
        return [] if exists else [Topic(topic_id.hex(), topic_id), *partitions]
    if not exists:
        return []
    if step == "remove":
        return [RemoveTopic(topic_id)]
    leader = {"lose": -1, "elect": 1, "swap": 2}[step]
    return [PartitionChange(topic_id, number, leader=leader) for number in (0, 2)]


def test_what_one_broker_leads() -> None:
    led = LedPartitions(1)

    def put(number: int, state: PartitionImage | None, min_isr: int = 2) -> None:
        led.update((IDS[0], number), state, min_isr)

    put(0, PartitionImage((1, 2, 3), (1, 2, 3), 1, 0, 0))
    put(1, PartitionImage((1, 2, 3), (1, 2), 1, 0, 0))
    put(2, PartitionImage((1, 2, 3), (1,), 1, 0, 0))
    put(3, PartitionImage((2, 1), (2,), 2, 0, 0))  # another's
    put(4, PartitionImage((1,), (1,), 1, 0, 0))  # min.insync.replicas is bounded by what there is
    put(5, PartitionImage((1, 2, 3), (1, 2), 1, 0, 0, adding_replicas=(3,)))
    expected = {
        led.LED: 5,
        led.UNDER_REPLICATED: 2,
        led.UNDER_MIN_ISR: 1,
        led.AT_MIN_ISR: 3,
        led.REASSIGNING: 1,
    }
    assert {state: led.count(state) for state in expected} == expected
    assert sorted(led.incomplete()) == [(IDS[0], 1), (IDS[0], 2), (IDS[0], 5)]
    put(2, PartitionImage((1, 2, 3), (1,), 1, 0, 0), min_isr=1)
    assert (led.count(led.UNDER_MIN_ISR), led.count(led.AT_MIN_ISR)) == (0, 4)
    for number in range(6):
        put(number, None)
    assert not any(led.count(state) for state in expected)
    assert not list(led.incomplete())
