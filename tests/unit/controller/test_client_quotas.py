"""Quotas in the metadata, and the one that the controller itself measures."""

from __future__ import annotations

from typing import Any

import pytest

from quorum.metadata.records import QuotaEntity
from quorum.rpc.messages import (
    AlterClientQuotasRequest,
    ClientQuotaAlteration,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    MorePartitions,
    Mutator,
    NewTopic,
    QuotaChange,
    TopicToDelete,
)
from tests.support.controller_world import World

ALICE: QuotaEntity = (("user", "alice"),)
BOTH: QuotaEntity = (("client-id", ""), ("user", "alice"))
IP: QuotaEntity = (("ip", "10.0.0.1"),)
RATE = "producer_byte_rate"


def alteration(entity: QuotaEntity, **values: float | None) -> ClientQuotaAlteration:
    return ClientQuotaAlteration(entity, tuple(QuotaChange(key, value) for key, value in values.items()))


def alter(world: World, *alterations: ClientQuotaAlteration, validate_only: bool = False) -> list[str]:
    response: Any = world.call(AlterClientQuotasRequest(alterations, validate_only))
    return [result.error for result in response.entities]


def test_quotas_are_set_changed_and_removed() -> None:
    world = World()
    both = alteration(BOTH, producer_byte_rate=1024.0, request_percentage=12.5)
    assert alter(world, both, alteration(IP, connection_creation_rate=3.0)) == ["NONE", "NONE"]
    assert world.image.client_quotas == {
        BOTH: {RATE: 1024.0, "request_percentage": 12.5},
        IP: {"connection_creation_rate": 3.0},
    }
    assert alter(
        world, alteration(BOTH, producer_byte_rate=None), alteration(ALICE, producer_byte_rate=None)
    ) == [
        "NONE",
        "NONE",
    ]
    assert world.image.client_quotas[BOTH] == {"request_percentage": 12.5}
    assert world.replay() == world.image


def test_what_changes_nothing_is_not_written() -> None:
    world = World()
    alter(world, alteration(ALICE, producer_byte_rate=1.0))
    offset = world.image.offset
    assert alter(world, alteration(ALICE, producer_byte_rate=1.0)) == ["NONE"]
    assert alter(world, alteration(ALICE, producer_byte_rate=2.0), validate_only=True) == ["NONE"]
    assert world.image.offset == offset


@pytest.mark.parametrize(
    ("entity", "values", "sentence"),
    [
        ((), {RATE: 1.0}, "empty client quota entity"),
        ((("group", "g"),), {RATE: 1.0}, "use user, client-id or ip"),
        ((("user", "a"), ("user", "b")), {RATE: 1.0}, "duplicate entity entry user"),
        ((("ip", "10.0.0.1"), ("user", "a")), {RATE: 1.0}, "neither a user nor a client-id"),
        ((("ip", "localhost"),), {"connection_creation_rate": 1.0}, "not a valid IP address"),
        (ALICE, {"connection_creation_rate": 1.0}, "Invalid configuration key"),
        (IP, {RATE: 1.0}, "Invalid configuration key"),
        (ALICE, {RATE: 0.0}, "must be greater than 0"),
        (ALICE, {RATE: 1.5}, "fractional"),
        (ALICE, {RATE: 1e19}, "too large"),
        (IP, {"connection_creation_rate": 2.0**31}, "too large"),
        ((("user", "a" * 256),), {RATE: 1.0}, "at most 255 characters"),
    ],
)
def test_refusals(entity: QuotaEntity, values: dict[str, float], sentence: str) -> None:
    world = World()
    response: Any = world.call(
        AlterClientQuotasRequest((alteration(entity, **values), alteration(BOTH, producer_byte_rate=1.0)))
    )
    refused, made = response.entities
    assert refused.error == "INVALID_REQUEST"
    assert sentence in refused.message
    assert made.error == "NONE"
    assert list(world.image.client_quotas) == [BOTH]


