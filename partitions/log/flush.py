"""A log's fsync as a job for the executor.

Guarantees: the job covers exactly what was appended before it was prepared, touches files by name
and shares nothing with the log; only `PartitionLog.complete_flush` on the log's own lane moves the
recovery point. A file that was deleted meanwhile needs no fsync: retention removed it, or a
truncation, which makes the log ignore the job's outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from partitions.disk import Disk
from partitions.log.errors import NoSpaceLeft


class ActiveIndexes(NamedTuple):
    """Index files as they are when a job is prepared that covers them."""

    base_offset: int
    """Of their segment."""
    writes: int
    """How often they have been written to: once more, and the job proves nothing about them."""


class FlushJob(NamedTuple):
    """What must be made durable before the recovery point may move to `end_offset`."""

    end_offset: int
    paths: tuple[str, ...]
    directory: str | None
    """The folder, when names in it are not durable yet."""
    generation: int
    """Counts truncations: an older job proves nothing about the log as it is now."""
    names_version: int
    sealed: tuple[int, ...]
    """Base offsets of the sealed segments that the job covers."""
    no_room_for_epochs: NoSpaceLeft | None = None
    """Why the leader epochs are not in their file; the recovery point then stays below those."""
    active_indexes: ActiveIndexes | None = None
    """Of the active segment's indexes, for a log that is being closed: they grow no more."""


def run_flush(disk: Disk, job: FlushJob) -> None:
    """Waits for the disk. Raises OSError, after which the node must halt and not try again."""
    for path in job.paths:
        try:
            file = disk.open(path)
        except FileNotFoundError:
            continue
        try:
            file.sync()
        finally:
            file.close()
    if job.directory is not None:
        try:
            disk.sync_dir(job.directory)
        except FileNotFoundError:
            return


def run_flushes(disk: Disk, jobs: Sequence[FlushJob]) -> tuple[OSError | None, ...]:
    """Several jobs in one; what failed, in their order, which must not be tried again."""
    return tuple(_flush_error(disk, job) for job in jobs)


def _flush_error(disk: Disk, job: FlushJob) -> OSError | None:
    try:
        run_flush(disk, job)
    except OSError as error:
        return error
    return None
