"""What an image says of topics and brokers, and at which price."""

from __future__ import annotations

from dataclasses import replace

from kraft.http.console.structure import (
    NAMED_MAX,
    PARTITIONS_PER_STEP,
    TOPICS_PER_STEP,
    Structure,
    partition_problems,
    partition_states,
    seen,
)
from quorum.metadata.image import EMPTY, MetadataImage, PartitionImage, TopicImage
from quorum.steps import finished

WELL = PartitionImage((1, 2, 3), (1, 2, 3), 1, 0, 0)


def image_of(topics: dict[str, list[PartitionImage]]) -> MetadataImage:
    made = {
        number.to_bytes(16, "big"): TopicImage(number.to_bytes(16, "big"), name, tuple(partitions))
        for number, (name, partitions) in enumerate(topics.items(), 1)
    }
    ids = {topic.name: topic_id for topic_id, topic in made.items()}
    return MetadataImage(offset=7, topics=made, topic_ids=ids)


def looked(image: MetadataImage, min_isr: int = 2) -> Structure:
    return finished(seen(Structure(), image, lambda name: min_isr))


def test_states_are_kafkas() -> None:
    assert partition_states(WELL, 2) == []
    assert partition_states(replace(WELL, isr=(1, 2)), 2) == ["under_replicated"]
    assert partition_states(replace(WELL, isr=(1,)), 2) == ["under_min_isr", "under_replicated"]
    assert partition_states(replace(WELL, isr=(2,), leader=-1, elr=(1,)), 2) == ["offline"]
    assert partition_states(replace(WELL, leader=2), 2) == ["not_preferred"]
    moving = PartitionImage((1, 2, 3, 4), (1, 2, 3), 1, 0, 0, adding_replicas=(4,))
    assert partition_states(moving, 2) == ["reassigning"], "what is being added is not missing yet"
    assert partition_states(PartitionImage((1,), (1,), 1, 0, 0), 2) == []


def test_sums_by_topic_and_by_broker() -> None:
    image = image_of({"b": [WELL, replace(WELL, leader=2)], "a": [replace(WELL, isr=(1, 2))]})
    structure = looked(image)
    assert list(structure.topics) == ["a", "b"]
    assert structure.totals == {"partitions": 3, "under_replicated": 1, "not_preferred": 1}
    assert structure.shares[1].leads == 2
    assert structure.shares[1].preferred == 3
    assert structure.shares[3].replicas == 3
    assert structure.shares[3].out_of_sync == 1


def test_problems_name_the_worst_first_and_only_what_may_be_seen() -> None:
    image = image_of(
        {
            "a": [replace(WELL, isr=(1,))],
            "b": [WELL, replace(WELL, isr=(2,), leader=-1)],
            "hidden": [replace(WELL, isr=(1,))],
        }
    )
    named, counts = partition_problems(looked(image), lambda name: name != "hidden")
    assert [(one.kind, topic, number) for state in named for one, topic, number in named[state]] == [
        ("partition-offline", "b", 1),
        ("under-min-isr", "a", 0),
        ("under-replicated", "a", 0),
    ]
    assert named["under_replicated"][0][0].what == "a-0 lacks in its ISR: 2,3"
    assert counts == {"partition-offline": 1, "under-min-isr": 1, "under-replicated": 1}


def test_of_many_partitions_some_are_named_and_all_are_counted() -> None:
    troubled = [replace(WELL, isr=(1,))] * 900
    named, counts = partition_problems(looked(image_of({"a": troubled, "b": troubled}), 1), lambda name: True)
    assert [(topic, number) for _, topic, number in named["under_replicated"]] == [
        ("a", number) for number in range(NAMED_MAX)
    ]
    assert counts == {"under-replicated": 1_800}


def test_ten_thousand_topics_are_looked_at_in_steps_and_once() -> None:
    image = image_of({f"t{number:05}": [WELL] for number in range(10_000)})
    structure = Structure()
    steps = 0
    look = seen(structure, image, lambda name: 1)
    while True:
        try:
            next(look)
            steps += 1
        except StopIteration as end:
            structure = end.value
            break
    assert steps >= 10_000 // TOPICS_PER_STEP
    assert structure.totals["partitions"] == 10_000
    name, topic_id = "t00005", image.topic_ids["t00005"]
    changed = replace(image.topics[topic_id], partitions=(replace(WELL, isr=(1,)),))
    after = replace(image, topics={**image.topics, topic_id: changed})
    again = finished(seen(structure, after, lambda name: 1))
    assert again.topics["t00006"] is structure.topics["t00006"], "what has not changed is not looked at again"
    assert again.topics[name] is not structure.topics[name]
    assert again.totals["under_replicated"] == 1
    assert finished(seen(again, after, lambda name: 1)) is again


def test_one_topic_of_ten_thousand_partitions_takes_steps_too() -> None:
    image = image_of({"t": [WELL] * 10_000})
    steps = sum(1 for _ in seen(Structure(), image, lambda name: 1))
    assert steps >= 10_000 // PARTITIONS_PER_STEP


def test_another_min_isr_is_another_structure() -> None:
    image = image_of({"t": [replace(WELL, isr=(1, 2))]})
    before = looked(image, 2)
    after = finished(seen(before, replace(image, offset=8), lambda name: 3))
    assert after.totals["under_min_isr"] == 1
    assert looked(EMPTY).topics == {}
