"""Closed segments that are missing, empty or shorter than they were: a log with a hole is never handed out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from partitions.log.errors import BatchDamaged, LogCorruptError, SegmentEndsElsewhere
from partitions.log.inspection.findings import Findings
from partitions.log.inspection.log_state import Expected
from partitions.log.inspection.partition_check import check_partition
from partitions.log.log import PartitionLog
from partitions.log.opening.damage_note import DAMAGE_NOTE, LogExtent, check_damage_note, write_damage_note
from partitions.log.storage import LogStorage
from partitions.records.batch import iter_batches
from tests.support.logs import (
    FOLDER,
    SMALL,
    FailingDisk,
    batch_of,
    halt,
    memory_disk,
    open_log,
    read_records,
)

CONFIG = replace(SMALL, index_interval_bytes=350)
"""No index names the last batch of a segment."""
Damage = Callable[[FailingDisk, int], None]
SUFFIXES = (".log", ".index", ".timeindex", ".snapshot")


def path_of(base: int, suffix: str = ".log") -> str:
    return f"{FOLDER}/{base:020d}{suffix}"


def written() -> tuple[FailingDisk, tuple[int, ...], int]:
    """A closed log of several segments; their base offsets, and the log's end."""
    disk = FailingDisk(memory_disk())
    log = open_log(disk, CONFIG)
    for number in range(60):
        log.append_as_leader(batch_of(b"value-%d" % number, timestamp=1000 + number), leader_epoch=1)
    log.close()
    bases = log.segment_base_offsets
    assert len(bases) > 4
    return disk, bases, log.log_end_offset


def opened(disk: FailingDisk, end: int, *, clean: bool) -> PartitionLog:
    return open_log(disk, CONFIG, clean=clean, recovery_point=end)


def remove_log(disk: FailingDisk, base: int) -> None:
    disk.inner.remove(path_of(base))


def remove_all(disk: FailingDisk, base: int) -> None:
    for suffix in SUFFIXES:
        if disk.inner.exists(path_of(base, suffix)):
            disk.inner.remove(path_of(base, suffix))


def empty(disk: FailingDisk, base: int) -> None:
    disk.inner.open(path_of(base)).truncate(0)


def cut_at(disk: FailingDisk, base: int, batches: int) -> None:
    """Leaves so many batches; below 0: all but so many."""
    starts = [position for position, _ in iter_batches(disk.read_bytes(path_of(base)))]  # type: ignore[operator]
    disk.inner.open(path_of(base)).truncate(starts[batches])


def cut_in_half(disk: FailingDisk, base: int) -> None:
    cut_at(disk, base, 3)


def cut_last_batch(disk: FailingDisk, base: int) -> None:
    cut_at(disk, base, -1)


SEEN_AT_LOAD = [remove_log, empty, cut_in_half]
"""Where a name, a length or an index entry tells; of the others only headers do."""


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "crashed"])
@pytest.mark.parametrize("damage", SEEN_AT_LOAD)
def test_a_log_with_a_hole_is_not_opened(damage: Damage, clean: bool) -> None:
    disk, bases, end = written()
    damage(disk, bases[1])
    files = {name: disk.inner.read_bytes(f"{FOLDER}/{name}") for name in disk.inner.list_dir(FOLDER)}
    for _ in range(2):  # the evidence stays
        with pytest.raises(LogCorruptError) as raised:
            opened(disk, end, clean=clean)
        assert raised.value.path == path_of(bases[1])
    assert {name: disk.inner.read_bytes(f"{FOLDER}/{name}") for name in disk.inner.list_dir(FOLDER)} == files


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "crashed"])
@pytest.mark.parametrize("damage", [remove_all, empty, cut_in_half, cut_last_batch])
def test_no_reader_is_led_over_a_hole(damage: Damage, clean: bool) -> None:
    """Also where the hole came after the start, or nothing has shown it there."""
    for offset in range(written()[1][2]):
        disk, bases, end = written()
        if damage in SEEN_AT_LOAD:
            log = opened(disk, end, clean=clean)
            damage(disk, bases[1])
        else:
            damage(disk, bases[1])
            log = opened(disk, end, clean=clean)
        try:
            while offset < end:
                offset, before = read_on(log, offset), offset
                assert offset > before
        except SegmentEndsElsewhere:
            assert offset < bases[2]
            continue
        pytest.fail("the log was read to its end")


def read_on(log: PartitionLog, offset: int) -> int:
    """Reads a piece, which has to hold every offset; returns where it ends."""
    result = log.read(offset, 500, up_to_offset=log.log_end_offset)
    due = result.start_offset
    for part in result.slices:
        for _, header in iter_batches(part.read()):
            assert header.base_offset == due
            due = header.next_offset
    assert result.next_offset == due
    return due


@pytest.mark.parametrize("damage", [empty, cut_in_half, cut_last_batch])
def test_no_index_is_made_anew_of_a_segment_that_was_cut(damage: Damage) -> None:
    disk, bases, end = written()
    log = opened(disk, end, clean=True)
    damage(disk, bases[1])
    index = disk.inner.read_bytes(path_of(bases[1], ".index"))
    with pytest.raises(BatchDamaged):
        log._segments[1].remake_indexes()
    assert disk.inner.read_bytes(path_of(bases[1], ".index")) == index
    with pytest.raises(BatchDamaged):
        log.offset_for_timestamp(1000 + bases[2] - 1)
    assert disk.inner.read_bytes(path_of(bases[1], ".index")) == index


