"""Lookups by time."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from partitions.log.config import LogConfig
from partitions.log.log import PartitionLog
from partitions.lookup_budget import LOOKUP_COST_BYTES, RECORD_COST_BYTES, LookupBudget
from partitions.records.batch import records_body
from partitions.records.builder import build_batch
from partitions.records.compression import Codec
from tests.support.forged_batches import with_fields
from tests.support.logs import SMALL, FailingDisk, batch_of, memory_disk, open_log


def log_with(times: list[list[int]], *, codec: int = 0) -> PartitionLog:
    """A log with a batch for each inner list of record timestamps."""
    log = open_log(memory_disk())
    for batch in times:
        log.append_as_leader(
            build_batch([(time, None, b"v" * 20, ()) for time in batch], codec=codec), leader_epoch=2
        )
    return log


def expected(times: list[list[int]], timestamp: int, start: int = 0) -> tuple[int, int, int] | None:
    flat = [time for batch in times for time in batch]
    for offset, time in enumerate(flat):
        if offset >= start and time >= timestamp:
            return time, offset, 2
    return None


@pytest.mark.parametrize("codec", [0, 3])
def test_the_first_record_at_or_after_the_time(codec: int) -> None:
    times = [[10 * number, 10 * number + 4, 10 * number + 2] for number in range(40)]
    log = log_with(times, codec=codec)
    for timestamp in range(-1, 400):
        assert log.offset_for_timestamp(timestamp) == expected(times, timestamp)
    assert log.offset_for_max_timestamp() == (394, 118, 2)


def test_times_that_go_back() -> None:
    times = [[(number * 37) % 100, (number * 53) % 90] for number in range(60)]
    log = log_with(times)
    assert len(log.segment_base_offsets) > 3
    for timestamp in range(0, 101):
        assert log.offset_for_timestamp(timestamp) == expected(times, timestamp)
    start = log.segment_base_offsets[1] + 3
    log.delete_segments_before(start)
    for timestamp in range(0, 101):
        assert log.offset_for_timestamp(timestamp) == expected(times, timestamp, start)
    log.truncate_to(100)
    for timestamp in range(0, 101):
        assert log.offset_for_timestamp(timestamp) == expected(times[:50], timestamp, start)


def test_the_first_of_several_with_the_largest_time() -> None:
    log = log_with([[5, 9], [9], [9, 3]])
    assert log.offset_for_max_timestamp() == (9, 1, 2)


def test_an_empty_log_has_no_times() -> None:
    log = open_log(memory_disk())
    assert log.offset_for_timestamp(0) is None
    assert log.offset_for_max_timestamp() is None


def test_records_that_cannot_be_opened_are_answered_by_their_batch() -> None:
    from crc32c import crc32c

    forged = bytearray(batch_of(b"a", b"b", timestamp=50))
    forged[62:] = b"\xff" * (len(forged) - 62)
    forged[17:21] = crc32c(bytes(forged[21:])).to_bytes(4, "big")
    log = open_log(memory_disk(), SMALL)
    log.append_as_leader(batch_of(b"x", timestamp=10), leader_epoch=0)
    log.append_as_leader(forged, leader_epoch=0)
    assert log.offset_for_timestamp(20) == (50, 1, 0)


def test_times_survive_a_restart() -> None:
    disk = memory_disk()
    log = open_log(disk)
    for number in range(40):
        log.append_as_leader(batch_of(b"v" * 20, timestamp=1000 - number * (number % 3)), leader_epoch=0)
    answers = [log.offset_for_timestamp(time) for time in range(900, 1001)]
    log.close()
    for clean in (True, False):
        reopened = open_log(disk, clean=clean)
        assert [reopened.offset_for_timestamp(time) for time in range(900, 1001)] == answers
        assert reopened.offset_for_max_timestamp() == log_max(answers)


class CountingDisk(FailingDisk):
    """Counts reads of data files."""

    reads = 0

    def check(self, operation: str, path: str) -> None:
        self.reads += operation == "read" and path.endswith(".log")


DEEP = LogConfig(segment_bytes=1 << 24, index_interval_bytes=4096)


def deep_log(times: list[int]) -> tuple[PartitionLog, CountingDisk]:
    """A log of one segment with a batch of 500 bytes for each time."""
    disk = CountingDisk(memory_disk())
    log = open_log(disk, DEEP)
    for time in times:
        log.append_as_leader(build_batch([(time, None, b"v" * 430, ())]), leader_epoch=2)
    return log, disk


def test_a_lookup_by_time_passes_over_what_is_below_the_start_of_the_log() -> None:
    log, disk = deep_log([1000 + number for number in range(3000)])
    assert len(log.segment_base_offsets) == 1
    log.raise_log_start_offset(2500)
    disk.reads = 0
    assert log.offset_for_timestamp(5) == (3500, 2500, 2)
    assert log.offset_for_timestamp(3499) == (3500, 2500, 2)
    assert log.offset_for_timestamp(3501) == (3501, 2501, 2)
    assert disk.reads < 20, "the headers of 2,500 batches take 24 reads of 64 KiB"


def test_the_newest_record_is_found_without_opening_every_batch() -> None:
    """The one with the largest time lies below the log's start; those behind grow older and younger."""
    log, disk = deep_log([9000, *range(1000, 2000), *range(1900, 2000), 1500])
    log.raise_log_start_offset(1)
    disk.reads = 0
    assert log.offset_for_max_timestamp() == (1999, 1000, 2), "the first of two with the largest time"
    assert disk.reads < 100, "there are 1,101 batches"


