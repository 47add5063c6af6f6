"""Indexes in memory and mapped: which of the two a segment has, what stays loaded, what the disk maps."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kraft.runtime.disk import RealDisk
from partitions.disk import Disk
from partitions.log.config import LogConfig
from partitions.log.errors import DirectoryFailed, LogCorruptError, LogError, LogStorageError
from partitions.log.flushes import run_flush
from partitions.log.index import OffsetIndex, OffsetIndexView, TimeIndex
from partitions.log.log import PartitionLog
from partitions.log.storage import LogStorage
from partitions.records.batch import iter_batches
from partitions.topic_partition import TopicPartition
from tests.support.logs import (
    FOLDER,
    PARTITION,
    FailingDisk,
    batch_of,
    halt,
    memory_disk,
    new_storage,
    open_log,
    read_records,
    simulated_disk,
)

DENSE = LogConfig(segment_bytes=20_000, index_interval_bytes=0, max_message_bytes=800)
"""Index files of more than a page."""


def log_on(disk: Disk, folder: str, *, mapped: int = 100, clean: bool = True) -> PartitionLog:
    return PartitionLog.open(
        disk,
        folder,
        PARTITION,
        DENSE,
        now_ms=lambda: 1000,
        halt=halt,
        clean_shutdown=clean,
        storage=LogStorage(disk, halt, max_loaded_indexes=mapped),
    )


def filled(log: PartitionLog, count: int) -> None:
    for number in range(count):
        log.append_as_leader(batch_of(b"%d" % number, timestamp=1000 + number), leader_epoch=0)


def test_making_indexes_anew_in_vain_does_not_make_their_files_known() -> None:
    """After a clean start the indexes may come from the data: what the files say has been read by nobody."""
    disk, config = memory_disk(), LogConfig(segment_bytes=40_000, index_interval_bytes=300)
    log = open_log(disk, config)
    filled(log, 3)
    log.close()
    data_path, time_path = (f"{FOLDER}/{0:020}{suffix}" for suffix in (".log", ".timeindex"))
    disk.open(time_path, create=True).write_at(0, (9_000_000).to_bytes(8, "big") + (2).to_bytes(4, "big"))
    log = open_log(disk, config, clean=True)
    data = disk.open(data_path)
    length = data.read(8, 4)
    data.write_at(8, b"\xff" * 4)
    with pytest.raises(LogCorruptError):
        log._segments.active.remake_indexes()
    data.write_at(8, length)
    filled(log, 30)
    log.roll()
    entries = disk.read_bytes(time_path)
    assert max(struct.unpack(">" + "qi" * (len(entries) // 12), entries)[::2]) == 1029


def loaded(log: PartitionLog) -> list[int]:
    """The base offsets of the closed segments whose indexes are there."""
    return [one.base_offset for one in list(log._segments)[:-1] if one.indexes.offsets is not None]


def test_a_closed_segment_has_no_index_in_memory() -> None:
    log = open_log(memory_disk())
    filled(log, 60)
    assert len(log.segment_base_offsets) > 3
    assert loaded(log) == []
    first = log._segments.first
    assert type(first.offset_index) is OffsetIndexView
    assert isinstance(log._segments.active.offset_index, OffsetIndex)


def test_so_many_indexes_stay_loaded_and_no_more() -> None:
    log = log_on(memory_disk(), FOLDER, mapped=3)
    filled(log, 2000)
    count = len(log.segment_base_offsets)
    assert count > 6
    for offset in (*range(0, 2000, 40), *range(2000, 0, -40)):
        assert log.read(min(offset, 1999), 1, up_to_offset=2000).slices
        assert len(loaded(log)) <= 3
    found = log.offset_for_timestamp(2500)
    assert found is not None
    assert found.offset == 1500
    assert len(loaded(log)) <= 3


def test_recovery_leaves_the_indexes_of_closed_segments_in_their_files() -> None:
    disk = memory_disk()
    filled(open_log(disk), 60)
    log = open_log(disk)
    assert len(log.segment_base_offsets) > 3
    assert [one for one in list(log._segments)[:-1] if one.indexes.growing is not None] == []
    log.close()
    assert open_log(disk, clean=True).segment_base_offsets == log.segment_base_offsets


def test_a_lookup_looks_at_a_few_entries_of_a_large_index(tmp_path: Path) -> None:
    log = log_on(RealDisk(), str(tmp_path / "orders-3"))
    filled(log, 1200)
    first = log._segments.first
    assert len(first.offset_index) * 8 > os.sysconf("SC_PAGESIZE") // 4
    grown = OffsetIndex(Path(first.indexes.paths[0]).read_bytes())
    times = TimeIndex(Path(first.indexes.paths[1]).read_bytes())
    for offset in range(-1, len(grown) + 3):
        assert first.offset_index.floor(offset) == grown.floor(offset)
        assert first.time_index.floor(1000 + offset) == times.floor(1000 + offset)


def test_truncation_into_a_closed_segment_takes_its_indexes_into_memory_first(tmp_path: Path) -> None:
    folder = tmp_path / "orders-3"
    log = log_on(RealDisk(), str(folder))
    filled(log, 1000)
    held = log._segments.first.offset_index  # a mapping that somebody still looks at
    end = held.last_relative_offset
    log.truncate_to(100)
    assert isinstance(log._segments.active.offset_index, OffsetIndex)
    assert log._segments.active.offset_index.last_relative_offset <= 100
    assert log.log_end_offset == 100
    filled(log, 600)
    assert [record.offset for record in read_records(log)] == list(range(700))
    log.close()
    again = log_on(RealDisk(), str(folder))
    assert again._segments.first.offset_index.last_relative_offset >= end
    assert [record.offset for record in read_records(again)] == list(range(700))


def test_damaged_index_files_are_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "orders-3"
    log = log_on(RealDisk(), str(folder))
    filled(log, 1000)
    log.close()
    for suffix, damage in ((".index", b"abc"), (".timeindex", b"")):
        path = folder / f"{0:020d}{suffix}"
        right = path.read_bytes()
        path.write_bytes(right + damage if damage else b"")
        again = log_on(RealDisk(), str(folder))
        found = again.offset_for_timestamp(1050)
        assert found is not None
        assert found.offset == 50
        again.close()
        assert path.read_bytes() == right


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, 100_000])
def test_a_mapped_file_stays_readable_when_it_grows_or_goes(tmp_path: Path, size: int) -> None:
    path, content = tmp_path / "some.index", os.urandom(size)
    path.write_bytes(content)
    mapped = RealDisk().map(str(path))
    with path.open("ab") as file:
        file.write(b"more")
    assert bytes(mapped) == content
    path.rename(tmp_path / "other")
    (tmp_path / "other").unlink()
    assert bytes(mapped) == content
    if size:
        with pytest.raises(TypeError):
            mapped[0] = 1  # type: ignore[index]


def test_the_simulated_disk_maps_alike() -> None:
    disk = memory_disk()
    file = disk.open("/data/x", create=True)
    file.append([b"abc"])
    mapped = disk.map("/data/x")
    file.append([b"d"])
    assert bytes(mapped) == b"abc"
    for one in (disk, RealDisk()):
        with pytest.raises(FileNotFoundError):
            one.map("/data/nothing")


# ---- entries that are well formed and wrong


ROTTEN = LogConfig(segment_bytes=1500, index_interval_bytes=150, max_message_bytes=800)
COUNT = 40


@pytest.fixture(scope="module")
def sealed() -> dict[str, bytes]:
    """The files of a log that was closed properly; its first segment has several entries in each index."""
    disk = memory_disk()
    log = open_log(disk, ROTTEN)
    for number in range(COUNT):
        log.append_as_leader(batch_of(b"%03d" % number, timestamp=1000 + 10 * number), leader_epoch=0)
    log.close()
    return {name: disk.read_bytes(f"{FOLDER}/{name}") for name in disk.list_dir(FOLDER)}


def answers(log: PartitionLog) -> tuple[list[int], list[int | None], int | None]:
    """Where each offset is read from, what each time is answered, and the newest record's offset."""
    starts = []
    for offset in range(COUNT):
        result = log.read(offset, 300, up_to_offset=COUNT)
        data = b"".join(part.read() for part in result.slices)
        assert next(header.base_offset for _, header in iter_batches(data)) == offset
        starts.append(result.start_offset)
    times = []
    for timestamp in range(995, 1000 + 10 * COUNT, 5):
        found = log.offset_for_timestamp(timestamp)
        times.append(None if found is None else found.offset)
    newest = log.offset_for_max_timestamp()
    return starts, times, None if newest is None else newest.offset


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("bit", [0, 3, 6, 7])
def test_a_rotten_entry_costs_time_and_no_wrong_answer(
    sealed: dict[str, bytes], suffix: str, bit: int
) -> None:
    name = f"{0:020d}{suffix}"
    assert len(sealed[name]) >= 48
    right: tuple[list[int], list[int | None], int | None] | None = None
    for at in (None, *range(len(sealed[name]))):
        disk = memory_disk()
        disk.make_dirs(FOLDER)
        for file, content in sealed.items():
            rotten = bytearray(content)
            if at is not None and file == name:
                rotten[at] ^= 1 << bit
            disk.open(f"{FOLDER}/{file}", create=True).append([bytes(rotten)])
        found = answers(open_log(disk, ROTTEN, clean=True))
        right = right or found
        assert found == right, at


