"""Retention round by round, and the files that go some time after their segments."""

from __future__ import annotations

import dataclasses
import errno
import random
from collections.abc import Callable
from typing import TypeVar

import pytest

from kraft.chaos.world.storage import Storage
from partitions.disk import Disk
from partitions.log.config import LogConfig
from partitions.log.errors import DirectoryFailed, LogStorageError, NoSpaceLeft, OffsetOutOfRange
from partitions.log.log import PartitionLog
from partitions.log.node_logs.meta_properties import MetaProperties, write_meta_properties
from partitions.log.node_logs.removal import DelayedRemovals
from partitions.log.storage import LogStorage
from partitions.log_manager import LogManager
from partitions.topic_partition import TopicPartition
from tests.support.logs import (
    FOLDER,
    SMALL,
    FailingDisk,
    Halted,
    InlineExecutor,
    batch_of,
    get_or_create,
    halt,
    memory_disk,
    new_storage,
    open_log,
    read_records,
    retain,
    simulated_disk,
)

T = TypeVar("T")
CLUSTER = "kraftTestingClusterIdA"
ORDERS, ID = TopicPartition("orders", 0), bytes(15) + b"\1"
DELAYED = dataclasses.replace(SMALL, file_delete_delay_ms=60_000, retention_bytes=1500, retention_ms=-1)


class Clock:
    """Wall-clock time that a test moves."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


class BetweenExecutor(InlineExecutor):
    """Runs jobs at once, and what a test wants to happen meanwhile before each of them."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], None] = lambda: None

    async def run(self, job: Callable[..., object], *args: object) -> object:
        self.meanwhile()
        return job(*args)


class Node:
    """A log manager with one log of 60 small batches."""

    def __init__(self, storage: Storage | None = None, config: LogConfig = DELAYED) -> None:
        self.storage = storage or new_storage()
        if storage is None:
            write_meta_properties(
                simulated_disk(self.storage), "/data", MetaProperties(CLUSTER, 1, "kraftTestingDirectory1")
            )
        self.disk = FailingDisk(simulated_disk(self.storage))
        self.clock, self.executor = Clock(), BetweenExecutor()
        self.manager = LogManager(
            self.disk,
            ["/data"],
            config,
            self.executor,  # type: ignore[arg-type]
            now_ms=self.clock,
            halt=halt,
            rng=random.Random(1),
        )
        self.manager.start(cluster_id=CLUSTER, node_id=1)
        self.log = get_or_create(self.manager, ORDERS, ID, config)

    def fill(self, batches: int = 60) -> PartitionLog:
        for number in range(batches):
            self.log.append_as_leader(batch_of(b"value-%04d" % number), leader_epoch=0)
        return self.log

    async def round(self) -> int:
        ends = {partition: log.log_end_offset for partition, log in self.manager.logs.items()}
        return await self.manager.retention.step(ends.__getitem__, max_logs=10)

    def names(self, suffix: str) -> list[str]:
        return [name for name in self.disk.list_dir("/data/orders-0") if name.endswith(suffix)]


# ---- which segments go


def filled(config: LogConfig, times: list[int]) -> PartitionLog:
    """A log with one segment for each time."""
    log = open_log(memory_disk(), config)
    for number, timestamp in enumerate(times):
        log.append_as_leader(batch_of(b"%d" % number, timestamp=timestamp), leader_epoch=0)
        if number < len(times) - 1:
            log.roll()
    return log


def test_an_older_segment_with_younger_records_keeps_those_after_it() -> None:
    log = filled(dataclasses.replace(SMALL, retention_ms=100), [1000, 5000, 1000, 1000])
    assert retain(log, 1101, 4) == 1
    assert retain(log, 4000, 4) == 0, "the second one is too young"
    assert log.segment_base_offsets == (1, 2, 3), "and the active one is not closed for nothing"
    assert retain(log, 5101, 4) == 3


def test_the_active_segment_is_closed_only_when_it_can_go() -> None:
    log = filled(dataclasses.replace(SMALL, retention_ms=100), [1000, 1000])
    assert retain(log, 9000, 1) == 1
    assert log.segment_base_offsets == (1,)
    assert retain(log, 9000, 2) == 1
    assert (log.segment_base_offsets, log.log_start_offset, log.size_bytes) == ((2,), 2, 0)


def test_a_size_of_zero_keeps_nothing_that_is_committed() -> None:
    log = filled(dataclasses.replace(SMALL, retention_bytes=0, retention_ms=-1), [1, 2, 3])
    assert retain(log, 0, 2) == 2
    assert retain(log, 0, 3) == 1
    assert (log.log_start_offset, log.size_bytes) == (3, 0)


