"""Opening a log after a clean end, a crash, a power loss, and damage."""

from __future__ import annotations

import errno

import pytest

from kraft.chaos.world.disk import SimulatedDisk
from partitions.log.errors import InconsistentTopicId, LogCorruptError
from partitions.log.log import PartitionLog
from partitions.log.partition_files import TRUNCATION_CHECKPOINT, encode_partition_metadata
from partitions.log.storage import LogStorage
from tests.support.logs import (
    EPOCHS,
    FOLDER,
    PARTITION,
    SMALL,
    FailingDisk,
    batch_of,
    halt,
    lead,
    memory_disk,
    open_log,
    read_records,
    rot_epochs,
)


def filled(log: PartitionLog, batches: int = 30, *, leader_epoch: int = 1) -> None:
    for number in range(batches):
        log.append_as_leader(
            batch_of(b"v%04d" % number, b"w%04d" % number, timestamp=1000 + number), leader_epoch=leader_epoch
        )


def overwrite(disk: object, name: str, position: int, data: bytes) -> None:
    file = disk.open(f"{FOLDER}/{name}")  # type: ignore[attr-defined]
    file.write_at(position, data)
    file.close()


def active_file(log: PartitionLog) -> str:
    return f"{log.segment_base_offsets[-1]:020d}.log"


def test_clean_start_finds_the_same_log_without_reading_data() -> None:
    disk = FailingDisk(memory_disk())
    log = open_log(disk)
    filled(log, leader_epoch=1)
    filled(log, leader_epoch=4)
    records, state = read_records(log), log.producers.state.producers
    log.close()
    before = {name: disk.inner.read_bytes(f"{FOLDER}/{name}") for name in disk.inner.list_dir(FOLDER)}
    disk.calls.clear()
    log = open_log(disk, clean=True)
    data_files = {path for operation, path in disk.calls if path.endswith(".log")}
    assert data_files == {f"{FOLDER}/{active_file(log)}"}
    assert (log.recovery.clean, log.recovery_point) == (True, log.log_end_offset)
    assert read_records(log) == records
    assert log.producers.state.producers == state
    assert log.epochs.entries == ((1, 0), (4, 60))
    disk.calls.clear()
    log.close()
    assert disk.calls == [], "an idle log has nothing to write"
    assert before == {name: disk.inner.read_bytes(f"{FOLDER}/{name}") for name in disk.inner.list_dir(FOLDER)}


def test_indexes_of_a_recovered_log_find_the_same_positions() -> None:
    disk = memory_disk()
    log = open_log(disk)
    filled(log)
    for base in log.segment_base_offsets:
        for suffix in ("index", "timeindex"):
            overwrite(disk, f"{base:020d}.{suffix}", 0, b"\xff" * 40)
    recovered = open_log(disk)
    assert recovered.recovery.checked_bytes == log.size_bytes
    for offset in range(60):
        assert recovered.read(offset, 1, up_to_offset=60)[1:] == log.read(offset, 1, up_to_offset=60)[1:]
    for timestamp in range(999, 1031):
        assert recovered.offset_for_timestamp(timestamp) == log.offset_for_timestamp(timestamp)


def test_missing_or_short_indexes_are_rebuilt_at_a_clean_start() -> None:
    disk = memory_disk()
    log = open_log(disk)
    filled(log)
    log.close()
    for number, base in enumerate(log.segment_base_offsets):
        if number % 2:
            disk.remove(f"{FOLDER}/{base:020d}.index")
            disk.remove(f"{FOLDER}/{base:020d}.timeindex")
        else:
            file = disk.open(f"{FOLDER}/{base:020d}.index")
            file.truncate(3)
    reopened = open_log(disk, clean=True)
    assert len(read_records(reopened)) == 60
    assert [reopened.offset_for_timestamp(1000 + number)[1] for number in range(30)] == list(range(0, 60, 2))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_missing_indexes_are_made_at_the_start_where_nobody_waits(clean: bool, suffix: str) -> None:
    """Later, the first reader would have the event loop walk over the whole segment."""
    disk = memory_disk()
    log = open_log(disk)
    filled(log)
    log.close()
    paths = [f"{FOLDER}/{base:020d}.{suffix}" for base in log.segment_base_offsets[:-1]]
    before = [disk.read_bytes(path) for path in paths]
    for path in paths:
        disk.remove(path)
    open_log(disk, clean=clean, recovery_point=log.log_end_offset)
    assert [disk.read_bytes(path) for path in paths] == before