def with_rot(files: dict[str, bytes], name: str, at: int, bit: int) -> Disk:
    disk = memory_disk()
    disk.make_dirs(FOLDER)
    for file, content in files.items():
        rotten = bytearray(content)
        if file == name:
            rotten[at] ^= 1 << bit
        disk.open(f"{FOLDER}/{file}", create=True).append([bytes(rotten)])
    return disk


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("bit", [0, 1, 4, 7])
def test_a_rotten_entry_of_the_active_segment_keeps_no_log_from_being_opened(suffix: str, bit: int) -> None:
    disk = memory_disk()
    log = open_log(disk, ROTTEN)
    for number in range(12):
        log.append_as_leader(batch_of(b"%03d" % number, timestamp=1000 + number), leader_epoch=0)
    assert len(log.segment_base_offsets) == 1
    log.close()
    files = {name: disk.read_bytes(f"{FOLDER}/{name}") for name in disk.list_dir(FOLDER)}
    name = f"{0:020d}.{suffix}"
    for at in range(len(files[name])):
        again = open_log(with_rot(files, name, at, bit), ROTTEN, clean=True)
        assert again.log_end_offset == 12, at
        again.append_as_leader(batch_of(b"next", timestamp=2000), leader_epoch=0)
        assert [record.offset for record in read_records(again)] == list(range(13)), at


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("bit", [0, 4, 7])
def test_a_log_is_truncated_over_a_rotten_entry(sealed: dict[str, bytes], suffix: str, bit: int) -> None:
    """In the segment that is cut, or, with the boundary, in the one below, which takes appends again."""
    name = f"{0:020d}.{suffix}"
    boundary = sorted(int(name.removesuffix(".log")) for name in sealed if name.endswith(".log"))[1]
    for at in range(len(sealed[name])):
        for offset in (3, 8, 13, boundary):
            check_truncation(with_rot(sealed, name, at, bit), offset, f"byte {at}, cut at {offset}")


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("bit", [0, 4, 7])
def test_the_active_segment_is_cut_over_a_rotten_entry(suffix: str, bit: int) -> None:
    disk = memory_disk()
    log = open_log(disk, ROTTEN)
    for number in range(12):
        log.append_as_leader(batch_of(b"%03d" % number, timestamp=1000 + 10 * number), leader_epoch=0)
    assert len(log.segment_base_offsets) == 1
    log.close()
    files = {name: disk.read_bytes(f"{FOLDER}/{name}") for name in disk.list_dir(FOLDER)}
    name = f"{0:020d}.{suffix}"
    for at in range(len(files[name])):
        for offset in (4, 8, 11):
            check_truncation(with_rot(files, name, at, bit), offset, f"byte {at}, cut at {offset}")


