"""Flushes by number of records and by time: when they begin, and what they cover."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest

from kraft.broker.replicas.log_flusher import LogFlusher
from partitions.log.config_values import LONG_MAX
from partitions.log.errors import LogStorageError, NoSpaceLeft
from partitions.log.log import PartitionLog
from partitions.topic_partition import TopicPartition
from quorum.metadata.records import Config
from tests.support.broker_world import BrokerWorld, batch, gone, topic
from tests.support.logs import new_storage, simulated_disk

T0 = TopicPartition("t", 0)


class HandTimer:
    """A timer of `HandLoop`; as uvloop's for a moment that is due at once, it does not say when."""

    def __init__(self, at_s: float, call: Callable[[], None]) -> None:
        self.at_s = at_s
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class HandLoop:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.timers: list[HandTimer] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, at_s: float, call: Callable[..., None], *arguments: Any) -> HandTimer:
        timer = HandTimer(at_s, lambda: call(*arguments))
        self.timers.append(timer)
        return timer

    @property
    def waiting(self) -> list[float]:
        return [timer.at_s for timer in self.timers if not timer.cancelled]

    def go_on(self, seconds: float) -> None:
        self.now_s += seconds
        due = [timer for timer in self.timers if timer.at_s <= self.now_s]
        self.timers = [timer for timer in self.timers if timer.at_s > self.now_s]
        for timer in due:
            if not timer.cancelled:
                timer.call()


class Flushing:
    """One log, and a flusher on a clock of its own."""

    def __init__(self, world: BrokerWorld, *, interval_ms: int = LONG_MAX) -> None:
        self.world = world
        self.loop = HandLoop()
        self.ended: list[TopicPartition] = []
        self.flusher = LogFlusher(
            world.logs,
            self.loop,  # type: ignore[arg-type]
            world.halt,
            self.ended.append,
            scheduler_interval_ms=interval_ms,
        )

    @property
    def log(self) -> PartitionLog:
        found = self.world.logs.get(T0)
        assert found is not None
        return found

    def append(self, *values: bytes) -> None:
        self.log.append_as_leader(batch(*values), leader_epoch=0)
        self.flusher.consider(T0)

    async def flushed(self) -> int:
        """Waits for what is under way; the recovery point then."""
        while self.flusher._tasks:
            await asyncio.gather(*self.flusher._tasks.values())
        return self.log.recovery_point


async def flushing(world: BrokerWorld, *configs: tuple[str, str], interval_ms: int = LONG_MAX) -> Flushing:
    await world.start(*topic("t", 1, (1,), (1,)), *(Config("topic", "t", *config) for config in configs))
    return Flushing(world, interval_ms=interval_ms)


async def test_a_flush_begins_when_so_many_records_are_not_on_disk(world: BrokerWorld) -> None:
    one = await flushing(world, ("flush.messages", "3"))
    one.append(b"a", b"b")
    assert await one.flushed() == 0
    one.append(b"c")
    assert await one.flushed() == 3
    one.append(b"d", b"e")
    assert await one.flushed() == 3
    one.append(b"f")
    assert await one.flushed() == 6


async def test_what_was_flushed_survives_a_power_loss() -> None:
    storage = new_storage()
    world = BrokerWorld(simulated_disk(storage))
    one = await flushing(world, ("flush.messages", "2"))
    one.append(b"a", b"b")
    assert await one.flushed() == 2
    flushed = simulated_disk(storage).read_bytes("/data/t-0/00000000000000000000.log")
    one.append(b"c")
    storage.lose_power()
    assert simulated_disk(storage).read_bytes("/data/t-0/00000000000000000000.log")[: len(flushed)] == flushed
    await world.close()


async def test_a_flush_covers_what_was_there_and_the_next_one_the_rest(world: BrokerWorld) -> None:
    one = await flushing(world, ("flush.messages", "2"))
    world.executor.holding = True
    one.append(b"a", b"b")
    await asyncio.sleep(0)
    one.append(b"c")
    one.append(b"d")
    assert len(one.flusher._tasks) == 1
    assert (one.log.recovery_point, one.ended) == (0, [])
    world.executor.release()
    assert await one.flushed() == 4
    assert one.ended == [T0, T0]


