"""The epoch checkpoints of many logs are written beside the loop, and never go back."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

import pytest

from leader_epoch.checkpoint import CHECKPOINT_FILE_NAME, decode_checkpoint
from partitions.disk import Disk
from partitions.log.beside_loop import JOBS_AT_ONCE, LOGS_PER_JOB, LOGS_PER_ROUND
from partitions.log.epochs.epoch_writer import EpochWriter, install_files
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
    """Runs jobs at once; before and after the n-th (from 0) happens what a test has put there."""

    def __init__(self) -> None:
        self.hooks: dict[Moment, Callable[[], None]] = {}
        self.jobs: list[str] = []
        self.in_job = False

    async def run(self, job: Callable[..., Any], *args: object) -> Any:
        number = len(self.jobs)
        self.jobs.append(job.__name__)
        self.hooks.pop(("before", number), lambda: None)()
        self.in_job = True
        result = job(*args)
        self.in_job = False
        self.hooks.pop(("after", number), lambda: None)()
        return result


Moment: TypeAlias = tuple[Literal["before", "after"], int]
MOMENTS: Final[tuple[Moment, ...]] = (("before", 0), ("after", 0), ("before", 1), ("after", 1))
"""Around the job that writes, and around the one that gives the names."""


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
    world = World(LOGS_PER_ROUND + 1)
    for log in world.logs.values():
        assert not log.assign_epoch_start(3)
    assert await world.write() == {}
    assert all(log.assign_epoch_start(3) for log in world.logs.values())
    assert world.executor.jobs == ["write_temporaries", "install_files"] * (JOBS_AT_ONCE + 1)
    assert world.stored(LOGS_PER_ROUND) == [(3, 0)]
    first_batch = [step for step, _ in world.disk.calls][: 5 * LOGS_PER_JOB]
    assert first_batch == [
        *["create", "append"] * LOGS_PER_JOB,
        *["sync"] * LOGS_PER_JOB,
        *["rename"] * LOGS_PER_JOB,
        *["sync_dir"] * LOGS_PER_JOB,
    ]
    assert await world.write() == {}
    assert len(world.executor.jobs) == 2 * (JOBS_AT_ONCE + 1), "nothing was due"


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_names_change_in_jobs_where_they_may_wait_for_the_journal_of_the_file_system(
    is_replaced: bool,
) -> None:
    world = World(2)
    where: list[bool] = []

    def note(step: str, path: str) -> None:
        if step == "rename":
            where.append(world.executor.in_job)

    for epoch in (3, 4) if is_replaced else (3,):
        for log in world.logs.values():
            log.assign_epoch_start(epoch)
        world.disk.fail = note
        assert await world.write() == {}
    assert where
    assert all(where)


async def test_a_job_leaves_alone_what_a_log_has_taken_from_it() -> None:
    """While the first log's name changes, the second writes its own file, and the third is let go."""
    world = World(3)
    for log in world.logs.values():
        log.assign_epoch_start(3)
    first, second, third = world.logs.values()

    def meanwhile(step: str, path: str) -> None:
        if step != "rename" or "t-0/" not in path:
            return
        world.disk.fail = lambda step, path: None
        second.append_as_follower(batch_of(b"a", leader_epoch=5))
        second.sync()
        third.abandon()

    world.disk.fail = meanwhile
    assert await world.write() == {}
    assert first.epoch_file.is_durable
    assert second.epoch_file.is_durable
    assert (world.stored(0), world.stored(1)) == ([(3, 0)], [(5, 0)])
    assert not world.disk.exists(f"{third.directory}/{CHECKPOINT_FILE_NAME}")


@pytest.mark.parametrize("step", ["rename", "sync_dir"])
async def test_a_log_that_writes_its_file_while_another_name_is_made_durable_stays_durable(step: str) -> None:
    """Between its rename and the folder's fsync, the log takes more and writes that: the job says nothing of it."""
    storage = new_storage(1)
    world = World(2, disk=simulated_disk(storage))
    for log in world.logs.values():
        log.assign_epoch_start(3)

    def meanwhile(operation: str, path: str) -> None:
        if operation == step and "t-1" in path:
            world.disk.fail = lambda step, path: None
            world.log.append_as_follower(batch_of(b"a", leader_epoch=5))
            world.log.sync()
            world.log.append_as_follower(batch_of(b"b", base_offset=1, leader_epoch=6))

    world.disk.fail = meanwhile
    assert await world.write() == {}
    assert not world.log.epoch_file.is_durable, "epoch 6 is in no file"
    storage.lose_power()
    content = simulated_disk(storage).read_bytes(f"/data/t-0/{CHECKPOINT_FILE_NAME}")
    assert content == b"0\n1\n5 0\n"


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