def check_truncation(disk: Disk, offset: int, what: str) -> None:
    """A log that was closed properly is cut, and goes on: what is acknowledged then is there after any restart."""
    log = open_log(disk, ROTTEN, clean=True)
    log.truncate_to(offset)
    assert log.log_end_offset == offset, what
    log.assign_epoch_start(7)
    for number in range(3):
        appended = log.append_as_leader(batch_of(b"next", timestamp=2000 + number), leader_epoch=7)
        assert appended.first_offset == offset + number, what
    log.sync()
    crashed = open_log(copied(disk), ROTTEN)
    log.close()
    for one in (crashed, open_log(disk, ROTTEN, clean=True)):
        records = read_records(one)
        assert [record.offset for record in records] == list(range(offset + 3)), what
        assert [record.value for record in records[offset:]] == [b"next"] * 3, what
        assert one.offset_for_timestamp(1500) == (2000, offset, 7), what
        assert one.offset_for_timestamp(1000 + 10 * (offset - 1)) == (
            1000 + 10 * (offset - 1),
            offset - 1,
            0,
        ), what
        newest = one.offset_for_max_timestamp()
        assert newest is not None, what
        assert newest.offset == offset + 2, what


def copied(disk: Disk) -> Disk:
    """The folder's files as they are now, on a disk of their own."""
    other = memory_disk()
    other.make_dirs(FOLDER)
    for name in disk.list_dir(FOLDER):
        other.open(f"{FOLDER}/{name}", create=True).append([disk.read_bytes(f"{FOLDER}/{name}")])
    return other


