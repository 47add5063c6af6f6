"""An fsync that fails ends its data directory, also if the log was given up or deleted while it ran.

The kernel drops the pages and says nothing of them at the next fsync: whoever opens the file again would take
for durable what is not."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from partitions.log.cleaner import jobs
from partitions.log.epochs.epoch_writer import write_temporaries
from partitions.log.errors import DirectoryFailed, InterruptedByFullDisk
from partitions.log.flushes import run_flush, run_flushes
from partitions.log.node_logs.closing import flush_before_closing
from tests.support.logs import SMALL, InlineExecutor
from tests.unit.log.node_logs.test_failing_directories import Node, T, two_directories
from tests.unit.log.test_checked_bytes import append

LOST = T[1]


class Interrupted(InlineExecutor):
    """Does something while the first job of a kind is under way."""

    def __init__(self, job: Callable[..., Any], then: Callable[[], None]) -> None:
        self._job: Callable[..., Any] | None = job
        self._then = then

    async def run(self, job: Callable[..., Any], *args: Any) -> Any:
        if job is self._job:
            self._job = None
            self._then()
        return job(*args)


async def flush(node: Node) -> None:
    await node.manager.flush_log(LOST)


async def write_epochs(node: Node) -> None:
    await node.manager.epoch_writer.write([LOST])


async def close(node: Node) -> None:
    parts = node.manager._parts
    await flush_before_closing(parts.disk, parts.executor, node.manager.epoch_writer, node.manager.logs)


async def clean(node: Node) -> None:
    await node.manager.cleaner.clean_dirty_logs(lambda _: 40)


Work: TypeAlias = Callable[[Node], Awaitable[None]]
UNDER_WAY: dict[Work, Callable[..., Any]] = {
    flush: run_flush,
    write_epochs: write_temporaries,
    close: run_flushes,
    clean: jobs.make_durable,
}


def interrupted(work: Work, then: Callable[[Node], None]) -> Node:
    """A node that does something to a log while `work` waits for an fsync of it."""
    node = Node(two_directories())
    node.make(*T)
    log = node.manager.logs[LOST]
    append(log, 40)
    if work is clean:
        log.update_config(replace(SMALL, cleanup_policy="compact", min_compaction_lag_ms=1))
    else:
        log.assign_epoch_start(7)
        if work is flush:
            log.epoch_file.write()
    executor = Interrupted(UNDER_WAY[work], lambda: then(node))
    manager = node.manager
    manager._parts = replace(manager._parts, executor=executor)
    manager.epoch_writer._executor = executor
    manager.cleaner._ports = manager.cleaner._ports._replace(executor=executor)
    return node


def give_up(node: Node) -> None:
    node.manager.give_up(LOST, InterruptedByFullDisk("a truncation met a full disk"))


@pytest.mark.parametrize("work", UNDER_WAY)
async def test_a_log_that_was_given_up_meanwhile_takes_its_directory_along(work: Work) -> None:
    def give_up_and_fail(node: Node) -> None:
        give_up(node)
        node.break_down("/more", errno.EIO, "sync")

    node = interrupted(work, give_up_and_fail)
    with contextlib.suppress(DirectoryFailed):
        await work(node)
    assert list(node.manager.failed_directories) == ["/more"]
    assert isinstance(node.manager.failed[LOST], DirectoryFailed)
    assert not node.manager.reopener.may_reopen(LOST)
    assert set(node.manager.logs) == {T[0], T[2]}


@pytest.mark.parametrize("work", UNDER_WAY)
async def test_a_folder_that_is_gone_by_then_needs_no_fsync(work: Work) -> None:
    def delete(node: Node) -> None:
        give_up(node)
        folder = f"/more/{LOST}"
        node.disk.rename(folder, f"{folder}-delete")

    node = interrupted(work, delete)
    await work(node)
    assert not node.manager.failed_directories
    assert list(node.manager.failed) == [LOST]
