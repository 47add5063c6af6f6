"""Bytes rot anywhere in a partition's files, between processes and while one runs: a reader gets what was
written, or an error; never anything else."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from leader_epoch.checkpoint import CHECKPOINT_FILE_NAME
from partitions.disk import Disk
from partitions.log.errors import LogCorruptError, LogError
from partitions.log.log import PartitionLog
from partitions.records.batch import CorruptBatchError, decode_records, iter_batches, verify_crc
from tests.support.examples import examples
from tests.support.logs import FOLDER, batch_of, memory_disk, open_log

RECORDS = 45


def written(disk: Disk) -> None:
    """A log of several segments in two leader epochs, closed properly."""
    log = open_log(disk)
    for number in range(RECORDS):
        log.append_as_leader(
            batch_of(b"value-%04d" % number, timestamp=1000 + number), leader_epoch=number // 30
        )
    log.close()


def flip(disk: Disk, suffixes: tuple[str, ...], where: float, bit: int) -> None:
    names = [name for name in disk.list_dir(FOLDER) if name.endswith(suffixes)]
    sizes = [disk.open(f"{FOLDER}/{name}").size() for name in names]
    at = int(where * (sum(sizes) - 1))
    for name, size in zip(names, sizes, strict=True):
        if at < size:
            file = disk.open(f"{FOLDER}/{name}")
            file.write_at(at, bytes([file.read(at, 1)[0] ^ (1 << bit)]))
            return
        at -= size


def read_checked(log: PartitionLog, offset: int, max_bytes: int) -> int:
    """One read as a consumer makes it; returns where to go on. Raises LogError."""
    result = log.read(offset, max_bytes, up_to_offset=RECORDS)
    data = b"".join(part.read() for part in result.slices)
    position = offset
    for at, header in iter_batches(data):
        verify_crc(data, at, header)
        assert header.partition_leader_epoch <= 1
        for record in decode_records(data, at, header, max_decompressed_bytes=1 << 20):
            if record.offset >= offset:
                assert record.offset == position, "nothing is skipped"
                assert record.value == b"value-%04d" % record.offset
                position += 1
    assert position == result.next_offset > offset
    return position


offsets = st.integers(0, RECORDS - 1)
reads = st.lists(st.tuples(offsets, st.integers(1, 2000)), min_size=1, max_size=12)
rot = st.tuples(st.floats(0, 1), st.integers(0, 7))


@given(rot, st.sampled_from([(".log",), (".index",), (".index", ".log")]), reads)
@settings(max_examples=examples(120), deadline=None)
def test_rot_between_two_processes(
    place: tuple[float, int], suffixes: tuple[str, ...], wanted: object
) -> None:
    disk = memory_disk()
    written(disk)
    flip(disk, suffixes, *place)
    assert isinstance(wanted, list)
    try:
        log = open_log(disk, clean=True)
    except LogCorruptError:
        return
    for offset, max_bytes in wanted:
        try:
            if offset < log.log_end_offset:
                read_checked(log, offset, max_bytes)
        except LogError:
            return


@given(rot, st.sampled_from([(".log",), (CHECKPOINT_FILE_NAME,)]), st.permutations((0, 1, 2)))
@settings(max_examples=examples(150), deadline=None)
def test_epochs_end_where_they_ended_whatever_rots(
    place: tuple[float, int], suffixes: tuple[str, ...], asked: list[int]
) -> None:
    disk = memory_disk()
    written(disk)
    flip(disk, suffixes, *place)
    try:
        log = open_log(disk, clean=True)
        # What the last batch counts is in its checksum, which a clean start does not compare.
        assume(log.log_end_offset == RECORDS)
        for epoch in asked:
            assert log.end_offset_for_epoch(epoch) == {0: (0, 30), 1: (1, RECORDS), 2: (-1, -1)}[epoch]
            assert log.epoch_for_offset(epoch) == 0
    except LogCorruptError:
        return


@given(rot, reads, reads)
@settings(max_examples=examples(60), deadline=None)
def test_rot_while_a_process_runs_is_found_once_a_reader_complains(
    place: tuple[float, int], before: object, after: object
) -> None:
    disk = memory_disk()
    written(disk)
    log = open_log(disk, clean=True)
    assert isinstance(before, list)
    assert isinstance(after, list)
    for offset, max_bytes in before:
        read_checked(log, offset, max_bytes)
    flip(disk, (".log",), *place)
    for offset, max_bytes in after:
        try:
            read_checked(log, offset, max_bytes)
        except LogError:
            return
        except (CorruptBatchError, AssertionError):
            log.distrust()
            try:
                read_checked(log, offset, max_bytes)
            except LogError:
                return
            raise
