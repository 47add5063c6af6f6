"""A leader epoch that rotted in a batch or in the checkpoint file: no checksum covers either (KIP-101)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from leader_epoch.checkpoint import CHECKPOINT_FILE_NAME
from partitions.disk import Disk
from partitions.log.errors import BatchDamaged, EpochDamaged, EpochsDisagree, LogCorruptError
from partitions.log.inspection.findings import Findings
from partitions.log.inspection.log_state import EVERYTHING, Expected
from partitions.log.inspection.partition_check import check_partition
from partitions.log.log import PartitionLog
from partitions.log.storage import LogStorage
from partitions.records.batch import iter_batches
from tests.support.logs import (
    EPOCHS,
    FOLDER,
    PARTITION,
    SMALL,
    batch_of,
    halt,
    memory_disk,
    open_log,
    read_records,
    rot_epoch_entry,
    rot_epochs,
)
from tests.unit.log.node_logs.test_failing_directories import Node
from tests.unit.log.node_logs.test_given_up import FIRST, P, one_directory

LOG = f"{FOLDER}/{0:020d}.log"


def written(disk: Disk, epochs: Sequence[int] = (3, 3, 5, 5)) -> PartitionLog:
    """Each offset is of one of the epochs."""
    log = open_log(disk)
    for number, epoch in enumerate(epochs):
        log.append_as_leader(batch_of(b"value-%04d" % number), leader_epoch=epoch)
    return log


async def written_and_closed(epochs: Sequence[int] = (3, 3, 5)) -> Any:
    """The storage of a node whose log has a batch of each of these epochs."""
    storage: Any = one_directory()
    node = Node(storage, ("/data",))
    node.make(P)
    for number, epoch in enumerate(epochs):
        node.manager.logs[P].append_as_leader(batch_of(b"value-%04d" % number), leader_epoch=epoch)
    await node.close()
    return storage


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
    with pytest.raises(BatchDamaged) as raised:
        open_log(disk, clean=True).read(0, 10_000, up_to_offset=4)
    assert (raised.value.path, raised.value.position) == (LOG, position)


@pytest.mark.parametrize("rotten", [b"4 2", b"5 3", b"6 2", b"5 1", b"7 2"])
def test_a_checkpoint_that_two_batches_contradict_is_made_anew(rotten: bytes) -> None:
    disk = memory_disk()
    written(disk).close()
    rot_epoch_entry(disk, b"5 2", rotten)
    log = open_log(disk, clean=True)
    assert not log.assign_epoch_start(8)
    assert all_offsets(log) == [0, 1, 2, 3]
    assert log.epochs.entries == ((3, 0), (5, 2), (8, 4))
    log.sync()
    assert disk.read_bytes(EPOCHS) == b"0\n3\n3 0\n5 2\n8 4\n"
    log.append_as_leader(batch_of(b"on"), leader_epoch=8)
    log.close()
    assert open_log(disk, clean=True).epochs.entries == ((3, 0), (5, 2), (8, 4))


@pytest.mark.parametrize(("rotten", "is_mended"), [(b"5 3", False), (b"5 4", True)])
def test_one_bit_of_one_batch_may_be_what_is_wrong(rotten: bytes, is_mended: bool) -> None:
    """Else a batch of epoch 5 that says 4 would have a leader let followers keep what is not in its log."""
    disk = memory_disk()
    written(disk, (4, 4, 5, 5, 5)).close()
    rot_epoch_entry(disk, b"5 2", rotten)
    log = open_log(disk, clean=True)
    if is_mended:
        assert all_offsets(log) == [0, 1, 2, 3, 4]
        assert log.epochs.entries == ((4, 0), (5, 2))
    else:
        with pytest.raises(
            EpochsDisagree, match="at offset 2 is of leader epoch 5, and leader-epoch-checkpoint says 4"
        ):
            log.read(0, 10_000, up_to_offset=5)


async def test_a_batch_alone_against_the_checkpoint_keeps_a_log_failed_until_either_is_put_right() -> None:
    storage = await written_and_closed()
    checkpoint = storage.inode(f"/data/{P}/{CHECKPOINT_FILE_NAME}").data
    sound = bytes(checkpoint)
    checkpoint[:] = sound.replace(b"5 2", b"4 2")
    for _ in range(2):
        node = Node(storage, ("/data",))
        assert "leader-epoch-checkpoint says 4; if that file is what is wrong, remove" in str(
            node.manager.failed[P]
        )
        await node.close()
    checkpoint[:] = sound
    node = Node(storage, ("/data",))
    assert all_offsets(node.manager.logs[P]) == [0, 1, 2]


async def test_without_the_checkpoint_that_a_batch_contradicts_a_log_comes_back() -> None:
    storage = await written_and_closed()
    path = f"/data/{P}/{CHECKPOINT_FILE_NAME}"
    checkpoint = storage.inode(path).data
    checkpoint[:] = bytes(checkpoint).replace(b"5 2", b"4 2")
    node = Node(storage, ("/data",))
    assert list(node.manager.failed) == [P]
    node.disk.remove(path)
    await node.close()
    node = Node(storage, ("/data",))
    assert all_offsets(node.manager.logs[P]) == [0, 1, 2]
    assert node.manager.logs[P].epochs.entries == ((3, 0), (5, 2))


async def test_a_log_that_was_given_up_for_its_checkpoint_comes_back_without_it() -> None:
    """What was noted of the batch is true as long as there is a file that contradicts it."""
    storage = await written_and_closed((3, 5, 6))
    path = f"/data/{P}/{CHECKPOINT_FILE_NAME}"
    checkpoint = storage.inode(path).data
    checkpoint[:] = bytes(checkpoint).replace(b"5 1", b"4 1")
    node = Node(storage, ("/data",))
    with pytest.raises(EpochsDisagree):
        node.manager.logs[P].read(0, 10_000, up_to_offset=3)
    await node.close()
    node = Node(storage, ("/data",))
    assert list(node.manager.failed) == [P]
    node.disk.remove(path)
    await node.close()
    node = Node(storage, ("/data",))
    assert all_offsets(node.manager.logs[P]) == [0, 1, 2]
    assert node.manager.logs[P].epochs.entries == ((3, 0), (5, 1), (6, 2))


@pytest.mark.parametrize("epochs", [(-1, -1, 3, 3, 5, 5), (-1, 3), (-1,)])
def test_a_batch_alone_is_not_believed_where_the_checkpoint_says_nothing(epochs: Sequence[int]) -> None:
    """The sign bit of one that is of no epoch makes it later than all others, which would go for its sake."""
    disk = memory_disk()
    written(disk, epochs).close()
    if len(epochs) == 1:
        rot_epochs(disk, b"0\n0\n")
    rot_epoch(disk, 0, 2**31 - 1)
    with pytest.raises(EpochsDisagree, match=r"is of leader epoch 2147483647, and .* says nothing of it"):
        open_log(disk, clean=True).epoch_for_offset(0)


def test_a_batch_alone_is_believed_where_the_checkpoint_begins_with_a_later_epoch() -> None:
    disk = memory_disk()
    written(disk, (3, 5, 5)).close()
    rot_epochs(disk, b"0\n1\n5 1\n")
    log = open_log(disk, clean=True)
    assert log.epoch_for_offset(0) == 3
    assert log.epochs.entries == ((3, 0), (5, 1))


def test_an_epoch_that_nobody_has_led_in_ends_a_leadership_before_it_begins() -> None:
    """After a crash the epochs are learnt from the batches, a rotten last one among them."""
    disk = memory_disk()
    written(disk).sync()
    position = rot_epoch(disk, 3, 69)
    log = open_log(disk)
    assert log.epochs.latest_epoch == 69, "nothing in the log contradicts it"
    with pytest.raises(EpochDamaged, match="leader epoch 69, and the log is to lead in epoch 6") as raised:
        log.assign_epoch_start(6)
    assert (raised.value.path, raised.value.position, raised.value.latest_epoch) == (LOG, position, 6)


def test_a_checkpoint_that_names_a_later_epoch_than_the_batches_is_made_anew() -> None:
    disk = memory_disk()
    written(disk).close()
    rot_epoch_entry(disk, b"5 2", b"9 2")
    log = open_log(disk, clean=True)
    assert not log.assign_epoch_start(6)
    assert log.epochs.entries == ((3, 0), (5, 2), (6, 4))
    assert all_offsets(log) == [0, 1, 2, 3]


def test_bytes_that_are_no_batch_where_a_later_epoch_is_to_begin_are_damage() -> None:
    """The log has read none of its batches yet when it is to lead."""
    told: list[object] = []
    disk = memory_disk()
    log = written(disk)
    log.append_as_leader(batch_of(b"value-0004"), leader_epoch=9)
    log.close()
    content = disk.read_bytes(LOG)
    position = next(at for at, header in iter_batches(memoryview(content)) if header.base_offset == 4)
    disk.open(LOG).write_at(position + 57, b"\x7f")  # the number of records
    storage = LogStorage(disk, halt, on_lost=lambda partition, error: told.append(error))
    log = PartitionLog.open(
        disk, FOLDER, PARTITION, SMALL, now_ms=lambda: 0, halt=halt, storage=storage, clean_shutdown=True
    )
    with pytest.raises(LogCorruptError) as raised:
        log.assign_epoch_start(6)
    assert (raised.value.path, raised.value.position, told) == (LOG, position, [raised.value])


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


@pytest.mark.parametrize(("offset", "epoch"), [(1, 4), (2, 4), (3, 69)])
def test_a_recovery_does_not_learn_from_a_flushed_batch_what_its_checkpoint_contradicts(
    offset: int, epoch: int
) -> None:
    disk = memory_disk()
    written(disk).sync()
    position = rot_epoch(disk, offset, epoch)
    with pytest.raises(EpochsDisagree) as raised:
        open_log(disk, recovery_point=4)
    assert (raised.value.path, raised.value.position) == (LOG, position)


@pytest.mark.parametrize("rotten", [b"4 2", b"5 3", b"6 2", b"5 1", b"7 2"])
def test_a_recovery_believes_two_flushed_batches_more_than_their_checkpoint(rotten: bytes) -> None:
    disk = memory_disk()
    written(disk).sync()
    rot_epoch_entry(disk, b"5 2", rotten)
    log = open_log(disk, recovery_point=4)
    assert log.epochs.entries == ((3, 0), (5, 2))
    assert "lacks epoch" in str(log.recovery)
    log.close()
    assert disk.read_bytes(EPOCHS) == b"0\n2\n3 0\n5 2\n"


def test_a_checkpoint_that_was_contradicted_is_made_anew_before_the_batches_go_that_told_so() -> None:
    """Each batch that stays is one bit from what the file says of it."""
    disk = memory_disk()
    log = written(disk, (4, 4, 5, 5))
    log.roll()
    log.append_as_leader(batch_of(b"value-0004"), leader_epoch=5)
    log.sync()
    rot_epoch_entry(disk, b"5 2", b"5 5")
    log = open_log(disk, recovery_point=4, clean=False)
    log.delete_segments_before(4)
    assert open_log(disk, recovery_point=5).epochs.entries == ((5, 4),)


def test_a_recovery_goes_by_the_batches_that_no_flush_has_covered() -> None:
    """Their epochs need not be in the file."""
    disk = memory_disk()
    log = written(disk)
    log.sync()
    log.append_as_leader(batch_of(b"later"), leader_epoch=7)
    log = open_log(disk, recovery_point=4)
    assert log.epochs.entries == ((3, 0), (5, 2), (7, 4))


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
