"""New logs are made many at once: durable when they are there, gone when they were half made."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from kraft.chaos.world.storage import Storage
from partitions.disk import Disk
from partitions.log.beside_loop import LOGS_PER_JOB
from partitions.log.errors import LogStorageError, NoSpaceLeft
from partitions.log.node_logs.creation import NewLog
from partitions.log.node_logs.data_directory import HIGH_WATERMARKS, RECOVERY_POINTS
from partitions.log.node_logs.meta_properties import MetaProperties, write_meta_properties
from partitions.log.partition_files import encode_partition_metadata
from partitions.log_manager import LogManager
from partitions.topic_partition import TopicPartition
from tests.support.logs import (
    SMALL,
    FailingDisk,
    Halted,
    InlineExecutor,
    batch_of,
    halt,
    new_storage,
    simulated_disk,
)

CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"
ID = b"i" * 16
EPOCHS = "leader-epoch-checkpoint"


class Crash(BaseException):
    """The process ends at this operation."""


def formatted_storage(*directories: str, seed: int = 0) -> Storage:
    storage = new_storage(seed)
    for number, directory in enumerate(directories or ("/data",)):
        storage.make_dirs(directory)
        meta = MetaProperties(CLUSTER, 1, f"directory-{number}".ljust(22, "B"))
        write_meta_properties(simulated_disk(storage), directory, meta)
    storage.sync_everything()
    return storage


def started(disk: Disk, *directories: str) -> LogManager:
    manager = LogManager(
        disk,
        directories or ("/data",),
        SMALL,
        InlineExecutor(),  # type: ignore[arg-type]
        now_ms=lambda: 10_000,
        halt=halt,
        rng=random.Random(1),
    )
    manager.start(cluster_id=CLUSTER, node_id=1)
    return manager


def started_again(storage: Storage) -> LogManager:
    storage.locks.clear()
    return started(simulated_disk(storage))


def wanted(count: int, *, leader_epoch: int | None = 4, topic: str = "t") -> list[NewLog]:
    return [NewLog(TopicPartition(topic, n), ID, SMALL, leader_epoch) for n in range(count)]


async def test_new_logs_are_ready_for_their_leader() -> None:
    storage = formatted_storage()
    manager = started(simulated_disk(storage))
    assert await manager.creator.create(wanted(3)) == {}
    assert sorted(map(str, manager.logs)) == ["t-0", "t-1", "t-2"]
    log = manager.logs[TopicPartition("t", 1)]
    assert (log.topic_id, log.log_start_offset, log.log_end_offset) == (ID, 0, 0)
    assert log.epochs.entries == ((4, 0),)
    assert log.assign_epoch_start(4), "it is on the disk already"
    assert not log.needs_flush
    log.append_as_leader(batch_of(b"v"), leader_epoch=4)
    assert log.log_end_offset == 1


async def test_a_followers_log_begins_without_epochs() -> None:
    manager = started(simulated_disk(formatted_storage()))
    await manager.creator.create(wanted(1, leader_epoch=None))
    log = manager.logs[TopicPartition("t", 0)]
    assert log.epochs.entries == ()
    log.append_as_follower(batch_of(b"v", leader_epoch=9))
    await manager.flush()
    assert log.epoch_file.is_durable


async def test_everything_is_written_before_the_first_fsync_and_the_folder_above_is_waited_for_once() -> None:
    disk = FailingDisk(simulated_disk(formatted_storage()))
    manager = started(disk)
    disk.calls.clear()
    await manager.creator.create(wanted(LOGS_PER_JOB))
    steps = [step for step, _ in disk.calls]
    first_sync = steps.index("sync")
    assert steps.count("create") == 5 * LOGS_PER_JOB
    assert not {"create", "append"} & set(steps[first_sync:])
    assert steps.count("sync") == 2 * LOGS_PER_JOB, (
        "topic id and epochs; an empty file has nothing to wait for"
    )
    assert steps.count("sync_dir") == LOGS_PER_JOB + 1
    assert disk.calls[-1] == ("sync_dir", "/data")
    assert steps.count("rename") == LOGS_PER_JOB


async def test_after_a_power_loss_what_was_made_is_there() -> None:
    for seed in range(20):
        storage = formatted_storage(seed=seed)
        await started(simulated_disk(storage)).creator.create(wanted(3))
        storage.lose_power()
        assert whole_folders(storage) == ["t-0", "t-1", "t-2"]
        again = started_again(storage)
        assert [(log.topic_id, log.log_end_offset) for log in again.logs.values()] == [(ID, 0)] * 3


def whole_folders(storage: Storage) -> list[str]:
    """The folders that have a partition's name, after a look at what is in them."""
    disk = simulated_disk(storage)
    names = [name for name in disk.list_dir("/data") if name.startswith("t-") and "." not in name]
    for name in names:
        first = "00000000000000000000"
        files = [f"{first}.index", f"{first}.log", f"{first}.timeindex", EPOCHS, "partition.metadata"]
        assert disk.list_dir(f"/data/{name}") == files
        assert disk.read_bytes(f"/data/{name}/{EPOCHS}") == b"0\n1\n4 0\n"
        assert disk.read_bytes(f"/data/{name}/partition.metadata") == encode_partition_metadata(ID)
    return names