def test_all_of_an_entity_or_nothing() -> None:
    world = World()
    assert alter(world, alteration(ALICE, producer_byte_rate=1.0, consumer_byte_rate=-1.0)) == [
        "INVALID_REQUEST"
    ]
    twice = ClientQuotaAlteration(ALICE, (QuotaChange(RATE, 1.0), QuotaChange(RATE, 2.0)))
    assert alter(world, twice) == ["INVALID_REQUEST"]
    assert alter(
        world, alteration(ALICE, producer_byte_rate=1.0), alteration(ALICE, consumer_byte_rate=1.0)
    ) == [
        "INVALID_REQUEST",
        "INVALID_REQUEST",
    ]
    assert world.image.client_quotas == {}


STRICT, PERMISSIVE = Mutator("alice", "admin", strict=True), Mutator("alice", "admin")


def limited_world(rate: float) -> World:
    world = World()
    world.start(1)
    alter(world, alteration(ALICE, controller_mutation_rate=rate))
    return world


def create(world: World, name: str, partitions: int, mutator: Mutator | None) -> tuple[str, int]:
    response: Any = world.call(CreateTopicsRequest((NewTopic(name, partitions, 1),), mutator=mutator))
    return response.topics[0].error, response.throttle_time_ms


def test_partitions_are_taken_from_the_quota_of_who_asks() -> None:
    world = limited_world(1.0)
    assert create(world, "a", 11, STRICT) == ("NONE", 0)
    assert create(world, "b", 4, STRICT) == ("NONE", 4000)  # nothing was owed before
    assert create(world, "c", 1, STRICT) == ("THROTTLING_QUOTA_EXCEEDED", 4000)
    assert "c" not in world.image.topic_ids
    assert create(world, "c", 1, Mutator("bob", "admin", strict=True)) == ("NONE", 0)
    assert create(world, "d", 1, None) == ("NONE", 0)  # the brokers' own
    world.now_ms += 4000
    assert create(world, "e", 1, STRICT) == ("NONE", 1000)


def test_who_does_not_know_of_the_quota_has_to_wait_afterwards() -> None:
    world = limited_world(1.0)
    assert create(world, "a", 15, PERMISSIVE) == ("NONE", 4000)
    assert create(world, "b", 1, PERMISSIVE) == ("NONE", 5000)


def test_deleting_and_adding_counts_too() -> None:
    world = limited_world(1.0)
    create(world, "a", 10, STRICT)
    more: Any = world.call(CreatePartitionsRequest((MorePartitions("a", 13),), mutator=STRICT))
    assert (more.topics[0].error, more.throttle_time_ms) == ("NONE", 2000)
    gone: Any = world.call(DeleteTopicsRequest((TopicToDelete("a"),), STRICT))
    assert (gone.topics[0].error, gone.throttle_time_ms) == ("THROTTLING_QUOTA_EXCEEDED", 2000)
    world.now_ms += 2000
    gone = world.call(DeleteTopicsRequest((TopicToDelete("a"),), STRICT))
    assert (gone.topics[0].error, gone.throttle_time_ms) == ("NONE", 13_000)


def test_within_one_request_the_rest_is_refused() -> None:
    world = limited_world(1.0)
    topics = tuple(NewTopic(name, 8, 1) for name in "abc")
    response: Any = world.call(CreateTopicsRequest(topics, mutator=STRICT))
    assert [result.error for result in response.topics] == ["NONE", "NONE", "THROTTLING_QUOTA_EXCEEDED"]
    assert response.throttle_time_ms == 5000


def test_what_is_refused_for_another_reason_costs_nothing() -> None:
    world = limited_world(1.0)
    assert create(world, "a", 0, STRICT) == ("INVALID_PARTITIONS", 0)
    assert create(world, "a", 11, STRICT) == ("NONE", 0)
    assert create(world, "a", 11, STRICT) == ("TOPIC_ALREADY_EXISTS", 0)
