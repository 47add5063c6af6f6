"""Bit rot: what a process neither wrote nor checked is checked before it is handed out."""

from __future__ import annotations

import pytest

from partitions.disk import Disk
from partitions.log import checked_bytes
from partitions.log.errors import BatchDamaged, LogCorruptError, LogStorageError
from partitions.log.log import PartitionLog
from partitions.log.storage import LogStorage
from partitions.topic_partition import TopicPartition
from tests.support.logs import (
    FOLDER,
    PARTITION,
    SMALL,
    batch_of,
    halt,
    memory_disk,
    open_log,
    read_records,
)

RECORDS = 40


def filled(disk: Disk, count: int = RECORDS) -> PartitionLog:
    log = open_log(disk)
    append(log, count)
    return log


def append(log: PartitionLog, count: int) -> None:
    for number in range(log.log_end_offset, log.log_end_offset + count):
        log.append_as_leader(batch_of(b"value-%04d" % number), leader_epoch=0)


def reopened(disk: Disk) -> PartitionLog:
    """What the next process finds, after a clean end."""
    return open_log(disk, clean=True)


def rot(disk: Disk, log: PartitionLog, offset: int) -> str:
    """Changes a byte in the value of the record at `offset`; returns the file's path."""
    base = max(start for start in log.segment_base_offsets if start <= offset)
    path = f"{FOLDER}/{base:020d}.log"
    file = disk.open(path)
    content = file.read(0, file.size())
    at = content.index(b"value-%04d" % offset)
    file.write_at(at, bytes([content[at] ^ 1]))
    return path


def values(log: PartitionLog, offset: int | None = None) -> list[bytes | None]:
    return [record.value for record in read_records(log, offset)]


def all_values(count: int = RECORDS) -> list[bytes]:
    return [b"value-%04d" % number for number in range(count)]


def test_damage_is_found_at_the_first_read_and_nothing_of_it_is_handed_out() -> None:
    disk = memory_disk()
    filled(disk).close()
    log = reopened(disk)
    path = rot(disk, log, 3)
    with pytest.raises(BatchDamaged) as raised:
        log.read(0, 10_000, up_to_offset=RECORDS)
    assert raised.value.path == path
    assert raised.value.position > 0
    # Elsewhere nothing is wrong.
    assert values(log, 20) == all_values()[20:]


def test_an_offset_behind_the_damage_in_the_same_piece_of_the_index_is_no_way_around_it() -> None:
    """What is read starts at an index entry: a reader cannot tell which of the batches before its own is wrong."""
    disk = memory_disk()
    filled(disk).close()
    log = reopened(disk)
    rot(disk, log, 0)
    with pytest.raises(BatchDamaged):
        log.read(1, 10_000, up_to_offset=RECORDS)


def test_what_was_checked_once_is_not_checked_again_unless_it_is_distrusted() -> None:
    disk = memory_disk()
    filled(disk).close()
    log = reopened(disk)
    assert values(log) == all_values()
    rot(disk, log, 5)
    log.read(5, 10, up_to_offset=RECORDS)
    log.distrust()
    with pytest.raises(BatchDamaged):
        log.read(5, 10, up_to_offset=RECORDS)


def test_what_this_process_wrote_is_handed_out_unread_until_it_is_distrusted() -> None:
    disk = memory_disk()
    log = filled(disk)
    rot(disk, log, 5)
    log.read(5, 10, up_to_offset=RECORDS)
    log.distrust()
    append(log, 10)
    assert values(log, RECORDS) == all_values(RECORDS + 10)[RECORDS:]
    with pytest.raises(BatchDamaged):
        log.read(5, 10, up_to_offset=RECORDS)


def test_the_active_segment_is_checked_up_to_where_it_was_found() -> None:
    disk = memory_disk()
    filled(disk, 5).close()
    log = reopened(disk)
    append(log, 5)
    assert len(log.segment_base_offsets) == 1
    rot(disk, log, 7)
    log.read(5, 10_000, up_to_offset=10)
    rot(disk, log, 2)
    with pytest.raises(BatchDamaged):
        log.read(0, 10_000, up_to_offset=10)


def test_recovery_counts_as_a_check() -> None:
    disk = memory_disk()
    filled(disk).sync()
    log = open_log(disk)
    rot(disk, log, 5)
    log.read(5, 10, up_to_offset=RECORDS)


def test_segments_below_the_recovery_point_are_checked_at_their_first_read() -> None:
    disk = memory_disk()
    filled(disk).sync()
    log = open_log(disk, recovery_point=RECORDS)
    rot(disk, log, 1)
    rot(disk, log, RECORDS - 1)
    log.read(RECORDS - 1, 10_000, up_to_offset=RECORDS)  # recovery has read the last segment
    with pytest.raises(BatchDamaged):
        log.read(0, 10_000, up_to_offset=RECORDS)


