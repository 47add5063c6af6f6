"""Making the indexes of large segments anew beside the event loop.

Guarantees: a lookup that an index has misled is answered with IndexesLost at once, and soon with the truth; no
walk over a segment's headers holds up the loop. What is made of a segment that was cut, closed or removed meanwhile
is thrown away, and damage that the walk meets in the data is the log's end. One job at a time, one a segment. The
log manager owns it; segments come through `LogStorage.rebuild_beside`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NoReturn

import structlog

from partitions.disk import Disk
from partitions.log.errors import LogCorruptError
from partitions.log.index import RebuiltIndexes, SegmentExtent
from partitions.log.indexed_segment import IndexedSegment
from partitions.log.readable import ReadableLog
from partitions.log.storage import LogStorage, RebuildableSegment
from partitions.ports import Executor
from partitions.topic_partition import TopicPartition

logger = structlog.get_logger(__name__)


class IndexRebuilds:
    """The segments whose indexes are being made. All methods run on the event loop."""

    def __init__(self, disk: Disk, executor: Executor, logs: Mapping[TopicPartition, ReadableLog]) -> None:
        """`logs` are those that the segments belong to; one in which the job finds damage is given up."""
        self._disk = disk
        self._executor = executor
        self._logs = logs
        self._due: list[RebuildableSegment] = []
        self._task: asyncio.Task[None] | None = None

    def begin(self, segment: RebuildableSegment) -> None:
        """Has the indexes made, unless that is under way."""
        if segment.is_being_rebuilt:
            return
        segment.begin_rebuild()
        self._due.append(segment)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def settled(self) -> None:
        """Waits for all that was begun."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._due:
                segment = self._due.pop(0)
                if segment.is_being_rebuilt:  # not cut or gone since
                    await self._rebuild(segment)
        finally:
            self._task = None

    async def _rebuild(self, segment: RebuildableSegment) -> None:
        extent = segment.begin_rebuild()
        try:
            segment.end_rebuild(await self._executor.run(rebuild_indexes, self._disk, extent))
            logger.warning("the indexes of a segment were wrong and are made anew", segment=extent.log_path)
        except LogCorruptError as damage:
            if segment.is_being_rebuilt:
                self._damaged(damage)
        except OSError as error:
            segment.give_up_rebuild()
            logger.error("indexes were not made anew", segment=extent.log_path, reason=str(error))

    def _damaged(self, damage: LogCorruptError) -> None:
        folder = damage.path.rpartition("/")[0]
        for log in [log for log in self._logs.values() if log.directory == folder]:
            log.note_damage(damage)


def rebuild_indexes(disk: Disk, extent: SegmentExtent) -> RebuiltIndexes:
    """A job: what the headers of the segment say. Raises LogCorruptError, OSError."""
    storage = LogStorage(disk, _no_fsync)
    segment = IndexedSegment(
        storage,
        extent.log_path.rpartition("/")[0],
        extent.base_offset,
        index_interval_bytes=extent.index_interval_bytes,
        now_ms=0,
    )
    segment.log_path = extent.log_path
    try:
        return segment.read_whole(extent.size_bytes)
    finally:
        storage.close()


def _no_fsync(reason: str) -> NoReturn:
    raise AssertionError(f"a job that only reads gave a directory up: {reason}")
