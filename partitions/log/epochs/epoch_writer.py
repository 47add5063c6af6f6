"""Writes the checkpoint files of leader epochs beside the event loop, of many logs at once.

Guarantees (KIP-101): when `EpochWriter.write` has returned without an error for a log that stayed open, with the
epochs that it had and without writing their file itself, they are durable. When a broker dies, thousands of
leaderships move to others in one step: so jobs write the files, and a leader takes no appends until its file is there.
`partitions.partition` begins epochs, the replica manager has them written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

from partitions.disk import Disk, File
from partitions.log.beside_loop import at_once, error_of, next_round, run_for_each, sync_and_close
from partitions.log.epochs.epoch_file import EpochFile, EpochInstall, EpochWrite
from partitions.log.errors import LogStorageError
from partitions.ports import Executor
from partitions.topic_partition import TopicPartition


class KeepsEpochs(Protocol):
    """A log, as far as the writer looks at one."""

    @property
    def epoch_file(self) -> EpochFile: ...


class _Writing(NamedTuple):
    partition: TopicPartition
    file: EpochFile


_Failures: TypeAlias = dict[TopicPartition, LogStorageError]


class EpochWriter:
    """Writes the checkpoint files of a node's logs; looks at the logs, which the log manager changes."""

    def __init__(
        self,
        disk: Disk,
        executor: Executor,
        logs: Mapping[TopicPartition, KeepsEpochs],
    ) -> None:
        self._disk = disk
        self._executor = executor
        self._logs = logs
        self._lock = asyncio.Lock()  # there is one temporary file a log

    async def write(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LogStorageError]:
        """Makes the epochs of these logs durable, as they are now; returns what kept it from that.

        That is NoSpaceLeft, after which it may be tried again, or DirectoryFailed. Logs that are gone, have other
        epochs when this returns, or have tried to write the file themselves meanwhile, are passed over: a caller that
        needs those looks at `EpochFile.is_durable`, and asks again.
        """
        failed: dict[TopicPartition, LogStorageError] = {}
        left = iter(dict.fromkeys(partitions))
        while batches := next_round(left):
            async with self._lock:  # other callers have their turn after each round
                await at_once(partial(self._write_batch, failed), batches)
        return failed

    def _prepare(
        self, batch: Sequence[TopicPartition], failed: _Failures
    ) -> list[tuple[_Writing, EpochWrite]]:
        prepared = []
        for partition in batch:
            log = self._logs.get(partition)
            if log is None or log.epoch_file.is_closed:
                continue
            try:
                write = log.epoch_file.prepare_write()
            except LogStorageError as error:
                failed[partition] = error
                continue
            if write is not None:
                prepared.append((_Writing(partition, log.epoch_file), write))
        return prepared

    async def _write_batch(self, failed: _Failures, batch: Sequence[TopicPartition]) -> None:
        prepared = self._prepare(batch, failed)
        written = []
        for writing, write, error in await run_for_each(
            self._executor, write_temporaries, self._disk, prepared
        ):
            if error is not None:
                _note_failure(writing, write, error, failed)
            elif (install := writing.file.begin_install(write)) is not None:
                written.append((writing, install))
        for writing, install, error in await run_for_each(self._executor, install_files, self._disk, written):
            if error is not None:
                _note_failure(writing, install.write, error, failed)
            else:
                writing.file.complete_install(install)


def _note_failure(writing: _Writing, write: EpochWrite, error: OSError, failed: _Failures) -> None:
    failure = writing.file.write_failed(write, error)
    if failure is not None:
        failed[writing.partition] = failure


def write_temporaries(disk: Disk, writes: Sequence[EpochWrite]) -> tuple[OSError | None, ...]:
    """A job: writes all temporary files, then makes each durable; what failed, in the order of `writes`.

    All are written before the first fsync: that makes most of the rest durable as well, on a file system
    with a journal.
    """
    opened: list[File | OSError] = [_write_temporary(disk, write) for write in writes]
    return tuple(entry if isinstance(entry, OSError) else error_of(sync_and_close, entry) for entry in opened)


def _write_temporary(disk: Disk, write: EpochWrite) -> File | OSError:
    try:
        if disk.exists(write.temporary):
            disk.remove(write.temporary)
        file = disk.open(write.temporary, create=True)
    except OSError as error:
        return error
    try:
        file.append([write.content])
    except OSError as error:
        file.close()
        return error
    return file


def install_files(disk: Disk, installs: Sequence[EpochInstall]) -> tuple[OSError | None, ...]:
    """A job: gives all files their names, then makes those durable; what failed, in the order of `installs`.

    A name that its log has taken over meanwhile is left alone.
    """
    renamed = [error_of(install.names.make) for install in installs]
    return tuple(
        error_of(disk.sync_dir, install.directory) if error is None else error
        for install, error in zip(installs, renamed, strict=True)
    )
