"""Makes many logs durable before they are closed, so that closing each of them has nothing to wait for.

Guarantees: nothing is taken for durable that an fsync has not covered; what fails here ends its data directory,
or is met again by the log's own `close`, which reports it. A node that stops has an fsync or two to make for
each of its logs, and one after the other, each in a job of its own, they would take longer than all the rest:
so the files of a batch of logs are all written first, and one job waits for them. The log manager calls it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from partitions.disk import Disk
from partitions.log.epochs.epoch_writer import EpochWriter
from partitions.log.errors import LogStorageError
from partitions.log.flushes import FlushJob, run_flushes
from partitions.log.log import PartitionLog
from partitions.ports import Executor
from partitions.topic_partition import TopicPartition

CLOSE_BATCH: Final = 64
"""Logs that one job makes durable."""
JOBS_AT_ONCE: Final = 4
"""A file system with a journal commits for all that wait for it at the same time."""


async def flush_before_closing(
    disk: Disk, executor: Executor, epochs: EpochWriter, logs: Mapping[TopicPartition, PartitionLog]
) -> None:
    """Writes and fsyncs what `close` of these logs would; they take no appends any more."""
    await epochs.write([partition for partition, log in logs.items() if not log.epoch_file.is_durable])
    left = iter(list(logs.values()))
    await asyncio.gather(*(_flush_batches(disk, executor, left) for _ in range(JOBS_AT_ONCE)))


async def _flush_batches(disk: Disk, executor: Executor, left: Iterator[PartitionLog]) -> None:
    """One batch after the other, as long as any are left."""
    while batch := list(islice(left, CLOSE_BATCH)):
        prepared: list[tuple[PartitionLog, FlushJob]] = []
        for log in batch:
            with contextlib.suppress(LogStorageError):
                if not log.is_closed and (job := log.prepare_close()) is not None:
                    prepared.append((log, job))
        if prepared:
            await _flush(disk, executor, prepared)


async def _flush(disk: Disk, executor: Executor, prepared: list[tuple[PartitionLog, FlushJob]]) -> None:
    errors = await executor.run(run_flushes, disk, tuple(job for _, job in prepared))
    for (log, job), error in zip(prepared, errors, strict=True):
        if error is None:
            with contextlib.suppress(LogStorageError):
                log.complete_flush(job)
        elif not (log.is_closed and isinstance(error, FileNotFoundError)):  # else it was deleted meanwhile
            with contextlib.suppress(LogStorageError):
                log.storage.fail(f"fsync of the log {log.directory} failed: {error}", error)
