"""Base offsets that rotted inside the holes that compaction leaves: no neighbour contradicts them, indexes may."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from partitions.disk import Disk
from partitions.log.errors import BatchDisplaced, LogCorruptError
from partitions.log.log import PartitionLog
from partitions.log.opening.damage_note import DAMAGE_NOTE, LogExtent, check_damage_note, write_damage_note
from partitions.log.storage import LogStorage
from partitions.records.batch import iter_batches
from tests.support.logs import FOLDER, Stored, batch_of, halt, memory_disk, open_log, read_records

HOLE = 8
"""Each batch ends in front of so many offsets that are missing."""
BATCHES = 12
LOG = f"{FOLDER}/{0:020d}.log"
INDEX, TIME_INDEX = f"{FOLDER}/{0:020d}.index", f"{FOLDER}/{0:020d}.timeindex"


def written(disk: Disk, *, timestamp: Callable[[int], int] = lambda number: 1000 + number) -> list[Stored]:
    """Batches of one record with holes between them, each later than the one before it; one in three has entries in
    the indexes. A closed segment, and one behind it."""
    log = open_log(disk)
    for number in range(BATCHES):
        base_offset = number * (HOLE + 1) + HOLE
        value = batch_of(
            b"%02d" % number, timestamp=timestamp(number), base_offset=base_offset, leader_epoch=3
        )
        log.append_as_follower(value)
    log.roll()
    log.append_as_leader(batch_of(b"behind", timestamp=5000), leader_epoch=3)
    found = read_records(log)
    log.close()
    return found


def opened(disk: Disk) -> PartitionLog:
    return open_log(disk, clean=True, recovery_point=BATCHES * (HOLE + 1) + 1)


def entries(disk: Disk) -> dict[int, int]:
    """Position → last offset, by the offset index."""
    data = disk.read_bytes(INDEX)
    numbers = [int.from_bytes(data[at : at + 4], "big") for at in range(0, len(data), 4)]
    return dict(zip(numbers[1::2], numbers[::2], strict=True))


def displace(disk: Disk, position: int, by: int) -> None:
    file = disk.open(LOG)
    offset = int.from_bytes(file.read(position, 8), "big")
    file.write_at(position, (offset + by).to_bytes(8, "big"))


READS: dict[str, Callable[[PartitionLog, int], object]] = {
    "all": lambda log, offset: read_records(log),
    "at once": lambda log, offset: log.read(0, 1 << 20, up_to_offset=log.log_end_offset),
    "there": lambda log, offset: log.read(offset, 1, up_to_offset=log.log_end_offset),
    "behind": lambda log, offset: log.read(offset + 1, 1, up_to_offset=log.log_end_offset),
}


@pytest.mark.parametrize("by", [-8, -1, 1, 4])
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("number", range(3))
def test_a_batch_that_both_indexes_have_elsewhere_is_not_served(number: int, read: str, by: int) -> None:
    disk = memory_disk()
    written(disk)
    position, offset = list(entries(disk).items())[number]
    displace(disk, position, by)
    log = opened(disk)
    with pytest.raises(
        BatchDisplaced, match=f"offset {offset + by}, and both indexes say {offset}"
    ) as raised:
        READS[read](log, offset)
    assert (raised.value.path, raised.value.position, raised.value.last_offset) == (LOG, position, offset)


@pytest.mark.parametrize("path", [INDEX, TIME_INDEX])
def test_one_index_alone_condemns_no_batch(path: str) -> None:
    """Whichever of its bits has rotted."""
    disk = memory_disk()
    whole = written(disk)
    content = disk.read_bytes(path)
    for at in range(len(content)):
        for bit in range(8):
            file = disk.open(path)
            file.truncate(0)
            file.append([content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]])
            log = opened(disk)
            assert read_records(log) == whole
            assert log.offset_for_timestamp(1000 + BATCHES - 1)
            log.close()


def test_a_batch_of_a_timestamp_that_was_there_before_is_in_one_index_alone() -> None:
    """Nobody can tell which of the two has rotted."""
    disk = memory_disk()
    whole = written(disk, timestamp=lambda number: 1000)
    position = next(iter(entries(disk)))
    displace(disk, position, 1)
    found = read_records(opened(disk))
    assert [record.value for record in found] == [record.value for record in whole]


def test_indexes_are_not_made_anew_of_a_displaced_batch() -> None:
    """An offset behind the one of an entry, at a batch that the entry has below: the index seems to be wrong."""
    disk = memory_disk()
    written(disk)
    position, offset = list(entries(disk).items())[2]
    displace(disk, position, 4)
    before = disk.read_bytes(INDEX)
    with pytest.raises(BatchDisplaced):
        opened(disk).read(offset + 2, 1, up_to_offset=BATCHES * (HOLE + 1))
    assert disk.read_bytes(INDEX) == before


def test_what_was_noted_of_it_is_found_again_until_the_file_is_restored() -> None:
    disk = memory_disk()
    written(disk)
    position, _ = list(entries(disk).items())[2]
    displace(disk, position, 4)
    with pytest.raises(BatchDisplaced) as raised:
        read_records(opened(disk))
    write_damage_note(
        disk, FOLDER, raised.value, LogExtent([0, BATCHES * (HOLE + 1)], BATCHES * (HOLE + 1) + 1)
    )
    with pytest.raises(LogCorruptError) as noted:
        check_damage_note(LogStorage(disk, halt), FOLDER)
    assert (noted.value.position, noted.value.reason) == (position, raised.value.reason)
    displace(disk, position, -4)
    check_damage_note(LogStorage(disk, halt), FOLDER)
    assert not disk.exists(f"{FOLDER}/{DAMAGE_NOTE}")


def test_batches_have_the_holes_that_these_tests_rely_on() -> None:
    disk = memory_disk()
    written(disk)
    ends = {position: header.last_offset for position, header in iter_batches(disk.read_bytes(LOG))}
    assert [ends[position] for position in entries(disk)] == list(entries(disk).values())
    assert len(entries(disk)) == 3
