"""One round of cleaning of one log, in bounded jobs with other events between them.

Guarantees: after each job it is asked whether the log is still the same; a truncation, a deletion or
the end of the node ends the round. Files named `*.cleaned` are removed then; where a swap was cut short, the next
start finishes or undoes it. The
clean offset moves only when all segments below it were cleaned and are durably in place, in order: a
tombstone never goes before the values that it deletes. Segments that would come out as they went in
are not touched. The cleaner of `schedule` calls it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from partitions.disk import Disk
from partitions.log.cleaner import jobs
from partitions.log.cleaner.compaction import Section
from partitions.log.cleaner.config import CleanerConfig
from partitions.log.cleaner.errors import CleaningAborted, CleaningFailed
from partitions.log.cleaner.filter import BatchFilter
from partitions.log.cleaner.offset_map import OffsetMap
from partitions.log.cleaner.sources import Group, SourceSegment, group_segments
from partitions.log.cleaner.swap import CLEANED_SUFFIX, SegmentSwap, SwapState
from partitions.log.cleaner.throttle import Throttle
from partitions.log.cleaner.transactions import CleanedTransactions, ProducerScan
from partitions.log.errors import LogCorruptError, LogStorageError, NoSpaceLeft
from partitions.log.log import PartitionLog
from partitions.log.producers.transaction_index import (
    AbortedTransaction,
    encode_entries,
    transaction_index_path,
)
from partitions.log.segment import Segment
from partitions.log.storage import is_disk_full
from partitions.ports import Executor, NowMs

T = TypeVar("T")


class CleanerPorts(NamedTuple):
    """What cleanings of all logs of a node share."""

    disk: Disk
    executor: Executor
    config: CleanerConfig
    now_ms: NowMs


class RoundStats(NamedTuple):
    """What a round did."""

    clean_offset: int
    """Up to where the log is compacted now."""
    read_bytes: int
    written_bytes: int
    replaced_segments: int


class CleaningRound:
    """Takes one log through one round; made for it, and used once."""

    def __init__(
        self,
        ports: CleanerPorts,
        throttle: Throttle,
        log: PartitionLog,
        high_watermark: int,
        stopped: Callable[[], bool],
    ) -> None:
        """`stopped` is asked between jobs."""
        self._ports = ports
        self._throttle = throttle
        self._log = log
        self._high_watermark = min(high_watermark, log.log_end_offset)
        self._stopped = stopped
        self._generation = log.generation
        self._config = log.config
        self._buffer_bytes = ports.config.io_buffer_bytes
        self._read_bytes = self._written_bytes = self._replaced = 0

    async def run(self) -> RoundStats | None:
        """Cleans what can be cleaned; None if that is nothing.

        Raises CleaningAborted, CleaningFailed, LogCorruptError for damage that it met, LogStorageError.
        """
        log, now_ms = self._log, self._ports.now_ms()
        section = log.cleanable_section(now_ms, min(self._high_watermark, log.recovery_point))
        sources = [
            source
            for source in log.compaction.sources(log.log_end_offset)
            if source.next_base > log.log_start_offset
        ]
        scan = await self._scan(sources)
        end = section.end
        if scan.first_undecided is not None:
            end = max(
                (source.base_offset for source in sources if source.base_offset <= scan.first_undecided),
                default=0,
            )
            end = min(end, section.end)
        closed = [source for source in sources if source.next_base <= end]
        config = self._ports.config
        try:
            offsets = OffsetMap.within(
                config.map_bytes,
                load_factor=config.load_factor,
                max_keys=max(0, section.end - section.first_dirty),
            )
        except OSError as error:
            raise LogStorageError(f"no memory to clean {self._log.directory} with: {error}") from error
        try:
            await self._map(offsets, section, closed, scan)
            if offsets.latest_offset < section.first_dirty:
                return None
            return await self._clean(offsets, closed, scan, now_ms)
        finally:
            await self._ports.executor.run(offsets.close)

    async def _clean(
        self, offsets: OffsetMap, closed: Sequence[SourceSegment], scan: ProducerScan, now_ms: int
    ) -> RoundStats:
        """What follows from a full map."""
        clean_offset = offsets.latest_offset + 1
        batch_filter = BatchFilter(
            offsets,
            CleanedTransactions(scan.aborted),
            scan.last_batches,
            now_ms=now_ms,
            delete_retention_ms=self._config.delete_retention_ms,
        )
        for group in group_segments([s for s in closed if s.base_offset < clean_offset], self._config):
            await self._clean_group(group, batch_filter)
        self._check()
        assert clean_offset <= self._log.recovery_point
        self._log.compaction.clean_offset = clean_offset
        return RoundStats(clean_offset, self._read_bytes, self._written_bytes, self._replaced)

    # ---- passes

    async def _scan(self, sources: Sequence[SourceSegment]) -> ProducerScan:
        """What producers left below the high watermark, the active segment included."""
        scan = ProducerScan(frozenset(self._log.producers.state.producers))
        await self._look_through(sources, jobs.scan_producers, scan, self._high_watermark)
        return scan

    async def _map(
        self, offsets: OffsetMap, section: Section, closed: Sequence[SourceSegment], scan: ProducerScan
    ) -> None:
        """The last offset of each key in the dirty section, as much of it as fits into the map."""
        dirty = [source for source in closed if source.next_base > section.first_dirty]
        if dirty:
            transactions = CleanedTransactions(scan.aborted, from_offset=dirty[0].base_offset)
            await self._look_through(dirty, jobs.map_offsets, offsets, transactions, section.first_dirty)

    async def _look_through(
        self, sources: Sequence[SourceSegment], job: Callable[..., jobs.PassProgress], *args: object
    ) -> None:
        """Has the job read the segments piece by piece, until nothing more is of interest to it."""
        disk, buffer_bytes = self._ports.disk, self._buffer_bytes
        for source in sources:
            place = jobs.PiecePlace.start_of(source)
            while place.position < source.size_bytes:
                step = await self._run(source, job, disk, source, place, buffer_bytes, *args)
                await self._account(step.read_bytes)
                if step.done:
                    return
                place = step.place

    async def _clean_group(self, group: Group, batch_filter: BatchFilter) -> None:
        """Writes what stays of the segments into one file and puts it in their place."""
        self._check()
        log = self._log
        segment = log.compaction.make_segment(group, log.config)
        target = segment.log_path + CLEANED_SUFFIX
        leftovers = (
            target,
            *(path + CLEANED_SUFFIX for path in segment.indexes.paths),
            transaction_index_path(log.directory, segment.base_offset) + CLEANED_SUFFIX,
        )
        swap = None
        try:
            if await self._rewrite(group, batch_filter, segment, target) or len(group) > 1:
                aborted = log.compaction.aborted_transactions_of(group, batch_filter.take_needed_aborts())
                await self._make_durable(group, segment, target, aborted)
                swap = log.begin_swap(group, segment, has_transaction_index=bool(aborted))
                await self._carry_out(swap, aborted)
                self._replaced += len(group)
        finally:
            # Also when the round ends here; the names that a swap took over are not there any more. But one that is
            # not over the next start may have to finish, with all of them.
            if swap is None or swap.is_over:
                await self._remove(leftovers)

    async def _rewrite(self, group: Group, batch_filter: BatchFilter, segment: Segment, target: str) -> bool:
        """Whether what stays differs from what there was."""
        changed = False
        for source in group:
            place = jobs.PiecePlace.start_of(source)
            while place.position < source.size_bytes:
                step = await self._run(
                    source,
                    jobs.clean_piece,
                    self._ports.disk,
                    batch_filter,
                    source,
                    place,
                    target,
                    segment.size_bytes,
                    source is group[-1],
                    self._buffer_bytes,
                )
                segment.index(step.placed)
                self._written_bytes += step.written_bytes
                await self._account(step.read_bytes, step.written_bytes)
                changed |= step.changed
                place = step.place
        return changed

    async def _make_durable(
        self, group: Group, segment: Segment, target: str, aborted: Sequence[AbortedTransaction]
    ) -> None:
        """All files of the new segment, under names that end in `.cleaned`."""
        ports, log = self._ports, self._log
        contents = zip(segment.indexes.paths, segment.take_indexes(), strict=True)
        index_files = tuple((path + CLEANED_SUFFIX, content) for path, content in contents)
        if aborted:
            path = transaction_index_path(log.directory, segment.base_offset) + CLEANED_SUFFIX
            index_files += ((path, encode_entries(aborted)),)
        source = group[-1]
        segment.changed_ms = await self._run(source, jobs.take_age, ports.disk, source.path, target)
        await self._durably(jobs.make_durable, ports.disk, target, index_files, is_needed=False)
        if aborted:
            # What decides the swap must not be on disk without it: it cannot be told to be missing.
            await self._durably(ports.disk.sync_dir, log.directory)

    async def _carry_out(self, swap: SegmentSwap, aborted: Sequence[AbortedTransaction]) -> None:
        """The new segment, which has these aborted transactions, takes its place."""
        log = self._log
        await self._change_names(swap)
        log.replace_segments(swap, aborted)
        await self._change_names(swap)
        log.compaction.finish_swap(swap)
        if swap.state is not SwapState.DONE:
            raise CleaningAborted(f"the segments of {log.directory} were truncated or deleted")
        await self._remove(swap.deleted_paths)

    # ---- steps

    async def _run(self, source: SourceSegment, job: Callable[..., T], *args: object) -> T:
        """A job, and then the question whether its log is still the same."""
        self._check()
        try:
            result = await self._ports.executor.run(job, *args)
        except (OSError, LogCorruptError, CleaningFailed) as error:
            self._check()
            if isinstance(error, FileNotFoundError):
                raise CleaningAborted(f"{source.path} was deleted") from error
            if isinstance(error, OSError):
                reason = f"cleaning the log {self._log.directory} failed: {error}"
                self._log.storage.fail_if_broken(reason, error)
                raise LogStorageError(reason) from error
            raise
        self._check()
        return result

    async def _remove(self, paths: Sequence[str]) -> None:
        """Removes files that are no part of the log. Raises LogStorageError."""
        try:
            await self._ports.executor.run(jobs.remove_files, self._ports.disk, paths)
        except OSError as error:
            raise LogStorageError(f"removing {', '.join(paths)} failed: {error}") from error

    async def _change_names(self, swap: SegmentSwap) -> None:
        """All that the swap has to change before it goes on, where nobody has settled it meanwhile. What fails ends
        the directory."""
        log = self._log
        try:
            await log.storage.run_with_descriptors(self._ports.executor, swap.names.make)
        except OSError as error:
            if log.is_closed and isinstance(error, FileNotFoundError):
                raise CleaningAborted(f"the log {log.directory} was closed") from error
            log.storage.fail(f"renaming segments of {log.directory} failed: {error}", error)

    async def _durably(self, job: Callable[..., None], *args: object, is_needed: bool = True) -> None:
        """An fsync; one that fails is its directory's end.

        But a full disk only ends the round while nothing `is_needed` of what the job writes: it is removed, and
        written from the start another time.
        """
        try:
            await self._ports.executor.run(job, *args)
        except OSError as error:
            has_no_room = is_disk_full(error) and not is_needed
            if self._log.is_closed and (has_no_room or isinstance(error, FileNotFoundError)):
                raise CleaningAborted(f"the log {self._log.directory} was closed") from error
            if has_no_room:
                raise NoSpaceLeft(f"no space left to clean the log {self._log.directory}") from error
            self._log.storage.fail(
                f"fsync of what was cleaned in {self._log.directory} failed: {error}", error
            )

    async def _account(self, read_bytes: int, written_bytes: int = 0) -> None:
        """Pauses as long as the throttle says."""
        self._read_bytes += read_bytes
        loop = asyncio.get_running_loop()
        pause_s = self._throttle.pause_s(read_bytes + written_bytes, loop.time())
        until_s = loop.time() + pause_s
        while (left_s := until_s - loop.time()) > 0:
            self._check()
            await asyncio.sleep(min(left_s, 1.0))

    def _check(self) -> None:
        log = self._log
        if self._stopped() or log.is_closed or log.generation != self._generation:
            raise CleaningAborted(f"the log {log.directory} was truncated, closed or deleted")
