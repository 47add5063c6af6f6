"""Many logs are closed: durable before any of them is, with few jobs, and what fails leaves no clean mark."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest

from kraft.chaos.world.storage import Storage
from partitions.disk import Disk
from partitions.log.beside_loop import LOGS_PER_JOB
from partitions.log.node_logs.creation import NewLog
from partitions.log.node_logs.meta_properties import MetaProperties, write_meta_properties
from partitions.log.partition_files import TRUNCATION_CHECKPOINT
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
MARK = "/data/.kafka_cleanshutdown"
LOGS = 6


class CountingExecutor(InlineExecutor):
    """Says which jobs it ran, and on how much each."""

    def __init__(self) -> None:
        self.jobs: list[tuple[str, Any]] = []

    async def run(self, job: Any, *args: Any) -> Any:
        self.jobs.append((job.__name__, args))
        return await super().run(job, *args)


def formatted_storage() -> Storage:
    storage = new_storage(0)
    storage.make_dirs("/data")
    write_meta_properties(
        simulated_disk(storage), "/data", MetaProperties(CLUSTER, 1, "directory".ljust(22, "B"))
    )
    storage.sync_everything()
    return storage


def assembled(disk: Disk, executor: InlineExecutor) -> LogManager:
    return LogManager(
        disk,
        ("/data",),
        SMALL,
        executor,  # type: ignore[arg-type]
        now_ms=lambda: 10_000,
        halt=halt,
        rng=random.Random(1),
    )


def started(disk: Disk, executor: InlineExecutor) -> LogManager:
    manager = assembled(disk, executor)
    manager.start(cluster_id=CLUSTER, node_id=1)
    return manager


async def with_records(disk: Disk, executor: InlineExecutor, count: int) -> LogManager:
    manager = started(disk, executor)
    wanted = [NewLog(TopicPartition("t", number), ID, SMALL, 4) for number in range(count)]
    for first in range(0, count, LOGS_PER_JOB):
        await manager.creator.create(wanted[first : first + LOGS_PER_JOB])
    for log in manager.logs.values():
        log.append_as_leader(batch_of(b"v"), leader_epoch=4)
    return manager


async def test_the_loop_waits_for_no_log_by_itself() -> None:
    disk, executor = FailingDisk(simulated_disk(formatted_storage())), CountingExecutor()
    manager = await with_records(disk, executor, LOGS_PER_JOB + 3)
    executor.jobs.clear()
    disk.calls.clear()
    await manager.close(broker_epoch=7, high_watermarks={})
    flushes = [args[1] for name, args in executor.jobs if name == "run_flushes"]
    assert sorted(map(len, flushes)) == [3, LOGS_PER_JOB]
    assert not [name for name, _ in executor.jobs if name == "run_flush"]
    synced = [path for step, path in disk.calls if step == "sync" and path.startswith("/data/t-")]
    assert len(synced) == len(set(synced)) == LOGS_PER_JOB + 3, (
        "the log, once; no start asks such short indexes"
    )
    assert {path.rpartition(".")[2] for path in synced} == {"log"}


def closing_syncs(disk: FailingDisk) -> list[str]:
    """The files that were made durable, without their folder."""
    return [path.rpartition("/")[2] for step, path in disk.calls if step == "sync" and "/t-0/" in path]


async def test_an_index_that_did_not_change_since_a_clean_start_needs_no_fsync() -> None:
    storage = formatted_storage()
    manager = await with_records(simulated_disk(storage), InlineExecutor(), 1)
    for _ in range(4):
        manager.logs[TopicPartition("t", 0)].append_as_leader(batch_of(b"v"), leader_epoch=4)
    await manager.close(broker_epoch=7, high_watermarks={})
    storage.locks.clear()
    disk = FailingDisk(simulated_disk(storage))
    again = started(disk, InlineExecutor())
    again.logs[TopicPartition("t", 0)].append_as_leader(batch_of(b"v", timestamp=20_000), leader_epoch=4)
    disk.calls.clear()
    await again.close(broker_epoch=8, high_watermarks={})
    assert closing_syncs(disk) == ["00000000000000000000.log", "00000000000000000000.timeindex"]


async def test_after_a_crash_both_indexes_are_made_durable() -> None:
    storage = formatted_storage()
    await with_records(simulated_disk(storage), InlineExecutor(), 1)
    storage.sync_everything()
    storage.locks.clear()  # the process is gone, what it wrote is there
    disk = FailingDisk(simulated_disk(storage))
    again = started(disk, InlineExecutor())
    disk.calls.clear()
    await again.close(broker_epoch=8, high_watermarks={})
    assert {name.rpartition(".")[2] for name in closing_syncs(disk)} >= {"index", "timeindex"}


async def test_both_indexes_of_a_new_segment_are_made_durable() -> None:
    disk = FailingDisk(simulated_disk(formatted_storage()))
    manager = await with_records(disk, InlineExecutor(), 1)
    log = manager.logs[TopicPartition("t", 0)]
    log.roll()
    log.append_as_leader(batch_of(b"v"), leader_epoch=4)
    disk.calls.clear()
    await manager.close(broker_epoch=7, high_watermarks={})
    newest = [name for name in closing_syncs(disk) if name.startswith("00000000000000000001")]
    assert sorted(name.rpartition(".")[2] for name in newest) == ["index", "log", "timeindex"]


async def test_no_snapshot_tells_of_no_producers_in_a_log_that_a_start_reads_anyway() -> None:
    storage = formatted_storage()
    manager = await with_records(simulated_disk(storage), InlineExecutor(), 2)
    known, indexed = TopicPartition("t", 0), TopicPartition("t", 1)
    manager.logs[known].append_as_leader(batch_of(b"v", producer=(7, 0, 0)), leader_epoch=4)
    for _ in range(5):
        manager.logs[indexed].append_as_leader(batch_of(b"v"), leader_epoch=4)
    await manager.creator.create([NewLog(TopicPartition("t", 2), ID, SMALL, 4)])
    manager.logs[TopicPartition("t", 2)].append_as_leader(batch_of(b"v"), leader_epoch=4)
    await manager.close(broker_epoch=7, high_watermarks={})
    names = {number: simulated_disk(storage).list_dir(f"/data/t-{number}") for number in range(3)}
    with_snapshot = [n for n, files in names.items() if any(file.endswith(".snapshot") for file in files)]
    assert with_snapshot == [0, 1]
    storage.locks.clear()
    again = started(simulated_disk(storage), InlineExecutor())
    producers = [list(log.producers.state.producers) for log in again.logs.values()]
    assert producers == [[7], [], []]


async def test_what_was_closed_survives_a_power_loss_as_it_was() -> None:
    storage = formatted_storage()
    manager = await with_records(simulated_disk(storage), InlineExecutor(), LOGS)
    await manager.close(broker_epoch=7, high_watermarks={})
    storage.lose_power()
    storage.locks.clear()
    again = assembled(simulated_disk(storage), InlineExecutor())
    report = again.start(cluster_id=CLUSTER, node_id=1)
    assert report.clean_shutdown
    assert report.recovered == {}
    assert [log.log_end_offset for log in again.logs.values()] == [1] * LOGS


async def test_logs_without_anything_new_are_left_alone() -> None:
    executor = CountingExecutor()
    manager = started(simulated_disk(formatted_storage()), executor)
    await manager.creator.create([NewLog(TopicPartition("t", 0), ID, SMALL, 4)])
    executor.jobs.clear()
    await manager.close(broker_epoch=7, high_watermarks={})
    assert not [name for name, _ in executor.jobs if name.startswith("run_flush")]


async def test_a_failed_fsync_leaves_no_clean_mark() -> None:
    storage = formatted_storage()
    disk = FailingDisk(simulated_disk(storage))
    manager = await with_records(disk, InlineExecutor(), LOGS)
    failing = "/data/t-2/00000000000000000000.log"
    disk.fail = lambda step, path: errno.EIO if (step, path) == ("sync", failing) else None
    with pytest.raises(Halted):
        await manager.close(broker_epoch=7, high_watermarks={})
    assert not simulated_disk(storage).exists(MARK)


async def test_a_cap_that_cannot_be_removed_leaves_no_clean_mark_and_keeps_no_other_log_waiting() -> None:
    """The recovery point is above what the truncation had lowered it to, but the file that says so stays."""
    storage = formatted_storage()
    manager = await with_records(simulated_disk(storage), InlineExecutor(), LOGS)
    await manager.close(broker_epoch=7, high_watermarks={})
    storage.locks.clear()
    disk = FailingDisk(simulated_disk(storage))
    again = started(disk, InlineExecutor())
    for log in again.logs.values():
        log.truncate_to(0)
        for _ in range(2):
            log.append_as_leader(batch_of(b"v"), leader_epoch=5)
    cap = f"/data/t-2/{TRUNCATION_CHECKPOINT}"
    disk.fail = lambda step, path: errno.EIO if (step, path) == ("remove", cap) else None
    await again.close(broker_epoch=8, high_watermarks={})
    assert [log.log_end_offset for log in again.logs.values() if not log.is_closed] == [2]
    assert not simulated_disk(storage).exists(MARK)