@pytest.mark.parametrize("cut", [3, 12, 38])
def test_after_a_truncation_the_rest_is_checked_and_what_follows_is_known(cut: int) -> None:
    disk = memory_disk()
    filled(disk).close()
    log = reopened(disk)
    log.truncate_to(cut)
    append(log, 10)
    assert values(log) == all_values(cut + 10)
    rot(disk, log, cut + 1)
    log.read(cut + 1, 10_000, up_to_offset=cut + 10)
    log.truncate_fully_and_start_at(100)
    append(log, 1)
    rot(disk, log, 100)
    log.read(100, 10_000, up_to_offset=101)


def test_one_read_checks_so_much_and_the_next_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = memory_disk()
    filled(disk).close()
    monkeypatch.setattr(checked_bytes, "MAX_BYTES_PER_READ", 200)
    log = reopened(disk)
    first = log.read(0, 10_000, up_to_offset=RECORDS)
    assert 0 < first.size_bytes < 400
    assert 0 < first.next_offset < RECORDS
    assert values(log) == all_values()
    assert log.read(0, 10_000, up_to_offset=RECORDS).size_bytes > 400


def test_a_batch_larger_than_a_check_is_checked_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = memory_disk()
    monkeypatch.setattr(checked_bytes, "MAX_BYTES_PER_READ", 100)
    log = open_log(disk)
    for _ in range(3):
        log.append_as_leader(batch_of(b"x" * 300), leader_epoch=0)
    log.close()
    log = reopened(disk)
    assert values(log) == [b"x" * 300] * 3


@pytest.mark.parametrize("field", ["offset", "epoch"])
def test_what_the_checksum_does_not_cover_has_to_be_in_order(field: str) -> None:
    disk = memory_disk()
    filled(disk, 10).close()
    log = reopened(disk)
    file = disk.open(f"{FOLDER}/{0:020d}.log")
    second = len(batch_of(b"value-0001"))
    # The second batch says that it begins at offset 0; or the first that it is of epoch 1, and others of 0.
    file.write_at(second + 7, b"\x00") if field == "offset" else file.write_at(15, b"\x01")
    with pytest.raises(
        BatchDamaged, match=r"is of leader epoch 1, and leader-epoch-checkpoint says 0|has the offsets 0 to 0"
    ):
        log.read(0, 10_000, up_to_offset=10)


def test_an_index_that_leads_astray_is_rebuilt() -> None:
    disk = memory_disk()
    filled(disk).close()
    index = f"{FOLDER}/{0:020d}.index"
    content = disk.read_bytes(index)
    assert len(content) >= 16
    for broken in (
        content[:4] + (int.from_bytes(content[4:8], "big") + 3).to_bytes(4, "big") + content[8:],
        # The first entry's offset at the second one's place: batches would be skipped.
        content[:4] + content[12:16] + content[8:],
    ):
        disk.open(index).write_at(0, broken)
        log = reopened(disk)
        for offset in reversed(range(10)):
            result = log.read(offset, 1, up_to_offset=RECORDS)
            assert result.start_offset == offset
        log.close()
        assert disk.read_bytes(index) == content


def test_a_log_that_was_found_damaged_is_reported_once() -> None:
    disk = memory_disk()
    filled(disk).close()
    told: list[tuple[TopicPartition, LogCorruptError]] = []
    storage = LogStorage(disk, halt, on_lost=lambda partition, error: told.append((partition, error)))
    log = PartitionLog.open(
        disk, FOLDER, PARTITION, SMALL, now_ms=lambda: 0, halt=halt, clean_shutdown=True, storage=storage
    )
    rot(disk, log, 3)
    with pytest.raises(LogCorruptError):
        log.read(0, 10_000, up_to_offset=RECORDS)
    ((partition, error),) = told
    assert partition == PARTITION
    assert "checksum" in str(error)
    log.abandon()
    with pytest.raises(LogStorageError):
        log.read(0, 10_000, up_to_offset=RECORDS)
    log.note_damage(error)
    assert len(told) == 1


def test_damaged_headers_are_damage_whatever_the_index_says() -> None:
    disk = memory_disk()
    filled(disk).close()
    log = reopened(disk)
    disk.open(f"{FOLDER}/{0:020d}.log").write_at(8, b"\x7f")  # the first batch's length
    with pytest.raises(LogCorruptError):
        log.read(0, 10_000, up_to_offset=RECORDS)


def test_a_lookup_by_time_answers_nothing_that_was_not_checked() -> None:
    disk = memory_disk()
    filled(disk).close()
    file = disk.open(f"{FOLDER}/{0:020d}.log")
    file.write_at(1, b"\x40")  # the first batch's base offset, which no checksum covers
    log = reopened(disk)
    with pytest.raises(LogCorruptError):
        log.offset_for_timestamp(1)