@pytest.mark.parametrize("moment", MOMENTS)
async def test_epochs_that_change_meanwhile_are_due_again(moment: Moment) -> None:
    world = World()
    world.log.assign_epoch_start(3)
    world.executor.hooks[moment] = lambda: world.log.append_as_follower(batch_of(b"a", leader_epoch=5))
    assert await world.write() == {}
    assert not world.log.epoch_file.is_durable
    assert await world.write() == {}
    assert world.log.epoch_file.is_durable
    assert world.stored() == [(5, 0)]


@pytest.mark.parametrize("moment", MOMENTS)
async def test_an_older_file_never_takes_the_place_of_one_that_the_log_wrote_itself(moment: Moment) -> None:
    world = World()
    world.log.assign_epoch_start(3)

    def newer() -> None:
        world.log.append_as_follower(batch_of(b"a", leader_epoch=5))
        world.log.sync()

    world.executor.hooks[moment] = newer
    assert await world.write() == {}
    assert world.log.epoch_file.is_durable
    assert world.stored() == [(5, 0)]


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_log_that_is_deleted_meanwhile_is_let_go(moment: Moment) -> None:
    """Its folder has another name then, and another log may have its path."""
    world = World(2)
    for log in world.logs.values():
        log.assign_epoch_start(3)

    def deleted() -> None:
        world.log.abandon()
        world.disk.rename("/data/t-0", "/data/t-0.x-delete")
        world.open(0)

    world.executor.hooks[moment] = deleted
    assert await world.write() == {}
    assert not world.disk.exists(f"/data/t-0/{CHECKPOINT_FILE_NAME}")
    assert world.stored(1) == [(3, 0)]


@pytest.mark.parametrize("moment", MOMENTS)
async def test_the_file_of_a_log_that_begins_elsewhere_meanwhile_does_not_come_back(moment: Moment) -> None:
    """What it said would contradict what comes, and a start would cut that."""
    storage = new_storage(1)
    world = World(disk=simulated_disk(storage))
    world.log.append_as_follower(batch_of(b"a", leader_epoch=3))
    world.log.assign_epoch_start(5)

    def begin_elsewhere() -> None:
        world.log.truncate_fully_and_start_at(1000)
        world.log.append_as_follower(batch_of(b"b", base_offset=1000, leader_epoch=4))

    world.executor.hooks[moment] = begin_elsewhere
    assert await world.write() == {}
    killed = World(disk=simulated_disk(storage))
    assert killed.log.log_end_offset == 1001
    assert [tuple(entry) for entry in killed.log.epochs.entries] == [(4, 1000)]


async def test_what_a_log_could_not_write_itself_meanwhile_is_due_again() -> None:
    world = World()
    world.log.assign_epoch_start(3)

    def without_room() -> None:
        world.disk.fail = lambda step, path: errno.ENOSPC if step == "append" else None
        job = world.log.prepare_flush()
        assert job is not None
        assert job.no_room_for_epochs is not None
        world.disk.fail = lambda step, path: None

    world.executor.hooks["before", 1] = without_room
    assert await world.write() == {}
    assert not world.log.epoch_file.is_durable
    assert await world.write() == {}
    assert world.log.epoch_file.is_durable
    assert world.stored() == [(3, 0)]


async def test_the_job_of_a_caller_that_is_gone_names_nothing_that_is_not_durable() -> None:
    """There is one temporary file a log: the next writer's is not to be named before its fsync."""
    world = World()
    world.log.assign_epoch_start(3)
    late: list[Callable[[], Any]] = []

    async def run(job: Callable[..., Any], *args: object) -> Any:
        if job is not install_files or late:
            return job(*args)
        late.append(lambda: job(*args))
        raise asyncio.CancelledError

    world.executor.run = run  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        await world.write()
    world.log.append_as_follower(batch_of(b"a", leader_epoch=5))

    def meanwhile(step: str, path: str) -> None:
        if step == "sync" and path.endswith(".next.tmp"):
            late[0]()

    world.disk.fail = meanwhile
    assert await world.write() == {}
    assert ("rename", f"{world.log.directory}/{CHECKPOINT_FILE_NAME}.next.tmp") == world.disk.calls[-2]
    assert world.stored() == [(5, 0)]


async def test_a_rename_without_room_is_tried_again() -> None:
    world = World()
    world.log.assign_epoch_start(3)
    world.disk.fail = lambda step, path: errno.ENOSPC if step == "rename" else None
    assert [type(error) for error in (await world.write()).values()] == [NoSpaceLeft]
    assert not world.log.epoch_file.is_durable
    world.disk.fail = lambda step, path: None
    assert await world.write() == {}
    assert world.log.epoch_file.is_durable
    assert world.stored() == [(3, 0)]


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
    assert not world.log.epoch_file.is_durable
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
    assert not world.log.epoch_file.is_durable
