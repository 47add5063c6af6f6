"""A full disk under a broker: refusals, nothing torn, and everything goes on when there is room again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from kraft.broker.replicas import append_refusals, replica_logs
from kraft.protocol.errors import ErrorCode
from kraft.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from partitions.log.errors import LogError
from partitions.log_manager import LogManager
from partitions.records.batch import iter_batches, verify_crc
from partitions.topic_partition import TopicPartition
from quorum.metadata.records import Config
from tests.support.broker_world import BrokerWorld, batch, led_by, topic
from tests.support.logs import new_storage, simulated_disk

T0 = TopicPartition("t", 0)
VERSION = 12


class FullWorld(BrokerWorld):
    """A broker on a disk of which a test says how much room is left."""

    def __init__(self) -> None:
        self.storage = new_storage()
        super().__init__(simulated_disk(self.storage), lag_max_ms=20)

    def room(self, free_bytes: int | None) -> None:
        self.storage.free_bytes = free_bytes


@pytest.fixture
async def world() -> Any:
    made = FullWorld()
    yield made
    made.room(None)
    await made.close()
    assert made.halts == []


def produce(world: BrokerWorld, value: bytes) -> tuple[int, int]:
    data = [PartitionProduceData(index=0, records=batch(value))]
    body = ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )
    (answered,) = world.handle(body, VERSION).responses
    (answer,) = answered.partition_responses
    return answer.error_code, answer.base_offset


def stored(world: BrokerWorld) -> list[int]:
    """The offsets of the batches in the log's files, checksums compared."""
    offsets = []
    for name in world.disk.list_dir("/data/t-0"):
        if name.endswith(".log"):
            data = world.disk.read_bytes(f"/data/t-0/{name}")
            for position, header in iter_batches(data):
                verify_crc(data, position, header)
                offsets.append(header.base_offset)
    return offsets


