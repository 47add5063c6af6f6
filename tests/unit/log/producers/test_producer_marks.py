"""A truncation learns producers anew from what was known near the log's end, and comes to what the files say."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from partitions.log import log as log_module
from partitions.log.config import LogConfig
from partitions.log.log import PartitionLog
from partitions.log.producers import log_producers
from partitions.records.batch import stamp
from partitions.records.builder import build_batch
from partitions.records.control import ControlType
from partitions.records.markers import build_marker
from tests.support.logs import SMALL, FailingDisk, batch_of, memory_disk, open_log

DEEP = LogConfig(segment_bytes=1 << 24, index_interval_bytes=4096)


class CountingDisk(FailingDisk):
    """Counts reads of data files."""

    reads = 0

    def check(self, operation: str, path: str) -> None:
        self.reads += operation == "read" and path.endswith(".log")


def append(log: PartitionLog, rng: random.Random) -> None:
    """A plain batch, one of an idempotent producer, or one of a transaction or its end, as a follower gets it."""
    producer_id, epoch, offset = (
        rng.choice((-1, 5, 6, 7, 8)),
        log.epochs.latest_epoch or 0,
        log.log_end_offset,
    )
    records = [(1000, None, b"v%d" % number, ()) for number in range(rng.randint(1, 3))]
    if producer_id == 8 and rng.random() < 0.4:
        kind = rng.choice((ControlType.ABORT, ControlType.COMMIT))
        batch = build_marker(
            8, 0, kind, coordinator_epoch=0, timestamp=1000, base_offset=offset, leader_epoch=epoch
        )
    else:
        known = log.producers.state.producers.get(producer_id)
        sequence = known.batches[-1].last_sequence + 1 if known is not None and known.batches else 0
        batch = build_batch(
            records,
            base_offset=offset,
            leader_epoch=epoch,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            is_transactional=producer_id == 8,
        )
    log.append_as_follower(batch)


@pytest.mark.parametrize("seed", range(12))
def test_a_truncation_leaves_the_producers_that_the_files_tell_of(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "MARK_EVERY_BYTES", 400)
    rng, disk = random.Random(seed), memory_disk()
    log = open_log(disk)
    for _ in range(25):
        for _ in range(rng.randint(1, 12)):
            append(log, rng)
        if rng.random() < 0.2:
            log.delete_segments_before(rng.randint(log.log_start_offset, log.log_end_offset))
        if rng.random() < 0.1:
            log.truncate_fully_and_start_at(log.log_end_offset + 5)
        log.truncate_to(max(log.log_start_offset, log.log_end_offset - rng.choice((1, 2, 5, 40))))
        assert all(mark <= log.log_end_offset for mark in log.producers.mark_offsets)
        reopened = open_log(disk, log_start_offset=log.log_start_offset)
        assert reopened.producers.state.producers == log.producers.state.producers
        end = log.log_end_offset
        assert reopened.last_stable_offset(end) == log.last_stable_offset(end)


@pytest.mark.parametrize("times", [range(1000, 5000), [1000] * 4000, [9000, *range(1000, 4999)]])
@pytest.mark.parametrize("is_leader", [True, False])
def test_a_truncation_does_not_walk_over_the_whole_segment(
    is_leader: bool, times: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for its producers nor for its largest timestamp, which may be that of an early batch."""
    monkeypatch.setattr(log_module, "MARK_EVERY_BYTES", 128 * 1024)
    disk = CountingDisk(memory_disk())
    log = open_log(disk, DEEP)
    for number, time in enumerate(times):
        batch = batch_of(
            bytes(430), timestamp=time, producer=(7, 0, number), base_offset=number, leader_epoch=0
        )
        if is_leader:
            stamp(leaders := bytearray(batch), 0, base_offset=0, leader_epoch=-1)
            log.append_as_leader(leaders, leader_epoch=0)
        else:
            log.append_as_follower(batch)
    assert len(log.segment_base_offsets) == 1
    disk.reads = 0
    log.truncate_to(3990)
    assert disk.reads < 10, "the headers of 4,000 batches take 32 reads of 64 KiB"
    assert [batch.last_sequence for batch in log.producers.state.producers[7].batches] == [*range(3985, 3990)]
    newest = max(times[:3990])
    assert log.offset_for_max_timestamp() == (newest, times.index(newest), 0)


def test_few_marks_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "MARK_EVERY_BYTES", 300)
    log = open_log(memory_disk(), SMALL)
    for number in range(50):
        log.append_as_leader(batch_of(b"v" * 40, producer=(7, 0, number)), leader_epoch=0)
    assert len(log.producers.mark_offsets) == 3
    log.truncate_fully_and_start_at(0)
    assert log.producers.mark_offsets == ()


@pytest.mark.parametrize("is_leader", [True, False])
@pytest.mark.parametrize(("producers", "marks"), [(4, 3), (40, 2)])
def test_a_log_of_many_producers_marks_them_less_often(
    producers: int, marks: int, is_leader: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each mark copies what is known of all of them, and the append that makes it waits for that."""
    for module in (log_module, log_producers):
        monkeypatch.setattr(module, "MARK_EVERY_BYTES", 1000)
    monkeypatch.setattr(log_producers, "PRODUCERS_PER_MARK", 4)
    log = open_log(memory_disk(), DEEP)
    for number in range(200):
        producer = (number % producers, 0, number // producers)
        batch = batch_of(bytes(40), producer=producer, base_offset=number, leader_epoch=0)
        if is_leader:
            stamp(leaders := bytearray(batch), 0, base_offset=0, leader_epoch=-1)
            log.append_as_leader(leaders, leader_epoch=0)
        else:
            log.append_as_follower(batch)
    assert 20_000 < log.size_bytes < 30_000, "two marks for 40 producers, and twenty for 4"
    assert len(log.producers.mark_offsets) == marks
