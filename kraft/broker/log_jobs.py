"""What is done to logs beside the event loop: made, opened again, deleted, given a leader's new epoch.

Guarantees: nothing of this holds up the loop, however many partitions one step of metadata creates or moves;
while a log is being made, opened, held back or deleted it is `is_pending`, and its replica is left alone; when
a job is done the owner is told and goes by the metadata of that moment, not of the moment when the job was
asked for. A few jobs that make logs or write epochs are under way at a time, bounded in size, one that opens, and
of deletions one a step of metadata. A job that ends by a defect halts the node. Used by `ReplicaManager`, the
owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Protocol

import structlog

from kraft.broker.vital_task import end_task, start_vital_task
from partitions.log.creation import CREATE_BATCH, NewLog
from partitions.log.epoch_checkpointing import JOBS_AT_ONCE, ROUND_LOGS
from partitions.log.errors import LogError, LogStorageError
from partitions.log_manager import LogManager
from partitions.ports import Halt
from partitions.topic_partition import TopicPartition

log = structlog.get_logger(__name__)

ROOM_CHECK_S: Final = 1.0
"""How often what met a full disk is tried again."""


class LogJobsOwner(Protocol):
    """Says what is to be made, and goes on with what was. Called on the event loop, before it closes."""

    def wanted_log(self, key: TopicPartition) -> NewLog | None:
        """The log to be made, as the metadata is now; None if none is to be made any more."""

    def on_logs_made(self, made: Sequence[NewLog], failed: Mapping[TopicPartition, LogError]) -> None:
        """These exist now, but for those that failed."""

    def owns_stored(self, key: TopicPartition) -> bool:
        """Whether the log on the disk, which may be unusable, is that of a replica that is wanted now."""

    def on_log_reopened(self, key: TopicPartition, error: LogError | None) -> None:
        """The log can be used again, or the error says why it cannot."""

    def on_logs_deleted(self, keys: Sequence[TopicPartition]) -> None:
        """The names of these are free again."""

    def on_epochs_written(
        self, keys: Sequence[TopicPartition], failed: Mapping[TopicPartition, LogError]
    ) -> None:
        """What the logs knew of epochs when they were asked is durable, but for those that failed."""

    def on_room(self, keys: Sequence[TopicPartition]) -> None:
        """These may find room on the disk now."""


class LogJobs:
    """The jobs of one broker. All methods run on its event loop."""

    def __init__(self, logs: LogManager, owner: LogJobsOwner, halt: Halt) -> None:
        self._logs = logs
        self._owner = owner
        self._halt = halt
        self._wanted: dict[TopicPartition, None] = {}
        self._making: dict[TopicPartition, None] = {}
        self._to_reopen: dict[TopicPartition, None] = {}
        self._reopening: TopicPartition | None = None
        self._held: dict[TopicPartition, None] = {}
        self._deleting: dict[TopicPartition, None] = {}
        self._epochs_due: dict[TopicPartition, None] = {}
        self._without_room: dict[TopicPartition, None] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._deletions: dict[asyncio.Task[None], None] = {}
        self._closing = False

    def is_pending(self, key: TopicPartition) -> bool:
        """Whether the log is being made, opened or deleted; the owner hears when that is over."""
        return (
            key in self._wanted
            or key in self._making
            or key in self._deleting
            or key in self._to_reopen
            or key == self._reopening
            or key in self._held
        )

    def make(self, key: TopicPartition) -> None:
        """Has a log made that does not exist."""
        self._wanted[key] = None
        self._run("make-logs", self._make_all)

    def reopen(self, keys: Sequence[TopicPartition]) -> None:
        """Has logs opened again that wait for room, one after the other; leaves alone what is pending."""
        self._to_reopen.update(dict.fromkeys(key for key in keys if not self.is_pending(key)))
        if self._to_reopen:
            self._run("reopen-logs", self._reopen_all)

    def delete(self, keys: Sequence[TopicPartition]) -> None:
        """Has logs deleted; one that is pending is left to whoever hears of it then."""
        keys = [key for key in keys if not self.is_pending(key)]
        if not keys:
            return
        self._deleting.update(dict.fromkeys(keys))
        task = start_vital_task(self._delete(keys), "delete-logs", self._halt)
        self._deletions[task] = None
        task.add_done_callback(self._deletions.pop)

    def write_epochs(self, key: TopicPartition) -> None:
        """Has the epochs of a log made durable, as it knows them when its turn comes."""
        self._epochs_due[key] = None
        self._run("write-epochs", self._write_all_epochs)

    def hold(self, key: TopicPartition) -> None:
        """Leaves a log alone that was opened again, until the owner releases it; it is to look after a while."""
        self._held[key] = None
        self.wait_for_room(key)

    def is_held(self, key: TopicPartition) -> bool:
        """Whether the log waits for its owner alone."""
        return key in self._held

    def release(self, key: TopicPartition) -> None:
        """Ends what `hold` began."""
        del self._held[key]

    def wait_for_room(self, key: TopicPartition) -> None:
        """The disk is full: the owner is to try again after a while."""
        self._without_room[key] = None
        self._run("wait-for-room", self._wait_for_room)

    async def settled(self) -> None:
        """Waits until there is nothing to do, but for what waits for room."""
        while busy := self._under_way():
            await asyncio.wait(busy)

    async def close(self) -> None:
        """Begins nothing more, and waits for what is under way. What is left is done by the next start."""
        self._closing = True
        await end_task(self._tasks.get("wait-for-room"))
        await asyncio.gather(*self._under_way(), return_exceptions=True)

    def _under_way(self) -> list[asyncio.Task[None]]:
        tasks = [task for name, task in self._tasks.items() if name != "wait-for-room" and not task.done()]
        return [*tasks, *self._deletions]

    def _run(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Sees to it that the task runs: it ends by itself when nothing is left to do."""
        task = self._tasks.get(name)
        if task is None or task.done():
            self._tasks[name] = start_vital_task(work(), name, self._halt)

    async def _make_all(self) -> None:
        while self._wanted and not self._closing:
            batches = [batch for _ in range(JOBS_AT_ONCE) if (batch := self._take_wanted())]
            if len(batches) > 1:
                await asyncio.gather(*map(self._make, batches))
            elif batches:
                await self._make(batches[0])

    def _take_wanted(self) -> list[NewLog]:
        """A batch of those that are to be made still."""
        batch: list[NewLog] = []
        while self._wanted and len(batch) < CREATE_BATCH:
            key = next(iter(self._wanted))
            del self._wanted[key]
            new = self._owner.wanted_log(key)
            if new is not None:
                batch.append(new)
                self._making[key] = None
        return batch

    async def _make(self, batch: Sequence[NewLog]) -> None:
        failed = await self._logs.creator.create(batch)
        for new in batch:
            del self._making[new.partition]
        if not self._closing:
            self._owner.on_logs_made(batch, failed)

    async def _reopen_all(self) -> None:
        while self._to_reopen and not self._closing:
            key = next(iter(self._to_reopen))
            del self._to_reopen[key]
            if not self._owner.owns_stored(key):
                self.delete([key])  # nobody could, while it was pending
                continue
            error = self._logs.failed.get(key)
            if self._logs.reopener.may_reopen(key):  # its directory may have failed while others were opened
                self._reopening = key
                error = await self._logs.reopener.reopen(key)
                self._reopening = None
            if not self._closing:
                self._owner.on_log_reopened(key, error)

    async def _delete(self, keys: Sequence[TopicPartition]) -> None:
        try:
            await self._logs.delete(keys)
        except LogStorageError as error:
            log.error("deleting logs failed", partitions=[str(key) for key in keys], reason=str(error))
        for key in keys:
            self._deleting.pop(key, None)
        if not self._closing:
            self._owner.on_logs_deleted(keys)

    async def _write_all_epochs(self) -> None:
        while self._epochs_due and not self._closing:
            batch = list(islice(self._epochs_due, ROUND_LOGS))
            for key in batch:
                del self._epochs_due[key]
            failed = await self._logs.epoch_writer.write(batch)
            if not self._closing:
                self._owner.on_epochs_written(batch, failed)

    async def _wait_for_room(self) -> None:
        while self._without_room:
            await asyncio.sleep(ROOM_CHECK_S)
            waiting, self._without_room = self._without_room, {}
            self._owner.on_room(list(waiting))
