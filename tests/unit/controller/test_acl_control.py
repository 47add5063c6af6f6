"""ACLs as the controller takes them, and filters: what they name, and what is wrong with either."""

from __future__ import annotations

import pytest

from quorum.controller.acl_control import MAX_REMOVED
from quorum.errors import ControllerError
from quorum.metadata.acls import ALLOW, ANY, CLUSTER, DENY, LITERAL, MATCH, PREFIXED, Acl, AclFilter
from quorum.rpc import messages as m
from tests.support.controller_world import World

READ, ALL = 3, 2
GOOD = Acl(2, "t", LITERAL, "User:alice", "*", READ, ALLOW)
EVERY = AclFilter(ANY, None, ANY, None, None, ANY, ANY)


@pytest.fixture
def world() -> World:
    made = World()
    made.start(1)
    return made


def create(world: World, *acls: Acl) -> list[tuple[str, str | None]]:
    response = world.call(m.CreateAclsRequest(acls))
    assert isinstance(response, m.CreateAclsResponse)
    return [(result.error, result.message) for result in response.results]


def delete(world: World, *filters: AclFilter) -> list[tuple[Acl, ...] | str]:
    response = world.call(m.DeleteAclsRequest(filters))
    assert isinstance(response, m.DeleteAclsResponse)
    return [result.acls if result.error == m.NO_ERROR else result.error for result in response.results]


def test_acls_are_added_together_beside_those_that_cannot_be(world: World) -> None:
    other = GOOD._replace(operation=ALL)
    results = create(world, GOOD, GOOD._replace(resource_name=""), other, GOOD)
    assert [error for error, _ in results] == ["NONE", "INVALID_REQUEST", "NONE", "NONE"]
    assert world.image.acls == {GOOD, other}
    before = world.image.offset
    assert create(world, GOOD) == [("NONE", None)]
    assert world.image.offset == before, "what is there is not written again"


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"resource_type": ANY}, "Invalid resource type 1"),
        ({"resource_type": 8}, "Invalid resource type 8"),
        ({"pattern_type": MATCH}, "Invalid pattern type 2"),
        ({"operation": ANY}, "Invalid operation 1"),
        ({"operation": 16}, "Invalid operation 16"),
        ({"permission_type": ANY}, "Invalid permission type 1"),
        ({"resource_name": ""}, "Resource name should not be empty."),
        ({"resource_type": CLUSTER}, "The only valid name for the CLUSTER resource is kafka-cluster."),
        ({"principal": "alice"}, "Could not parse principal from 'alice'"),
        ({"principal": "User:"}, "Could not parse principal from 'User:'"),
        ({"host": ""}, "The host should not be empty"),
    ],
)
def test_acls_that_there_cannot_be(world: World, wrong: dict[str, int | str], sentence: str) -> None:
    ((error, message),) = create(world, GOOD._replace(**wrong))  # type: ignore[arg-type]
    assert error == "INVALID_REQUEST"
    assert message is not None
    assert message.startswith(sentence)
    assert world.image.acls == set()


def test_filters_remove_what_they_name(world: World) -> None:
    denied, other = GOOD._replace(permission_type=DENY), GOOD._replace(resource_name="u")
    create(world, GOOD, denied, other)
    on_t = EVERY._replace(resource_name="t")
    assert delete(world, on_t, EVERY._replace(permission_type=DENY), EVERY._replace(operation=99)) == [
        (denied, GOOD),
        (denied,),
        "INVALID_REQUEST",
    ]
    assert world.image.acls == {other}
    assert delete(world, on_t) == [()]


def test_too_many_are_not_removed_at_once(world: World) -> None:
    create(world, *(GOOD._replace(resource_name=f"t{number}") for number in range(MAX_REMOVED // 2 + 1)))
    refused = world.call(m.DeleteAclsRequest((EVERY, EVERY)))
    assert isinstance(refused, ControllerError)
    assert (refused.code, len(world.image.acls)) == ("POLICY_VIOLATION", MAX_REMOVED // 2 + 1)
    assert len(delete(world, EVERY)[0]) == MAX_REMOVED // 2 + 1


PREFIX = GOOD._replace(resource_name="te", pattern_type=PREFIXED)
ANYTHING = GOOD._replace(resource_name="*")


@pytest.mark.parametrize(
    ("pattern_type", "name", "found"),
    [
        (ANY, None, {GOOD, PREFIX, ANYTHING}),
        (ANY, "t", {GOOD}),
        (ANY, "te", {PREFIX}),
        (LITERAL, "te", set()),
        (PREFIXED, "te", {PREFIX}),
        (PREFIXED, "team", set()),
        (MATCH, "t", {GOOD, ANYTHING}),
        (MATCH, "team", {PREFIX, ANYTHING}),
        (MATCH, None, {GOOD, PREFIX, ANYTHING}),
        (LITERAL, "*", {ANYTHING}),
    ],
)
def test_what_patterns_name(pattern_type: int, name: str | None, found: set[Acl]) -> None:
    wanted = EVERY._replace(pattern_type=pattern_type, resource_name=name)
    assert {acl for acl in (GOOD, PREFIX, ANYTHING) if wanted.matches(acl)} == found


def test_what_entries_name() -> None:
    for field, value, others in (
        ("resource_type", 2, 3),
        ("principal", "User:alice", "User:bob"),
        ("host", "*", "h"),
        ("operation", READ, ALL),
        ("permission_type", ALLOW, DENY),
    ):
        assert EVERY._replace(**{field: value}).matches(GOOD)  # type: ignore[arg-type]
        assert not EVERY._replace(**{field: others}).matches(GOOD)  # type: ignore[arg-type]