def test_records_without_a_time_age_from_the_last_change_of_their_file() -> None:
    """As in Kafka: neither a segment's making nor its opening counts, and no start prolongs anything."""
    config = dataclasses.replace(SMALL, retention_ms=100)
    storage, now_ms = new_storage(), 0
    storage.now_ms = lambda: now_ms
    disk = simulated_disk(storage)
    log = open_log(disk, config)
    for now_ms in (1000, 1030, 1060):
        log.append_as_leader(batch_of(b"%d" % now_ms, timestamp=-1), leader_epoch=0)
        if now_ms == 1030:
            log.roll()
    log.close()
    now_ms = 5000
    log = open_log(disk, config, clean=True, now_ms=now_ms)
    assert retain(log, 1130, 3) == 0
    assert retain(log, 1131, 3) == 1
    assert log.segment_base_offsets == (2,)
    assert retain(log, 1160, 3) == 0
    assert retain(log, 1161, 3) == 1


def test_a_compacted_log_keeps_all_but_what_was_given_up() -> None:
    config = dataclasses.replace(SMALL, retention_ms=0, retention_bytes=0)
    for policy, kept in (("", 3), ("compact", 3), ("compact,delete", 0), ("delete", 0)):
        log = open_log(memory_disk(), dataclasses.replace(config, cleanup_policy="delete"))
        for number in range(3):
            log.append_as_leader(batch_of(b"%d" % number), leader_epoch=0)
            log.roll()
        log.update_config(dataclasses.replace(config, cleanup_policy=policy))
        retain(log, 10**9, 3)
        assert log.log_end_offset - log.log_start_offset == kept
        log.raise_log_start_offset(2)
        assert retain(log, 0, 3) == (2 if kept else 0)


# ---- how they go


async def test_files_are_set_aside_and_removed_when_their_time_has_come() -> None:
    node = Node()
    log = node.fill()
    before = log.segment_base_offsets
    count = await node.round()
    assert 0 < count == len(before) - len(log.segment_base_offsets)
    aside = node.names(".deleted")
    assert f"{before[0]:020d}.log.deleted" in aside
    assert {name.split(".")[1] for name in aside} == {"log", "index", "timeindex", "snapshot"}
    assert len(node.names(".log")) == len(log.segment_base_offsets)
    await node.manager.removals.remove_due()
    node.clock.now_ms += 59_999
    await node.manager.removals.remove_due()
    assert node.names(".deleted") == aside
    node.clock.now_ms += 1
    await node.manager.removals.remove_due()
    assert node.names(".deleted") == []
    assert await node.round() == 0


async def test_readers_of_what_goes_are_not_disturbed() -> None:
    node = Node(config=dataclasses.replace(DELAYED, file_delete_delay_ms=0))
    log = node.fill()
    held = log.read(0, 1 << 20, up_to_offset=60).slices
    before = [part.read() for part in held]
    await node.round()
    await node.manager.removals.remove_due()
    assert [part.read() for part in held] == before
    with pytest.raises(OffsetOutOfRange):
        log.read(0, 100, up_to_offset=60)
    assert [record.offset for record in read_records(log)] == list(range(log.log_start_offset, 60))


