"""A leader epoch that rotted in a batch or in the checkpoint file: no checksum covers either (KIP-101)."""

from __future__ import annotations

from typing import Any

import pytest

from leader_epoch.checkpoint import CHECKPOINT_FILE_NAME
from partitions.disk import Disk
from partitions.log.errors import BatchDamaged, EpochDamaged, LogCorruptError
from partitions.log.inspection.findings import Findings
from partitions.log.inspection.log_state import EVERYTHING, Expected
from partitions.log.inspection.partition_check import check_partition
from partitions.log.log import PartitionLog
from partitions.log.storage import LogStorage
from partitions.records.batch import iter_batches
from tests.support.logs import FOLDER, PARTITION, SMALL, batch_of, halt, memory_disk, open_log, read_records
from tests.unit.log.test_failing_directories import Node
from tests.unit.log.test_given_up import FIRST, P, one_directory

LOG = f"{FOLDER}/{0:020d}.log"
EPOCHS = f"{FOLDER}/{CHECKPOINT_FILE_NAME}"


def written(disk: Disk) -> PartitionLog:
    """Offsets 0 and 1 are of epoch 3, 2 and 3 of epoch 5."""
    log = open_log(disk)
    for number, epoch in enumerate((3, 3, 5, 5)):
        log.append_as_leader(batch_of(b"value-%04d" % number), leader_epoch=epoch)
    return log


def rot_epoch(disk: Disk, offset: int, epoch: int) -> int:
    """Gives the batch at the offset another epoch; returns its position."""
    file = disk.open(LOG)
    content = file.read(0, file.size())
    position = next(at for at, header in iter_batches(memoryview(content)) if header.base_offset == offset)
    file.write_at(position + 12, epoch.to_bytes(4, "big"))
    return position


def all_offsets(log: PartitionLog) -> list[int]:
    return [offset for offset, _, _ in read_records(log)]


@pytest.mark.parametrize(("offset", "epoch"), [(3, 7), (3, 261), (2, 4), (1, 4), (0, 2)])
def test_a_reader_finds_a_batch_of_another_epoch_than_the_log_knows(offset: int, epoch: int) -> None:
    disk = memory_disk()
    written(disk).close()
    position = rot_epoch(disk, offset, epoch)
    log = open_log(disk, clean=True)
    with pytest.raises(BatchDamaged) as raised:
        log.read(0, 10_000, up_to_offset=4)
    assert (raised.value.path, raised.value.position) == (LOG, position)


def test_a_checkpoint_that_rotted_is_not_served_by() -> None:
    disk = memory_disk()
    written(disk).close()
    assert b"5 2\n" in disk.read_bytes(EPOCHS)
    disk.open(EPOCHS).write_at(disk.read_bytes(EPOCHS).index(b"5 2"), b"4")
    log = open_log(disk, clean=True)
    with pytest.raises(EpochDamaged):
        log.read(2, 10_000, up_to_offset=4)


def test_an_epoch_that_nobody_has_led_in_ends_a_leadership_before_it_begins() -> None:
    """After a crash the epochs are learnt from the batches, a rotten last one among them."""
    disk = memory_disk()
    written(disk).sync()
    position = rot_epoch(disk, 3, 69)
    log = open_log(disk)
    assert log.latest_epoch == 69, "nothing in the log contradicts it"
    with pytest.raises(EpochDamaged, match="leader epoch 69, and the log is to lead in epoch 6") as raised:
        log.assign_epoch_start(6)
    assert (raised.value.path, raised.value.position, raised.value.latest_epoch) == (LOG, position, 6)


def test_a_checkpoint_that_names_a_later_epoch_than_the_batches_is_what_is_damaged() -> None:
    disk = memory_disk()
    written(disk).close()
    disk.open(EPOCHS).write_at(disk.read_bytes(EPOCHS).index(b"5 2"), b"9")
    log = open_log(disk, clean=True)
    with pytest.raises(LogCorruptError, match="leader epoch 9 begins at offset 2") as raised:
        log.assign_epoch_start(6)
    assert raised.value.path == EPOCHS
    disk.remove(EPOCHS)  # what the sentence says
    log = open_log(disk, clean=True)
    assert log.epochs.entries == ((3, 0), (5, 2))
    assert not log.assign_epoch_start(6)
    assert all_offsets(log) == [0, 1, 2, 3]


def test_a_later_epoch_without_a_record_is_missed_by_nobody() -> None:
    disk = memory_disk()
    log = written(disk)
    log.assign_epoch_start(9)
    log.close()
    log = open_log(disk, clean=True)
    assert not log.assign_epoch_start(6)
    assert log.epochs.entries == ((3, 0), (5, 2), (6, 4))
    log.append_as_leader(batch_of(b"on"), leader_epoch=6)


def test_the_epoch_that_the_log_holds_may_be_led_on() -> None:
    log = written(memory_disk())
    log.assign_epoch_start(5)
    assert log.epochs.entries == ((3, 0), (5, 2))


async def test_a_start_knows_of_the_epoch_for_which_a_log_was_given_up() -> None:
    storage: Any = one_directory()
    node = Node(storage, ("/data",))
    node.make(P)
    for number in range(3):
        node.manager.logs[P].append_as_leader(batch_of(b"value-%04d" % number), leader_epoch=5)
    await node.manager.flush()
    last = len(storage.inode(FIRST).data) - len(batch_of(b"value-0002"))
    storage.inode(FIRST).data[last + 13] ^= 1  # and the process ends here
    node = Node(storage, ("/data",))
    with pytest.raises(EpochDamaged):
        node.manager.logs[P].assign_epoch_start(6)
    assert list(node.manager.failed) == [P]
    await node.close()
    node = Node(storage, ("/data",))
    assert isinstance(node.manager.failed[P], LogCorruptError)
    assert f"{FIRST} is damaged at byte {last}" in str(node.manager.failed[P])
    await node.close()
    storage.inode(FIRST).data[last + 13] ^= 1
    node = Node(storage, ("/data",))
    assert node.manager.logs[P].epochs.entries == ((5, 0),)


def test_verify_names_the_batch_of_an_epoch_that_the_checkpoint_does_not_have() -> None:
    disk = memory_disk()
    written(disk).close()
    position = rot_epoch(disk, 3, 69)
    findings = Findings()
    expected = Expected(durable_to=EVERYTHING)
    check_partition(disk, FOLDER, expected, findings)
    (error,) = findings.errors
    assert (error.path, error.position) == (LOG, position)
    assert f"has leader epoch 69, and {EPOCHS} says epoch 5" in error.reason


def test_damage_is_told_to_whoever_owns_the_log() -> None:
    told: list[object] = []
    disk = memory_disk()
    written(disk).sync()
    rot_epoch(disk, 3, 69)
    storage = LogStorage(disk, halt, on_lost=lambda partition, error: told.append((partition, error)))
    log = PartitionLog.open(disk, FOLDER, PARTITION, SMALL, now_ms=lambda: 0, halt=halt, storage=storage)
    with pytest.raises(EpochDamaged) as raised:
        log.assign_epoch_start(6)
    assert told == [(PARTITION, raised.value)]
