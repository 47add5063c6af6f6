"""What of a cleaning runs on the event loop: no data, and nothing that could wait for the file system's journal.

Others wait for the loop as long as one of its stretches takes: from one turn of theirs to the next. So what a disk
is asked for in each is counted here, apart from what it is asked for in jobs.
"""

from __future__ import annotations

import asyncio
import dataclasses
import tracemalloc
from collections import Counter
from collections.abc import Callable

import pytest

from kraft.chaos.world.disk import SimulatedDisk, SimulatedFile
from kraft.chaos.world.inodes import Inode
from kraft.chaos.world.storage import Storage
from partitions.log.cleaner.config import CleanerConfig
from partitions.log.cleaner.offset_map import SLOT_BYTES, OffsetMap
from partitions.log.cleaner.schedule import SEGMENTS_PER_STEP
from partitions.log.cleaner.sources import GROUP_MAX_SEGMENTS
from partitions.log.config import LogConfig
from tests.support.compaction import COMPACTED, Bench, TurnExecutor
from tests.support.logs import simulated_disk

LOOKS_PER_SEGMENT = 8
"""Opening a segment's data and its indexes, and their sizes and ends."""


class Lanes:
    """What the loop asked its disk for, stretch by stretch, and where data files went for good."""

    def __init__(self) -> None:
        self.stretches: list[Counter[str]] = [Counter()]
        self.freed_bytes: Counter[str] = Counter()
        """By lane: of data files that lost the last of their names and of what held them open."""
        self.in_job = False
        self._open: Counter[int] = Counter()
        self._unnamed: dict[int, Inode] = {}

    @property
    def lane(self) -> str:
        return "job" if self.in_job else "loop"

    async def have_turns(self) -> None:
        """Others on the loop."""
        while True:
            self.stretches.append(Counter())
            await asyncio.sleep(0)

    def note(self, operation: str, _path: str) -> None:
        if not self.in_job:
            self.stretches[-1][operation] += 1

    def opened(self, inode: Inode) -> None:
        self._open[id(inode)] += 1

    def closed(self, inode: Inode) -> None:
        self._open[id(inode)] -= 1
        if id(inode) in self._unnamed:
            self._free(inode)

    def unnamed(self, inode: Inode) -> None:
        self._unnamed[id(inode)] = inode
        self._free(inode)

    def _free(self, inode: Inode) -> None:
        if not self._open[id(inode)]:
            self.freed_bytes[self.lane] += len(inode.data)

    def operations(self) -> Counter[str]:
        """All of the loop."""
        return sum(self.stretches, Counter())

    def longest(self) -> int:
        """Operations in one stretch, at most."""
        return max(stretch.total() for stretch in self.stretches)


class LaneExecutor(TurnExecutor):
    """Says when a job runs."""

    def __init__(self, lanes: Lanes) -> None:
        super().__init__()
        self._lanes = lanes

    async def run(self, job: Callable[..., object], *args: object) -> object:
        def in_job() -> object:
            self._lanes.in_job = True
            try:
                return job(*args)
            finally:
                self._lanes.in_job = False

        return await super().run(in_job)


class HeldFile(SimulatedFile):
    """Says when it is closed."""

    lanes: Lanes

    def close(self) -> None:
        if not self._closed:
            self.lanes.closed(self._inode)
        super().close()


class LaneDisk(SimulatedDisk):
    """Knows of each data file what holds it."""

    lanes: Lanes

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        inode = super().open(path, create=create)._inode
        held = HeldFile(self, path, inode)
        held.lanes = self.lanes
        self.lanes.opened(inode)
        return held

    def rename(self, source: str, target: str) -> None:
        replaced = self._storage.find(target)
        super().rename(source, target)
        self._lost(target, replaced)

    def remove(self, path: str) -> None:
        removed = self._storage.find(path)
        super().remove(path)
        self._lost(path, removed)

    def _lost(self, path: str, inode: object) -> None:
        if ".log" in path and isinstance(inode, Inode):
            self.lanes.unnamed(inode)


