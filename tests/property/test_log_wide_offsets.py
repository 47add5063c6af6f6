"""Logs whose few batches lie very far apart, as compaction leaves them: whatever pieces a follower is handed, it holds
what its leader holds, in segments that can name all their offsets, and so does whatever comes of it later."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.chaos.world.storage import Storage
from partitions.log.config_values import INT_MAX
from partitions.log.inspection.findings import Findings
from partitions.log.inspection.log_state import Expected
from partitions.log.inspection.partition_check import check_partition
from partitions.log.log import PartitionLog
from partitions.records.builder import build_batch
from partitions.records.header import parse_header
from tests.support.compaction import Bench
from tests.support.logs import (
    FOLDER,
    batch_of,
    memory_disk,
    new_storage,
    open_log,
    read_records,
    retain,
    simulated_disk,
)

NEAR = st.integers(0, 3)
FAR = st.integers(INT_MAX - 4, INT_MAX)
STEPS = st.lists(
    st.tuples(st.one_of(NEAR, FAR, st.integers(0, INT_MAX)), st.integers(1, 3), st.booleans()),
    min_size=1,
    max_size=12,
)
"""Of each batch: how far its last offset is from the end of the one before, at least; its records; and whether
a piece ends with it."""


def batches_of(steps: list[tuple[int, int, bool]]) -> list[list[bytes]]:
    """The pieces that a leader sends."""
    pieces: list[list[bytes]] = [[]]
    end = 0
    for reach, count, is_last in steps:
        base = end + max(0, reach - (count - 1))
        values = [b"%d" % (base + number) for number in range(count)]
        pieces[-1].append(batch_of(*values, base_offset=base, leader_epoch=1, timestamp=1000 + len(pieces)))
        end = base + count
        if is_last:
            pieces.append([])
    return [piece for piece in pieces if piece]


def check_segments(log: PartitionLog) -> None:
    ends = (*log.segment_base_offsets[1:], log.log_end_offset)
    assert all(end - 1 - base <= INT_MAX for base, end in zip(log.segment_base_offsets, ends, strict=True))
    for segment in log._segments:
        assert all(segment.offset_index.entry(number)[0] >= 0 for number in range(len(segment.offset_index)))


def times(log: PartitionLog) -> list[object]:
    return [
        *(log.offset_for_timestamp(1000 + number) for number in range(15)),
        log.offset_for_max_timestamp(),
    ]


@settings(deadline=None)
@given(STEPS, st.sampled_from(["power lost", "killed", "closed"]), st.data())
def test_a_follower_takes_whatever_pieces_it_is_handed(
    steps: list[tuple[int, int, bool]], end: str, data: st.DataObject
) -> None:
    pieces = batches_of(steps)
    leader = open_log(memory_disk())
    for batch in (batch for piece in pieces for batch in piece):
        leader.append_as_follower(batch)
    records = read_records(leader)
    flushed_after = data.draw(st.integers(0, len(pieces)), label="flushed after")
    storage = new_storage()
    log = open_log(simulated_disk(storage))
    for number, piece in enumerate(pieces):
        log.append_as_follower(b"".join(piece))
        if number == flushed_after:
            log.sync()
    check_segments(log)
    assert read_records(log) == records
    assert all(record.value == b"%d" % record.offset for record in records)
    assert times(log) == times(leader)
    for record in records:
        for offset in (record.offset, max(record.offset - 1, 0)):
            assert read_records(log, offset)[0].offset in (offset, record.offset)
    log = reopened(log, storage, end)
    records = [record for record in records if record.offset < log.log_end_offset]
    assert read_records(log) == records
    check_segments(log)
    if records:
        at = data.draw(st.sampled_from([record.offset + beside for record in records for beside in (0, 1)]))
        log.truncate_to(at)
        assert log.log_end_offset <= at
        assert read_records(log) == [record for record in records if record.offset < log.log_end_offset]
        log.append_as_follower(batch_of(b"next", base_offset=log.log_end_offset + INT_MAX, leader_epoch=1))
        check_segments(log)
        assert read_records(log)[-1].value == b"next"
        retain(log, 2**50, log.log_end_offset)
        assert log.log_start_offset == log.log_end_offset


def reopened(log: PartitionLog, storage: Storage, end: str) -> PartitionLog:
    """The log of the next process; all is there that can be."""
    flushed_to, log_end = log.recovery_point, log.log_end_offset
    if end == "power lost":
        storage.lose_power()
        log = open_log(simulated_disk(storage), recovery_point=flushed_to)
        assert flushed_to <= log.log_end_offset <= log_end
        return log
    if end == "closed":
        log.close()
    log = open_log(simulated_disk(storage), clean=end == "closed", recovery_point=flushed_to)
    assert log.log_end_offset == log_end
    log.sync()
    findings = Findings()
    check_partition(simulated_disk(storage), FOLDER, Expected(has_holes=True), findings)
    assert not findings.errors
    return log


@settings(deadline=None)
@given(STEPS)
def test_cleaned_files_are_no_wider_than_a_segment_can_be(steps: list[tuple[int, int, bool]]) -> None:
    """And a follower copies them, however many it is handed at once."""
    bench = Bench()
    for piece in batches_of(steps):
        for batch in piece:
            header = parse_header(batch, 0)
            records = [(1000, b"key", b"%d" % number, ()) for number in range(header.record_count)]
            bench.log.append_as_follower(build_batch(records, base_offset=header.base_offset, leader_epoch=0))
        bench.log.roll()
    asyncio.run(bench.clean())
    check_segments(bench.log)
    assert all(base < following for base, following in pairwise(bench.log.segment_base_offsets))
    found = read_records(bench.log)
    assert found[-1].offset == bench.log.log_end_offset - 1
    follower = open_log(memory_disk())
    everything = bench.log.read(0, 1 << 20, up_to_offset=bench.log.log_end_offset)
    follower.append_as_follower(b"".join(part.read() for part in everything.slices))
    check_segments(follower)
    assert read_records(follower) == found
