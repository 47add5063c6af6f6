"""Offsets that rotted in a batch's header: no checksum covers the first, readers go by the last before they compare
the checksum, and indexes and epochs are made of them."""

from __future__ import annotations

import pytest

from leader_epoch.checkpoint import CHECKPOINT_FILE_NAME
from partitions.disk import Disk
from partitions.log.errors import BatchDamaged, LogCorruptError
from partitions.log.log import PartitionLog
from tests.support.logs import FOLDER, batch_of, memory_disk, open_log
from tests.unit.log.epochs.test_rotten_epochs import LOG

LAST_OFFSET_DELTA = 23
"""Where it is in a batch."""
FIRST_BYTES = len(batch_of(b"value-0", b"more"))


def written(disk: Disk) -> None:
    """Batches of two records, then of one each, in two epochs and one segment; the last one is the youngest."""
    log = open_log(disk)
    for number in range(2):
        log.append_as_leader(batch_of(b"value-%d" % number, b"more"), leader_epoch=3)
    for number in range(4):
        data = batch_of(b"value-%d" % number, timestamp=1000 + number)
        log.append_as_leader(data, leader_epoch=3 if number < 1 else 4)
    log.close()


def rot_offset(disk: Disk, position: int, offset: int) -> None:
    disk.open(LOG).write_at(position, offset.to_bytes(8, "big"))


@pytest.mark.parametrize("offset", range(8))
def test_an_index_is_not_made_anew_of_batches_that_go_back(offset: int) -> None:
    """A reader that the rotten batch has made doubt of the index would be led past it."""
    disk = memory_disk()
    written(disk)
    rot_offset(disk, 2 * FIRST_BYTES, 0)  # of the batch at offset 4
    log = open_log(disk, clean=True, recovery_point=8)
    try:
        result = log.read(offset, 10_000, up_to_offset=8)
    except LogCorruptError:
        return
    assert offset > 4
    assert result.start_offset == offset


def test_epochs_are_not_taken_from_a_batch_that_reaches_too_far() -> None:
    """It seems to be of the epoch before as well as of the next."""
    disk = memory_disk()
    written(disk)
    rot_offset(disk, 0, 4)
    log = open_log(disk, clean=True, recovery_point=8)
    with pytest.raises(LogCorruptError):
        log.epoch_for_offset(1)
    assert disk.read_bytes(f"{FOLDER}/{CHECKPOINT_FILE_NAME}") == b"0\n2\n3 0\n4 5\n"
    assert log.epochs.entries == ((3, 0), (4, 5))


def rot_last_offset(disk: Disk, position: int, delta: int) -> None:
    disk.open(LOG).write_at(position + LAST_OFFSET_DELTA, delta.to_bytes(4, "big"))


def pairs(disk: Disk, count: int) -> None:
    """Batches of two records in one segment, with an index entry for every second batch, closed."""
    log = open_log(disk)
    for number in range(count):
        log.append_as_leader(batch_of(b"value-%d" % number, b"more"), leader_epoch=3)
    assert disk.open(LOG).size() == count * FIRST_BYTES
    log.close()


def read_at(log: PartitionLog, *offsets: int) -> None:
    """One batch at each of these."""
    for offset in offsets:
        log.read(offset, 1, up_to_offset=log.log_end_offset)


@pytest.mark.parametrize("behind", [0, 1])
def test_the_last_batch_of_a_segment_hides_no_record(behind: int) -> None:
    """It says that it ends too soon: between its end and the next segment there would be a hole."""
    disk = memory_disk()
    log = open_log(disk)
    for _ in range(2):
        log.append_as_leader(batch_of(b"value-0", b"more"), leader_epoch=3)
    log.roll()
    for _ in range(behind):
        log.append_as_leader(batch_of(b"behind"), leader_epoch=3)
    log.close()
    rot_last_offset(disk, FIRST_BYTES, 0)
    with pytest.raises(BatchDamaged) as raised:
        open_log(disk, clean=True, recovery_point=4 + behind).read(3, 10_000, up_to_offset=4 + behind)
    assert (raised.value.path, raised.value.position) == (LOG, FIRST_BYTES)


@pytest.mark.parametrize("rotten", range(7))
@pytest.mark.parametrize("read_before", [0, 4, 6, 8, 10, 12, 14])
def test_a_batch_before_what_was_checked_hides_no_record(rotten: int, read_before: int) -> None:
    """The check of another read may have begun right behind it."""
    disk = memory_disk()
    pairs(disk, 8)
    rot_last_offset(disk, rotten * FIRST_BYTES, 0)
    log = open_log(disk, clean=True, recovery_point=16)
    with pytest.raises(BatchDamaged) as raised:
        read_at(log, read_before, rotten * 2 + 1)
    assert raised.value.position == rotten * FIRST_BYTES


def test_a_batch_that_seems_to_reach_too_far_does_not_stop_readers() -> None:
    """As if a reader had to wait for the rest of it."""
    disk = memory_disk()
    pairs(disk, 8)
    rot_last_offset(disk, 3 * FIRST_BYTES, 2)
    log = open_log(disk, clean=True, recovery_point=16)
    with pytest.raises(BatchDamaged) as raised:
        log.read(6, 10_000, up_to_offset=8)
    assert raised.value.position == 3 * FIRST_BYTES
