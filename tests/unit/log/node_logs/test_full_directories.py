"""Several data directories of which one is full: the others are flushed, checkpointed and freed as ever."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from partitions.log.errors import LogStorageError, NoSpaceLeft
from partitions.log.log import PartitionLog
from partitions.log.node_logs.data_directory import RECOVERY_POINTS
from partitions.topic_partition import TopicPartition
from tests.support.logs import SMALL, batch_of, simulated_disk
from tests.unit.log.node_logs.test_failing_directories import Node, T, listed, two_directories

MANY = [TopicPartition("t", number) for number in range(20)]


def with_a_new_epoch(*partitions: TopicPartition, records: int = 1) -> Node:
    """Logs that are durable but for a last record of a new leader's epoch, which is in no file either."""
    node = Node(two_directories())
    node.make(*partitions)
    for partition in partitions:
        log = node.manager.logs[partition]
        for number in range(records):
            log.append_as_leader(batch_of(b"value-%04d" % number), leader_epoch=0)
        log.sync()
        log.append_as_leader(batch_of(b"later"), leader_epoch=3)
        assert not log.epoch_file.is_durable
    return node


@pytest.mark.parametrize("full", ["/data", "/more"])
async def test_a_full_directory_keeps_no_other_from_being_flushed(full: str) -> None:
    node = with_a_new_epoch(*T)
    node.break_down(full, errno.ENOSPC, "append", "create")
    with pytest.raises(NoSpaceLeft):
        await node.manager.checkpoint_recovery_points()
    for partition in T:
        log = node.manager.logs[partition]
        assert log.recovery_point == (1 if log.directory.startswith(full) else 2)
    checkpoints = {d.path: d.checkpoints[RECOVERY_POINTS] for d in node.manager._directories}
    assert list(checkpoints.pop(full).values()) == []
    assert [list(points.values()) for points in checkpoints.values()] == [[2, 2]]
    assert not node.manager.failed
    node.break_down("/nowhere")
    await node.manager.checkpoint_recovery_points()
    assert all(log.recovery_point == 2 for log in node.manager.logs.values())


async def test_a_full_directory_is_freed_and_keeps_no_other_from_that() -> None:
    """However small the steps of the round are; and no file of epochs can be written in it."""
    node = with_a_new_epoch(*MANY, records=40)
    for partition in MANY:
        node.manager.logs[partition].update_config(replace(SMALL, retention_bytes=0))
    node.break_down("/more", errno.ENOSPC, "append", "create")
    for _ in range(len(MANY) // 3 + 1):
        await node.manager.retention.step(lambda _: 40, max_logs=3)
    assert not node.manager.retention.is_pending
    assert all(log.segment_base_offsets[0] > 0 for log in node.manager.logs.values())
    assert not any(log.epoch_file.is_durable for log in logs_in(node, "/more"))


async def test_where_all_would_go_a_full_directory_loses_what_can_go_without_a_new_segment() -> None:
    node = with_a_new_epoch(*T, records=40)
    for partition in T:
        node.manager.logs[partition].update_config(replace(SMALL, retention_bytes=0))
    ends = {
        path: {log.segment_base_offsets[-1] for log in logs_in(node, path)} for path in ("/data", "/more")
    }
    node.break_down("/more", errno.ENOSPC, "append", "create")
    await node.manager.retention.step(lambda _: 41, max_logs=10)
    assert {log.segment_base_offsets for log in logs_in(node, "/data")} == {(41,)}
    assert {log.segment_base_offsets for log in logs_in(node, "/more")} == {(end,) for end in ends["/more"]}
    with pytest.raises(NoSpaceLeft):
        await node.manager.retention.step(lambda _: 41, max_logs=10)
    node.break_down("/nowhere")
    await node.manager.retention.step(lambda _: 41, max_logs=10)
    assert {log.segment_base_offsets for log in node.manager.logs.values()} == {(41,)}


def logs_in(node: Node, path: str) -> list[PartitionLog]:
    return [log for log in node.manager.logs.values() if log.directory.startswith(path)]


async def test_a_full_directory_keeps_no_other_from_being_cleaned() -> None:
    node = with_a_new_epoch(*MANY[:6], records=40)
    for partition in MANY[:6]:
        compacted = replace(SMALL, cleanup_policy="compact", min_compaction_lag_ms=1)
        node.manager.logs[partition].update_config(compacted)
    node.break_down("/data", errno.ENOSPC, "append", "create")
    with pytest.raises(LogStorageError):
        await node.manager.cleaner.clean_dirty_logs(lambda _: 40)
    cleaned = {partition for partition, log in node.manager.logs.items() if log.clean_offset > 0}
    assert cleaned == {p for p, log in node.manager.logs.items() if log.directory.startswith("/more")}
    assert len(cleaned) == 3


@pytest.mark.parametrize("seed", range(8))
async def test_a_deletion_is_durable_in_all_directories_though_one_is_full(seed: int) -> None:
    storage = two_directories()
    storage._rng.seed(seed)
    node = Node(storage)
    node.make(*T)
    for partition in T:
        node.append(partition)
    await node.manager.checkpoint_recovery_points()
    node.break_down("/data", errno.ENOSPC, "append", "create")
    with pytest.raises(NoSpaceLeft):
        await node.manager.delete(T[:2])
    storage.lose_power()
    disk = simulated_disk(storage)
    assert str(T[0]) not in disk.list_dir("/data")
    assert str(T[1]) not in disk.list_dir("/more")
    assert set(listed(disk, "/more")) == {T[2], T[3]}
    assert set(Node(storage).manager.logs) == {T[2], T[3]}
