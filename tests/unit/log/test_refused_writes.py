"""Appends and rolls that the disk refuses for good: the log is given up, and with it nothing else."""

from __future__ import annotations

import errno

import pytest

from partitions.log.errors import AppendError, LogStorageError
from partitions.topic_partition import TopicPartition
from tests.support.logs import batch_of, simulated_disk
from tests.unit.log.node_logs.test_failing_directories import Node, T, two_directories

FILLING = b"y" * 700
"""After one of these, the next needs a new segment."""
WHO = pytest.mark.parametrize("follows", [False, True], ids=["leader", "follower"])


def alone(*partitions: TopicPartition) -> Node:
    """A node with one data directory, and a record in each of these."""
    node = Node(two_directories(), ("/data",))
    node.make(*partitions)
    for partition in partitions:
        node.append(partition, FILLING)
    return node


def append(node: Node, value: bytes, *, follows: bool) -> None:
    log = node.manager.logs[T[0]]
    if follows:
        log.append_as_follower(batch_of(value, base_offset=log.log_end_offset))
    else:
        log.append_as_leader(batch_of(value), leader_epoch=0)


def assert_only_one_is_given_up(node: Node) -> None:
    assert list(node.told) == [T[0]]
    assert type(node.told[T[0]]) is LogStorageError
    assert node.manager.failed_directories == {}
    assert list(node.manager.logs) == [T[1]]
    node.append(T[1], FILLING)


@WHO
def test_a_folder_that_is_gone_is_found_by_the_next_roll(follows: bool) -> None:
    node = alone(*T[:2])
    node.disk.remove_tree("/data/t-0")
    append(node, b"fits into the open file", follows=follows)
    assert node.told == {}
    with pytest.raises(AppendError, match="no new segment") as refused:
        append(node, FILLING, follows=follows)
    assert (refused.value.code, refused.value.is_transient) == ("KAFKA_STORAGE_ERROR", False)
    assert_only_one_is_given_up(node)


@WHO
@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
def test_a_disk_that_refuses_an_append(number: int, follows: bool) -> None:
    node = alone(*T[:2])
    node.break_down("/data/t-0", number, "append")
    with pytest.raises(AppendError, match="writing to"):
        append(node, b"x", follows=follows)
    assert_only_one_is_given_up(node)


async def test_a_roll_by_time_meets_it_too() -> None:
    node = alone(*T[:2])
    node.disk.remove_tree("/data/t-0")
    log = node.manager.logs[T[0]]
    with pytest.raises(LogStorageError, match="no new segment"):
        log.expire_segments(log.config.retention_ms + 10_001, 1)
    assert_only_one_is_given_up(node)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_a_roll_by_time_that_may_succeed_later_gives_nothing_up(number: int) -> None:
    node = alone(T[0])
    log = node.manager.logs[T[0]]
    node.break_down("/data/t-0", number, "create")
    with pytest.raises(LogStorageError):
        log.roll()
    assert node.told == {}
    node.break_down("/nowhere")
    log.roll()
    append(node, FILLING, follows=False)


async def test_after_a_start_the_replica_is_made_anew_and_the_last_end_was_not_clean() -> None:
    """The controller must not count on what the lost folder held."""
    storage = two_directories()
    node = Node(storage, ("/data",))
    node.make(*T[:2])
    for partition in T[:2]:
        node.append(partition, FILLING)
    await node.manager.checkpoint_recovery_points()
    node.disk.remove_tree("/data/t-0")
    with pytest.raises(AppendError):
        node.append(T[0], FILLING)
    await node.manager.checkpoint_recovery_points()
    await node.close()
    assert not simulated_disk(storage).exists("/data/.kafka_cleanshutdown")
    node = Node(storage, ("/data",))
    assert (node.report.clean_shutdown, node.report.previous_broker_epoch) == (False, -1)
    assert list(node.manager.logs) == [T[1]]
    node.make(T[0])
    log = node.manager.logs[T[0]]
    assert (log.log_end_offset, log.recovery_point) == (0, 0)
    append(node, b"copied", follows=True)
    assert node.values(T[0]) == [b"copied"]