@pytest.mark.parametrize("at_boundary", [False, True])
def test_a_cut_that_finds_what_stays_damaged_is_the_logs_end(
    sealed: dict[str, bytes], at_boundary: bool
) -> None:
    """The index is wrong, and cannot be made anew: else appends would go on behind an end that is not there."""
    name = f"{0:020d}.timeindex"
    times = bytearray(sealed[name])
    for entry in range(0, len(times), 12):
        times[entry + 7] ^= 1  # its timestamp
    disk = with_rot({**sealed, name: bytes(times)}, "", 0, 0)
    path = f"{FOLDER}/{0:020d}.log"
    positions = [position for position, _ in iter_batches(disk.read_bytes(path))]
    disk.open(path).write_at(positions[1] + 8, b"\x7f")  # the length of the second batch
    told: list[tuple[TopicPartition, LogError]] = []
    storage = LogStorage(disk, halt, on_lost=lambda partition, error: told.append((partition, error)))
    log = PartitionLog.open(
        disk, FOLDER, PARTITION, ROTTEN, now_ms=lambda: 1000, halt=halt, clean_shutdown=True, storage=storage
    )
    with pytest.raises(LogCorruptError) as raised:
        log.truncate_to(log.segment_base_offsets[1] if at_boundary else 8)
    assert told == [(PARTITION, raised.value)]
    assert len(disk.read_bytes(path)) == (len(sealed[f"{0:020d}.log"]) if at_boundary else positions[8]), (
        "cut"
    )


def test_what_is_made_anew_is_said(sealed: dict[str, bytes]) -> None:
    disk = memory_disk()
    disk.make_dirs(FOLDER)
    for file, content in sealed.items():
        rotten = bytearray(content)
        if file == f"{0:020d}.timeindex":
            rotten[11] ^= 4  # the first entry's offset: a later batch
        disk.open(f"{FOLDER}/{file}", create=True).append([bytes(rotten)])
    log = open_log(disk, ROTTEN, clean=True)
    with capture_logs() as said:
        assert log.offset_for_timestamp(1000 + 10 * 5) == (1000 + 10 * 5, 5, 0)
        log.offset_for_timestamp(1000 + 10 * 5)
    assert [line["segment"] for line in said] == [f"{FOLDER}/{0:020d}.log"]


# ---- a time index that lacks its end


PEAK = 200
"""The batch with the largest timestamp; those behind it are younger than those before it."""


def peaked(disk: Disk) -> PartitionLog:
    """A closed segment with a time index of several sectors, in which the largest timestamp comes last."""
    log = open_log(disk, DENSE)
    for number in range(400):
        timestamp = 9000 if number == PEAK else 1000 + number if number < PEAK else 2000
        log.append_as_leader(batch_of(b"%03d" % number, timestamp=timestamp), leader_epoch=0)
    assert log.segment_base_offsets[1] > PEAK
    return log


