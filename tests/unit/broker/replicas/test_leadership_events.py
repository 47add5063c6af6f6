"""Who keeps records in a partition hears when this broker leads it, in which order, and never ahead of the replica."""

from __future__ import annotations

import asyncio

import pytest

from partitions.errors import PartitionError
from partitions.log.errors import LogStorageError
from partitions.topic_partition import TopicPartition
from quorum.metadata.records import PartitionChange
from tests.support.broker_world import BrokerWorld, batch, gone, led_by, topic, topic_id

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
Event = tuple[str, str, TopicPartition, int | bytes]


class Listener:
    """Keeps what it is told, and asks the replica at that moment."""

    def __init__(self, world: BrokerWorld, name: str, told: list[Event]) -> None:
        self._world = world
        self._name = name
        self._told = told

    def _append(self, key: TopicPartition, leader_epoch: int) -> None:
        self._world.replicas.appends.append(
            key, batch(b"x"), acks=1, origin="coordinator", leader_epoch=leader_epoch
        )

    def on_elected(self, partition: TopicPartition, leader_epoch: int) -> None:
        self._append(partition, leader_epoch)
        self._told.append((self._name, "elected", partition, leader_epoch))

    def on_resigned(self, partition: TopicPartition, leader_epoch: int) -> None:
        with pytest.raises(PartitionError):
            self._append(partition, leader_epoch)
        self._told.append((self._name, "resigned", partition, leader_epoch))

    def on_deleted(self, partition: TopicPartition, topic_id: bytes) -> None:
        with pytest.raises(PartitionError):
            self._world.replicas.partition(partition)
        self._told.append((self._name, "deleted", partition, topic_id))


@pytest.fixture
def told(world: BrokerWorld) -> list[Event]:
    """What one listener is told."""
    events: list[Event] = []
    world.replicas.leaderships.add(Listener(world, "a", events))
    return events


async def test_a_leadership_begins_when_its_epoch_is_durable(world: BrokerWorld, told: list[Event]) -> None:
    await world.start(*topic("t", 1, (2, 1)))
    assert told == [], "it follows"
    world.executor.holding = True
    await world.publish(led_by(1, 0, 1))
    assert world.replicas.partition(T0).is_leader
    assert told == [], "it does not take appends yet"
    world.executor.release()
    await world.replicas.settled()
    assert told == [("a", "elected", T0, 1)]


async def test_a_newer_isr_is_no_election(world: BrokerWorld, told: list[Event]) -> None:
    await world.start(*topic("t", 1, (1, 2), epoch=3))
    await world.publish(PartitionChange(topic_id(1), 0, isr=(1,)))
    assert world.replicas.partition(T0).isr == (1,)
    assert told == [("a", "elected", T0, 3)]


async def test_another_leader_ends_a_leadership(world: BrokerWorld, told: list[Event]) -> None:
    await world.start(*topic("t", 1, (1, 2), epoch=3))
    await world.publish(led_by(1, 0, 2))
    await world.publish(led_by(1, 0, 1))
    assert [event[1:] for event in told] == [("elected", T0, 3), ("resigned", T0, 3), ("elected", T0, 5)]


async def test_a_new_epoch_of_the_same_leader_is_a_new_election(
    world: BrokerWorld, told: list[Event]
) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    world.executor.holding = True
    await world.publish(led_by(1, 0, 1))
    assert told[1:] == [("a", "resigned", T0, 0)]
    world.executor.release()
    await world.replicas.settled()
    assert told[2:] == [("a", "elected", T0, 1)]


@pytest.mark.parametrize("how", ["moved", "topic deleted"])
async def test_a_replica_that_is_removed_resigns_first(
    world: BrokerWorld, told: list[Event], how: str
) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    if how == "moved":
        await world.publish(PartitionChange(topic_id(1), 0, replicas=(2, 3), isr=(2, 3), leader=2))
    else:
        await world.publish(gone(1))
    assert told[1:] == [("a", "resigned", T0, 0), ("a", "deleted", T0, topic_id(1))]


async def test_of_what_others_have_nothing_is_told(world: BrokerWorld, told: list[Event]) -> None:
    await world.start(*topic("t", 1, (2, 3)))
    await world.publish(gone(1))
    assert told == []


async def test_a_topic_of_the_same_name_is_another(world: BrokerWorld, told: list[Event]) -> None:
    await world.start(*topic("t", 1, (1,)))
    await world.publish(gone(1), *topic("t", 2, (1,)))
    assert told[1:] == [
        ("a", "resigned", T0, 0),
        ("a", "deleted", T0, topic_id(1)),
        ("a", "elected", T0, 0),
    ]


async def test_a_replica_whose_log_fails_resigns(world: BrokerWorld, told: list[Event]) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    world.logs.give_up(T0, LogStorageError("the disk is gone"))
    await asyncio.sleep(0)
    assert told[1:] == [("a", "resigned", T0, 0)]
    await world.publish(gone(1))
    assert told[2:] == [("a", "deleted", T0, topic_id(1))]


async def test_a_broker_that_shuts_down_resigns(told: list[Event], world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2), (1, 2), (2, 1)))
    await world.replicas.close()
    assert told[2:] == [("a", "resigned", T0, 0), ("a", "resigned", T1, 0)]


async def test_listeners_and_partitions_have_their_order(world: BrokerWorld, told: list[Event]) -> None:
    world.replicas.leaderships.add(Listener(world, "b", told))
    await world.start(*topic("t", 1, (1,), (1,)))
    assert [(who, key) for who, _, key, _ in told] == [("a", T0), ("b", T0), ("a", T1), ("b", T1)]


class Defective(Listener):
    def on_elected(self, partition: TopicPartition, leader_epoch: int) -> None:
        raise ValueError("a defect")


async def test_a_defect_of_a_listener_halts_the_node() -> None:
    world = BrokerWorld()
    world.replicas.leaderships.add(Defective(world, "a", []))
    await world.start()
    world.publish_soon(*topic("t", 1, (1,)))
    await world.halted.wait()
    assert "Defective failed to hear of a leadership: ValueError('a defect')" in world.halts[0]
    world.halts.clear()
    await world.close()
