"""The `.txnindex` files: their bytes, when they are there, and that no crash loses an aborted transaction."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator

import pytest

from kraft.chaos.world.storage import Storage
from partitions.log.flushes import run_flush
from partitions.log.inspection.findings import Findings
from partitions.log.inspection.log_state import Expected
from partitions.log.inspection.partition_check import check_partition
from partitions.log.log import PartitionLog
from partitions.log.producers.transaction_index import AbortedTransaction, decode_entries, encode_entries
from tests.support.logs import FOLDER, batch_of, memory_disk, new_storage, open_log, simulated_disk
from tests.support.power import PowerCut, power_cut_before
from tests.support.transactions import ABORT, COMMIT, marker_of, put, read_committed, transactional

SUFFIX = ".txnindex"
FIRST = f"{FOLDER}/00000000000000000000{SUFFIX}"


def index_files(log: PartitionLog) -> dict[str, bytes]:
    disk = log._storage.disk
    return {
        name: disk.read_bytes(f"{FOLDER}/{name}") for name in disk.list_dir(FOLDER) if name.endswith(SUFFIX)
    }


def aborted(log: PartitionLog, start: int = 0, end: int = 10**9) -> list[tuple[int, int, int, int]]:
    return [tuple(entry) for entry in log.aborted_transactions(start, end)]


def three_segments(log: PartitionLog) -> None:
    """Transactions that end in another segment than they began in; the middle one has no abort."""
    put(log, transactional(1, b"0"), transactional(2, b"1"), marker_of(1, ABORT), transactional(3, b"3"))
    log.roll()
    put(log, transactional(4, b"4"), marker_of(4, COMMIT))
    log.roll()
    put(log, marker_of(2, ABORT), marker_of(3, COMMIT), transactional(1, b"8"), marker_of(1, ABORT))


THREE = [(1, 0, 2, 1), (2, 1, 6, 3), (1, 8, 9, 10)]


# ---- the files


def test_an_entry_has_34_bytes_and_version_0() -> None:
    entry = AbortedTransaction(41, 3, 24, 5)
    data = struct.pack(">hqqqq", 0, 41, 3, 24, 5)
    assert encode_entries([entry]) == data
    assert len(data) == 34
    assert decode_entries(data * 0, 0) == []
    assert decode_entries(data, 20) == [entry]


@pytest.mark.parametrize(
    ("data", "base_offset"),
    [
        (encode_entries([AbortedTransaction(41, 3, 24, 5)])[:-1], 0),
        (b"\0\1" + encode_entries([AbortedTransaction(41, 3, 24, 5)])[2:], 0),
        (encode_entries([AbortedTransaction(41, 3, 24, 5)]), 25),
        (encode_entries([AbortedTransaction(41, 30, 24, 5)]), 0),
        (encode_entries([AbortedTransaction(41, 3, 24, 5)] * 2), 0),
    ],
)
def test_bytes_that_cannot_be_an_index_are_told(data: bytes, base_offset: int) -> None:
    assert decode_entries(data, base_offset) is None


def test_only_segments_with_an_abort_have_a_file() -> None:
    log = open_log(memory_disk())
    three_segments(log)
    assert aborted(log) == THREE
    one = {"00000000000000000000.txnindex": struct.pack(">hqqqq", 0, 1, 0, 2, 1)}
    assert index_files(log) == one
    log.close()
    two = {"00000000000000000006.txnindex": struct.pack(">hqqqqhqqqq", 0, 2, 1, 6, 3, 0, 1, 8, 9, 10)}
    assert index_files(log) == one | two
    reopened = open_log(log._storage.disk, clean=True)
    assert aborted(reopened) == THREE
    put(reopened, transactional(5, b"10"), marker_of(5, ABORT))
    assert aborted(reopened) == [*THREE, (5, 10, 11, 12)]


def test_a_log_without_aborts_has_no_files_and_looks_at_none() -> None:
    log = open_log(memory_disk())
    put(log, transactional(1, b"0"), marker_of(1, COMMIT), marker_of(2, ABORT), batch_of(b"3"))
    log.roll()
    log.close()
    assert index_files(log) == {}
    assert aborted(open_log(log._storage.disk, clean=True)) == []


def test_a_search_finds_what_overlaps_and_stops_early() -> None:
    log = open_log(memory_disk())
    three_segments(log)
    assert aborted(log, 0, 1) == THREE[:1]
    assert aborted(log, 0, 2) == THREE[:2]
    assert aborted(log, 2, 3) == THREE[:2]
    assert aborted(log, 3, 8) == THREE[1:2]
    assert aborted(log, 7, 8) == []
    assert aborted(log, 7, 9) == THREE[2:]


def test_an_index_that_cannot_be_right_is_made_anew() -> None:
    log = open_log(memory_disk())
    three_segments(log)
    log.close()
    disk = log._storage.disk
    good = index_files(log)
    file = disk.open(FIRST)
    file.write_at(0, b"\xff\xff")
    reopened = open_log(disk, clean=True)
    assert aborted(reopened) == THREE
    assert index_files(reopened) == good


def test_a_truncation_cuts_the_index() -> None:
    log = open_log(memory_disk())
    three_segments(log)
    log.truncate_to(9)
    assert aborted(log) == THREE[:2]
    log.truncate_to(2)
    assert aborted(log) == []
    assert index_files(log) == {}
    put(log, marker_of(2, ABORT))
    assert aborted(log) == [(2, 1, 2, 0)]


def test_what_was_written_of_a_cut_index_goes_from_the_file() -> None:
    log = open_log(memory_disk())
    put(log, transactional(1, b"0"), marker_of(1, ABORT), transactional(2, b"2"), marker_of(2, ABORT))
    log.roll()
    put(log, batch_of(b"4"))
    log.truncate_to(3)
    assert index_files(log) == {"00000000000000000000.txnindex": struct.pack(">hqqqq", 0, 1, 0, 1, 2)}
    log.close()
    assert aborted(open_log(log._storage.disk, clean=True)) == [(1, 0, 1, 2)]


def test_segments_take_their_index_along() -> None:
    log = open_log(memory_disk())
    three_segments(log)
    log.sync()
    log.raise_log_start_offset(4)
    assert f"{FIRST}.deleted" in log.set_aside_first_segment()
    assert aborted(log) == THREE[1:]
    log.truncate_fully_and_start_at(0)
    assert aborted(log) == []
    names = log._storage.disk.list_dir(FOLDER)
    assert not [name for name in names if SUFFIX in name]


# ---- crashes


def checked(log: PartitionLog) -> list[str]:
    findings = Findings()
    check_partition(log._storage.disk, FOLDER, Expected(), findings)
    return [str(finding) for finding in findings.errors if SUFFIX in finding.path]


def test_an_unclean_end_loses_nothing() -> None:
    log = open_log(memory_disk())
    three_segments(log)
    for recovery_point in (0, 3, 4, 6, 8):
        crashed = open_log(log._storage.disk, recovery_point=recovery_point)
        assert aborted(crashed) == THREE
        assert checked(crashed) == []


def _flushed_then_rolled(storage: Storage) -> Iterator[PartitionLog]:
    """The roll closes a segment that is flushed: nothing looks at it again after a crash."""
    log = open_log(simulated_disk(storage))
    yield log
    put(log, transactional(1, b"lost"), batch_of(b"kept"))
    put(log, marker_of(1, ABORT))
    log.sync()
    log.roll()


def _flushed_while_rolled(storage: Storage) -> Iterator[PartitionLog]:
    """As before, and the roll comes while the flush is under way."""
    disk = simulated_disk(storage)
    log = open_log(disk)
    yield log
    put(log, transactional(1, b"lost"), batch_of(b"kept"), marker_of(1, ABORT))
    job = log.prepare_flush()
    assert job is not None
    log.roll()
    run_flush(disk, job)
    log.complete_flush(job)


def _set_aside(storage: Storage) -> Iterator[PartitionLog]:
    """Names reach the disk in any order: the index may be gone when the segment is back."""
    log = open_log(simulated_disk(storage))
    yield log
    put(log, transactional(1, b"lost"), batch_of(b"kept"), marker_of(1, ABORT))
    log.roll()
    log.sync()
    log.raise_log_start_offset(3)
    log.set_aside_first_segment()


@pytest.mark.parametrize("play", [_flushed_then_rolled, _flushed_while_rolled, _set_aside])
def test_power_is_lost_at_every_step(play: Callable[[Storage], Iterator[PartitionLog]]) -> None:
    """The recovery point that was written down is the last one that there was, the log's start an old one."""
    survived = 0
    for step in range(60):
        for seed in range(8):
            storage = new_storage(100 * step + seed)

            before: list[PartitionLog] = []
            storage.before_operation = power_cut_before(step)
            with contextlib.suppress(PowerCut):
                before.extend(play(storage))
            storage.before_operation = None
            storage.lose_power()
            recovery_point = before[0].recovery_point if before else 0
            log = open_log(simulated_disk(storage), recovery_point=recovery_point)
            if log.log_end_offset == 3 and log.log_start_offset == 0:
                survived += 1
                assert [seen.value for seen in read_committed(log, 0, 3)] == [b"kept"]
    assert survived