def test_the_newest_record_among_batches_that_cannot_tell_it_by_their_headers() -> None:
    """What a header tells of may be below the log's start, or compacted away."""
    times = [[5, 90], [70, 3], [3, 80, 71], [80], [71, 71]]
    log = log_with(times)
    for start, answer in (
        (0, (90, 1, 2)),
        (2, (80, 5, 2)),
        (6, (80, 7, 2)),
        (8, (71, 8, 2)),
        (9, (71, 9, 2)),
    ):
        log.raise_log_start_offset(start)
        assert log.offset_for_max_timestamp() == answer


def test_a_lookup_holds_no_record_of_a_batch_that_unfolds_to_many() -> None:
    log = open_log(memory_disk(), DEEP)
    records = [(1000 + number, None, None, ()) for number in range(50_000)]
    log.append_as_leader(build_batch(records, codec=Codec.ZSTD), leader_epoch=2)
    tracemalloc.start()
    try:
        assert log.offset_for_timestamp(50_999) == (50_999, 49_999, 2)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2_000_000, "ten bytes a record unfolded, and as much again on the way"


def log_max(answers: list[object]) -> object:
    return [answer for answer in answers if answer is not None][-1]


def lying(values: list[bytes], *, codec: int = 0, promised: int = 9000) -> bytes:
    """A batch of records of time 1000 whose header promises a later one."""
    honest = build_batch([(1000, None, value, ()) for value in values], codec=codec)
    return with_fields(honest, max_timestamp=promised)


@pytest.fixture
def unfolded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of each body that lookups opened."""
    sizes: list[int] = []

    def counting(*args: Any, **options: Any) -> bytes:
        body = records_body(*args, **options)
        sizes.append(len(body))
        return body

    monkeypatch.setattr("partitions.log.reader.records_body", counting)
    return sizes


def test_a_lookup_does_not_unfold_whatever_headers_promise(unfolded: list[int]) -> None:
    """Each of these has some kilobytes, and would hold up the event loop for a while."""
    log = open_log(memory_disk(), DEEP)
    bomb = lying([bytes(LOOKUP_COST_BYTES // 5 * 2)], codec=Codec.ZSTD)
    for _ in range(4):
        log.append_as_leader(bomb, leader_epoch=2)
    assert log.offset_for_timestamp(5000) == (9000, 2, 2), "two are opened, the third is answered as a whole"
    assert len(unfolded) == 2
    assert log.offset_for_max_timestamp() == (9000, 2, 2)
    assert sum(unfolded) < 2 * LOOKUP_COST_BYTES


def test_a_batch_that_is_too_large_to_open_is_answered_as_a_whole(unfolded: list[int]) -> None:
    log = open_log(memory_disk(), DEEP)
    log.append_as_leader(lying([b"x"]), leader_epoch=2)
    log.append_as_leader(lying([b"x", bytes(LOOKUP_COST_BYTES)], codec=Codec.GZIP), leader_epoch=2)
    assert log.offset_for_timestamp(1000) == (1000, 0, 2)
    assert log.offset_for_timestamp(5000) == (9000, 1, 2)
    assert sum(unfolded) < 1000


def test_records_and_bytes_that_are_not_compressed_cost_something_too(unfolded: list[int]) -> None:
    log = open_log(memory_disk(), DEEP)
    for _ in range(3):
        log.append_as_leader(lying([b"x"] * 100), leader_epoch=2)
    assert log.offset_for_timestamp(5000) is None
    assert len(unfolded) == 3
    budget = LookupBudget(150 * RECORD_COST_BYTES)
    assert log.offset_for_timestamp(5000, budget) == (9000, 100, 2)
    assert budget.left_bytes == 0
    del unfolded[:]
    assert log.offset_for_timestamp(5000, LookupBudget(100)) == (9000, 0, 2)
    assert unfolded == [], "the batch has more bytes than that"


def test_the_first_of_very_many_records_costs_no_more_than_of_few() -> None:
    log = open_log(memory_disk(), DEEP)
    log.append_as_leader(build_batch([(1000, None, b"x", ())] * 10_000), leader_epoch=2)
    budget = LookupBudget()
    assert log.offset_for_timestamp(1000, budget) == (1000, 0, 2)
    assert budget.left_bytes > LOOKUP_COST_BYTES - 200_000
