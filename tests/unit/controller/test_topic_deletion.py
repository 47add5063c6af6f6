"""DeleteTopics: what is named twice is deleted by neither, and each refusal has its sentence."""

from __future__ import annotations

import itertools

import pytest

from quorum.rpc import messages as m
from quorum.rpc.messages import DeleteTopicResult, TopicToDelete
from tests.support.controller_world import World

UNKNOWN_ID = b"?" * 16
DUPLICATE_NAME = "Duplicate topic name."
DUPLICATE_ID = "Duplicate topic id."
SAME_TOPIC = "The provided topic name maps to an ID that was already supplied."


@pytest.fixture
def world() -> World:
    world = World()
    world.start(1)
    world.call(m.CreateTopicsRequest(tuple(m.NewTopic(name, 1, 1) for name in ("a", "b", "c"))))
    return world


def delete(world: World, *topics: TopicToDelete) -> tuple[DeleteTopicResult, ...]:
    response = world.call(m.DeleteTopicsRequest(topics))
    assert isinstance(response, m.DeleteTopicsResponse)
    return response.topics


def refusals(results: tuple[DeleteTopicResult, ...]) -> list[tuple[str | None, bytes | None, str | None]]:
    assert {result.error for result in results} == {"INVALID_REQUEST"}
    return [(result.name, result.topic_id, result.message) for result in results]


def test_by_name_and_by_id(world: World) -> None:
    a, b = (world.image.topic_ids[name] for name in ("a", "b"))
    assert delete(world, TopicToDelete("a"), TopicToDelete(topic_id=b)) == (
        DeleteTopicResult("a", a),
        DeleteTopicResult("b", b),
    )
    assert list(world.image.topic_ids) == ["c"]


def test_a_name_or_an_id_that_is_repeated_deletes_nothing(world: World) -> None:
    b = world.image.topic_ids["b"]
    twice = [
        TopicToDelete("a"),
        TopicToDelete(topic_id=b),
        TopicToDelete("nowhere"),
        TopicToDelete(topic_id=UNKNOWN_ID),
    ]
    assert refusals(delete(world, *twice, *twice, TopicToDelete("a"))) == [
        ("a", None, DUPLICATE_NAME),
        (None, b, DUPLICATE_ID),
        ("nowhere", None, DUPLICATE_NAME),
        (None, UNKNOWN_ID, DUPLICATE_ID),
    ]
    assert sorted(world.image.topic_ids) == ["a", "b", "c"]


def test_a_topic_given_by_its_name_and_by_its_id_stays_in_any_order(world: World) -> None:
    a = world.image.topic_ids["a"]
    ways = [TopicToDelete("a"), TopicToDelete(topic_id=a), TopicToDelete(topic_id=a)]
    for order in itertools.permutations(ways):
        assert {(name, topic_id): text for name, topic_id, text in refusals(delete(world, *order))} == {
            ("a", None): SAME_TOPIC,
            (None, a): DUPLICATE_ID,
        }
    assert {text for *_, text in refusals(delete(world, *ways[:2]))} == {SAME_TOPIC}
    assert "a" in world.image.topic_ids


def test_neither_or_both(world: World) -> None:
    a = world.image.topic_ids["a"]
    assert refusals(delete(world, TopicToDelete(), TopicToDelete("b", a))) == [
        (None, None, "Neither topic name nor id were specified."),
        ("b", a, "You may not specify both topic name and topic id."),
    ]
    assert sorted(world.image.topic_ids) == ["a", "b", "c"]


def test_a_refused_item_keeps_no_other_from_its_topic(world: World) -> None:
    results = delete(world, TopicToDelete("nowhere"), TopicToDelete(topic_id=UNKNOWN_ID), TopicToDelete("c"))
    assert [result.error for result in results] == ["UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID", "NONE"]
    assert sorted(world.image.topic_ids) == ["a", "b"]