class Loop:
    """A compacted log, and others on the event loop that cleans it."""

    def __init__(self, segments: int, config: LogConfig = COMPACTED) -> None:
        self.lanes = Lanes()
        self.bench = Bench(
            config=config,
            cleaner=CleanerConfig(io_buffer_bytes=4096),
            executor=LaneExecutor(self.lanes),
            new_disk=self._new_disk,
        )
        for number in range(segments):
            self.bench.put((b"old", b"v" * 100), (b"z%d" % number, b"stays"))
            self.bench.log.roll()
        self.bench.put((b"old", b""))
        asyncio.run(self.bench.manager.checkpoint_recovery_points())

    def _new_disk(self, storage: Storage) -> SimulatedDisk:
        disk = simulated_disk(storage, LaneDisk)
        assert isinstance(disk, LaneDisk)
        disk.lanes = self.lanes
        return disk

    def clean(self) -> int:
        """The number of rounds."""

        async def among_others() -> int:
            others = asyncio.create_task(self.lanes.have_turns())
            await asyncio.sleep(0)
            try:
                return await self.bench.clean()
            finally:
                others.cancel()

        self.lanes.stretches, self.lanes.freed_bytes = [Counter()], Counter()
        self.bench.storage.before_operation = self.lanes.note
        try:
            return asyncio.run(among_others())
        finally:
            self.bench.storage.before_operation = None


@pytest.mark.parametrize("segments", [20, 3 * GROUP_MAX_SEGMENTS])
def test_the_loop_opens_what_was_cleaned_and_no_more(segments: int) -> None:
    """Data and names change in jobs: a rename may wait for the journal as long as an fsync does."""
    loop = Loop(segments)
    bench, lanes = loop.bench, loop.lanes
    bench.log.update_config(dataclasses.replace(COMPACTED, segment_bytes=1 << 20))
    before_bytes = bench.log.size_bytes
    assert loop.clean() == 1
    swaps = -(-segments // GROUP_MAX_SEGMENTS)
    assert len(bench.log.segment_base_offsets) == swaps + 1
    assert lanes.operations() == {"open": swaps}
    assert lanes.freed_bytes.keys() == {"job"}
    assert before_bytes * 0.9 < lanes.freed_bytes["job"] <= before_bytes


def test_a_segment_alone_is_freed_in_a_job() -> None:
    """By the rename of what takes its place."""
    loop = Loop(1)
    loop.bench.put((b"old", b"newer"))
    loop.bench.log.roll()
    old_bytes = loop.bench.log.compaction.sources(loop.bench.log.log_end_offset)[0].size_bytes
    assert loop.clean() == 1
    assert loop.lanes.freed_bytes["loop"] == 0
    assert loop.lanes.freed_bytes["job"] >= old_bytes


@pytest.mark.parametrize("change", [{}, {"min_compaction_lag_ms": 1}, {"max_compaction_lag_ms": 10**9}])
def test_a_log_that_was_just_opened_is_looked_at_in_steps(change: dict[str, int]) -> None:
    """Sizes and times of its segments are on the disk alone."""
    config = dataclasses.replace(COMPACTED, min_cleanable_dirty_ratio=1.0, **change)  # type: ignore[arg-type]
    loop = Loop(10 * SEGMENTS_PER_STEP, config)
    asyncio.run(loop.bench.stop())
    loop.bench.start()
    assert loop.clean() == 0
    assert loop.lanes.operations().total() >= 10 * SEGMENTS_PER_STEP
    assert loop.lanes.longest() <= LOOKS_PER_SEGMENT * SEGMENTS_PER_STEP
    loop.clean()
    assert loop.lanes.operations().total() == 0, "what was asked once is known"


def test_a_map_is_made_without_its_memory_and_given_back_in_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python zeroes its own memory under the interpreter's lock, whatever thread that is in."""
    tracemalloc.start()
    try:
        offsets = OffsetMap.within(10**6 * SLOT_BYTES, load_factor=0.9, max_keys=10**6)
        assert tracemalloc.get_traced_memory()[1] < 10**5
    finally:
        tracemalloc.stop()
    offsets.close()
    loop, closed = Loop(5), list[str]()
    close = OffsetMap.close

    def noted(offsets: OffsetMap) -> None:
        closed.append(loop.lanes.lane)
        close(offsets)

    monkeypatch.setattr(OffsetMap, "close", noted)
    assert loop.clean() == 1
    assert closed == ["job"]