# ---- `kraft log verify`


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (None, "does not say that producer 1 aborted"),
        ((1, 1, 2, 1), "began at 1, and it began at 0"),
        ((1, 0, 2, 2), "gives 2 as the last stable offset"),
        ((2, 0, 2, 1), "no marker that says so"),
        ((1, 0, 1, 1), "no marker that says so"),
    ],
)
def test_an_index_that_would_mislead_readers_is_found(
    entry: tuple[int, int, int, int] | None, words: str
) -> None:
    log = open_log(memory_disk())
    three_segments(log)
    log.close()
    assert checked(log) == []
    disk = log._storage.disk
    disk.remove(FIRST)
    if entry is not None:
        disk.open(FIRST, create=True).append([encode_entries([AbortedTransaction(*entry)])])
    assert words in checked(log)[0]
    assert checked(log)[0].startswith(FIRST)


def test_an_entry_too_many_is_left_alone() -> None:
    """The cleaner leaves entries of transactions whose records it has removed."""
    log = open_log(memory_disk())
    put(log, batch_of(b"0"), marker_of(1, ABORT))
    log.close()
    entry = encode_entries([AbortedTransaction(1, 0, 1, 2)])
    log._storage.disk.open(FIRST, create=True).append([entry])
    assert checked(log) == []
