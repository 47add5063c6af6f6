"""Where an epoch ends, asked of a log whose checkpoint file has rotted since (KIP-101, KIP-279, KIP-320)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from leader_epoch.epoch_cache import EpochCache, EpochEntry
from partitions.disk import Disk
from partitions.log.errors import EpochsDisagree, LogCorruptError
from partitions.log.log import PartitionLog
from partitions.log.storage import LogStorage
from partitions.records.batch import iter_batches
from tests.support.logs import (
    EPOCHS,
    FOLDER,
    PARTITION,
    SMALL,
    FailingDisk,
    batch_of,
    halt,
    memory_disk,
    open_log,
    read_records,
    rot_epochs,
)

RUNS = ((3, 2), (5, 3), (6, 2), (9, 3))
"""Epoch, and batches in it, each of two records."""
SOUND = b"0\n4\n3 0\n5 4\n6 10\n9 14\n"
ENDS = {2: (2, 0), 3: (3, 4), 4: (3, 4), 5: (5, 10), 6: (6, 14), 8: (6, 14), 9: (9, 20), 10: (-1, -1)}


def written(disk: Disk, runs: Sequence[tuple[int, int]] = RUNS, *, rolls: bool = False) -> PartitionLog:
    log = open_log(disk)
    for epoch, batches in runs:
        for number in range(batches):
            log.append_as_leader(batch_of(b"value-%02d-%02d" % (epoch, number), b"more"), leader_epoch=epoch)
        if rolls:
            log.roll()
    return log


def reads_of(disk: FailingDisk, log: PartitionLog, epochs: Sequence[int]) -> int:
    """How often the log reads a file to answer these."""
    count = 0

    def note(operation: str, path: str) -> None:
        nonlocal count
        count += operation == "read"

    disk.fail = note
    for epoch in epochs:
        log.end_offset_for_epoch(epoch)
    disk.fail = lambda operation, path: None
    return count


@pytest.mark.parametrize("rolls", [False, True])
@pytest.mark.parametrize(
    "said",
    [
        SOUND,
        SOUND.replace(b"3 0", b"3 1"),
        SOUND.replace(b"3 0", b"3 2"),
        SOUND.replace(b"3 0", b"2 0"),
        SOUND.replace(b"5 4", b"4 4"),
        SOUND.replace(b"5 4", b"5 2"),
        SOUND.replace(b"5 4", b"5 5"),
        SOUND.replace(b"5 4", b"5 6"),
        SOUND.replace(b"6 10", b"8 10"),
        SOUND.replace(b"6 10", b"6 13"),
        SOUND.replace(b"9 14", b"7 14"),
        SOUND.replace(b"9 14", b"9 16"),
        SOUND.replace(b"9 14", b"9 94"),
        b"0\n3\n3 0\n5 4\n9 14\n",
        b"0\n2\n6 10\n9 14\n",
        b"0\n0\n",
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_an_epoch_ends_where_its_batches_end_before_anybody_has_read_them(
    said: bytes, order: int, *, rolls: bool
) -> None:
    disk = memory_disk()
    written(disk, rolls=rolls).close()
    assert disk.read_bytes(EPOCHS) == SOUND
    rot_epochs(disk, said)
    log = open_log(disk, clean=True)
    log.assign_epoch_start(12)
    assert {epoch: log.end_offset_for_epoch(epoch) for epoch in list(ENDS)[::order]} == {
        **ENDS,
        10: (9, 20),
    }
    assert log.epoch_for_offset(0) == 3


def test_what_was_mended_for_an_answer_goes_to_the_file() -> None:
    disk = memory_disk()
    written(disk).close()
    rot_epochs(disk, SOUND.replace(b"5 4", b"5 6"))
    log = open_log(disk, clean=True)
    assert log.end_offset_for_epoch(3) == (3, 4)
    assert not log.epoch_file.is_durable
    log.sync()
    assert disk.read_bytes(EPOCHS) == SOUND


def test_the_newest_epoch_is_put_right_when_the_log_is_opened() -> None:
    """A follower names it in its first fetch."""
    disk = memory_disk()
    written(disk).close()
    rot_epochs(disk, SOUND.replace(b"9 14", b"7 14"))
    log = open_log(disk, clean=True)
    assert log.epochs.latest_epoch == 9
    assert "lacks epoch 9 of offset 18" in str(log.recovery)
    log.close()
    assert disk.read_bytes(EPOCHS) == SOUND


def test_a_flushed_segment_tells_its_epoch_to_a_recovery_that_does_not_read_it() -> None:
    """Else the sound batches behind it would go back, and be cut."""
    disk = memory_disk()
    log = written(disk, ((3, 2), (5, 3)))
    log.roll()
    for _ in range(3):
        log.append_as_leader(batch_of(b"value", b"more"), leader_epoch=5)
    log.sync()
    rot_epochs(disk, b"0\n2\n3 0\n7 4\n")
    log = open_log(disk, recovery_point=10)
    assert (log.log_end_offset, log.epochs.entries) == (16, ((3, 0), (5, 4)))
    assert [offset for offset, _, _ in read_records(log)] == list(range(16))


def test_a_batch_that_may_be_what_is_wrong_is_not_believed_for_an_answer() -> None:
    disk = memory_disk()
    written(disk, ((3, 2), (5, 1), (6, 2))).close()
    rot_epochs(disk, b"0\n3\n3 0\n4 4\n6 6\n")
    told: list[object] = []
    storage = LogStorage(disk, halt, on_lost=lambda partition, error: told.append(error))
    log = PartitionLog.open(
        disk, FOLDER, PARTITION, SMALL, now_ms=lambda: 0, halt=halt, storage=storage, clean_shutdown=True
    )
    with pytest.raises(EpochsDisagree, match="leader-epoch-checkpoint says 4") as raised:
        log.end_offset_for_epoch(4)
    assert told == [raised.value]


def test_bytes_that_are_no_batch_where_an_epoch_ends_are_damage() -> None:
    disk = memory_disk()
    written(disk, rolls=True).close()
    disk.open(f"{FOLDER}/{4:020d}.log").write_at(16, b"\x01")  # the magic
    log = open_log(disk, clean=True)
    assert log.end_offset_for_epoch(6) == (6, 14)
    with pytest.raises(LogCorruptError):
        log.end_offset_for_epoch(3)


def test_a_place_is_looked_at_once_and_the_end_of_the_log_never() -> None:
    disk = FailingDisk(memory_disk())
    written(disk, rolls=True).close()
    log = open_log(disk, clean=True)
    log.assign_epoch_start(11)
    assert reads_of(disk, log, (9, 10, 11, 12)) == 0, "what a follower that is in sync asks"
    assert 0 < reads_of(disk, log, (5,)) < 8
    assert reads_of(disk, log, (5,)) == 0
    log.append_as_leader(batch_of(b"on"), leader_epoch=11)
    assert reads_of(disk, log, (9, 11)) == 0


def test_epochs_of_a_log_that_was_written_here_are_not_looked_at() -> None:
    disk = FailingDisk(memory_disk())
    log = written(disk, rolls=True)
    assert reads_of(disk, log, range(12)) == 0


def test_behind_a_cut_the_new_end_is_looked_at() -> None:
    """The last batch that stays may be one that only the file has told of."""
    disk = memory_disk()
    written(disk).close()
    rot_epochs(disk, SOUND.replace(b"5 4", b"4 4"))
    log = open_log(disk, clean=True)
    log.truncate_to(10)
    log.assign_epoch_start(12)
    assert log.end_offset_for_epoch(5) == (5, 10)
    log.append_as_leader(batch_of(b"on"), leader_epoch=12)
    assert log.end_offset_for_epoch(11) == (5, 10)
    assert log.end_offset_for_epoch(12) == (12, 11)


@pytest.mark.parametrize("cut", range(1, 20))
@pytest.mark.parametrize("said", [(b"5 4", b"5 6"), (b"5 4", b"4 4"), (b"6 10", b"6 13"), (b"9 14", b"9 16")])
@pytest.mark.parametrize("rolls", [False, True])
def test_behind_a_cut_the_newest_epoch_is_that_of_the_last_batch(
    said: tuple[bytes, bytes], cut: int, *, rolls: bool
) -> None:
    """A follower names it to its leader at once, and would be told to cut what it has in common with it."""
    disk = memory_disk()
    sound = written(disk, rolls=rolls)
    sound.close()
    rot_epochs(disk, SOUND.replace(*said))
    log = open_log(disk, clean=True)
    log.truncate_to(cut)
    assert log.log_end_offset == cut // 2 * 2, "a batch has two records"
    sound.epochs.truncate_from_end(log.log_end_offset)
    assert log.epochs.latest_epoch == sound.epochs.latest_epoch
    assert log.end_offset_for_epoch(99) == (-1, -1)
    assert [log.end_offset_for_epoch(e)[1] for e in (3, 5, 6, 9)] == [
        sound.epochs.end_offset_for(e, log.log_end_offset)[1] for e in (3, 5, 6, 9)
    ]


def test_what_is_cut_may_be_damaged() -> None:
    """That may be why it is cut."""
    disk = memory_disk()
    written(disk).close()
    position = next(
        at
        for at, header in iter_batches(memoryview(disk.read_bytes(f"{FOLDER}/{0:020d}.log")))
        if header.base_offset == 10
    )
    disk.open(f"{FOLDER}/{0:020d}.log").write_at(position + 12, b"\x80")  # the sign of the epoch
    rot_epochs(disk, SOUND.replace(b"6 10", b"7 12"))
    log = open_log(disk, clean=True)
    log.truncate_to(10)
    assert (log.log_end_offset, log.epochs.latest_epoch) == (10, 5)


def test_a_cut_before_a_batch_that_may_be_what_is_wrong_cuts_nothing() -> None:
    disk = memory_disk()
    written(disk, ((3, 2), (5, 1), (6, 2))).close()
    rot_epochs(disk, b"0\n3\n3 0\n4 4\n6 6\n")
    log = open_log(disk, clean=True)
    with pytest.raises(EpochsDisagree, match="leader-epoch-checkpoint says 4"):
        log.truncate_to(6)
    assert log.log_end_offset == 10


@pytest.mark.parametrize("reopens", [False, True])
def test_a_hole_before_an_epoch_is_of_that_epoch(*, reopens: bool) -> None:
    """Compaction has taken what the later leader wrote first: who still has what an earlier one wrote there, and was
    given up, must be told to cut it."""
    disk = memory_disk()
    log = open_log(disk)
    batches = [
        batch_of(b"value", b"more", base_offset=base_offset, leader_epoch=epoch)
        for base_offset, epoch in ((0, 3), (2, 3), (9, 6), (11, 6), (20, 7))
    ]
    log.append_as_follower(batches[0])
    log.append_as_follower(b"".join(batches[1:3]))
    log.append_as_follower(b"".join(batches[3:]))
    if reopens:  # after a crash: recovery learns the epochs of the batches
        log.abandon()
        assert not disk.exists(EPOCHS)
        log = open_log(disk, clean=False)
    assert log.epochs.entries == ((3, 0), (6, 4), (7, 13))
    assert [log.end_offset_for_epoch(epoch) for epoch in (3, 5, 6, 7)] == [(3, 4), (3, 4), (6, 13), (7, 22)]


def test_an_epoch_of_which_compaction_left_nothing_keeps_its_place() -> None:
    """Its entry is all that tells of it: nothing contradicts that."""
    disk = memory_disk()
    log = open_log(disk)
    for base_offset, epoch in ((0, 3), (2, 3), (20, 6), (22, 6)):
        log.append_as_follower(batch_of(b"value", b"more", base_offset=base_offset, leader_epoch=epoch))
    log.epochs.replace((EpochEntry(3, 0), EpochEntry(5, 9), EpochEntry(6, 20)))
    assert log.epochs.entries == ((3, 0), (5, 9), (6, 20))
    log.close()
    log = open_log(disk, clean=True)
    assert [log.end_offset_for_epoch(epoch) for epoch in (3, 4, 5, 6)] == [(3, 9), (3, 9), (5, 20), (6, 24)]
    assert log.epochs.entries == ((3, 0), (5, 9), (6, 20))


def test_a_log_whose_batches_are_of_no_epoch_answers_nothing() -> None:
    disk = memory_disk()
    log = open_log(disk)
    for _ in range(3):
        log.append_as_leader(batch_of(b"value"), leader_epoch=-1)
    log.close()
    log = open_log(disk, clean=True)
    assert (log.end_offset_for_epoch(0), log.epochs) == ((-1, -1), EpochCache())
    assert len(read_records(log)) == 3
    log.assign_epoch_start(2)
    assert log.end_offset_for_epoch(1) == (1, 3)


def test_a_log_that_begins_later_answers_for_what_is_gone() -> None:
    disk = memory_disk()
    log = written(disk, rolls=True)
    log.delete_segments_before(10)
    log.close()
    assert disk.read_bytes(EPOCHS) == b"0\n2\n6 10\n9 14\n"
    log = open_log(disk, clean=True, log_start_offset=12)
    assert [log.end_offset_for_epoch(epoch) for epoch in (3, 5, 6)] == [(3, 10), (5, 10), (6, 14)]
    assert log.epoch_for_offset(12) == 6
    assert [offset for offset, _, _ in read_records(log)] == list(range(12, 20))
