"""Work on many logs beside the event loop: what is prepared on the loop runs in a few jobs of many logs each.

Guarantees: at most `JOBS_AT_ONCE` jobs of one kind are under way, of at most `LOGS_PER_JOB` logs each, and one batch
alone needs no task. A job tries each of its items, whatever becomes of the others, and its errors come back in their
order. A file system with a journal commits for all that wait for it at the same time: so batches run side by side, and
the files of a batch are all written before the first of them is waited for. The writers of new logs, epoch files and
last flushes go by this; each prepares its items, judges their errors, and completes them where the log is still the
one that it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from partitions.disk import Disk, File
from partitions.ports import Executor

T = TypeVar("T")
J = TypeVar("J")

LOGS_PER_JOB: Final = 64
"""It has a file or two of each open."""
JOBS_AT_ONCE: Final = 4
LOGS_PER_ROUND: Final = JOBS_AT_ONCE * LOGS_PER_JOB
FLUSHES_AT_ONCE: Final = 2
"""Jobs that flush a single log because its topic asks for it: others need the executor's threads, too."""


def next_round(items: Iterator[T]) -> list[list[T]]:
    """Takes the next batches that may be worked on at once; none when no item is left."""
    batches = (list(islice(items, LOGS_PER_JOB)) for _ in range(JOBS_AT_ONCE))
    return [batch for batch in batches if batch]


async def at_once(
    work: Callable[[Sequence[T]], Coroutine[Any, Any, None]], batches: Sequence[list[T]]
) -> None:
    """Does the work of a round."""
    if len(batches) > 1:
        await asyncio.gather(*map(work, batches))
    elif batches:
        await work(batches[0])


async def run_for_each(
    executor: Executor,
    job: Callable[[Disk, Sequence[J]], Sequence[OSError | None]],
    disk: Disk,
    prepared: Sequence[tuple[T, J]],
) -> list[tuple[T, J, OSError | None]]:
    """Has one job do what was prepared for each owner; what failed, beside it. No job where nothing was prepared."""
    if not prepared:
        return []
    errors = await executor.run(job, disk, tuple(work for _, work in prepared))
    return [(owner, work, error) for (owner, work), error in zip(prepared, errors, strict=True)]


# ---- in a job


def error_of(operation: Callable[..., object], *args: object) -> OSError | None:
    """What kept the operation from being done; None if it was."""
    try:
        operation(*args)
    except OSError as error:
        return error
    return None


def sync_and_close(file: File) -> None:
    """Makes a file durable and closes it. Raises OSError, after which it must not be tried again."""
    try:
        file.sync()
    finally:
        file.close()
