"""A cluster that has a topic of the controller quorum's own name, from before controllers refused it."""

from __future__ import annotations

import pytest

from kraft.broker.replicas.replica_manager import UnknownTopicOrPartition
from kraft.chaos.world.disk import SimulatedDisk
from partitions.errors import ReplicaOffline
from partitions.topic_partition import CLUSTER_METADATA, CLUSTER_METADATA_TOPIC, TopicPartition
from tests.support.broker_world import BrokerWorld, batch, gone, topic
from tests.support.logs import memory_disk

FOLDER = f"/data/{CLUSTER_METADATA}"
SEGMENT = f"{FOLDER}/00000000000000000000.log"


def write(disk: SimulatedDisk, path: str, content: bytes) -> None:
    disk.make_dirs(FOLDER)
    file = disk.open(path, create=True)
    file.append([content])
    file.sync()
    file.close()


def folders(world: BrokerWorld) -> list[str]:
    return [name for name in world.disk.list_dir("/data") if name.startswith(CLUSTER_METADATA_TOPIC)]


async def test_no_log_is_made_for_it_and_the_others_are_served(world: BrokerWorld) -> None:
    await world.start(*topic(CLUSTER_METADATA_TOPIC, 1, (1,), (1,)), *topic("t", 2, (1,)))
    await world.replicas.settled()
    with pytest.raises(ReplicaOffline, match="the controller quorum's own log"):
        world.replicas.partition(CLUSTER_METADATA)
    for key in (TopicPartition(CLUSTER_METADATA_TOPIC, 1), TopicPartition("t", 0)):
        world.replicas.partition(key).append_records(batch(b"x"), acks=1, now_ms=0)
    assert folders(world) == [f"{CLUSTER_METADATA_TOPIC}-1"]
    await world.publish(gone(1))
    await world.replicas.settled()
    await world.logs.removals.remove_due()
    assert not folders(world)
    with pytest.raises(UnknownTopicOrPartition):
        world.replicas.partition(CLUSTER_METADATA)
    assert not world.halts


async def test_a_journal_is_left_alone() -> None:
    disk = memory_disk()
    write(disk, SEGMENT, b"a vote")
    world = BrokerWorld(disk)
    await world.start(*topic(CLUSTER_METADATA_TOPIC, 1, (1,)))
    await world.publish(gone(1))
    await world.replicas.settled()
    await world.logs.removals.remove_due()
    assert disk.read_bytes(SEGMENT) == b"a vote"
    await world.close()
