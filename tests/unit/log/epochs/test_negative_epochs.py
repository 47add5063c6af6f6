"""A rotten sign bit makes of a leader epoch what no leader writes: nobody takes such a batch for a sound one."""

from __future__ import annotations

import pytest

from partitions.disk import Disk
from partitions.log.errors import AppendError, BatchDamaged, LogCorruptError
from partitions.log.inspection.findings import Findings
from partitions.log.inspection.log_state import EVERYTHING, Expected
from partitions.log.inspection.partition_check import check_partition
from partitions.records.batch import stamp
from tests.support.logs import FOLDER, batch_of, memory_disk, open_log
from tests.unit.log.epochs.test_rotten_epochs import (
    EPOCHS,
    LOG,
    all_offsets,
    rot_epoch,
    written,
    written_and_closed,
)
from tests.unit.log.node_logs.test_failing_directories import Node
from tests.unit.log.node_logs.test_given_up import P

NEGATIVE = (5 - 2**31, -2)
"""With and without other bits; -1 is what a batch says that is of no epoch."""


def rot(disk: Disk, offset: int, epoch: int) -> int:
    """Gives the batch at the offset this epoch; returns its position."""
    return rot_epoch(disk, offset, epoch % 2**32)


@pytest.mark.parametrize("epoch", NEGATIVE)
@pytest.mark.parametrize("offset", [0, 2, 3])
def test_a_reader_does_not_get_it(offset: int, epoch: int) -> None:
    disk = memory_disk()
    written(disk).close()
    position = rot(disk, offset, epoch)
    with pytest.raises(BatchDamaged, match=f"is of leader epoch {epoch}") as raised:
        open_log(disk, clean=True).read(0, 10_000, up_to_offset=4)
    assert (raised.value.path, raised.value.position) == (LOG, position)


@pytest.mark.parametrize("epoch", NEGATIVE)
def test_a_start_finds_it_in_the_last_batch(epoch: int) -> None:
    """That one's epoch is named before anybody has read it."""
    disk = memory_disk()
    written(disk).close()
    position = rot(disk, 3, epoch)
    with pytest.raises(BatchDamaged, match=f"is of leader epoch {epoch}") as raised:
        open_log(disk, clean=True)
    assert raised.value.position == position


@pytest.mark.parametrize("epoch", NEGATIVE)
@pytest.mark.parametrize("offset", [1, 2])
def test_no_epoch_is_said_to_end_beside_it(offset: int, epoch: int) -> None:
    disk = memory_disk()
    written(disk).close()
    position = rot(disk, offset, epoch)
    log = open_log(disk, clean=True)
    with pytest.raises(BatchDamaged, match=f"is of leader epoch {epoch}") as raised:
        log.end_offset_for_epoch(3)
    assert raised.value.position == position


def test_the_epoch_of_an_offset_does_not_hang_on_the_batch_before() -> None:
    """Where the log begins, that one is given up. Of an epoch that ends there it tells all the same."""
    disk = memory_disk()
    written(disk).close()
    rot(disk, 1, NEGATIVE[0])
    log = open_log(disk, clean=True, log_start_offset=2)
    assert log.epoch_for_offset(2) == 5
    with pytest.raises(BatchDamaged):
        log.end_offset_for_epoch(3)


@pytest.mark.parametrize("epoch", NEGATIVE)
def test_a_start_without_the_checkpoint_does_not_pass_it_over(epoch: int) -> None:
    disk = memory_disk()
    written(disk).close()
    disk.remove(EPOCHS)
    position = rot(disk, 2, epoch)
    with pytest.raises(LogCorruptError, match=f"is of leader epoch {epoch}") as raised:
        open_log(disk, clean=True)
    assert raised.value.position == position


