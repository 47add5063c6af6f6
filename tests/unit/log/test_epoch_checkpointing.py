"""The epoch checkpoints of many logs are written beside the loop, and never go back."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from leader_epoch.checkpoint import CHECKPOINT_FILE_NAME, decode_checkpoint
from partitions.disk import Disk
from partitions.log.epoch_checkpointing import JOBS_AT_ONCE, ROUND_LOGS, WRITE_BATCH, EpochWriter
from partitions.log.errors import NoSpaceLeft
from partitions.log.log import PartitionLog
from partitions.log.storage import LogStorage
from partitions.topic_partition import TopicPartition
from tests.support.logs import (
    SMALL,
    FailingDisk,
    Halted,
    batch_of,
    halt,
    memory_disk,
    new_storage,
    simulated_disk,
)


class StepExecutor:
    """Runs jobs at once; before the n-th (from 0), and after the last, happens what a test has put there."""

    def __init__(self) -> None:
        self.before: dict[int, Callable[[], None]] = {}
        self.jobs: list[str] = []

    async def run(self, job: Callable[..., Any], *args: object) -> Any:
        self.before.pop(len(self.jobs), lambda: None)()
        self.jobs.append(job.__name__)
        result = job(*args)
        self.before.pop(len(self.jobs), lambda: None)()
        return result


class World:
    def __init__(self, count: int = 1, disk: Disk | None = None) -> None:
        self.disk = FailingDisk(disk or memory_disk())
        self.executor = StepExecutor()
        self.storage = LogStorage(self.disk, halt)  # type: ignore[arg-type]
        self.logs = {TopicPartition("t", n): self.open(n) for n in range(count)}
        self.writer = EpochWriter(self.disk, self.executor, self.logs)  # type: ignore[arg-type]
        self.log = self.logs[TopicPartition("t", 0)]
        self.disk.calls.clear()

    def open(self, number: int) -> PartitionLog:
        log = PartitionLog.open(
            self.disk,  # type: ignore[arg-type]
            f"/data/t-{number}",
            TopicPartition("t", number),
            SMALL,
            now_ms=lambda: 0,
            halt=halt,
            storage=self.storage,
        )
        log.sync()
        return log

    async def write(self) -> dict[TopicPartition, Any]:
        return dict(await self.writer.write(self.logs))

    def stored(self, number: int = 0) -> list[tuple[int, int]]:
        content = self.disk.inner.read_bytes(f"/data/t-{number}/{CHECKPOINT_FILE_NAME}")
        return [tuple(entry) for entry in decode_checkpoint(content)]


async def test_many_files_are_written_by_few_jobs() -> None:
    world = World(ROUND_LOGS + 1)
    for log in world.logs.values():
        assert not log.assign_epoch_start(3)
    assert await world.write() == {}
    assert all(log.assign_epoch_start(3) for log in world.logs.values())
    assert world.executor.jobs == ["write_temporaries", "sync_folders"] * (JOBS_AT_ONCE + 1)
    assert world.stored(ROUND_LOGS) == [(3, 0)]
    first_batch = [step for step, _ in world.disk.calls][: 5 * WRITE_BATCH]
    assert first_batch == [
        *["create", "append"] * WRITE_BATCH,
        *["sync"] * WRITE_BATCH,
        *["rename"] * WRITE_BATCH,
        *["sync_dir"] * WRITE_BATCH,
    ]
    assert await world.write() == {}
    assert len(world.executor.jobs) == 2 * (JOBS_AT_ONCE + 1), "nothing was due"


async def test_what_was_written_survives_a_power_loss() -> None:
    for seed in range(10):
        storage = new_storage(seed)
        world = World(disk=simulated_disk(storage))
        world.log.append_as_leader(batch_of(b"a"), leader_epoch=1)
        world.log.assign_epoch_start(7)
        await world.write()
        storage.lose_power()
        content = simulated_disk(storage).read_bytes(f"/data/t-0/{CHECKPOINT_FILE_NAME}")
        assert content == b"0\n2\n1 0\n7 1\n"


@pytest.mark.parametrize("before_job", [0, 1, 2])
async def test_epochs_that_change_meanwhile_are_due_again(before_job: int) -> None:
    world = World()
    world.log.assign_epoch_start(3)
    world.executor.before[before_job] = lambda: world.log.append_as_follower(batch_of(b"a", leader_epoch=5))
    assert await world.write() == {}
    assert not world.log.epochs_are_durable
    assert await world.write() == {}
    assert world.log.epochs_are_durable
    assert world.stored() == [(5, 0)]


@pytest.mark.parametrize("before_job", [0, 1, 2])
async def test_an_older_file_never_takes_the_place_of_one_that_the_log_wrote_itself(before_job: int) -> None:
    world = World()
    world.log.assign_epoch_start(3)

    def newer() -> None:
        world.log.append_as_follower(batch_of(b"a", leader_epoch=5))
        world.log.sync()

    world.executor.before[before_job] = newer
    assert await world.write() == {}
    assert world.log.epochs_are_durable
    assert world.stored() == [(5, 0)]


@pytest.mark.parametrize("before_job", [0, 1, 2])
async def test_a_log_that_is_deleted_meanwhile_is_let_go(before_job: int) -> None:
    """Its folder has another name then, and another log may have its path."""
    world = World(2)
    for log in world.logs.values():
        log.assign_epoch_start(3)

    def deleted() -> None:
        world.log.abandon()
        world.disk.rename("/data/t-0", "/data/t-0.x-delete")
        world.open(0)

    world.executor.before[before_job] = deleted
    assert await world.write() == {}
    assert not world.disk.exists(f"/data/t-0/{CHECKPOINT_FILE_NAME}")
    assert world.stored(1) == [(3, 0)]


async def test_a_full_disk_is_told_for_each_log_and_changes_nothing() -> None:
    world = World(2)
    for log in world.logs.values():
        log.assign_epoch_start(3)
    await world.write()
    for log in world.logs.values():
        log.assign_epoch_start(4)
    world.disk.fail = lambda step, path: errno.ENOSPC if step == "append" and "t-0/" in path else None
    failed = await world.write()
    assert [(str(key), type(error)) for key, error in failed.items()] == [("t-0", NoSpaceLeft)]
    assert (world.stored(0), world.stored(1)) == ([(3, 0)], [(4, 0)])
    assert not world.log.epochs_are_durable
    world.disk.fail = lambda step, path: None
    assert await world.write() == {}
    assert world.stored(0) == [(4, 0)]


@pytest.mark.parametrize("step", ["sync", "rename", "sync_dir"])
async def test_any_other_failure_ends_the_node(step: str) -> None:
    world = World()
    world.log.assign_epoch_start(3)
    world.disk.fail = lambda operation, path: errno.EIO if operation == step else None
    with pytest.raises(Halted):
        await world.write()
    assert not world.log.epochs_are_durable
