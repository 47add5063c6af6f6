"""DescribeLogDirs over real logs: what each data directory holds, its room, and which of them are offline."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator

import pytest

from kraft.broker.handlers import log_dirs
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from partitions.disk import DiskSpace
from partitions.topic_partition import TopicPartition
from tests.support.broker_world import BrokerWorld, batch, gone, topic
from tests.support.logs import new_storage, simulated_disk

VERSION = 5
TWO = ("/data", "/more")


@pytest.fixture
async def two() -> AsyncIterator[BrokerWorld]:
    """A broker with two data directories."""
    made = BrokerWorld(directories=TWO)
    yield made
    await made.close()
    assert made.halts == []


def fill(world: BrokerWorld, name: str, number: int, records: int) -> int:
    """Appends so many batches; returns their bytes."""
    partition = world.replicas.partition(TopicPartition(name, number))
    for _ in range(records):
        partition.append_records(batch(b"value"), acks=1, now_ms=0)
    return records * len(memoryview(batch(b"value")))


def asked(*topics: tuple[str, list[int]]) -> DescribeLogDirsRequest:
    return DescribeLogDirsRequest(topics=[DescribableLogDirTopic(name, numbers) for name, numbers in topics])


ALL = DescribeLogDirsRequest(topics=None)


def logs(response: DescribeLogDirsResponse) -> dict[str, dict[tuple[str, int], int]]:
    """The sizes of partitions, by directory."""
    return {
        result.log_dir: {
            (found.name, one.partition_index): one.partition_size
            for found in result.topics
            for one in found.partitions
        }
        for result in response.results
    }


async def test_what_a_directory_holds(world: BrokerWorld) -> None:
    await world.start(*topic("u", 2, (1,)), *topic("t", 1, (1,), (1,), (2, 3)))
    written = fill(world, "t", 1, 3)
    response = await world.handle(ALL, VERSION)
    assert logs(response) == {"/data": {("t", 0): 0, ("t", 1): written, ("u", 0): 0}}
    (result,) = response.results
    assert (response.error_code, result.error_code, result.is_cordoned) == (0, 0, False)
    assert [found.name for found in result.topics] == ["t", "u"], "each once"
    described = [one for found in result.topics for one in found.partitions]
    assert {(one.offset_lag, one.is_future_key) for one in described} == {(0, False)}


async def test_what_is_asked_for(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,), (1,)), *topic("u", 2, (1,)))

    async def found(request: DescribeLogDirsRequest) -> list[tuple[str, int]]:
        return list(logs(await world.handle(request, VERSION))["/data"])

    assert await found(asked(("t", [1, 1, 7]), ("nosuch", [0]))) == [("t", 1)]
    assert await found(asked(("t", []))) == []
    assert await found(asked()) == [], "none is not all"
    assert await found(ALL) == [("t", 0), ("t", 1), ("u", 0)]


async def test_a_directory_that_failed_is_told_and_nothing_of_it(two: BrokerWorld) -> None:
    await two.start(*topic("t", 1, *[(1,)] * 6))
    before = logs(await two.handle(ALL, VERSION))
    assert before.keys() == set(TWO)
    assert all(before.values()), "both have some"
    two.logs.fail_directory("/data", "it was pulled out")
    good, bad = sorted((await two.handle(ALL, VERSION)).results, key=lambda result: result.error_code)
    assert (bad.log_dir, bad.error_code, bad.topics) == ("/data", ErrorCode.KAFKA_STORAGE_ERROR, [])
    assert (bad.total_bytes, bad.usable_bytes) == (-1, -1)
    assert {("t", one.partition_index) for one in good.topics[0].partitions} == before["/more"].keys()


async def test_directories_come_in_the_order_of_log_dirs(two: BrokerWorld) -> None:
    await two.start()
    two.logs.fail_directory("/data", "it was pulled out")
    assert [result.log_dir for result in (await two.handle(ALL, VERSION)).results] == list(TWO)


async def test_the_room_is_that_of_the_file_system() -> None:
    storage = new_storage()
    world = BrokerWorld(simulated_disk(storage), directories=TWO)
    await world.start()
    storage.free_bytes, storage.full_below = 4711, "/more"
    first, second = (await world.handle(ALL, VERSION)).results
    assert 0 < first.usable_bytes == first.total_bytes == second.total_bytes
    assert second.usable_bytes == 4711
    await world.close()


async def test_a_disk_that_does_not_answer_is_a_storage_error(
    two: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await two.start(*topic("t", 1, *[(1,)] * 6))
    space = two.disk.space

    def failing(path: str) -> DiskSpace:
        if path == "/more":
            raise OSError(errno.EIO, "injected", path)
        return space(path)

    monkeypatch.setattr(two.disk, "space", failing)
    first, second = (await two.handle(ALL, VERSION)).results
    assert (first.error_code, second.error_code) == (0, ErrorCode.KAFKA_STORAGE_ERROR)
    assert first.topics
    assert (second.topics, second.usable_bytes) == ([], -1)
    assert two.logs.usable_directories == list(TWO), "looking gives nothing up"


async def test_a_log_without_a_replica_has_no_lag(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    world.publish_soon(gone(1))  # its log is about to be deleted
    response = await world.handle(ALL, VERSION)
    assert [one.offset_lag for found in response.results[0].topics for one in found.partitions] == [-1]
    await world.replicas.settled()
    assert logs(await world.handle(ALL, VERSION)) == {"/data": {}}


async def test_others_have_their_turn_and_what_goes_meanwhile_is_left_out(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_dirs, "LOGS_PER_STEP", 2)
    await world.start(*topic("t", 1, (1,), (1,), (1,)), *topic("u", 2, (1,), (1,)))
    answer = asyncio.ensure_future(world.handle(ALL, VERSION))
    await asyncio.sleep(0)  # it has begun
    assert not answer.done()
    await world.publish(gone(2))
    found = logs(await answer)["/data"]
    assert {name for name, _ in found} == {"t"}
    assert len(found) == 3