@pytest.mark.parametrize("number", [errno.ENOSPC, None])
def test_a_start_does_not_fail_for_an_index_that_cannot_be_made(number: int | None) -> None:
    disk = FailingDisk(memory_disk())
    log = open_log(disk)  # type: ignore[arg-type]
    filled(log)
    log.close()
    first, second = log.segment_base_offsets[:2]
    disk.inner.remove(f"{FOLDER}/{first:020d}.index")
    if number is None:
        overwrite(disk.inner, f"{first:020d}.log", 16, b"\x07")
    disk.fail = lambda operation, path: number if operation == "create" else None
    reopened = open_log(disk, clean=True)  # type: ignore[arg-type]
    assert reopened.log_end_offset == 60
    assert reopened.read(second, 500, up_to_offset=60).size_bytes > 0


def test_orphaned_indexes_and_temporary_files_go() -> None:
    disk = memory_disk()
    open_log(disk).close()
    for name in ("00000000000000000777.index", "leader-epoch-checkpoint.tmp"):
        disk.open(f"{FOLDER}/{name}", create=True).close()
    open_log(disk)
    assert not {"00000000000000000777.index", "leader-epoch-checkpoint.tmp"} & set(disk.list_dir(FOLDER))


def test_a_torn_tail_is_cut_at_every_byte() -> None:
    disk = memory_disk()
    log = open_log(disk)
    filled(log, 4)
    log.append_as_leader(batch_of(b"last", producer=(9, 0, 0)), leader_epoch=3)
    whole = disk.read_bytes(f"{FOLDER}/{active_file(log)}")
    records, first_torn = read_records(log), len(whole) - len(batch_of(b"last"))
    for size in range(first_torn, len(whole) + 1):
        disk.open(f"{FOLDER}/{active_file(log)}").truncate(0)
        disk.open(f"{FOLDER}/{active_file(log)}").append([whole[:size]])
        recovered = open_log(disk)
        if size == len(whole):
            assert (recovered.log_end_offset, recovered.recovery.reason) == (9, None)
            assert recovered.epochs.entries == ((1, 0), (3, 8))
        else:
            assert recovered.log_end_offset == 8
            assert (recovered.recovery.reason is None) == (size == first_torn)
            assert recovered.recovery.truncated_bytes == size - first_torn
            assert recovered.epochs.entries == ((1, 0),)
            assert recovered.producers.state.producers == {}
            assert read_records(recovered) == records[:-1]
            recovered.append_as_leader(batch_of(b"next"), leader_epoch=5)
            assert read_records(recovered)[-1] == (8, 5, b"next")


def test_segments_after_a_torn_one_go() -> None:
    disk = memory_disk()
    log = open_log(disk)
    filled(log)
    bases = log.segment_base_offsets
    overwrite(disk, f"{bases[1]:020d}.log", 500, b"????")
    recovered = open_log(disk)
    assert recovered.recovery.removed_segments == len(bases) - 2
    assert recovered.segment_base_offsets == bases[:2]
    assert bases[1] < recovered.log_end_offset < bases[2]
    assert "fails its checksum" in str(recovered.recovery.reason)
    assert str(recovered.recovery).startswith(f"the last {recovered.recovery.truncated_bytes} bytes were cut")


def test_a_segment_that_lost_its_tail_at_a_batch_boundary_is_noticed() -> None:
    disk = memory_disk()
    log = open_log(disk)
    filled(log)
    bases = log.segment_base_offsets
    disk.open(f"{FOLDER}/{bases[1]:020d}.log").truncate(0)
    recovered = open_log(disk)
    assert recovered.log_end_offset == bases[1]
    assert "ends at offset" in str(recovered.recovery.reason)
    assert [record.offset for record in read_records(recovered)] == list(range(bases[1]))