def crash_at(operation_number: int) -> Callable[[str, str], None]:
    left = operation_number

    def hook(operation: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Crash

    return hook


@pytest.mark.parametrize("powerless", [False, True])
async def test_a_crash_at_any_step_leaves_whole_logs_or_none(powerless: bool) -> None:
    step, crashed = 0, True
    whole: set[int] = set()
    while crashed:
        step += 1
        storage = formatted_storage(seed=step)
        manager = started(simulated_disk(storage))
        storage.add_hook(hook := crash_at(step))
        try:
            await manager.creator.create(wanted(2))
            crashed = False
        except Crash:
            crashed = True
        storage.remove_hook(hook)
        if powerless:
            storage.lose_power()
        folders = whole_folders(storage)
        again = started_again(storage)
        assert not again.failed
        assert sorted(map(str, again.logs)) == folders
        whole.add(len(again.logs))
        # What is half made goes, and the names can be used: by another topic as well.
        await again.removals.remove_due()
        left = [n for n in wanted(2) if n.partition not in again.logs]
        assert await again.creator.create([new._replace(topic_id=b"o" * 16) for new in left]) == {}
        names = [name for name in simulated_disk(storage).list_dir("/data") if name.startswith("t-")]
        assert sorted(names) == ["t-0", "t-1"]
    assert step > 20
    assert whole >= {0, 2}


async def test_a_full_disk_is_told_for_each_log_and_leaves_nothing() -> None:
    disk = FailingDisk(simulated_disk(formatted_storage()))
    manager = started(disk)
    disk.fail = lambda operation, path: errno.ENOSPC if operation == "append" and "t-1." in path else None
    failed = await manager.creator.create(wanted(3))
    assert list(failed) == [TopicPartition("t", 1)]
    assert isinstance(failed[TopicPartition("t", 1)], NoSpaceLeft)
    assert sorted(map(str, manager.logs)) == ["t-0", "t-2"]
    disk.fail = lambda operation, path: None
    await manager.removals.remove_due()
    assert sorted(n for n in disk.inner.list_dir("/data") if n.startswith("t-")) == ["t-0", "t-2"]
    assert await manager.creator.create(wanted(2)[1:]) == {}


@pytest.mark.parametrize(("operation", "where"), [("sync", "t-1."), ("sync_dir", "t-1."), ("sync_dir", "")])
async def test_a_failed_fsync_ends_the_node(operation: str, where: str) -> None:
    disk = FailingDisk(simulated_disk(formatted_storage()))
    manager = started(disk)
    path = "/data/" + where if where else "/data"
    disk.fail = lambda step, at: (
        errno.EIO if step == operation and (at.startswith(path) if where else at == path) else None
    )
    with pytest.raises(Halted):
        await manager.creator.create(wanted(3))
    assert not manager.logs


async def test_a_folder_that_cannot_be_made_for_another_reason_keeps_one_replica_away() -> None:
    disk = FailingDisk(simulated_disk(formatted_storage()))
    manager = started(disk)
    disk.fail = lambda operation, path: errno.EACCES if operation == "create" and "t-0." in path else None
    failed = await manager.creator.create(wanted(2))
    assert list(failed) == [TopicPartition("t", 0)]
    assert not failed[TopicPartition("t", 0)].is_transient
    assert list(map(str, manager.logs)) == ["t-1"]


async def test_logs_are_spread_over_the_data_directories() -> None:
    storage = formatted_storage("/data", "/more")
    manager = started(simulated_disk(storage), "/data", "/more")
    assert await manager.creator.create(wanted(5)) == {}
    assert await manager.creator.create(wanted(3, topic="u")) == {}
    disk = simulated_disk(storage)
    counts = [len([n for n in disk.list_dir(d) if n[:2] in ("t-", "u-")]) for d in ("/data", "/more")]
    assert counts == [4, 4]


async def test_a_new_log_inherits_nothing_of_a_deleted_one_whose_checkpoints_found_no_room() -> None:
    storage = formatted_storage()
    disk = FailingDisk(simulated_disk(storage))
    manager = started(disk)
    new = wanted(1)
    partition = new[0].partition
    await manager.creator.create(new)
    for _ in range(5):
        manager.logs[partition].append_as_leader(batch_of(b"old"), leader_epoch=4)
    await manager.checkpoint_recovery_points()
    await manager.checkpoints.write_high_watermarks({partition: 5})
    disk.fail = lambda operation, path: errno.ENOSPC if operation == "append" else None
    with pytest.raises(LogStorageError):
        await manager.delete([partition])
    assert manager.get(partition) is None
    failed = await manager.creator.create(new)
    assert failed[partition].is_transient, "the checkpoints have to forget the old one first"
    disk.fail = lambda operation, path: None
    assert await manager.creator.create(new) == {}
    assert manager.high_watermark(partition) == 0
    manager.logs[partition].append_as_leader(batch_of(b"new"), leader_epoch=4)
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
        assert b"t 0 5" not in disk.inner.read_bytes(f"/data/{name}")
    storage.lose_power()
    again = started_again(storage)
    assert not again.failed
    assert again.high_watermark(partition) == 0