@pytest.mark.parametrize("epoch", NEGATIVE)
def test_epochs_that_are_taken_from_the_batches_again_do_not_pass_it_over(epoch: int) -> None:
    disk = memory_disk()
    written(disk, (3, 3, 5, 5, 5, 8)).close()
    position = rot(disk, 2, epoch)
    content = disk.read_bytes(EPOCHS)
    disk.open(EPOCHS).write_at(content.index(b"8 5"), b"8 4")
    log = open_log(disk, clean=True)
    with pytest.raises(BatchDamaged, match=f"is of leader epoch {epoch}") as raised:
        log.end_offset_for_epoch(5)
    assert raised.value.position == position


@pytest.mark.parametrize("epoch", NEGATIVE)
def test_a_recovery_cuts_it_like_a_torn_batch(epoch: int) -> None:
    disk = memory_disk()
    written(disk).sync()
    rot(disk, 3, epoch)
    log = open_log(disk)
    assert log.recovery.reason is not None
    assert f"is of leader epoch {epoch}" in log.recovery.reason
    assert all_offsets(log) == [0, 1, 2]


def test_a_recovery_does_not_cut_what_was_flushed() -> None:
    disk = memory_disk()
    written(disk).sync()
    position = rot(disk, 2, NEGATIVE[0])
    with pytest.raises(LogCorruptError, match="was flushed") as raised:
        open_log(disk, recovery_point=4)
    assert raised.value.position == position


@pytest.mark.parametrize("epoch", NEGATIVE)
def test_a_leader_does_not_take_epochs_from_it(epoch: int) -> None:
    """The batch is of a later epoch than the one that is to be led, which nobody may forget for its sake."""
    disk = memory_disk()
    written(disk).close()
    position = rot(disk, 2, epoch)
    log = open_log(disk, clean=True)
    with pytest.raises(BatchDamaged, match=f"is of leader epoch {epoch}") as raised:
        log.assign_epoch_start(4)
    assert raised.value.position == position
    assert log.epochs.entries == ((3, 0), (5, 2))


@pytest.mark.parametrize("epoch", NEGATIVE)
def test_a_follower_does_not_take_it(epoch: int) -> None:
    log = open_log(memory_disk())
    data = batch_of(b"value", leader_epoch=epoch)
    with pytest.raises(AppendError, match=f"is of leader epoch {epoch}") as raised:
        log.append_as_follower(data, leader_epoch=5)
    assert (raised.value.code, log.log_end_offset) == ("CORRUPT_MESSAGE", 0)


def test_a_leader_writes_its_own_epoch_over_whatever_a_producer_sent() -> None:
    log = open_log(memory_disk())
    data = bytearray(batch_of(b"value"))
    stamp(data, 0, base_offset=0, leader_epoch=NEGATIVE[0])
    log.append_as_leader(data, leader_epoch=5)
    assert log.epochs.entries == ((5, 0),)
    assert all_offsets(log) == [0]


async def test_a_start_finds_again_for_what_a_log_was_given_up() -> None:
    storage = await written_and_closed()
    data = storage.inode(f"/data/{P}/{0:020d}.log").data
    data[12] ^= 0x80
    node = Node(storage, ("/data",))
    with pytest.raises(BatchDamaged):
        node.manager.logs[P].read(0, 10_000, up_to_offset=3)
    await node.close()
    node = Node(storage, ("/data",))
    assert isinstance(node.manager.failed[P], LogCorruptError)
    await node.close()
    data[12] ^= 0x80
    node = Node(storage, ("/data",))
    assert all_offsets(node.manager.logs[P]) == [0, 1, 2]


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_verify_names_it(*, has_checkpoint: bool) -> None:
    disk = memory_disk()
    written(disk).close()
    if not has_checkpoint:
        disk.remove(EPOCHS)
    position = rot(disk, 0, NEGATIVE[0])
    findings = Findings()
    check_partition(disk, FOLDER, Expected(durable_to=EVERYTHING), findings)
    found = [error for error in findings.errors if (error.path, error.position) == (LOG, position)]
    (error,) = found
    assert error.reason.startswith(f"the batch is of leader epoch {NEGATIVE[0]}")
