"""Indexes of large segments that rotted or are lost: made anew beside the event loop, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from kraft.chaos.world.storage import Storage
from partitions.log import indexed_segment
from partitions.log.errors import IndexesLost, LogCorruptError
from partitions.log.log import PartitionLog
from partitions.log_manager import LogManager
from tests.support.broker_world import HeldExecutor
from tests.support.logs import SMALL, batch_of, halt, read_records, simulated_disk
from tests.unit.log.test_failing_directories import CLUSTER, Node
from tests.unit.log.test_given_up import FIRST, P, one_directory

INDEX = f"/data/{P}/{0:020d}.index"
TIMES = f"/data/{P}/{0:020d}.timeindex"
COUNT = 60


@pytest.fixture(autouse=True)
def all_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexed_segment, "REBUILD_AT_ONCE_BYTES", 0)


class HeldNode:
    """A process that has opened the log, and whose jobs wait."""

    def __init__(self, storage: Storage) -> None:
        storage.locks.clear()
        self.executor = HeldExecutor()
        self.manager = LogManager(
            simulated_disk(storage),
            ("/data",),
            SMALL,
            self.executor,
            now_ms=lambda: 10_000,
            halt=halt,
            rng=random.Random(1),
        )
        self.manager.start(cluster_id=CLUSTER, node_id=1)
        self.log: PartitionLog = self.manager.logs[P]
        self.executor.holding = True

    async def jobs_done(self) -> None:
        self.executor.release()
        await self.manager._index_rebuilds.settled()


def append(log: PartitionLog, count: int) -> None:
    """Each record's timestamp is 1000 and its offset."""
    for number in range(log.log_end_offset, log.log_end_offset + count):
        log.append_as_leader(batch_of(b"value-%04d" % number, timestamp=1000 + number), leader_epoch=0)


async def closed(count: int = COUNT) -> Any:
    """A disk with a log that ended properly."""
    storage = one_directory()
    node = Node(storage, ("/data",))
    node.make(P)
    append(node.manager.logs[P], count)
    await node.close()
    return storage


def wrong_position(content: bytearray) -> None:
    content[7] += 3


def empty(content: bytearray) -> None:
    content.clear()


def last_far_away(content: bytearray) -> None:
    content[-3] = 0x7F


def read_backwards(log: PartitionLog, end: int) -> list[int]:
    return [log.read(offset, 1, up_to_offset=end).start_offset for offset in reversed(range(end))]


def times(log: PartitionLog) -> list[int | None]:
    found = (log.offset_for_timestamp(1000 + offset) for offset in range(COUNT))
    return [None if one is None else one[1] for one in found]


@pytest.mark.parametrize("rot", [wrong_position, empty, last_far_away])
async def test_readers_are_told_to_ask_again_until_the_index_is_there(
    rot: Callable[[bytearray], None],
) -> None:
    storage = await closed()
    good = bytes(storage.inode(INDEX).data)
    rot(storage.inode(INDEX).data)
    node = HeldNode(storage)
    refused = 0
    for offset in reversed(range(10)):
        try:
            assert node.log.read(offset, 1, up_to_offset=COUNT).start_offset == offset
        except IndexesLost:
            refused += 1
    assert refused
    append(node.log, 5)  # which it does not concern
    await node.jobs_done()
    assert [offset for offset, _, _ in read_records(node.log)] == list(range(COUNT + 5))
    for offset in reversed(range(10)):
        assert node.log.read(offset, 1, up_to_offset=COUNT).start_offset == offset
    assert storage.inode(INDEX).data == good
    assert node.manager.failed == {}


async def test_a_lookup_by_time_waits_as_well() -> None:
    storage = await closed()
    storage.inode(TIMES).data[7] ^= 0x01  # what the first entry's batch would have to carry
    node = HeldNode(storage)
    with pytest.raises(IndexesLost):
        times(node.log)
    await node.jobs_done()
    assert times(node.log) == list(range(COUNT))


