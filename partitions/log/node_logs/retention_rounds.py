"""Retention over all logs of a node, a few at a time and without holding up the event loop.

Guarantees: segments go one after the other from a log's start on, each durably out of the log before the
next, so that no crash leaves a hole; readers of them are not disturbed; what stays was flushed before.
Renames are all that happens on the loop: fsyncs and removals are the executor's. A log that is closed or
deleted meanwhile is left alone. The log manager owns it and a scheduler calls it through that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from partitions.log.errors import LogCorruptError, NoSpaceLeft
from partitions.log.log import PartitionLog
from partitions.log.node_logs.directories import PostponedErrors
from partitions.log.node_logs.parts import LogParts
from partitions.topic_partition import TopicPartition


class Retention:
    """Rounds over the logs, in steps."""

    def __init__(
        self,
        parts: LogParts,
        flush: Callable[[PartitionLog], Awaitable[None]],
        *,
        producer_expiration_ms: int,
    ) -> None:
        """`flush` makes a log durable up to its end."""
        self._parts = parts
        self._logs = parts.found.logs
        self._flush = flush
        self._producer_expiration_ms = producer_expiration_ms
        self._queue: list[TopicPartition] = []
        self._postponed = PostponedErrors()

    @property
    def is_pending(self) -> bool:
        """Whether the round that `step` began is unfinished."""
        return bool(self._queue)

    async def step(self, high_watermark_of: Callable[[TopicPartition], int], *, max_logs: int) -> int:
        """Applies retention to up to `max_logs` logs, going on where the last call stopped.

        Also takes out what DeleteRecords or a leader made obsolete, and forgets producers that have been
        idle too long. Returns the number of segments that went. Raises LogStorageError at the end of the
        round: a log that fails, in a full directory for example, keeps none of the others waiting.
        """
        if not self._queue:
            self._queue = list(self._logs)[::-1]
        deleted = 0
        now_ms = self._parts.now_ms()
        for _ in range(min(max_logs, len(self._queue))):
            partition = self._queue.pop()
            log = self._logs.get(partition)
            if log is None or log.is_closed:
                continue
            with self._postponed.passed_over(), self._parts.directories.unless_last():
                deleted += await self._apply(log, now_ms, high_watermark_of(partition))
        if not self._queue:
            self._postponed.report()
        return deleted

    async def _apply(self, log: PartitionLog, now_ms: int, high_watermark: int) -> int:
        """What `step` does to one log. Raises LogStorageError."""
        no_room: NoSpaceLeft | None = None
        try:
            log.expire_segments(now_ms, high_watermark)
        except NoSpaceLeft as error:
            no_room = error
        except (OSError, LogCorruptError) as error:
            log.note_failure(error)
            return 0
        log.producers.state.expire(now_ms, self._producer_expiration_ms)
        count = await self._take_out(log)
        if no_room is not None and not count:
            raise no_room
        return count

    async def _take_out(self, log: PartitionLog) -> int:
        """Takes the obsolete segments out of a log, one by one; returns how many.

        Not while a cleaning puts a segment in the place of others: the log would have to do the rest of that at once.
        """
        count = 0
        while not log.is_closed and log.has_obsolete_segments and not log.compaction.is_swapping:
            if not log.may_set_aside and not await self._flushed(log):
                break  # it went on changing meanwhile: the next round comes back
            paths = log.set_aside_first_segment()
            await log.storage.sync_dir_beside(self._parts.executor, log.directory)
            self._parts.removals.add_files(paths, log.config.file_delete_delay_ms)
            count += 1
        return count

    async def _flushed(self, log: PartitionLog) -> bool:
        """Flushes a log; whether its first segment may go then. A full disk, which has no room for the file of
        the epochs, is no reason against that. Raises LogStorageError."""
        try:
            await self._flush(log)
        except NoSpaceLeft:
            if not self._may_go(log):
                raise
        return self._may_go(log)

    def _may_go(self, log: PartitionLog) -> bool:
        return (
            not log.is_closed
            and log.has_obsolete_segments
            and log.may_set_aside
            and not log.compaction.is_swapping
        )