@pytest.mark.parametrize("lacking", [1, 2, 50])
def test_a_short_time_index_beside_a_whole_offset_index_is_noticed(lacking: int) -> None:
    disk = memory_disk()
    peaked(disk).close()
    path = f"{FOLDER}/{0:020d}.timeindex"
    disk.open(path).truncate(12 * (PEAK - lacking))
    log = open_log(disk, DENSE, clean=True)
    assert log.offset_for_timestamp(3000) == (9000, PEAK, 0)
    assert len(disk.read_bytes(path)) == 12 * PEAK


def test_an_index_that_a_reader_made_anew_is_whole_after_a_power_loss() -> None:
    """Also when the log was closed properly in between: the next start then looks into no closed segment."""
    for seed in range(60):
        storage = new_storage(seed)
        disk = simulated_disk(storage)
        peaked(disk).close()
        path = f"{FOLDER}/{0:020d}.timeindex"
        right = disk.read_bytes(path)
        disk.open(path).write_at(0, b"\x00" * len(right))
        storage.sync_everything()
        log = open_log(disk, DENSE, clean=True)
        assert log.offset_for_timestamp(3000) == (9000, PEAK, 0)
        log.close()
        storage.lose_power()
        assert simulated_disk(storage).read_bytes(path) == right, seed


def test_an_index_that_is_made_anew_on_a_full_disk_still_answers(sealed: dict[str, bytes]) -> None:
    name = f"{0:020d}.timeindex"
    right = answers(open_log(with_rot(sealed, "", 0, 0), ROTTEN, clean=True))
    disk = FailingDisk(with_rot({**sealed, name: b"\x00" * len(sealed[name])}, "", 0, 0))
    log = open_log(disk, ROTTEN, clean=True)
    disk.fail = lambda operation, path: errno.ENOSPC if operation == "append" else None
    assert answers(log) == right


def test_a_want_of_descriptors_while_an_index_is_made_anew_takes_no_directory_away(
    sealed: dict[str, bytes],
) -> None:
    name = f"{0:020d}.timeindex"
    right = answers(open_log(with_rot(sealed, "", 0, 0), ROTTEN, clean=True))
    disk = FailingDisk(with_rot({**sealed, name: b"\x00" * len(sealed[name])}, "", 0, 0))
    log = open_log(disk, ROTTEN, clean=True)
    disk.fail = lambda operation, path: errno.EMFILE if path.endswith(".tmp") else None
    with pytest.raises(LogStorageError) as raised:
        answers(log)
    assert not isinstance(raised.value, DirectoryFailed)
    disk.fail = lambda operation, path: None
    assert answers(log) == right


# ---- an active segment without an offset index


def unindexed(disk: Disk, batches: int) -> PartitionLog:
    log = open_log(disk, FEW)
    for number in range(batches):
        log.append_as_leader(batch_of(b"%03d" % number, timestamp=1000 + number), leader_epoch=0)
    return log


FEW = LogConfig(segment_bytes=4000, index_interval_bytes=2000)


def test_a_start_looks_into_no_time_index_without_an_offset_index() -> None:
    disk = memory_disk()
    unindexed(disk, 5).close()
    path = f"{FOLDER}/{0:020d}.timeindex"
    assert len(disk.read_bytes(path)) == 12
    disk.open(path).write_at(0, b"\x7f" * 12)
    log = open_log(disk, FEW, clean=True)
    assert log.offset_for_timestamp(1003) == (1003, 3, 0)
    log.append_as_leader(batch_of(b"next", timestamp=2000), leader_epoch=0)
    log.close()
    assert len(disk.read_bytes(path)) == 24, "the old newest and the new newest timestamp"
    assert open_log(disk, FEW, clean=True).offset_for_timestamp(1500) == (2000, 5, 0)


