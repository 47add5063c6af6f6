"""Makes many logs durable before they are closed, so that closing each of them has nothing to wait for.

Guarantees: nothing is taken for durable that an fsync has not covered; what fails here ends its data directory,
or is met again by the log's own `close`, which reports it. A node that stops has an fsync or two to make for
each of its logs, and one after the other, each in a job of its own, they would take longer than all the rest:
so the files of a batch of logs are all written first, and one job waits for them. The log manager calls it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from functools import partial

from partitions.disk import Disk
from partitions.log.beside_loop import at_once, next_round, run_for_each
from partitions.log.epochs.epoch_writer import EpochWriter
from partitions.log.errors import LogStorageError
from partitions.log.flushes import FlushJob, run_flushes
from partitions.log.log import PartitionLog
from partitions.ports import Executor
from partitions.topic_partition import TopicPartition


async def flush_before_closing(
    disk: Disk, executor: Executor, epochs: EpochWriter, logs: Mapping[TopicPartition, PartitionLog]
) -> None:
    """Writes and fsyncs what `close` of these logs would; they take no appends any more."""
    await epochs.write([partition for partition, log in logs.items() if not log.epoch_file.is_durable])
    left = iter(list(logs.values()))
    while batches := next_round(left):
        await at_once(partial(_flush_batch, disk, executor), batches)


async def _flush_batch(disk: Disk, executor: Executor, batch: Sequence[PartitionLog]) -> None:
    prepared: list[tuple[PartitionLog, FlushJob]] = []
    for log in batch:
        with contextlib.suppress(LogStorageError):
            if not log.is_closed and (job := log.prepare_close()) is not None:
                prepared.append((log, job))
    for log, job, error in await run_for_each(executor, run_flushes, disk, prepared):
        with contextlib.suppress(LogStorageError):
            if error is None:
                log.complete_flush(job)
            else:
                log.flush_failed(error)
