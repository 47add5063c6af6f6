"""Heartbeats are repeated where no answer came, and a copy may arrive when the broker has moved on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quorum.metadata.records import NO_LEADER
from quorum.rpc.messages import (
    CreateTopicsRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    NewTopic,
    PartitionAssignment,
    RegisterBrokerResponse,
)
from tests.support.controller_world import World, registration


def told_to_go(world: World) -> HeartbeatRequest:
    """Has broker 1 shut down; returns what it said before it wanted to."""
    epoch = world.image.brokers[1].epoch
    before = HeartbeatRequest(1, epoch, world.image.offset)
    for _ in range(6):
        for other in sorted(world.image.brokers.keys() - {1}):
            world.call(HeartbeatRequest(other, world.image.brokers[other].epoch, world.image.offset))
        answer = world.call(replace(before, current_metadata_offset=world.image.offset, want_shutdown=True))
        assert isinstance(answer, HeartbeatResponse), answer
        if answer.should_shutdown:
            return before
    raise AssertionError("its shutdown is not granted")


def assert_successor_registers(world: World, epoch: int) -> None:
    answer = world.call(registration(1, incarnation=2))
    assert isinstance(answer, RegisterBrokerResponse), answer
    assert answer.broker_epoch > epoch


def test_a_late_heartbeat_does_not_bring_a_broker_back_that_was_told_to_go() -> None:
    """It would lead what waits for it, and keep its successor waiting for the end of its session."""
    world = World()
    world.start(1)
    world.send(CreateTopicsRequest((NewTopic("a", 1, 1),)))
    late = told_to_go(world)
    assert world.image.brokers[1].fenced
    world.call(late)
    (partition,) = next(iter(world.image.topics.values())).partitions
    assert (world.image.brokers[1].fenced, partition.leader) == (True, NO_LEADER), "its process is gone"
    assert_successor_registers(world, late.broker_epoch)


def test_a_late_registration_does_not_keep_the_successor_of_a_broker_waiting_that_was_told_to_go() -> None:
    world = World()
    world.start(1)
    epoch = told_to_go(world).broker_epoch
    late = world.call(registration(1))
    assert isinstance(late, RegisterBrokerResponse), late
    assert late.broker_epoch == epoch, "the same incarnation"
    assert_successor_registers(world, epoch)


@pytest.mark.parametrize("want_shutdown", [True, False])
def test_nor_does_a_copy_that_an_overloaded_controller_only_counts(want_shutdown: bool) -> None:
    world = World(max_pending_requests=1)
    world.start(1)
    late = told_to_go(world)
    world.holding = True
    world.send(CreateTopicsRequest((NewTopic("a", 1, 1),)))
    world.send(registration(2))
    world.send(replace(late, want_shutdown=want_shutdown))
    world.holding = False
    world.commit()
    assert_successor_registers(world, late.broker_epoch)


def test_the_next_controller_knows_who_has_moved_its_leaderships_away_and_gone() -> None:
    world = World()
    world.start(1, 2)
    world.send(CreateTopicsRequest((NewTopic("a", 2, 1),)))
    world.commit()
    late = told_to_go(world)
    world.lead()
    world.call(late)
    assert world.image.brokers[1].fenced


def test_the_next_controller_knows_who_led_nothing_and_has_gone() -> None:
    world = World()
    world.start(1, 2)
    world.commit()
    late = told_to_go(world)
    world.lead()
    for _ in range(3):
        world.call(late)
    assert world.image.brokers[1].fenced
    assert_successor_registers(world, late.broker_epoch)


def test_nor_is_a_process_elected_that_was_fenced_when_it_was_told_to_go() -> None:
    """Its replica is eligible, and nobody else's is there."""
    world = World()
    world.start(1, 2, 3)
    two = PartitionAssignment(0, (2, 1))
    world.send(
        CreateTopicsRequest((NewTopic("a", assignments=(two,), configs=(("min.insync.replicas", "2"),)),))
    )
    world.commit()
    fence = HeartbeatRequest(1, world.image.brokers[1].epoch, world.image.offset, want_fence=True)
    world.call(fence)
    assert world.image.brokers[1].fenced
    late = told_to_go(world)
    for _ in range(30):
        world.heartbeat(3)
        world.advance(1000)
    world.lead()
    world.heartbeat(3)
    for _ in range(3):
        world.call(replace(late, current_metadata_offset=world.image.offset))
    (partition,) = next(iter(world.image.topics.values())).partitions
    assert (partition.leader, sorted(partition.elr)) == (NO_LEADER, [1, 2])
