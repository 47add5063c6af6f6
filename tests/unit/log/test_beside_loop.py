"""Work beside the loop: few jobs at once, errors in the order of the items, one that fails leaves the others."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from typing import Any

import pytest

from partitions.disk import Disk
from partitions.log.beside_loop import (
    JOBS_AT_ONCE,
    LOGS_PER_JOB,
    LOGS_PER_ROUND,
    at_once,
    error_of,
    next_round,
    run_for_each,
    sync_and_close,
)
from partitions.log.errors import DirectoryFailed, NoSpaceLeft
from partitions.log.node_logs.closing import flush_before_closing
from tests.support.logs import FailingDisk, InlineExecutor, batch_of, memory_disk
from tests.unit.log.node_logs.test_failing_directories import Node, T, two_directories

FULL, BROKEN = OSError(errno.ENOSPC, "full"), OSError(errno.EIO, "broken")


class CountingExecutor(InlineExecutor):
    def __init__(self) -> None:
        self.count = 0

    async def run(self, job: Any, *args: Any) -> Any:
        self.count += 1
        return await super().run(job, *args)


async def test_each_owner_gets_the_error_of_its_own_item() -> None:
    def job(disk: Disk, items: Sequence[str]) -> tuple[OSError | None, ...]:
        return tuple({"full": FULL, "broken": BROKEN}.get(item) for item in items)

    executor: Any = CountingExecutor()
    prepared = [("a", "sound"), ("b", "full"), ("c", "sound"), ("d", "broken")]
    outcome = await run_for_each(executor, job, memory_disk(), prepared)
    assert outcome == [
        ("a", "sound", None),
        ("b", "full", FULL),
        ("c", "sound", None),
        ("d", "broken", BROKEN),
    ]
    assert await run_for_each(executor, job, memory_disk(), []) == []
    assert executor.count == 1, "nothing to do needs no job"


async def test_a_job_that_forgets_an_item_is_a_defect() -> None:
    executor: Any = InlineExecutor()
    with pytest.raises(ValueError, match="zip"):
        await run_for_each(executor, lambda disk, items: (None,), memory_disk(), [("a", 1), ("b", 2)])


async def test_no_more_jobs_than_allowed_are_under_way_and_none_is_too_large() -> None:
    under_way, most, sizes = 0, 0, []

    async def work(batch: Sequence[int]) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        sizes.append(len(batch))
        under_way -= 1

    left = iter(range(LOGS_PER_ROUND + LOGS_PER_JOB + 1))
    rounds = 0
    while batches := next_round(left):
        rounds += 1
        await at_once(work, batches)
    assert most == JOBS_AT_ONCE
    assert sizes == [LOGS_PER_JOB] * (JOBS_AT_ONCE + 1) + [1]
    assert rounds == 2


async def test_one_batch_alone_needs_no_task() -> None:
    tasks = []

    async def work(batch: Sequence[int]) -> None:
        tasks.append(asyncio.current_task())

    await at_once(work, next_round(iter(range(3))))
    assert tasks == [asyncio.current_task()]


def test_what_is_not_taken_is_left_for_the_next_round() -> None:
    left = iter(range(LOGS_PER_ROUND + 1))
    assert next_round(left)[-1][-1] == LOGS_PER_ROUND - 1
    assert next_round(left) == [[LOGS_PER_ROUND]]
    assert next_round(left) == []


def test_a_file_whose_fsync_fails_is_closed_and_says_why() -> None:
    disk = FailingDisk(memory_disk())
    disk.make_dirs("/data")
    disk.fail = lambda step, path: errno.EIO if step == "sync" else None
    file: Any = disk.open("/data/file", create=True)
    error = error_of(sync_and_close, file)
    assert error is not None
    assert error.errno == errno.EIO
    assert [step for step, _ in disk.calls] == ["create", "sync"]
    disk.fail = lambda step, path: None
    assert error_of(disk.sync_dir, "/data") is None


@pytest.mark.parametrize(("code", "fails"), [(errno.EMFILE, NoSpaceLeft), (errno.EIO, DirectoryFailed)])
async def test_a_flush_is_judged_alike_for_one_log_and_for_many(code: int, fails: type[Exception]) -> None:
    """Want of descriptors says nothing of the disk; it does not end a directory, at the end of a node either."""
    node = Node(two_directories())
    node.make(*T)
    for log in node.manager.logs.values():
        log.append_as_leader(batch_of(b"v"), leader_epoch=4)
    file = f"/more/{T[1]}/00000000000000000000.log"
    step_that_fails = "open" if code == errno.EMFILE else "sync"
    calls = node.disk.fail

    def fail(step: str, path: str) -> int | None:
        return code if (step, path) == (step_that_fails, file) else calls(step, path)

    node.disk.fail = fail
    with pytest.raises(fails):
        node.manager.logs[T[1]].flush_failed(OSError(code, "no"))
    node.disk.fail = calls


async def test_a_log_that_is_closed_is_passed_over() -> None:
    node = Node(two_directories())
    node.make(*T)
    for log in node.manager.logs.values():
        log.append_as_leader(batch_of(b"v"), leader_epoch=4)
    manager, executor = node.manager, CountingExecutor()
    logs = dict(manager.logs)
    logs[T[1]].abandon()
    node.disk.calls.clear()
    await flush_before_closing(node.disk, executor, manager.epoch_writer, logs)  # type: ignore[arg-type]
    synced = [path for step, path in node.disk.calls if step == "sync"]
    assert not [path for path in synced if f"/{T[1]}/" in path]
    assert [logs[key].needs_flush for key in (T[0], T[2])] == [False, False]
    logs[T[1]].flush_failed(FileNotFoundError(errno.ENOENT, "deleted"))  # while a job ran
    assert not manager.failed_directories