@pytest.mark.parametrize("damage", [empty, cut_last_batch])
def test_no_missing_index_is_made_of_a_segment_that_was_cut(damage: Damage) -> None:
    disk, bases, end = written()
    damage(disk, bases[1])
    disk.inner.remove(path_of(bases[1], ".index"))
    with pytest.raises(SegmentEndsElsewhere):
        opened(disk, end, clean=True)


def test_an_index_that_names_what_the_file_never_held_is_made_anew() -> None:
    disk, bases, end = written()
    right = disk.inner.read_bytes(path_of(bases[1], ".index"))
    disk.inner.open(path_of(bases[1], ".index")).write_at(len(right) - 4, b"\x7f\xff\xff\xff")
    log = opened(disk, end, clean=True)
    assert len(read_records(log)) == end
    log.offset_for_timestamp(1000 + bases[1] + 1)
    assert disk.inner.read_bytes(path_of(bases[1], ".index")) == right


def test_leftover_indexes_at_both_ends_are_removed() -> None:
    """Deletion leaves some before the first segment, a truncation that was cut off behind the last one."""
    disk, bases, end = written()
    remove_log(disk, bases[0])
    leftovers = [path_of(end + 7, ".index"), path_of(end + 7, ".timeindex")]
    for path in leftovers:
        disk.inner.open(path, create=True).append([b"12345678"])
    log = opened(disk, end, clean=True)
    assert log.log_start_offset == bases[1]
    leftovers += [path_of(bases[0], ".index"), path_of(bases[0], ".timeindex")]
    assert not any(disk.inner.exists(path) for path in leftovers)


def test_an_index_above_the_recovery_point_is_left_to_the_recovery() -> None:
    """A power loss may keep some of the names that were made since the last flush, and not others."""
    disk, bases, _ = written()
    remove_log(disk, bases[2])
    log = open_log(disk, CONFIG, recovery_point=bases[1])
    assert log.log_end_offset == bases[2]
    assert not disk.inner.exists(path_of(bases[2], ".index"))
    assert len(read_records(log)) == bases[2]


@pytest.mark.parametrize("restored", [True, False])
def test_a_hole_that_was_met_is_known_to_the_next_start(restored: bool) -> None:
    disk, bases, end = written()
    paths = [path_of(bases[1], suffix) for suffix in SUFFIXES]
    kept = {path: disk.inner.read_bytes(path) for path in paths if disk.inner.exists(path)}
    remove_all(disk, bases[1])
    log = opened(disk, end, clean=True)
    with pytest.raises(SegmentEndsElsewhere) as raised:
        read_records(log)
    write_damage_note(disk, FOLDER, raised.value, LogExtent(bases, end))
    if restored:
        for path, content in kept.items():
            disk.inner.open(path, create=True).append([content])
        check_damage_note(LogStorage(disk, halt), FOLDER)
        assert len(read_records(opened(disk, end, clean=True))) == end
    else:
        with pytest.raises(LogCorruptError):
            check_damage_note(LogStorage(disk, halt), FOLDER)
    assert disk.inner.exists(f"{FOLDER}/{DAMAGE_NOTE}") is not restored


def test_verify_tells_of_a_lost_file() -> None:
    disk, bases, _ = written()
    remove_log(disk, bases[2])
    findings = Findings()
    check_partition(disk, FOLDER, Expected(has_holes=True), findings)  # type: ignore[arg-type]
    assert any(error.path == path_of(bases[2]) for error in findings.errors)
    assert not any(note.path.startswith(path_of(bases[2], "")) for note in findings.notes)


def leader_with_holes(disk: FailingDisk) -> list[bytes]:
    """Batches as a compacted log has them: offsets are missing before, between and behind any of them."""
    log = open_log(disk, CONFIG)
    for number in range(120):
        log.append_as_leader(batch_of(b"value-%d" % number, timestamp=1000 + number), leader_epoch=1)
    return [batch for number, batch in enumerate(all_batches(log)) if number % 5 in (1, 3) or number == 119]


def all_batches(log: PartitionLog) -> list[bytes]:
    found: list[bytes] = []
    offset = 0
    while offset < log.log_end_offset:
        result = log.read(offset, 500, up_to_offset=log.log_end_offset)
        for part in result.slices:
            data = part.read()
            found += [data[at : at + header.size_bytes] for at, header in iter_batches(data)]
        offset = result.next_offset
    return found


@pytest.mark.parametrize("at_once", [1, 2, 5, 24])
@pytest.mark.parametrize("clean", [True, False], ids=["closed", "crashed"])
def test_a_copy_of_a_compacted_log_is_whole_wherever_its_segments_end(at_once: int, clean: bool) -> None:
    """A follower begins a segment where its log ended, not where the next batch begins: holes are inside."""
    batches = leader_with_holes(FailingDisk(memory_disk()))
    disk = FailingDisk(memory_disk())
    log = open_log(disk, CONFIG)
    for first in range(0, len(batches), at_once):
        log.append_as_follower(b"".join(batches[first : first + at_once]))
    records = read_records(log)
    assert len(log.segment_base_offsets) > 2
    log.close()
    for recovery_point in (log.log_end_offset, 0):
        log = open_log(disk, CONFIG, clean=clean, recovery_point=recovery_point)
        assert read_records(log) == records
        assert log.recovery.truncated_bytes == 0
        log.close()