async def test_a_record_waits_no_longer_than_flush_ms(world: BrokerWorld) -> None:
    one = await flushing(world, ("flush.ms", "500"))
    one.append(b"a")
    one.loop.go_on(0.3)
    one.append(b"b")
    assert await one.flushed() == 0
    one.loop.go_on(0.2)
    assert await one.flushed() == 2
    assert one.loop.waiting == []
    one.loop.go_on(10)
    one.append(b"c")
    assert one.loop.waiting == [one.loop.now_s + 0.5]


async def test_what_is_appended_during_a_flush_waits_from_then_on(world: BrokerWorld) -> None:
    one = await flushing(world, ("flush.ms", "500"))
    one.append(b"a")
    world.executor.holding = True
    one.loop.go_on(0.5)
    await asyncio.sleep(0)
    one.append(b"b")
    appended_s = one.loop.now_s
    one.loop.go_on(0.4)
    world.executor.release()
    assert await one.flushed() == 1
    assert one.loop.waiting == [appended_s + 0.5]


async def test_with_a_scheduler_interval_flushes_wait_for_its_next_round(world: BrokerWorld) -> None:
    one = await flushing(world, ("flush.ms", "500"), interval_ms=3000)
    one.append(b"a")  # at 100 s: due at 100.5 s, the next multiple of 3 s is 102 s
    assert one.loop.waiting == [102.0]


async def test_a_shorter_flush_ms_counts_for_what_already_waits(world: BrokerWorld) -> None:
    one = await flushing(world, ("flush.ms", "60000"))
    one.append(b"a")
    await world.publish(Config("topic", "t", "flush.ms", "1000"))
    one.flusher.consider(T0)
    one.loop.go_on(1.0)
    assert await one.flushed() == 1


async def test_without_these_configs_nothing_is_flushed_or_kept(world: BrokerWorld) -> None:
    one = await flushing(world, ("flush.ms", "500"))
    one.append(b"a")
    await world.publish(Config("topic", "t", "flush.ms", None))
    one.flusher.consider(T0)
    assert (one.loop.waiting, one.flusher._since_s) == ([], {})


async def test_a_deleted_log_is_forgotten(world: BrokerWorld) -> None:
    one = await flushing(world, ("flush.ms", "500"))
    one.append(b"a")
    await world.publish(gone(1))
    one.loop.go_on(1.0)
    assert (one.flusher._since_s, one.flusher._timers, one.flusher._tasks) == ({}, {}, {})


async def test_a_flush_that_fails_is_not_tried_again(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await flushing(world, ("flush.messages", "1"))

    async def fail(partition: TopicPartition) -> None:
        raise LogStorageError(f"{partition}: no disk ({errno.EIO})")

    monkeypatch.setattr(world.logs, "flush_log", fail)
    one.append(b"a")
    assert await one.flushed() == 0
    assert (one.loop.waiting, one.ended) == ([], [])


async def test_a_flush_that_found_no_room_is_tried_again(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await flushing(world, ("flush.messages", "1"))

    async def fail(partition: TopicPartition) -> None:
        raise NoSpaceLeft(f"{partition}: no room")

    with monkeypatch.context() as patched:
        patched.setattr(world.logs, "flush_log", fail)
        one.append(b"a")
        assert await one.flushed() == 0
    one.loop.go_on(1.0)
    assert await one.flushed() == 1


async def test_after_close_no_flush_begins(world: BrokerWorld) -> None:
    one = await flushing(world, ("flush.ms", "500"))
    one.append(b"a")
    await one.flusher.close()
    one.append(b"b")
    assert (one.loop.waiting, one.flusher._tasks) == ([], {})


@pytest.mark.parametrize(
    "resource", [("topic", "t", "flush.messages"), ("broker", "", "log.flush.interval.messages")]
)
async def test_a_config_set_at_run_time_counts_for_what_is_there(
    world: BrokerWorld, resource: tuple[str, str, str]
) -> None:
    await world.start(*topic("t", 1, (1,), (1,)))
    world.replicas.partition(T0).append_records(batch(b"a"), acks=1, now_ms=0)
    log = world.logs.get(T0)
    assert log is not None
    assert not world.replicas.events.log_flusher._tasks
    await world.publish(Config(*resource, "1"))
    await asyncio.gather(*world.replicas.events.log_flusher._tasks.values())
    assert log.recovery_point == 1
