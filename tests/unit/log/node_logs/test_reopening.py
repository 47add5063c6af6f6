"""Opening a log again, while other things are under way in its directory."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from partitions.log.errors import DirectoryFailed, InterruptedByFullDisk
from partitions.log.node_logs.data_directory import RECOVERY_POINTS
from tests.support.logs import batch_of
from tests.unit.log.node_logs.test_failing_directories import Node, T, filled
from tests.unit.log.node_logs.test_given_up import P, one_directory


class Gate:
    """An executor that keeps one job waiting, chosen by its arguments."""

    def __init__(self, holds: Callable[..., bool]) -> None:
        self._holds = holds
        self._is_used = False
        self.waiting, self.go = asyncio.Event(), asyncio.Event()

    async def run(self, job: Callable[..., Any], *arguments: Any) -> Any:
        if not self._is_used and self._holds(job, *arguments):
            self._is_used = True
            self.waiting.set()
            await self.go.wait()
        return job(*arguments)

    def stand_before(self, node: Node) -> None:
        parts = replace(node.manager._parts, executor=self)
        node.manager._parts = node.manager.reopener._parts = parts
        node.manager.checkpoints._executor = self


async def test_a_checkpoint_that_was_under_way_does_not_outlive_the_cap_of_the_log() -> None:
    """The truncation's cap goes only when the file says what is true, and not what is about to be overwritten."""
    storage = one_directory()
    node = Node(storage, ("/data",))
    node.make(P)
    log = node.manager.logs[P]
    for number in range(40):
        log.append_as_leader(batch_of(b"value-%04d" % number), leader_epoch=0)
    await node.manager.flush()
    gate = Gate(lambda _job, *arguments: len(arguments) > 1 and RECOVERY_POINTS in str(arguments[1]))
    gate.stand_before(node)
    writing = asyncio.create_task(node.manager.checkpoint_recovery_points())
    await gate.waiting.wait()
    node.disk.fail = lambda operation, path: errno.ENOSPC if path.endswith("index") else None
    with pytest.raises(InterruptedByFullDisk):
        log.truncate_to(10)
    node.disk.fail = lambda operation, path: None
    opening = asyncio.create_task(node.manager.reopener.reopen(P))
    for _ in range(20):
        await asyncio.sleep(0)
    gate.go.set()
    await writing
    assert await opening is None
    end = node.manager.logs[P].log_end_offset
    assert end < 40
    storage.lose_power()
    again = Node(storage, ("/data",))
    assert again.report.failed == {}
    assert again.manager.logs[P].log_end_offset == end


async def test_a_directory_that_fails_before_the_recovery_begins_is_not_touched_any_more() -> None:
    _, node = filled()
    await node.manager.flush()
    gate = Gate(lambda _job, *arguments: len(arguments) > 1 and RECOVERY_POINTS in str(arguments[1]))
    gate.stand_before(node)
    writing = asyncio.create_task(node.manager.checkpoint_recovery_points())
    await gate.waiting.wait()
    node.manager.give_up(T[1], InterruptedByFullDisk("the disk was full"))
    opening = asyncio.create_task(node.manager.reopener.reopen(T[1]))
    for _ in range(20):
        await asyncio.sleep(0)
    node.manager.fail_directory("/more", "an fsync failed")
    node.disk.calls.clear()
    gate.go.set()
    await writing
    assert isinstance(await opening, DirectoryFailed)
    assert isinstance(node.manager.failed[T[1]], DirectoryFailed)
    assert [path for _, path in node.disk.calls if path.startswith(f"/more/{T[1]}")] == []
