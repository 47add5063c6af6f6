"""`preallocate`: a new segment takes its room on the disk at once, and nobody sees more than its records."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from kraft.chaos.world.storage import Storage
from kraft.runtime.disk import RealDisk
from partitions.log.errors import NoRoomToAppend, NoSpaceLeft
from partitions.log.log import PartitionLog
from partitions.log.node_logs.creation import NewLog
from tests.support.logs import (
    FOLDER,
    PARTITION,
    SMALL,
    batch_of,
    halt,
    new_storage,
    open_log,
    read_records,
    simulated_disk,
)
from tests.unit.log.node_logs.test_failing_directories import ID, Node, T
from tests.unit.log.node_logs.test_given_up import one_directory

RESERVED = replace(SMALL, preallocate=True)
PLENTY = 100_000


def reserved(storage: Storage) -> dict[str, int]:
    """Room that the log's files have beyond their ends."""
    names = simulated_disk(storage).list_dir(FOLDER)
    return {name: room for name in names if (room := storage.inode(f"{FOLDER}/{name}").reserved)}


def filled(log: PartitionLog, count: int) -> None:
    for number in range(count):
        log.append_as_leader(batch_of(b"%04d" % number * 20), leader_epoch=0)


def test_the_active_segment_alone_has_room_reserved_and_a_closed_log_none() -> None:
    storage = new_storage()
    storage.free_bytes = PLENTY
    log = open_log(simulated_disk(storage), RESERVED)
    filled(log, 25)
    assert len(log.segment_base_offsets) > 2
    active = f"{log.segment_base_offsets[-1]:020d}.log"
    size = len(simulated_disk(storage).read_bytes(f"{FOLDER}/{active}"))
    assert reserved(storage) == {active: RESERVED.segment_bytes - size}
    assert len(read_records(log)) == 25
    log.close()
    assert reserved(storage) == {}
    used = sum(
        len(storage.inode(f"{FOLDER}/{name}").data) for name in simulated_disk(storage).list_dir(FOLDER)
    )
    assert storage.free_bytes == PLENTY - used


def test_what_is_reserved_can_be_written_when_the_disk_is_full() -> None:
    storage = new_storage()
    log = open_log(simulated_disk(storage), RESERVED)
    filled(log, 12)
    log.roll()
    storage.free_bytes = 0
    end = log.log_end_offset
    with pytest.raises(NoRoomToAppend):
        filled(log, 30)
    assert log.log_end_offset > end, "as far as the reserved room went"
    records = read_records(log)
    storage.free_bytes = PLENTY
    filled(log, 30)
    assert read_records(log)[: len(records)] == records
    assert len(read_records(log)) == len(records) + 30


def test_a_segment_that_cannot_have_its_room_is_not_begun() -> None:
    storage = new_storage()
    log = open_log(simulated_disk(storage), RESERVED)
    filled(log, 8)
    before = log.segment_base_offsets
    storage.free_bytes = RESERVED.segment_bytes // 2
    with pytest.raises(NoRoomToAppend, match="no new segment"):
        filled(log, 30)
    assert log.segment_base_offsets == before
    assert [name for name in simulated_disk(storage).list_dir(FOLDER) if name.endswith(".log")] == [
        f"{base:020d}.log" for base in before
    ]
    records = read_records(log)
    storage.free_bytes = None
    filled(log, 8)
    assert read_records(log)[: len(records)] == records


@pytest.mark.parametrize("loses_power", [False, True])
def test_after_a_crash_the_log_ends_with_its_records(loses_power: bool) -> None:
    storage = new_storage()
    log = open_log(simulated_disk(storage), RESERVED)
    filled(log, 25)
    log.sync()
    records = read_records(log)
    if loses_power:
        storage.lose_power()
    recovered = open_log(simulated_disk(storage), RESERVED)
    assert recovered.recovery.reason is None
    assert read_records(recovered) == records
    filled(recovered, 10)
    recovered.close()
    assert reserved(storage) == {}


async def test_a_log_is_made_with_its_room_or_not_at_all() -> None:
    storage = one_directory()
    node = Node(storage, ("/data",))
    storage.free_bytes = RESERVED.segment_bytes // 2
    failed = await node.manager.creator.create([NewLog(T[0], ID, RESERVED, None)])
    assert isinstance(failed[T[0]], NoSpaceLeft)
    storage.free_bytes = PLENTY
    assert await node.manager.creator.create([NewLog(T[0], ID, RESERVED, None)]) == {}
    (name,) = (name for name in simulated_disk(storage).list_dir(f"/data/{T[0]}") if name.endswith(".log"))
    assert storage.inode(f"/data/{T[0]}/{name}").reserved == RESERVED.segment_bytes


def test_on_a_real_file_system_blocks_are_taken_and_given_back(tmp_path: Path) -> None:
    folder = tmp_path / "orders-3"
    config = replace(RESERVED, segment_bytes=4 << 20)
    log = PartitionLog.open(
        RealDisk(), str(folder), PARTITION, config, now_ms=lambda: 1000, halt=halt, topic_id=ID
    )
    filled(log, 3)
    path = folder / f"{0:020d}.log"
    taken = path.stat().st_blocks * 512
    if taken < config.segment_bytes:
        pytest.skip("this file system reserves nothing")
    assert path.stat().st_size == log.size_bytes
    log.roll()
    assert path.stat().st_blocks * 512 < 1 << 20
    log.close()
    assert sum(file.stat().st_blocks for file in folder.iterdir()) * 512 < 1 << 20


def test_what_the_file_system_refuses_is_an_error_with_nothing_taken(tmp_path: Path) -> None:
    file = RealDisk().open(str(tmp_path / "file"), create=True)
    file.append([b"content"])
    with pytest.raises(OSError, match="Errno") as error:
        file.reserve(2**62)
    assert error.value.errno == errno.EFBIG
    assert (file.size(), file.read(0, 100)) == (7, b"content")
