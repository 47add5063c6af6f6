"""Both ends of a log: truncation, deletion of segments, retention."""

from __future__ import annotations

import dataclasses

import pytest

from partitions.log.errors import LogCorruptError, OffsetOutOfRange
from partitions.log.log import PartitionLog
from partitions.records.batch import iter_batches
from tests.support.logs import (
    FOLDER,
    SMALL,
    FailingDisk,
    batch_of,
    lead,
    memory_disk,
    open_log,
    read_records,
    retain,
)


def filled(log: PartitionLog, batches: int = 30, *, leader_epoch: int = 1) -> None:
    for number in range(batches):
        log.append_as_leader(
            batch_of(b"v%04d" % number, b"w%04d" % number, timestamp=1000 + number), leader_epoch=leader_epoch
        )


@pytest.mark.parametrize("offset", range(0, 61))
def test_truncation_keeps_whole_batches_below_the_offset(offset: int) -> None:
    disk = memory_disk()
    log = open_log(disk)
    for epoch in range(3):
        filled(log, 10, leader_epoch=epoch)
    before = read_records(log)
    log.truncate_to(offset)
    kept = offset - offset % 2
    assert log.log_end_offset == kept
    assert read_records(log) == before[:kept]
    assert log.epochs.entries == tuple((epoch, 20 * epoch) for epoch in range(3) if 20 * epoch < kept)
    assert log.producers.state.end_offset == kept
    filled(log, 10, leader_epoch=7)
    assert read_records(log)[:kept] == before[:kept]
    for reopened in (open_log(disk), _reopened_cleanly(log, disk)):
        assert (reopened.log_end_offset, reopened.epochs) == (kept + 20, log.epochs)


@pytest.mark.parametrize("offset", [20, 40])
def test_a_rotten_header_takes_no_sound_batch_along(offset: int) -> None:
    """The length of the batch in records has rotted: by its header it reaches any offset."""
    disk = memory_disk()
    log = open_log(disk)
    filled(log)
    content = disk.read_bytes(f"{FOLDER}/{0:020d}.log")
    at = next(position for position, header in iter_batches(content) if header.base_offset == 4)
    disk.open(f"{FOLDER}/{0:020d}.log").write_at(
        at + 23, b"\x01"
    )  # the highest byte of its last offset delta
    log.truncate_to(offset)  # in a later segment, or at least behind the index entries of this one
    assert log.log_end_offset == offset
    with pytest.raises(LogCorruptError, match="goes back to offset 6"):
        log.truncate_to(6)
    assert log.log_end_offset == offset


def _reopened_cleanly(log: PartitionLog, disk: object) -> PartitionLog:
    log.close()
    return open_log(disk, clean=True)  # type: ignore[arg-type]


def test_truncating_to_the_end_still_drops_an_epoch_without_records() -> None:
    log = open_log(memory_disk())
    filled(log, 2, leader_epoch=1)
    lead(log, 3)
    assert log.end_offset_for_epoch(3) == (3, 4)
    log.truncate_to(4)
    assert log.epochs.entries == ((1, 0),)
    assert log.end_offset_for_epoch(3) == (-1, -1)


def test_truncation_is_durable_before_the_next_append() -> None:
    disk = FailingDisk(memory_disk())
    log = open_log(disk)
    filled(log)
    disk.calls.clear()
    log.truncate_to(6)
    assert ("sync", f"{FOLDER}/00000000000000000000.log") in disk.calls
    removed = max(index for index, call in enumerate(disk.calls) if call[0] == "remove")
    assert ("sync_dir", FOLDER) in disk.calls[removed:]


def test_a_new_beginning() -> None:
    disk = memory_disk()
    log = open_log(disk)
    filled(log)
    log.truncate_fully_and_start_at(500)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (500, 500, 500)
    assert (log.epochs.entries, log.size_bytes, read_records(log)) == ((), 0, [])
    log.append_as_leader(batch_of(b"x"), leader_epoch=2)
    assert read_records(open_log(disk)) == [(500, 2, b"x")]


def test_truncation_below_the_first_segment_starts_anew() -> None:
    log = open_log(memory_disk())
    filled(log)
    first = log.segment_base_offsets[1]
    log.delete_segments_before(first)
    log.truncate_to(first - 4)
    assert (log.log_start_offset, log.log_end_offset) == (first - 4, first - 4)


def test_deletion_raises_the_start_and_takes_whole_segments() -> None:
    disk = memory_disk()
    log = open_log(disk)
    for epoch in range(3):
        filled(log, 10, leader_epoch=epoch)
    bases = log.segment_base_offsets
    assert log.delete_segments_before(bases[2] + 1) == 2
    assert (log.log_start_offset, log.segment_base_offsets) == (bases[2] + 1, bases[2:])
    assert log.delete_segments_before(bases[2]) == 0
    assert not [name for name in disk.list_dir(FOLDER) if name.startswith(f"{bases[1]:020d}")]
    with pytest.raises(OffsetOutOfRange):
        log.read(bases[2], 100, up_to_offset=60)
    assert [record.offset for record in read_records(log)] == list(range(bases[2] + 1, 60))
    assert log.epochs.earliest_entry == (log.epochs.epoch_for_offset(bases[2] + 1), bases[2])
    assert log.delete_segments_before(10_000) == len(bases) - 3
    assert (log.log_start_offset, log.log_end_offset) == (60, 60)
    filled(log, 1, leader_epoch=5)
    assert [record.offset for record in read_records(log)] == [60, 61]


def test_the_epoch_of_deleted_records_outlives_a_crash() -> None:
    disk = memory_disk()
    log = open_log(disk)
    filled(log, 10, leader_epoch=1)
    log.sync()
    filled(log, 10, leader_epoch=3)
    log.roll()
    log.delete_segments_before(40)
    assert (log.log_start_offset, log.epochs.entries) == (40, ((3, 40),))
    reopened = open_log(disk, recovery_point=log.recovery_point)
    assert (reopened.log_end_offset, reopened.epochs.entries) == (40, ((3, 40),))


def test_retention_by_time() -> None:
    log = open_log(memory_disk(), dataclasses.replace(SMALL, retention_ms=100))
    filled(log)
    bases = log.segment_base_offsets
    assert retain(log, 1100, 60) == 0
    newest_of_first = 1000 + bases[1] // 2 - 1
    assert retain(log, newest_of_first + 100, 60) == 0
    assert retain(log, newest_of_first + 101, 60) == 1
    assert log.log_start_offset == bases[1]
    # Everything is too old: the active segment is closed and goes as well.
    assert retain(log, 10_000, 60) == len(bases) - 1
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (60, 60, 0)


def test_retention_never_passes_the_high_watermark() -> None:
    log = open_log(memory_disk(), dataclasses.replace(SMALL, retention_ms=100))
    filled(log)
    bases = log.segment_base_offsets
    assert retain(log, 10_000, bases[2] - 1) == 1
    assert log.log_start_offset == bases[1]


def test_retention_by_size_keeps_at_least_the_limit() -> None:
    log = open_log(memory_disk(), dataclasses.replace(SMALL, retention_bytes=1500, retention_ms=-1))
    filled(log)
    sizes_before = log.size_bytes
    deleted = retain(log, 10_000, 60)
    assert deleted > 0
    assert sizes_before > log.size_bytes >= 1500
    assert retain(log, 10_000, 60) == 0


def test_no_limits_delete_nothing() -> None:
    log = open_log(memory_disk(), dataclasses.replace(SMALL, retention_bytes=-1, retention_ms=-1))
    filled(log)
    assert retain(log, 2**60, 60) == 0