def test_damage_below_the_recovery_point_is_an_error_that_names_the_place() -> None:
    disk = memory_disk()
    log = open_log(disk)
    filled(log)
    log.sync()
    size = log.size_bytes
    path = f"{FOLDER}/{active_file(log)}"
    overwrite(disk, active_file(log), 70, b"!")
    with pytest.raises(LogCorruptError, match="fails its checksum") as error:
        open_log(disk, recovery_point=log.recovery_point)
    assert (error.value.path, error.value.position) == (path, 0)
    assert "copied again from the leader" in str(error.value)
    # Nothing was cut; the same damage above the recovery point is a torn tail.
    assert log.size_bytes == size
    assert open_log(disk, recovery_point=log.segment_base_offsets[-1]).recovery.truncated_bytes > 0


def test_a_flushed_log_that_became_shorter_is_damage() -> None:
    disk = memory_disk()
    log = open_log(disk)
    filled(log, 4)
    log.sync()
    disk.open(f"{FOLDER}/{active_file(log)}").truncate(log.size_bytes // 2)
    with pytest.raises(LogCorruptError, match="ends at offset 4, but was flushed up to 8"):
        open_log(disk, recovery_point=8)
    # An emptied folder is taken as emptied on purpose.
    disk.open(f"{FOLDER}/{active_file(log)}").truncate(0)
    assert open_log(disk, recovery_point=8).log_end_offset == 0


def test_recovery_reads_only_from_the_segment_of_the_recovery_point() -> None:
    disk = memory_disk()
    log = open_log(disk)
    filled(log)
    log.sync()
    filled(log, 3)
    bases = log.segment_base_offsets
    recovered = open_log(disk, recovery_point=60)
    assert recovered.recovery.checked_bytes < log.size_bytes / 2
    assert recovered.segment_base_offsets == bases
    assert read_records(recovered) == read_records(log)


def test_batches_that_go_back_in_leader_epoch_are_old_bytes() -> None:
    disk = memory_disk()
    log = open_log(disk)
    log.append_as_follower(batch_of(b"a", base_offset=0, leader_epoch=4))
    log.sync()  # the epoch is known to be one
    file = disk.open(f"{FOLDER}/{active_file(log)}")
    file.append([batch_of(b"b", base_offset=1, leader_epoch=3)])
    recovered = open_log(disk)
    assert recovered.log_end_offset == 1
    assert "goes back to leader epoch 3" in str(recovered.recovery.reason)


def test_epochs_are_rebuilt_when_the_checkpoint_says_something_else() -> None:
    disk = memory_disk()
    log = open_log(disk)
    for epoch, count in ((1, 3), (2, 4), (5, 20)):
        filled(log, count, leader_epoch=epoch)
    rot_epochs(disk, b"0\n3\n1 0\n3 9\n9 900\n")
    assert open_log(disk).epochs == log.epochs


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", [None, b"", b"0\n3\n1 0\n2 3\n", b"0\n1\n5 7\ntorn"])
def test_epochs_are_rebuilt_when_the_checkpoint_is_gone_or_damaged(clean: bool, damage: bytes | None) -> None:
    disk = memory_disk()
    log = open_log(disk)
    for epoch, count in ((1, 3), (2, 4), (5, 20)):
        filled(log, count, leader_epoch=epoch)
    assert len(log.segment_base_offsets) == 3
    log.close()
    if damage is None:
        disk.remove(EPOCHS)
    else:
        rot_epochs(disk, damage)
    again = open_log(disk, clean=clean, recovery_point=log.log_end_offset)
    assert again.epochs == log.epochs
    assert again.recovery.is_notable
    assert again.recovery.epochs_rebuilt.startswith(
        f"{EPOCHS} is {'not there' if damage is None else 'damaged'}"
    )
    assert str(again.recovery).startswith(f"the leader epochs were taken from the batches: {EPOCHS} is")
    again.sync()
    last = open_log(disk, clean=True)
    assert last.epochs == log.epochs
    assert last.recovery.epochs_rebuilt is None, "it was written again"


def test_a_log_that_was_never_flushed_need_not_have_an_epoch_checkpoint() -> None:
    disk = memory_disk()
    filled(open_log(disk), 3, leader_epoch=4)
    again = open_log(disk)
    assert again.epochs.entries == ((4, 0),)
    assert again.recovery.epochs_rebuilt is None


def test_in_a_hole_between_two_epochs_the_later_one_begins_where_the_hole_does() -> None:
    disk = memory_disk()
    log = open_log(disk)
    log.append_as_follower(batch_of(b"a", b"b", base_offset=0, leader_epoch=3))
    log.append_as_follower(batch_of(b"c", base_offset=9, leader_epoch=5))
    log.close()
    disk.remove(EPOCHS)
    again = open_log(disk, clean=True)
    assert again.epochs.entries == ((3, 0), (5, 2))
    assert again.end_offset_for_epoch(3) == (3, 2)


def test_the_start_of_an_epoch_is_durable_before_any_append() -> None:
    disk = FailingDisk(memory_disk())
    log = open_log(disk)
    filled(log, 1)
    log.sync()
    disk.calls.clear()
    lead(log, 6)
    temporary = f"{EPOCHS}.next.tmp"
    assert [call for call in disk.calls if call[0] in ("sync", "rename", "sync_dir")] == [
        ("sync", temporary),
        ("rename", temporary),
        ("sync_dir", FOLDER),
    ]
    disk.calls.clear()
    lead(log, 6)
    assert disk.calls == []


def test_the_log_start_offset_of_the_checkpoint_counts() -> None:
    disk = memory_disk()
    log = open_log(disk)
    filled(log)
    log.close()
    assert open_log(disk, clean=True, log_start_offset=7).log_start_offset == 7
    assert open_log(disk, clean=True, log_start_offset=700).log_start_offset == 60


# ---- truncation against what the data directory's checkpoints say


def test_a_truncation_below_the_checkpointed_recovery_point_is_remembered() -> None:
    disk = memory_disk()
    log = open_log(disk)
    filled(log)
    log.sync()
    checkpointed = log.begin_checkpoint()
    log.complete_checkpoint(recovery_point=checkpointed.recovery_point, log_start_offset=0)
    log.truncate_to(50)
    filled(log, 1, leader_epoch=2)
    # Power is lost; the new batch is torn. By the old checkpoint it would pass for flushed.
    file = disk.open(f"{FOLDER}/{active_file(log)}")
    file.truncate(file.size() - 1)
    recovered = open_log(disk, recovery_point=checkpointed.recovery_point)
    assert (recovered.log_end_offset, recovered.recovery_point) == (50, 50)


@pytest.mark.parametrize("how", ["sync", "checkpoint"])
def test_the_cap_goes_when_the_checkpoint_is_true_again(how: str) -> None:
    disk = memory_disk()
    filled(open_log(disk))
    log = open_log(disk, recovery_point=0)
    log.sync()
    log.begin_checkpoint()
    log.complete_checkpoint(recovery_point=60)
    log.truncate_to(30)
    assert TRUNCATION_CHECKPOINT in disk.list_dir(FOLDER)
    filled(log, 1, leader_epoch=2)
    log.sync()
    assert TRUNCATION_CHECKPOINT in disk.list_dir(FOLDER)
    if how == "sync":
        filled(log, 20, leader_epoch=2)
        log.sync()
    else:
        log.complete_checkpoint(recovery_point=log.begin_checkpoint().recovery_point)
    assert TRUNCATION_CHECKPOINT not in disk.list_dir(FOLDER)


def test_a_log_begun_anew_is_not_hidden_by_an_old_log_start() -> None:
    disk = memory_disk()
    log = open_log(disk, log_start_offset=500)
    filled(log, 3)
    log.truncate_fully_and_start_at(100)
    filled(log, 3)
    recovered = open_log(disk, recovery_point=506, log_start_offset=500)
    assert (recovered.log_start_offset, recovered.log_end_offset) == (100, 106)


# ---- the folder's topic id


def test_a_folder_of_another_topic_id_is_never_reused() -> None:
    disk = memory_disk()
    filled(open_log(disk, topic_id=b"A" * 16), 2)
    content = disk.read_bytes(f"{FOLDER}/partition.metadata")
    assert content == b"version: 0\ntopic_id: QUFBQUFBQUFBQUFBQUFBQQ\n"
    with pytest.raises(InconsistentTopicId, match="left from a deleted topic"):
        open_log(disk, topic_id=b"B" * 16)
    log = open_log(disk, topic_id=b"A" * 16)
    assert (log.topic_id, log.log_end_offset) == (b"A" * 16, 4)
    assert open_log(disk).topic_id == b"A" * 16


def test_a_folder_without_topic_id_gets_the_one_it_is_claimed_for() -> None:
    disk = memory_disk()
    log = open_log(disk)
    log.claim(b"A" * 16)
    assert disk.read_bytes(f"{FOLDER}/partition.metadata") == encode_partition_metadata(b"A" * 16)
    with pytest.raises(InconsistentTopicId):
        log.claim(b"B" * 16)


def test_damaged_partition_metadata_is_named() -> None:
    disk = memory_disk()
    open_log(disk, topic_id=b"A" * 16)
    overwrite(disk, "partition.metadata", 0, b"garbage")
    with pytest.raises(LogCorruptError, match=r"partition\.metadata"):
        open_log(disk)


def test_a_log_that_cannot_be_opened_leaves_no_file_open() -> None:
    """Its folder is set aside, and another one gets its name: an open file would be the old one's."""
    disk = memory_disk()
    log = open_log(disk)
    filled(log, 3)
    log.sync()
    log.abandon()
    overwrite(disk, "00000000000000000000.log", 100, b"\xff")
    storage = LogStorage(disk, halt)
    with pytest.raises(LogCorruptError):
        PartitionLog.open(
            disk,
            FOLDER,
            PARTITION,
            SMALL,
            now_ms=lambda: 0,
            halt=halt,
            recovery_point=6,
            storage=storage,
        )
    assert storage.open_files == 0


# ---- what no checksum covers: base offset and leader epoch


EPOCH_AT, HIGH_BYTE = 12, 1
"""Where a batch holds its leader epoch; and which byte of it a rotten bit makes large."""
SOME_BYTE = 6
"""As that, of an offset: beyond what is in the log."""


@pytest.mark.parametrize("byte", [HIGH_BYTE, SOME_BYTE, EPOCH_AT + HIGH_BYTE])
@pytest.mark.parametrize("number", [0, 3, 9, 20, 29])
def test_a_batch_that_later_ones_contradict_is_not_kept(byte: int, number: int) -> None:
    """A rotten bit that makes an offset or an epoch larger must not be what a log ends with."""
    disk = memory_disk()
    log = open_log(disk)
    filled(log, 32)
    records = read_records(log)
    base = next(base for base in reversed(log.segment_base_offsets) if base <= 2 * number)
    position = (number - base // 2) * len(batch_of(b"v0000", b"w0000"))
    overwrite(disk, f"{base:020d}.log", position + byte, b"\x01")
    recovered = open_log(disk)
    assert recovered.log_end_offset == 2 * number
    assert read_records(recovered) == records[: 2 * number]
    assert recovered.epochs.entries == (((1, 0),) if number else ())
    assert recovered.recovery.reason
    assert recovered.recovery.truncated_bytes > 0
    end = recovered.append_as_leader(batch_of(b"next"), leader_epoch=5).last_offset
    assert read_records(recovered)[-1] == (end, 5, b"next")
    recovered.close()
    assert read_records(open_log(disk, clean=True)) == read_records(open_log(disk))


def test_an_epoch_that_is_known_is_not_doubted_for_an_older_one_behind_it() -> None:
    disk = memory_disk()
    log = open_log(disk)
    filled(log, 3, leader_epoch=1)
    lead(log, 5)
    filled(log, 3, leader_epoch=5)
    last = log.size_bytes - len(batch_of(b"v0000", b"w0000"))
    overwrite(disk, active_file(log), last + EPOCH_AT + 3, b"\x01")
    recovered = open_log(disk)
    assert recovered.log_end_offset == 10
    assert recovered.epochs.entries == ((1, 0), (5, 6))


@pytest.mark.parametrize("byte", [HIGH_BYTE, SOME_BYTE, EPOCH_AT + HIGH_BYTE])
@pytest.mark.parametrize("number", [0, 2, 3])
def test_what_was_flushed_is_damaged_if_what_came_later_contradicts_it(byte: int, number: int) -> None:
    disk = memory_disk()
    log = open_log(disk)
    filled(log, 4)
    log.sync()
    filled(log, 2)
    position = number * len(batch_of(b"v0000", b"w0000"))
    overwrite(disk, active_file(log), position + byte, b"\x01")
    with pytest.raises(LogCorruptError, match=r"contradicts this one|its segment ends") as error:
        open_log(disk, recovery_point=8)
    assert error.value.position == position


def test_what_was_flushed_and_is_right_outlives_a_later_contradiction() -> None:
    disk = memory_disk()
    log = open_log(disk)
    filled(log, 4)
    log.sync()
    filled(log, 2)
    position = 4 * len(batch_of(b"v0000", b"w0000"))
    overwrite(disk, active_file(log), position + 7, b"\x02")
    recovered = open_log(disk, recovery_point=8)
    assert recovered.log_end_offset == 8


def unflushed(epochs: tuple[int, ...]) -> tuple[SimulatedDisk, int]:
    """A log of one segment, a record a batch, of which nothing was flushed; and where its last batch begins."""
    disk = memory_disk()
    log = open_log(disk)
    for number, epoch in enumerate(epochs):
        log.append_as_leader(batch_of(b"v%04d" % number), leader_epoch=epoch)
    assert len(log.segment_base_offsets) == 1
    return disk, log.size_bytes - len(batch_of(b"v0000"))


@pytest.mark.parametrize("offset", [0, 1, 3, 4])
def test_a_batch_that_goes_back_takes_no_sound_ones_along(offset: int) -> None:
    disk, last = unflushed((1,) * 6)
    overwrite(disk, f"{0:020d}.log", last + 7, bytes([offset]))
    recovered = open_log(disk)
    assert recovered.log_end_offset == 5
    assert f"goes back to offset {offset}" in str(recovered.recovery.reason)


@pytest.mark.parametrize("epoch", [0, 1])
def test_an_epoch_that_goes_back_takes_no_sound_batches_along(epoch: int) -> None:
    """The later epoch is in no file yet; two batches that have it confirm each other."""
    disk, last = unflushed((1, 1, 3, 3, 3, 3))
    overwrite(disk, f"{0:020d}.log", last + EPOCH_AT + 3, bytes([epoch]))
    recovered = open_log(disk)
    assert recovered.log_end_offset == 5
    assert recovered.epochs.entries == ((1, 0), (3, 2))


def test_where_a_gap_leaves_two_batches_in_doubt_neither_is_kept() -> None:
    disk = memory_disk()
    log = open_log(disk)
    for base_offset in (0, 1, 5, 6):
        log.append_as_follower(batch_of(b"v", base_offset=base_offset, leader_epoch=1))
    last = log.size_bytes - len(batch_of(b"v"))
    overwrite(disk, active_file(log), last + 7, b"\x04")
    assert open_log(disk).log_end_offset == 2, "4 may be right, and 5 have been 2 or 3"


def test_a_batch_that_goes_back_behind_a_gap_says_nothing_of_the_gap() -> None:
    disk = memory_disk()
    log = open_log(disk)
    for base_offset in (0, 1, 5, 6):
        log.append_as_follower(batch_of(b"v", base_offset=base_offset, leader_epoch=1))
    last = log.size_bytes - len(batch_of(b"v"))
    overwrite(disk, active_file(log), last + 7, b"\x02")
    assert open_log(disk).log_end_offset == 6, "5 would not fit between 1 and 2"
