"""A leader epoch checkpoint that says what is not so any more: no recovery may take sound batches for damage."""

from __future__ import annotations

import dataclasses
import errno

import pytest

from partitions.log.log import PartitionLog
from tests.support.logs import batch_of, memory_disk, open_log
from tests.unit.log.node_logs.test_retention import DELAYED, Node


def follow(log: PartitionLog, first: int, end: int, epoch: int) -> None:
    """Appends a leader's batches of one record, in one of its epochs."""
    for offset in range(first, end):
        log.append_as_follower(batch_of(b"value-%04d" % offset, base_offset=offset, leader_epoch=epoch))


@pytest.mark.parametrize("has_room", [False, True])
async def test_retention_on_a_full_disk_leaves_no_file_that_contradicts_what_stays(has_room: bool) -> None:
    node = Node(config=dataclasses.replace(DELAYED, retention_bytes=0))
    log = node.log
    follow(log, 0, 10, 1)
    follow(log, 10, 16, 2)
    follow(log, 16, 22, 4)
    await node.manager.checkpoint_recovery_points()
    log.truncate_to(13)  # the new leader has nothing of epoch 4, which stays in the file
    follow(log, 13, 50, 2)
    follow(log, 50, 60, 5)
    end = log.log_end_offset

    def without_room(operation: str, path: str) -> None:
        if operation in ("append", "write"):
            raise OSError(errno.ENOSPC, "injected", path)

    node.storage.before_operation = None if has_room else without_room
    assert await node.manager.retention.step(lambda _: 59, max_logs=10)
    node.storage.before_operation = None
    node.storage.lose_power()
    assert Node(node.storage).log.log_end_offset == end


def test_a_log_that_was_emptied_forgets_the_epochs_that_it_had() -> None:
    disk = memory_disk()
    log = open_log(disk)
    follow(log, 0, 10, 1)
    follow(log, 10, 20, 5)
    log.sync()
    log.truncate_fully_and_start_at(200)
    follow(log, 200, 240, 3)  # as after an unclean election
    follow(log, 240, 250, 6)
    again = open_log(disk, recovery_point=0)
    assert again.log_end_offset == 250
    assert again.epochs.entries == log.epochs.entries
