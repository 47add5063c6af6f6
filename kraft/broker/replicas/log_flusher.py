"""Flushes that a topic asks for: after so many records (`flush.messages`), after so long (`flush.ms`).

Guarantees: a flush of a log begins as soon as `flush.messages` makes one due (`partitions.log.due_flush`), and
at the latest `flush.ms` after the oldest record that is not on disk was appended (at the next multiple of
`log.flush.scheduler.interval.ms`, where that is set). The flush is a job of the executor that covers what
was appended before it; one runs for a log at a time, and what is appended meanwhile is covered by the next:
one fsync serves all who wait. `on_flushed` hears of the end of each; the replica then counts more
(`Partition.on_flushed`). Nobody waits for what `flush.ms` asks for. A flush that fails ends its directory, and is not
tried again; one that found no room is. Owned by the replica manager, on the event loop; other logs cost nothing here.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

import structlog

from kraft.broker.vital_task import start_vital_task
from partitions.log.beside_loop import FLUSHES_AT_ONCE
from partitions.log.config_values import LONG_MAX
from partitions.log.errors import LogStorageError
from partitions.log_manager import LogManager
from partitions.ports import Halt
from partitions.topic_partition import TopicPartition

log = structlog.get_logger(__name__)

RETRY_S: Final = 1.0
"""After a flush that found no room."""
_MAX_WAIT_S: Final = 86_400.0
"""A timer's longest time; a flush that is due later is looked at again then."""


class LogFlusher:
    """When which log is flushed; at most one timer and one task for each."""

    def __init__(
        self,
        logs: LogManager,
        loop: asyncio.AbstractEventLoop,
        halt: Halt,
        on_flushed: Callable[[TopicPartition], None],
        *,
        scheduler_interval_ms: int = LONG_MAX,
    ) -> None:
        """With `scheduler_interval_ms`, what is due waits for the next multiple of it on the loop's clock."""
        self._logs = logs
        self._loop = loop
        self._halt = halt
        self._on_flushed = on_flushed
        self._interval_s = None if scheduler_interval_ms == LONG_MAX else scheduler_interval_ms / 1000
        self._since_s: dict[TopicPartition, float] = {}
        self._timers: dict[TopicPartition, asyncio.TimerHandle] = {}
        self._due_s: dict[TopicPartition, float] = {}
        """When each timer goes off; what uvloop returns for a time that is over has no `when()`."""
        self._tasks: dict[TopicPartition, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(FLUSHES_AT_ONCE)
        self._closed = False

    def consider(self, partition: TopicPartition) -> None:
        """Something was appended to the log, or its config changed: has it flushed now or in time."""
        replica_log = self._logs.get(partition)
        if replica_log is None or replica_log.is_closed or self._closed:
            self._forget(partition)
            return
        unflushed = replica_log.log_end_offset - replica_log.recovery_point
        if unflushed <= 0 or not replica_log.config.flushes:
            self._forget(partition)
            return
        since_s = self._since_s.setdefault(partition, self._loop.time())
        if partition in self._tasks:
            return  # it looks again when it ends
        if replica_log.awaits_flush:
            self._begin(partition)
        else:
            self._wait(partition, since_s, replica_log.config.flush_ms)

    def _wait(self, partition: TopicPartition, since_s: float, flush_ms: int) -> None:
        due_s = since_s + flush_ms / 1000
        if self._interval_s is not None:
            due_s = math.ceil(due_s / self._interval_s) * self._interval_s
        if due_s <= self._loop.time():
            self._begin(partition)
            return
        at_s = min(due_s, self._loop.time() + _MAX_WAIT_S)
        timer = self._timers.get(partition)
        if timer is not None:
            if self._due_s[partition] <= at_s:
                return  # it looks again when it ends
            timer.cancel()
        self._due_s[partition] = at_s
        self._timers[partition] = self._loop.call_at(at_s, self._on_time, partition)

    def _on_time(self, partition: TopicPartition) -> None:
        del self._timers[partition], self._due_s[partition]
        self.consider(partition)

    def _forget(self, partition: TopicPartition) -> None:
        self._since_s.pop(partition, None)
        self._due_s.pop(partition, None)
        timer = self._timers.pop(partition, None)
        if timer is not None:
            timer.cancel()

    def _begin(self, partition: TopicPartition) -> None:
        self._forget(partition)
        self._tasks[partition] = start_vital_task(self._flush(partition), f"flush-{partition}", self._halt)

    async def _flush(self, partition: TopicPartition) -> None:
        try:
            async with self._places:
                await self._logs.flush_log(partition)
        except LogStorageError as error:
            log.error("a flush failed", partition=str(partition), reason=str(error))
            del self._tasks[partition]
            if error.is_transient and not self._closed:
                self._loop.call_at(self._loop.time() + RETRY_S, self._go_on, partition)
            return
        del self._tasks[partition]
        self._go_on(partition)

    def _go_on(self, partition: TopicPartition) -> None:
        self._on_flushed(partition)  # by somebody else, perhaps, after a flush that found no room
        self.consider(partition)

    async def close(self) -> None:
        """Begins no more flushes and waits for those under way."""
        self._closed = True
        for partition in list(self._since_s):
            self._forget(partition)
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