async def test_nothing_goes_before_what_stays_is_durable() -> None:
    """Power is lost between any two steps: there is never a hole, and nothing flushed is gone."""
    for cut in range(200):
        node = Node()
        node.fill()
        left = cut

        def hook(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Halted("power")

        node.storage.before_operation = hook
        done = False
        try:
            await node.round()
            done = left >= 0
        except Halted:
            pass
        node.storage.before_operation = None
        node.storage.lose_power()
        again = Node(node.storage)
        start, end = again.log.log_start_offset, again.log.log_end_offset
        assert [record.offset for record in read_records(again.log)] == list(range(start, end))
        assert again.names(".deleted") == []
        if done:
            assert cut > 10
            return
    raise AssertionError("a round has fewer steps than that")


@pytest.mark.parametrize("is_flushed", [False, True])
async def test_a_full_disk_is_freed_though_the_epochs_are_in_no_file(is_flushed: bool) -> None:
    """And power is lost between any two steps: the epochs of what stays are known."""
    for cut in range(300):
        node = Node(config=dataclasses.replace(DELAYED, retention_bytes=0))
        log = node.fill(20)
        log.sync()
        for epoch in (3, 5):
            for number in range(20):
                log.append_as_leader(batch_of(b"value-%04d" % number), leader_epoch=epoch)
            if is_flushed and epoch == 3:
                log.sync()
        epochs = [log.epochs.epoch_for_offset(offset) for offset in range(60)]
        before, left = log.segment_base_offsets, cut

        def hook(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Halted("power")
            if operation in ("append", "write"):
                raise OSError(errno.ENOSPC, "injected", path)

        node.storage.before_operation = hook
        done = False
        try:
            assert await node.round() == len(before) - 1
            done = left >= 0
        except Halted:
            pass
        node.storage.before_operation = None
        node.storage.lose_power()
        again = Node(node.storage).log
        for offset in range(again.log_start_offset, again.log_end_offset):
            assert again.epochs.epoch_for_offset(offset) == epochs[offset]
        if done:
            return
    raise AssertionError("a round has fewer steps than that")


async def test_a_log_that_is_deleted_meanwhile_is_left_alone() -> None:
    node = Node()
    log = node.fill()

    def delete() -> None:
        node.executor.meanwhile = lambda: None
        log.abandon()
        node.disk.rename("/data/orders-0", "/data/orders-0.x-delete")

    node.executor.meanwhile = delete
    assert await node.round() <= 1


async def test_a_log_that_starts_anew_meanwhile_is_taken_as_it_is() -> None:
    node = Node()
    log = node.fill()
    flushed = 0

    def start_anew() -> None:
        nonlocal flushed
        flushed += 1
        if flushed == 2:
            log.truncate_fully_and_start_at(3)

    node.executor.meanwhile = start_anew
    await node.round()
    assert (log.log_start_offset, log.log_end_offset, log.segment_base_offsets) == (3, 3, (3,))
    assert node.names(".log") == [f"{3:020d}.log"]


async def test_an_fsync_that_fails_halts_the_node() -> None:
    node = Node()
    node.fill()
    node.log.sync()
    node.disk.fail = lambda operation, path: errno.EIO if operation == "sync_dir" else None
    with pytest.raises(Halted, match="fsync of the folder"):
        await node.round()


async def test_a_rename_that_fails_is_tried_again() -> None:
    node = Node()
    node.fill()
    node.disk.fail = lambda operation, path: (
        errno.EIO if operation == "rename" and path.endswith(".log") else None
    )
    with pytest.raises(LogStorageError, match="aside"):
        await node.round()
    assert len(node.names(".log")) == len(node.log.segment_base_offsets)
    node.disk.fail = lambda operation, path: None
    assert await node.round() > 0


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
async def test_what_was_renamed_before_a_rename_failed_is_removed_all_the_same(suffix: str) -> None:
    """The data file comes first, and holds the room that a full disk waits for."""
    node = Node()
    node.fill()
    segments = len(node.log.segment_base_offsets)
    node.disk.fail = lambda operation, path: (
        errno.ENOSPC if operation == "rename" and path.endswith(suffix) else None
    )
    with pytest.raises(NoSpaceLeft, match="aside"):
        await node.round()
    assert node.names(".log.deleted")
    node.disk.fail = lambda operation, path: None
    deleted = await node.round()
    assert len(node.log.segment_base_offsets) == segments - deleted
    node.clock.now_ms += 60_000
    await node.manager.removals.remove_due()
    assert node.names(".deleted") == []


def test_a_rename_that_the_device_refuses_ends_a_directory_that_is_not_the_only_one() -> None:
    disk, failures = FailingDisk(memory_disk()), list[str]()
    storage = LogStorage(disk, failures.append, fails_on_io_errors=True)
    log = PartitionLog.open(disk, FOLDER, ORDERS, SMALL, now_ms=lambda: 1_000_000, halt=halt, storage=storage)
    for number in range(20):
        log.append_as_leader(batch_of(b"value-%04d" % number), leader_epoch=0)
    log.sync()
    log.raise_log_start_offset(15)
    disk.fail = lambda operation, path: errno.EIO if operation == "rename" else None
    with pytest.raises(DirectoryFailed):
        log.set_aside_first_segment()
    assert len(failures) == 1


# ---- delayed removals


async def test_what_cannot_be_removed_is_tried_again_and_what_is_gone_is_fine() -> None:
    inner: Disk = memory_disk()
    disk, clock = FailingDisk(inner), Clock()
    removals = DelayedRemovals(disk, InlineExecutor(), clock)  # type: ignore[arg-type]
    disk.make_dirs(FOLDER)
    disk.open(f"{FOLDER}/a.deleted", create=True).close()
    removals.add_files([f"{FOLDER}/a.deleted", f"{FOLDER}/b.deleted"], 5)
    removals.add_folder("/data/gone-delete", 0)
    removals.add_folder(FOLDER, 10)
    disk.fail = lambda operation, path: errno.EIO if operation == "remove" else None
    clock.now_ms += 5
    with pytest.raises(LogStorageError, match=r"removing .*a\.deleted failed"):
        await removals.remove_due()
    disk.fail = lambda operation, path: None
    await removals.remove_due()
    assert disk.list_dir(FOLDER) == []
    assert removals.waiting_count == 1
    clock.now_ms += 5
    await removals.remove_due()
    assert not disk.exists(FOLDER)
    assert removals.waiting_count == 0
