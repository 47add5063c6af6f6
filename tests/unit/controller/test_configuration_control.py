"""Requests for configs that no client library sends, and the bounds on what can be stored."""

from __future__ import annotations

import pytest

from quorum.controller.configuration_control import MAX_VALUE_BYTES
from quorum.rpc import messages as m
from tests.support.controller_world import World


@pytest.fixture
def world() -> World:
    made = World()
    made.start(1)
    made.call(m.CreateTopicsRequest((m.NewTopic("t"),)))
    return made


def outcome(world: World, *resources: m.ConfigResourceChange) -> list[tuple[str, str | None]]:
    response = world.call(m.AlterConfigsRequest(resources))
    assert isinstance(response, m.AlterConfigsResponse)
    return [(result.error, result.message) for result in response.resources]


def change(key: str, value: str | None, operation: str = m.SET) -> m.ConfigResourceChange:
    return m.ConfigResourceChange("topic", "t", (m.ConfigChange(key, value, operation),))


def test_a_value_that_is_too_large_is_refused_before_anybody_parses_it(world: World) -> None:
    ((error, message),) = outcome(world, change("retention.ms", "1" * (MAX_VALUE_BYTES + 1)))
    assert error == "INVALID_CONFIG"
    assert (
        message
        == f"The value of retention.ms has {MAX_VALUE_BYTES + 1} bytes; at most {MAX_VALUE_BYTES} can be stored."
    )
    assert outcome(world, change("retention.ms", "€" * (MAX_VALUE_BYTES // 3 + 1)))[0][0] == "INVALID_CONFIG"


def test_one_resource_named_twice_is_refused_and_others_are_not(world: World) -> None:
    good = change("retention.ms", "5")
    broker = m.ConfigResourceChange("broker", "", (m.ConfigChange("log.retention.ms", "6"),))
    results = outcome(world, good, broker, good)
    assert [error for error, _ in results] == ["INVALID_REQUEST", "NONE", "INVALID_REQUEST"]
    assert results[0][1] == "Each resource must appear at most once."
    assert world.image.config("broker", "") == {"log.retention.ms": "6"}
    assert not world.image.config("topic", "t")


@pytest.mark.parametrize(
    ("resource", "sentence"),
    [
        (m.ConfigResourceChange("topic", "", ()), "Default topic resources are not allowed."),
        (m.ConfigResourceChange("client", "x", ()), "Configs of resource type 'client' cannot be altered"),
        (m.ConfigResourceChange("broker", "01", ()), "Invalid broker name '01'"),
        (m.ConfigResourceChange("broker", "-1", ()), "Invalid broker name '-1'"),
        (change("retention.ms", "1", "MULTIPLY"), "Unknown operation 'MULTIPLY' on retention.ms."),
        (
            m.ConfigResourceChange("topic", "t", (m.ConfigChange("a", None, m.DELETE),), replace_all=True),
            "A whole configuration consists of keys to be set.",
        ),
        (change("retention.ms", None), "Null value not supported for: retention.ms"),
        (change("cleanup.policy", None, m.APPEND), "Null value not supported for: cleanup.policy"),
    ],
)
def test_requests_that_make_no_sense(world: World, resource: m.ConfigResourceChange, sentence: str) -> None:
    ((error, message),) = outcome(world, resource)
    assert error == "INVALID_REQUEST"
    assert message is not None
    assert message.startswith(sentence)


def test_a_key_that_another_version_stored_can_be_deleted(world: World) -> None:
    """Deleting what is not set is no error, as in Kafka."""
    assert outcome(world, change("no.such.key", None, m.DELETE)) == [("NONE", None)]


def test_a_list_is_appended_to_its_default(world: World) -> None:
    assert outcome(world, change("cleanup.policy", "delete, delete", m.APPEND)) == [("NONE", None)]
    assert world.image.config("topic", "t") == {"cleanup.policy": "delete"}


def test_a_list_may_become_empty(world: World) -> None:
    assert outcome(world, change("cleanup.policy", "delete", m.SUBTRACT)) == [("NONE", None)]
    assert world.image.config("topic", "t") == {"cleanup.policy": ""}
    assert outcome(world, change("cleanup.policy", "compact", m.APPEND)) == [("NONE", None)]
    assert world.image.config("topic", "t") == {"cleanup.policy": "compact"}
