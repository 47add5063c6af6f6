"""The first append after a start reads a header of the log: a client's answer if that cannot be read, or is rot."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from kraft.broker.handlers.produce import ACKS_LEADER
from kraft.chaos.world.storage import Storage
from kraft.protocol.errors import ErrorCode
from kraft.protocol.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from partitions.topic_partition import TopicPartition
from quorum.metadata.records import Config
from quorum.rpc.messages import DAMAGED
from tests.support.broker_world import BrokerWorld, batch, led_by, topic, topic_id
from tests.support.logs import FailingDisk, new_storage, simulated_disk

T0 = TopicPartition("t", 0)
RECORDS = (*topic("t", 1, (1,)), Config("topic", "t", "message.timestamp.before.max.ms", "1000"))
SIZES = pytest.mark.parametrize("size", [10, 10_000], ids=["at once", "checked beside the loop"])


async def code(world: BrokerWorld, value: bytes) -> int:
    data = [PartitionProduceData(index=0, records=batch(value))]
    request = ProduceRequest(
        acks=ACKS_LEADER, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )
    answer: Any = world.handle(request, 12)
    response: ProduceResponse = answer if isinstance(answer, ProduceResponse) else await answer
    return response.responses[0].partition_responses[0].error_code


async def restarted(storage: Storage, disk: FailingDisk) -> BrokerWorld:
    world = BrokerWorld(simulated_disk(storage))
    await world.start(*RECORDS)
    assert await code(world, b"first") == 0
    await world.close()
    world = BrokerWorld(disk)  # type: ignore[arg-type]
    await world.start(*RECORDS)
    return world


@SIZES
@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
async def test_a_disk_that_fails_a_read_is_a_storage_error(number: int, size: int) -> None:
    """Only what says nothing of the disk is tried again: else somebody else is to lead."""
    storage = new_storage()
    disk = FailingDisk(simulated_disk(storage))
    world = await restarted(storage, disk)
    disk.fail = lambda operation, path: number if operation == "read" else None
    assert await code(world, b"x" * size) == ErrorCode.KAFKA_STORAGE_ERROR
    await asyncio.sleep(0)
    disk.fail = lambda operation, path: None
    is_passing = number == errno.EMFILE
    assert list(world.replicas.offline_partitions) == ([] if is_passing else [T0])
    assert await code(world, b"x" * size) == (0 if is_passing else ErrorCode.KAFKA_STORAGE_ERROR)
    await world.close()
    assert world.halts == []


@SIZES
async def test_rot_takes_the_replica_offline(size: int) -> None:
    storage = new_storage()
    world = await restarted(storage, FailingDisk(simulated_disk(storage)))
    file = simulated_disk(storage).open("/data/t-0/00000000000000000000.log")
    file.write_at(16, b"\x07")
    file.close()
    assert await code(world, b"x" * size) == ErrorCode.KAFKA_STORAGE_ERROR
    await asyncio.sleep(0)
    assert list(world.replicas.offline_partitions) == [T0]
    assert await code(world, b"x" * size) == ErrorCode.KAFKA_STORAGE_ERROR
    await world.close()
    assert world.halts == []


async def test_a_log_with_a_later_epoch_than_its_replica_is_to_lead_in_goes_offline_alone() -> None:
    """Nobody has written in such an epoch: it has rotted, where no checksum covers it and no recovery can tell."""
    storage = new_storage()
    records = (*topic("t", 1, (1, 2)), *topic("u", 2, (1, 2)))
    world = BrokerWorld(simulated_disk(storage))
    await world.start(*records)
    assert await code(world, b"first") == 0
    await world.logs.flush()
    storage.lose_power()
    simulated_disk(storage).open("/data/t-0/00000000000000000000.log").write_at(14, b"\x40")
    world = BrokerWorld(simulated_disk(storage))
    await world.start(*records, led_by(1, 0, 1), led_by(2, 0, 1))
    await asyncio.sleep(0)
    assert list(world.replicas.offline_partitions) == [T0]
    assert "is of leader epoch 16384" in str(world.replicas.offline_partitions[T0])
    assert world.offline_replicas.kinds == {(topic_id(1), 0): DAMAGED}
    assert await code(world, b"more") == ErrorCode.KAFKA_STORAGE_ERROR
    assert world.replicas.partition(TopicPartition("u", 0)).is_leader
    await world.close()
    assert world.halts == []