def test_a_file_that_was_not_read_is_written_whole_when_its_segment_is_closed() -> None:
    disk = memory_disk()
    unindexed(disk, 5).close()
    path = f"{FOLDER}/{0:020d}.timeindex"
    right = disk.read_bytes(path)
    disk.open(path).append([b"\x7f" * 30])
    log = open_log(disk, FEW, clean=True)
    log.close()
    assert len(disk.read_bytes(path)) == 42, "nothing was added, so nothing was written"
    log = open_log(disk, FEW, clean=True)
    log.roll()
    assert disk.read_bytes(path) == right


def test_a_log_that_outgrows_its_first_interval_has_both_indexes_made_durable() -> None:
    for seed in range(30):
        storage = new_storage(seed)
        unindexed(simulated_disk(storage), 5).close()
        storage.lose_power()
        log = open_log(simulated_disk(storage), FEW, clean=True)
        for number in range(5, 30):
            log.append_as_leader(batch_of(b"%03d" % number, timestamp=1000 + number), leader_epoch=0)
        assert not log._segments.active.is_unindexed
        log.close()
        storage.lose_power()
        log = open_log(simulated_disk(storage), FEW, clean=True)
        for number in range(30):
            assert log.offset_for_timestamp(1000 + number) == (1000 + number, number, 0), seed


def test_one_large_batch_needs_no_index_either() -> None:
    disk = memory_disk()
    log = open_log(disk, FEW)
    log.append_as_leader(batch_of(b"x" * 3000), leader_epoch=0)
    log.close()
    with capture_logs() as said:
        log = open_log(disk, FEW, clean=True)
    assert said == []
    assert log.log_end_offset == 1
    assert log.offset_for_timestamp(1000) == (1000, 0, 0)


# ---- what a flush covers


def test_an_index_that_was_rewritten_while_its_fsync_ran_is_not_durable() -> None:
    for seed in range(30):
        storage = new_storage(seed)
        disk = simulated_disk(storage)
        log = open_log(disk, ROTTEN)
        for number in range(12):
            log.append_as_leader(batch_of(b"%03d" % number, timestamp=1000 + number), leader_epoch=0)
        job = log.prepare_close()
        assert job is not None
        run_flush(disk, job)
        log._segments.active.remake_indexes()  # a reader met something that cannot be
        log.complete_flush(job)
        assert log._segments.active.unsynced_index_paths
        log.close()
        storage.lose_power()
        again = open_log(simulated_disk(storage), ROTTEN, clean=True)
        for number in range(12):
            assert again.offset_for_timestamp(1000 + number) == (1000 + number, number, 0), seed


SPARSE = LogConfig(segment_bytes=2000, index_interval_bytes=500)


@pytest.mark.parametrize(
    ("sizes", "is_indexed"),
    [((1800,), False), ((200, 1500), False), ((430, 1400), False), ((431, 1400), True), ((1500, 200), True)],
)
def test_a_segment_without_a_batch_beyond_the_first_interval_rightly_has_no_offset_index(
    sizes: tuple[int, ...], is_indexed: bool
) -> None:
    """It is looked at, and not written anew, at any later start; where an entry is missing it is."""
    disk = FailingDisk(memory_disk())
    log = open_log(disk, SPARSE)
    for _ in range(2):
        for number, size in enumerate(sizes):
            log.append_as_leader(batch_of(b"x" * size, timestamp=1000 + number), leader_epoch=0)
        log.roll()
    log.close()
    paths = [f"{FOLDER}/{0:020}{suffix}" for suffix in (".index", ".timeindex")]
    files = [disk.inner.read_bytes(path) for path in paths]
    assert bool(files[0]) is is_indexed
    with capture_logs() as logs:
        log = open_log(disk, SPARSE, clean=True, recovery_point=log.log_end_offset)
        disk.calls.clear()
        assert log.offset_for_timestamp(1000) is not None
        assert len(read_records(log)) == 2 * len(sizes)
    assert not logs
    assert not [call for call in disk.calls if call[0] in ("create", "rename", "append", "sync")]
    log.close()
    disk.inner.open(paths[0]).truncate(0)
    log = open_log(disk, SPARSE, clean=True, recovery_point=log.log_end_offset)
    assert log.offset_for_timestamp(1000) is not None
    assert [disk.inner.read_bytes(path) for path in paths] == files