async def eventually(condition: Callable[[], bool]) -> None:
    """Waits for a timer of the manager's to do it."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came about")


@pytest.mark.parametrize("free_bytes", [0, 1, 60, 61, 100])
async def test_produce_is_refused_and_what_was_written_in_part_is_cut_away(
    world: FullWorld, free_bytes: int
) -> None:
    await world.start(*topic("t", 1, (1,)))
    assert produce(world, b"a" * 100) == (0, 0)
    world.room(free_bytes)
    for _ in range(3):
        assert produce(world, b"b" * 100) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert stored(world) == [0]
    world.room(None)
    assert produce(world, b"c" * 100) == (0, 1)
    assert stored(world) == [0, 1]


@pytest.mark.parametrize("free_bytes", range(0, 400, 13))
async def test_a_segment_that_cannot_be_made_changes_nothing(world: FullWorld, free_bytes: int) -> None:
    await world.start(*topic("t", 1, (1,)), Config("topic", "t", "segment.bytes", "400"))
    taken = [produce(world, b"x" * 40)[1] for _ in range(3)]
    world.room(free_bytes)
    while (answer := produce(world, b"y" * 40))[0] == 0:
        taken.append(answer[1])
    assert answer[0] == ErrorCode.KAFKA_STORAGE_ERROR
    assert stored(world) == taken
    world.room(None)
    taken += [produce(world, b"z" * 40)[1] for _ in range(10)]
    assert stored(world) == taken == list(range(len(taken)))


async def test_a_follower_tries_again(world: FullWorld) -> None:
    await world.start(*topic("t", 1, (2, 1)))
    partition = world.replicas.partition(T0)
    world.room(10)
    with pytest.raises(LogError) as error:
        partition.append_as_follower(
            batch(b"a", leader_epoch=0), leader_epoch=0, leader_high_watermark=1, leader_log_start_offset=0
        )
    assert error.value.is_transient
    assert stored(world) == []


async def test_a_leader_whose_epoch_finds_no_room_appends_later(world: FullWorld) -> None:
    """It leads, and serves what there is; what it would append waits for the epoch's start on the disk."""
    await world.start(*topic("t", 1, (2, 1)))
    world.room(0)
    await world.publish(led_by(1, 0, 1))
    assert world.replicas.partition(T0).read_for_consumer(0, max_bytes=1, current_leader_epoch=1)
    assert produce(world, b"a")[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.room(None)
    await eventually(lambda: produce(world, b"a") == (0, 0))


async def test_a_replica_that_finds_no_room_is_made_later(world: FullWorld) -> None:
    await world.start()
    world.room(0)
    await world.publish(*topic("t", 1, (1,)))
    assert produce(world, b"a")[0] == ErrorCode.KAFKA_STORAGE_ERROR
    world.room(None)
    await eventually(lambda: produce(world, b"a")[0] == 0)
    assert world.replicas.offline_partitions == {}
    assert stored(world) == [0]


async def test_an_episode_of_refused_appends_is_told_once_and_so_is_its_end(
    world: FullWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.start(*topic("t", 1, (1,)))
    assert world.replicas.refusals.directories == {}
    with capture_logs() as lines:
        for _ in range(2):
            world.room(0)
            for _ in range(3):
                assert produce(world, b"b" * 100)[0] == ErrorCode.KAFKA_STORAGE_ERROR
            assert "No space left" in world.replicas.refusals.directories["/data"]
            world.room(None)
            monkeypatch.setattr(append_refusals, "TAKEN_AGAIN_AFTER_S", float("inf"))
            assert produce(world, b"c")[0] == 0, "a disk that is nearly full takes small ones"
        monkeypatch.setattr(append_refusals, "TAKEN_AGAIN_AFTER_S", 0.0)
        for _ in range(2):
            assert produce(world, b"c" * 100)[0] == 0
    told = [(line["event"], line["directory"]) for line in lines if "directory" in line]
    assert told == [("appends are refused", "/data"), ("appends are taken again", "/data")]
    assert world.replicas.refusals.directories == {}


async def test_a_directory_that_took_an_append_counts_as_refusing_for_a_moment_only(
    world: FullWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nobody appends any more afterwards; and one that nobody asks any more is told for some time."""
    await world.start(*topic("t", 1, (1,)))
    begun_s = round(world.replicas.refusals._clock_s())  # sums of whole seconds are exact

    def is_refusing(after_s: float) -> bool:
        monkeypatch.setattr(world.replicas.refusals, "_clock_s", lambda: begun_s + after_s)
        return bool(world.replicas.refusals.directories)

    world.room(0)
    assert not is_refusing(0.0)
    assert produce(world, b"b" * 100)[0] == ErrorCode.KAFKA_STORAGE_ERROR
    assert [is_refusing(after_s) for after_s in (599.0, 600.0, 4.0)] == [True, False, True]
    world.room(None)
    assert produce(world, b"c")[0] == 0
    assert [is_refusing(after_s) for after_s in (4.0, 5.0)] == [True, False]


async def test_a_follower_without_room_tells_of_its_directory(
    world: FullWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.start(*topic("t", 1, (2, 1)))
    world.room(0)
    partition = world.replicas.partition(T0)
    with pytest.raises(LogError) as error:
        partition.append_as_follower(
            batch(b"a", leader_epoch=0), leader_epoch=0, leader_high_watermark=1, leader_log_start_offset=0
        )
    with capture_logs() as lines:
        for failures in (1, 2):
            world.replicas.events.on_retry(T0, 0, error.value.code, error.value, failures)
    assert [line["directory"] for line in lines if line["event"] == "appends are refused"] == ["/data"]
    assert list(world.replicas.refusals.directories) == ["/data"]
    monkeypatch.setattr(LogManager, "failed_directories", {"/data": "input/output error"})
    assert world.replicas.refusals.directories == {}, "lost is worse"


async def test_a_leader_that_cannot_note_its_epoch_says_so_once(
    world: FullWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_logs, "ROOM_CHECK_S", 0.01)
    tries = 0
    on_epochs_written = world.replicas._replica_logs._on_epochs_written

    def counted(*arguments: Any) -> None:
        nonlocal tries
        tries += 1
        on_epochs_written(*arguments)

    monkeypatch.setattr(world.replicas._replica_logs, "_on_epochs_written", counted)
    await world.start(*topic("t", 1, (2, 1)))
    partition = world.replicas.partition(T0)
    with capture_logs() as lines:
        for episode in (1, 2):
            world.room(0)
            before = tries
            await world.publish(led_by(1, 0, 1))
            await eventually(lambda before=before: tries >= before + 3)
            told = [line["event"] for line in lines].count("a leader cannot note its epoch")
            assert told == episode
            world.room(None)
            await eventually(lambda: not partition.awaits_epoch_start)
