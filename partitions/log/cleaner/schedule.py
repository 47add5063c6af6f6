"""Which logs are cleaned, and when: the one with most to gain first, one a thread at a time.

Guarantees: only compacted logs are cleaned; a log that cannot be cleaned is reported once and left
alone until the node starts again; `abort` and `close` return when no job touches the log's folder any
more. The clean offset is checkpointed behind a recovery point that covers it. The log manager owns the
cleaner, the broker calls `clean_dirty_logs` from time to time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog

from partitions.log.cleaner.cleaner import CleanerPorts, CleaningRound
from partitions.log.cleaner.compaction import Section
from partitions.log.cleaner.config import CleanerConfig
from partitions.log.cleaner.errors import CleaningAborted, CleaningFailed
from partitions.log.cleaner.throttle import Throttle
from partitions.log.errors import LogCorruptError, LogStorageError
from partitions.log.log import PartitionLog
from partitions.log.node_logs.directories import PostponedErrors
from partitions.topic_partition import TopicPartition

logger = structlog.get_logger(__name__)

LOGS_PER_STEP: Final = 200
"""Logs that are looked at before other events have their turn."""
SEGMENTS_PER_STEP: Final = 100
"""Segments of these logs, of which the first look may ask the disk: some 35 µs each where nothing is cold."""


class LogCleaner:
    """The cleaner of one node. All methods run on its event loop."""

    def __init__(
        self,
        ports: CleanerPorts,
        logs: Mapping[TopicPartition, PartitionLog],
        flush: Callable[[PartitionLog], Awaitable[None]],
        checkpoint: Callable[[TopicPartition, PartitionLog], Awaitable[None]],
    ) -> None:
        """`flush` makes a log durable up to its end, `checkpoint` its clean offset."""
        self._ports = ports
        self._throttle = Throttle(ports.config.io_max_bytes_per_s)
        self._logs = logs
        self._flush = flush
        self._checkpoint = checkpoint
        self._running: dict[TopicPartition, asyncio.Event] = {}
        self._aborted: set[TopicPartition] = set()
        self._closing = False
        self.uncleanable: dict[TopicPartition, str] = {}
        """Logs that are left alone, with the reason."""

    @property
    def config(self) -> CleanerConfig:
        return self._ports.config

    async def clean_dirty_logs(self, high_watermark_of: Callable[[TopicPartition], int]) -> int:
        """Cleans all logs that are dirty enough, the dirtiest first; returns how many rounds cleaned something.

        Raises LogStorageError, when the disk is full for example; the next call tries again.
        """
        dirty = await self._dirty_logs(high_watermark_of)
        workers = (self._work(dirty, high_watermark_of) for _ in range(self._ports.config.threads))
        results = await asyncio.gather(*workers, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return sum(result for result in results if not isinstance(result, BaseException))

    async def _dirty_logs(self, high_watermark_of: Callable[[TopicPartition], int]) -> list[TopicPartition]:
        """The logs that are due, the dirtiest last."""
        found: list[tuple[float, TopicPartition]] = []
        segments = 0
        for number, partition in enumerate(list(self._logs), start=1):
            if number % LOGS_PER_STEP == 0:
                await asyncio.sleep(0)
            log = self._logs.get(partition)
            if log is not None and log.config.is_compacted:
                segments = await self._look_ahead(log, segments)
                section = self._due_section(partition, log, high_watermark_of)
                if section is not None:
                    found.append((section.dirty_ratio, partition))
        return [partition for _, partition in sorted(found)]

    async def _look_ahead(self, log: PartitionLog, asked: int) -> int:
        """Asks the disk in steps what `_due_section` needs to know of the log's segments. `asked` were asked for since
        others had their turn; says how many then are. What fails will fail again, where it is reported."""
        first, looked = 0, -1
        while looked and not log.is_closed:
            if asked >= SEGMENTS_PER_STEP:
                await asyncio.sleep(0)
                asked = 0
                continue
            try:
                looked = log.compaction.look_ahead(
                    log.config, first, SEGMENTS_PER_STEP - asked, self._ports.now_ms()
                )
            except (OSError, LogCorruptError):
                break
            first, asked = first + looked, asked + looked
        return asked

    def _due_section(
        self, partition: TopicPartition, log: PartitionLog, high_watermark_of: Callable[[TopicPartition], int]
    ) -> Section | None:
        """What there is to clean, by Kafka's rule: more new bytes than the ratio allows, or overdue ones."""
        if log.is_closed or partition in self.uncleanable or partition in self._running:
            return None
        try:
            section = log.cleanable_section(self._ports.now_ms(), high_watermark_of(partition))
        except (OSError, LogCorruptError) as error:
            log.note_failure(error)
            return None
        if section.dirty_bytes and (
            section.overdue or section.dirty_ratio > log.config.min_cleanable_dirty_ratio
        ):
            return section
        return None

    async def _work(
        self, dirty: list[TopicPartition], high_watermark_of: Callable[[TopicPartition], int]
    ) -> int:
        """One thread's share of the logs; one that fails, in a full directory for example, stays the dirtiest,
        and keeps none of the others waiting. Raises LogStorageError at the end."""
        rounds, postponed = 0, PostponedErrors()
        while dirty and not self._closing:
            partition = dirty.pop()
            with postponed.passed_over():
                # Again and again where the map does not take all keys of the section at once.
                while (log := self._logs.get(partition)) is not None and log.config.is_compacted:
                    if self._due_section(partition, log, high_watermark_of) is None:
                        break
                    if not await self._clean(partition, log, high_watermark_of):
                        break
                    rounds += 1
        postponed.report()
        return rounds

    async def _clean(
        self, partition: TopicPartition, log: PartitionLog, high_watermark_of: Callable[[TopicPartition], int]
    ) -> bool:
        """One round of one log; whether it cleaned anything. Raises LogStorageError."""
        if self._is_stopped(partition):
            return False
        ended = self._running[partition] = asyncio.Event()
        try:
            await self._flush(log)
            if self._is_stopped(partition):
                return False
            cleaning = CleaningRound(
                self._ports,
                self._throttle,
                log,
                high_watermark_of(partition),
                lambda: self._is_stopped(partition),
            )
            stats = await cleaning.run()
            if stats is None:
                return False
            logger.info("log cleaned", partition=str(partition), **stats._asdict())
            await self._checkpoint(partition, log)
            return True
        except CleaningAborted as error:
            logger.info("cleaning ended early", partition=str(partition), reason=str(error))
            return False
        except (CleaningFailed, LogCorruptError) as error:
            logger.error("a log cannot be cleaned", partition=str(partition), reason=str(error))
            self.uncleanable[partition] = str(error)
            if isinstance(error, LogCorruptError):
                log.note_damage(error)
            return False
        except LogStorageError:
            if log.is_closed:
                return False
            raise
        finally:
            del self._running[partition]
            ended.set()

    def _is_stopped(self, partition: TopicPartition) -> bool:
        return self._closing or partition in self._aborted

    async def abort(self, partition: TopicPartition) -> None:
        """Ends the cleaning of a log that is to be deleted, and begins none until `allow`."""
        self._aborted.add(partition)
        ended = self._running.get(partition)
        if ended is not None:
            await ended.wait()

    def allow(self, partition: TopicPartition) -> None:
        """The log was deleted; one of the same name is another."""
        self._aborted.discard(partition)
        self.uncleanable.pop(partition, None)

    def stop(self) -> None:
        """No further round begins, and those under way end at the next step."""
        self._closing = True

    async def close(self) -> None:
        """Returns when no cleaning is under way."""
        self.stop()
        for ended in list(self._running.values()):
            await ended.wait()
