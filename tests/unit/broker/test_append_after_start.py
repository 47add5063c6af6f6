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
from tests.support.broker_world import BrokerWorld, batch, topic
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
    storage = new_storage()
    disk = FailingDisk(simulated_disk(storage))
    world = await restarted(storage, disk)
    disk.fail = lambda operation, path: number if operation == "read" else None
    assert await code(world, b"x" * size) == ErrorCode.KAFKA_STORAGE_ERROR
    disk.fail = lambda operation, path: None
    assert await code(world, b"x" * size) == 0
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