async def test_the_active_segments_index_keeps_what_was_appended_meanwhile() -> None:
    storage = await closed(10)
    assert len(storage.inode(INDEX).data) >= 24
    wrong_position(storage.inode(INDEX).data)
    node = HeldNode(storage)
    active = node.log._segments.active
    assert active.base_offset == 0
    with pytest.raises(IndexesLost):
        read_backwards(node.log, 10)
    await asyncio.sleep(0)  # the job has begun
    append(node.log, 2)
    assert node.log._segments.active is active
    await node.jobs_done()
    kept = bytes(active.offset_index.data), bytes(active.time_index.data)
    active.remake_indexes()
    assert kept[0] == bytes(active.offset_index.data)
    append(node.log, COUNT)
    assert node.log._segments.active is not active, "what is in the files now is what was put together"
    for offset in reversed(range(12)):
        assert node.log.read(offset, 1, up_to_offset=12).start_offset == offset


@pytest.mark.parametrize("change", ["truncated", "emptied", "deleted", "closed", "appended and rolled"])
async def test_what_was_made_of_a_segment_that_is_no_more_is_thrown_away(change: str) -> None:
    storage = await closed(10)
    wrong_position(storage.inode(INDEX).data)
    node = HeldNode(storage)
    with pytest.raises(IndexesLost):
        read_backwards(node.log, 10)
    await asyncio.sleep(0)  # the job has begun
    log, end = node.log, 10
    if change == "truncated":
        log.truncate_to(9)
        for number in range(9, 12):
            log.append_as_leader(batch_of(b"other %d" % number * 3, timestamp=5000), leader_epoch=1)
        end = 12
    elif change == "emptied":
        log.truncate_fully_and_start_at(0)
        append(log, 2)
        end = 2
    elif change == "appended and rolled":
        append(log, COUNT)
        end = COUNT + 10
    elif change == "deleted":
        append(log, COUNT)
        log.delete_segments_before(COUNT)
        end = COUNT + 10
    else:
        log.close()
    await node.jobs_done()
    if change == "closed":
        return
    start = log.log_start_offset
    for offset in reversed(range(start, end)):
        try:
            found = log.read(offset, 1, up_to_offset=end)
        except IndexesLost:  # begun anew, with all that is in it now
            await node.jobs_done()
            found = log.read(offset, 1, up_to_offset=end)
        assert found.start_offset == offset
    assert node.manager.failed == {}
    assert (INDEX in storage.files()) == (change != "deleted")


async def test_damage_that_the_walk_meets_is_the_logs_end() -> None:
    storage = await closed()
    empty(storage.inode(INDEX).data)
    node = HeldNode(storage)
    with pytest.raises(IndexesLost):
        node.log.read(5, 1, up_to_offset=COUNT)
    storage.inode(FIRST).data[8] = 0x7F  # the length of its first batch
    await node.jobs_done()
    assert isinstance(node.manager.failed[P], LogCorruptError)
    assert FIRST in str(node.manager.failed[P])


async def test_data_that_mislead_a_lookup_once_more_are_damaged() -> None:
    """Else every lookup would have the same sound indexes made anew."""
    storage = await closed()
    node = HeldNode(storage)
    data = storage.inode(FIRST).data
    size_bytes = len(data) // node.log.segment_base_offsets[1]
    data[4 * size_bytes : 4 * size_bytes + 8] = (1).to_bytes(8, "big")  # a base offset that goes back
    with pytest.raises(IndexesLost):
        node.log.read(4, 1, up_to_offset=COUNT)
    await node.jobs_done()
    with pytest.raises(LogCorruptError):
        node.log.read(4, 1, up_to_offset=COUNT)
    assert P in node.manager.failed


async def test_a_follower_truncates_when_the_index_is_there() -> None:
    storage = await closed()
    base = next(base for base in node_bases(storage) if base)
    index = f"/data/{P}/{base:020d}.index"
    wrong_position(storage.inode(index).data)
    node = HeldNode(storage)
    target = base + 2
    try:
        node.log.truncate_to(target)
    except IndexesLost:
        assert node.log.log_end_offset == COUNT, "nothing was cut"
        await node.jobs_done()
        node.log.truncate_to(target)
    assert node.log.log_end_offset == target


def node_bases(storage: Storage) -> list[int]:
    names = [path.rpartition("/")[2] for path in storage.files() if path.startswith(f"/data/{P}/")]
    return sorted(int(name.removesuffix(".log")) for name in names if name.endswith(".log"))
