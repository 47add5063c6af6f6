"""What a cleaning keeps and what it drops, seen through the log."""

from __future__ import annotations

import dataclasses

import pytest
from structlog.testing import capture_logs

from partitions.log.cleaner.config import CleanerConfig
from partitions.log.cleaner.offset_map import SLOT_BYTES
from partitions.log.errors import LogCorruptError, SegmentEndsElsewhere
from partitions.records.batch import iter_batches
from partitions.records.builder import build_batch
from partitions.records.control import ControlType
from partitions.records.header import DELETE_HORIZON_BIT
from partitions.records.record import encode_record
from tests.support.compaction import CLEANER, COMPACTED, FOLDER, RETENTION_MS, TABLE, Bench, Contents
from tests.support.forged_batches import with_body, with_fields

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT


def values(found: Contents) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in found.records]


async def test_the_last_value_of_each_key_stays_at_its_offset() -> None:
    bench = Bench()
    for number in range(6):
        bench.put((b"a", b"%d" % number), (b"b", b"%d" % number))
    bench.put((b"c", b"0"))
    bench.log.roll()
    bench.put((b"a", b"in the active segment"))
    assert await bench.clean() == 1
    assert values(bench.contents()) == [
        (10, b"a", b"5"),
        (11, b"b", b"5"),
        (12, b"c", b"0"),
        (13, b"a", b"in the active segment"),
    ]
    assert bench.log.clean_offset == 13
    assert await bench.clean() == 0
    assert bench.names() == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000013.index",
        "00000000000000000013.log",
        "00000000000000000013.snapshot",
        "00000000000000000013.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]


TEN_RECORDS = (
    (b"k1", b"v1"),
    (b"k2", b"v2"),
    (b"k1", b"v3"),
    (b"k1", b"v4"),
    (b"k3", b"v5"),
    (b"k4", b"v6"),
    (b"k5", b"v7"),
    (b"k5", b"v8"),
    (b"k2", b"v9"),
    (b"k6", b"v10"),
)
"""Of the offsets 0 to 9."""


@pytest.mark.parametrize(
    ("active_from", "kept"),
    [
        (9, (3, 4, 5, 7, 8)),
        (8, (1, 3, 4, 5, 7)),  # k2=v9 in the active segment does not count yet: k2=v2 stays
    ],
)
async def test_ten_records_of_six_keys(active_from: int, kept: tuple[int, ...]) -> None:
    """The last value of each key in closed segments stays, at its offset; the active segment is not touched."""
    bench = Bench(config=dataclasses.replace(COMPACTED, segment_bytes=100_000))
    for offset, record in enumerate(TEN_RECORDS):
        if offset == active_from:
            bench.log.roll()
        assert bench.put(record) == offset
    assert await bench.clean() == 1
    assert values(bench.contents()) == [
        (offset, *TEN_RECORDS[offset]) for offset in (*kept, *range(active_from, 10))
    ]
    assert bench.log.segment_base_offsets == (0, active_from)
    assert bench.log.read(6, 1, up_to_offset=10).start_offset == 7  # 6 is gone: the read begins after it


@pytest.mark.parametrize("codec", range(5))
async def test_a_rewritten_batch_keeps_all_but_the_records(codec: int) -> None:
    bench = Bench()
    bench.put((b"a", b"1"), (b"b", b"1"), (b"c", b"1"), codec=codec, epoch=3, producer=(7, 0, 40))
    bench.put((b"a", b"2"), (b"c", b"2"), epoch=4)
    bench.log.roll()
    before = bench.contents()
    await bench.clean()
    after = bench.contents()
    assert values(after) == [(1, b"b", b"1"), (3, b"a", b"2"), (4, b"c", b"2")]
    first, old = after.headers[0], before.headers[0]
    assert first.record_count == 1
    assert first.max_timestamp == after.records[0].timestamp == before.records[1].timestamp
    for name in (
        "base_offset",
        "last_offset",
        "partition_leader_epoch",
        "codec",
        "last_sequence",
        "producer_id",
    ):
        assert getattr(first, name) == getattr(old, name), name
    assert [record.epoch for record in after.records] == [3, 4, 4]


async def test_a_tombstone_waits_for_its_horizon() -> None:
    bench = Bench()
    bench.put((b"a", b"1"), (b"b", b"1"))
    bench.put((b"a", None))
    bench.put((b"x", b"1"))
    bench.log.roll()
    cleaned_ms = bench.now_ms
    await bench.clean()
    kept = bench.contents()
    assert values(kept) == [(1, b"b", b"1"), (2, b"a", None), (3, b"x", b"1")]
    assert kept.headers[1].delete_horizon_ms == cleaned_ms + RETENTION_MS
    assert not kept.headers[0].attributes & DELETE_HORIZON_BIT
    assert kept.records[1].timestamp == cleaned_ms  # still the record's own
    for passed_ms, is_kept in ((RETENTION_MS - 1, True), (RETENTION_MS, False)):
        bench.now_ms = cleaned_ms + passed_ms
        bench.put((b"x", b"more"))
        bench.log.roll()
        assert await bench.clean() == 1
        assert ((2, b"a", None) in values(bench.contents())) is is_kept


async def test_records_without_a_key_go() -> None:
    bench = Bench(config=dataclasses.replace(COMPACTED, cleanup_policy="delete"))
    bench.put((None, b"from before"), (b"a", b"1"))
    bench.log.roll()
    assert await bench.clean() == 0
    bench.log.update_config(COMPACTED)
    bench.put((b"b", b"1"))
    await bench.clean()
    assert values(bench.contents()) == [(1, b"a", b"1"), (2, b"b", b"1")]


@pytest.mark.parametrize(
    ("change", "rounds"),
    [
        ({"min_cleanable_dirty_ratio": 0.99}, 1),
        ({"min_cleanable_dirty_ratio": 1.0}, 0),
        ({"min_cleanable_dirty_ratio": 1.0, "max_compaction_lag_ms": 100}, 1),
        ({"min_cleanable_dirty_ratio": 1.0, "max_compaction_lag_ms": 100_000}, 0),
        ({"min_compaction_lag_ms": 1}, 1),
        ({"min_compaction_lag_ms": 100_000}, 0),
        ({"cleanup_policy": "compact,delete"}, 1),
    ],
)
async def test_what_is_due(change: dict[str, int], rounds: int) -> None:
    bench = Bench(config=dataclasses.replace(COMPACTED, **change))  # type: ignore[arg-type]
    for _ in range(4):
        bench.put((b"a", b"1"))
    bench.log.roll()
    bench.now_ms += 1000
    assert await bench.clean() == rounds


@pytest.mark.parametrize(("passed_ms", "rounds"), [(99, 0), (101, 1)])
async def test_records_without_a_time_wait_from_the_last_change_of_their_file(
    passed_ms: int, rounds: int
) -> None:
    """As in Kafka, for min.compaction.lag.ms; max.compaction.lag.ms does not apply to them."""
    bench = Bench(config=dataclasses.replace(COMPACTED, min_compaction_lag_ms=100))
    changed_ms = bench.now_ms
    bench.storage.now_ms = lambda: changed_ms
    for _ in range(4):
        bench.put((b"a", b"1"), timestamp=-1)
    bench.log.roll()
    bench.now_ms += passed_ms
    assert await bench.clean() == rounds


async def test_no_record_without_a_time_is_overdue() -> None:
    due = {"min_cleanable_dirty_ratio": 1.0, "max_compaction_lag_ms": 100}
    bench = Bench(config=dataclasses.replace(COMPACTED, **due))  # type: ignore[arg-type]
    bench.storage.now_ms = lambda: 0
    bench.put((b"a", b"1"), timestamp=-1)
    bench.log.roll()
    bench.now_ms += 1000
    assert await bench.clean() == 0


async def test_nothing_at_or_above_the_high_watermark_counts() -> None:
    bench = Bench(high_watermark=3)
    for number in range(4):
        bench.put((b"a", b"%d" % number))
        if number % 2:
            bench.log.roll()
    await bench.clean()
    assert bench.log.clean_offset == 2
    assert [offset for offset, _, _ in values(bench.contents())] == [1, 2, 3]


async def test_a_full_map_cleans_in_parts() -> None:
    bench = Bench(cleaner=dataclasses.replace(CLEANER, dedupe_buffer_bytes=4 * SLOT_BYTES))
    for number in range(30):
        bench.put((b"k%d" % (number % 10), b"%d" % number), (b"same", b"%d" % number))
    bench.log.roll()
    assert await bench.clean() > 3
    assert bench.log.clean_offset == 60
    found = bench.contents()
    assert sorted(record.key or b"" for record in found.records) == sorted(
        [b"k%d" % n for n in range(10)] + [b"same"]
    )
    assert found.table() == {b"same": b"29", **{b"k%d" % (n % 10): b"%d" % n for n in range(20, 30)}}


async def test_small_segments_become_one() -> None:
    bench = Bench()
    for number in range(40):
        bench.put((b"k%d" % (number % 3), b"v" * 60))
    bench.log.roll()
    assert len(bench.log.segment_base_offsets) > 5
    for _ in range(3):
        await bench.clean()
        bench.put((b"k", b"v"))
        bench.log.roll()
    await bench.clean()
    assert bench.log.segment_base_offsets == (0, 43)
    assert bench.contents().table() == {b"k": b"v", **{b"k%d" % n: b"v" * 60 for n in range(3)}}


async def test_a_segment_that_stays_as_it_is_is_not_replaced() -> None:
    bench = Bench()
    for number in range(12):
        bench.put((b"k%d" % number, b"v" * 60))
    bench.log.roll()
    inodes = {
        name: id(bench.storage.inode(f"/data/table-0/{name}"))
        for name in bench.names()
        if name.endswith(".log")
    }
    assert await bench.clean() == 1
    assert inodes == {name: id(bench.storage.inode(f"/data/table-0/{name}")) for name in inodes}
    assert not [name for name in bench.names() if name.endswith(".cleaned")]


# ---- producers and transactions


async def test_the_last_batch_of_a_producer_stays_as_a_header() -> None:
    bench = Bench()
    bench.put((b"a", b"1"), producer=(7, 1, 0))
    bench.put((b"a", b"2"), (b"b", b"2"), producer=(7, 1, 1))
    bench.put((b"a", b"3"), (b"b", b"3"))
    bench.log.roll()
    await bench.clean()
    found = bench.contents()
    assert [(h.base_offset, h.last_offset, h.record_count, h.last_sequence) for h in found.headers] == [
        (1, 2, 0, 2),
        (3, 4, 2, -1),
    ]
    for name in bench.names():
        if name.endswith(".snapshot"):
            bench.storage.remove_file(f"/data/table-0/{name}")
    bench.start()
    assert bench.log.producers.state.producers[7].batches[-1].last_sequence == 2
    # Once the producer is forgotten, so is its batch.
    bench.log.producers.state.producers.clear()
    bench.put((b"c", b"1"))
    bench.log.roll()
    await bench.clean()
    assert [h.base_offset for h in bench.contents().headers] == [3, 5]


async def test_aborted_records_go_and_their_marker_later() -> None:
    bench = Bench()
    bench.put((b"a", b"committed"))
    bench.put((b"a", b"aborted"), producer=(7, 0, 0), transactional=True)
    bench.put((b"b", b"aborted"), producer=(7, 0, 1), transactional=True)
    marker = bench.mark(7, ABORT)
    bench.put((b"z", b"1"), producer=(7, 0, 2))
    bench.log.roll()
    await bench.clean()
    found = bench.contents()
    assert values(found) == [(0, b"a", b"committed"), (4, b"z", b"1")]
    assert found.markers == [(marker, 7, ABORT)]
    assert not found.headers[1].attributes & DELETE_HORIZON_BIT  # its data was there when this round began
    for waits_ms, is_there in ((0, True), (RETENTION_MS - 1, True), (1, False)):
        bench.now_ms += waits_ms
        bench.put((b"z", b"more"))
        bench.log.roll()
        await bench.clean()
        assert bool(bench.contents().markers) is is_there


async def test_a_transaction_begun_before_the_clean_section_ends_after_it() -> None:
    bench = Bench()
    bench.put((b"a", b"old"))
    bench.put((b"a", b"aborted"), producer=(7, 0, 0), transactional=True)
    bench.put((b"b", b"open"), producer=(8, 0, 0), transactional=True)
    bench.log.roll()
    bench.put((b"c", b"1"))
    bench.mark(7, ABORT)
    bench.log.roll()
    assert await bench.clean() == 0  # the open transaction lies in the first segment
    bench.mark(8, COMMIT)
    bench.log.roll()
    assert await bench.clean() == 1
    found = bench.contents()
    assert found.table() == {b"a": b"old", b"b": b"open", b"c": b"1"}
    assert len(found.records) == 3


async def test_an_undecided_transaction_is_not_cleaned() -> None:
    bench = Bench()
    bench.put((b"a", b"old"))
    bench.log.roll()
    bench.put((b"a", b"open"), producer=(7, 0, 0), transactional=True)
    bench.log.roll()
    bench.put((b"a", b"new"))
    bench.log.roll()
    await bench.clean()
    assert bench.log.clean_offset == 1
    assert len(bench.contents().records) == 3
    bench.mark(7, ABORT)
    bench.log.roll()
    await bench.clean()
    assert values(bench.contents()) == [(2, b"a", b"new")]


async def test_a_marker_above_the_high_watermark_decides_nothing() -> None:
    bench = Bench(high_watermark=2)
    bench.put((b"a", b"old"))
    bench.log.roll()
    bench.put((b"a", b"committed"), producer=(7, 0, 0), transactional=True)
    bench.log.roll()
    bench.mark(7, COMMIT)
    await bench.clean()
    assert bench.log.clean_offset == 1
    assert len(bench.contents().records) == 2


# ---- what does not fit


async def test_damage_is_reported_and_the_log_left_alone() -> None:
    bench = Bench()
    for number in range(20):
        bench.put((b"a", b"%d" % number))
    bench.log.roll()
    bench.log.sync()
    data = bench.storage.inode("/data/table-0/00000000000000000000.log").data
    data[100] ^= 1
    assert await bench.clean() == 0
    (reason,) = bench.manager.cleaner.uncleanable.values()
    assert "00000000000000000000.log is damaged at byte" in reason
    jobs = bench.executor.jobs
    assert await bench.clean() == 0
    assert bench.executor.jobs == jobs
    assert bench.log.clean_offset == 0
    assert isinstance(bench.manager.failed[TABLE], LogCorruptError)
    assert bench.log.is_closed


KEYED = build_batch([(1000, b"a", b"forged", ()), (1000, b"b", b"forged", ())])
BESIDE_ITS_BATCH = encode_record(0, 0, b"a", b"forged", ()) + encode_record(0, 40, b"b", b"forged", ())
OUT_OF_TIME = encode_record(0, 0, b"a", b"forged", ()) + encode_record(2**62, 1, b"c", b"forged", ())


@pytest.mark.parametrize(
    "batch",
    [
        with_body(KEYED, b"\xff" * 40),
        with_body(with_fields(KEYED, attributes=1), b"\x1f\x8b" + bytes(40)),
        with_body(with_fields(KEYED, attributes=2), b"\xff" * 40),
        with_body(with_fields(KEYED, attributes=3), b"\x04\x22\x4d\x18" + b"\xff" * 40),
        with_body(with_fields(KEYED, attributes=4), b"\x28\xb5\x2f\xfd" + b"\xff" * 40),
        with_body(KEYED, BESIDE_ITS_BATCH),
        with_fields(with_body(KEYED, OUT_OF_TIME), base_timestamp=2**63 - 1),
    ],
    ids=["none", "gzip", "snappy", "lz4", "zstd", "offset-beside-its-batch", "timestamp-of-65-bits"],
)
async def test_records_that_a_producer_garbled_leave_the_log_uncleaned_and_served(batch: bytes) -> None:
    """A plain topic looks at no record; it may be compacted later. Behind a right checksum nothing is damaged."""
    bench = Bench()
    bench.log.update_config(dataclasses.replace(COMPACTED, cleanup_policy="delete"))
    bench.put((b"a", b"old"))
    assert bench.log.append_as_leader(batch, leader_epoch=0).first_offset == 1
    bench.log.update_config(COMPACTED)
    bench.put((b"a", b"new"))
    for number in range(50):
        bench.put((b"b", b"%d" % number))
    bench.log.roll()
    for is_killed in (True, False):
        before, high = bench.log, bench.log.log_end_offset
        served = stored_bytes(bench)
        with capture_logs() as lines:
            assert [await bench.clean(), await bench.clean()] == [0, 0]
        [told] = [line for line in lines if line["log_level"] == "error"]
        assert told["event"] == "a log cannot be cleaned"
        assert f"{FOLDER}/00000000000000000000.log holds records at byte " in told["reason"]
        assert bench.manager.cleaner.uncleanable == {TABLE: told["reason"]}
        assert not bench.manager.failed
        assert bench.log is before
        assert not bench.log.is_closed
        assert stored_bytes(bench) == served
        bench.put((b"a", b"newer"))
        assert bench.log.log_end_offset == high + 1
        assert not [name for name in bench.names() if "cleaned" in name or "swap" in name]
        for timestamp in (0, 1000, 10_000, 2**62):
            bench.log.offset_for_timestamp(timestamp)
        assert bench.log.offset_for_max_timestamp() is not None
        if not is_killed:
            await bench.stop()
        bench.start()  # it is tried once more by the next process, which opens the log as any other
    bench.log.raise_log_start_offset(2)
    bench.log.truncate_to(3)
    assert not bench.manager.failed


def stored_bytes(bench: Bench) -> bytes:
    result = bench.log.read(0, 1 << 20, up_to_offset=bench.log.log_end_offset)
    assert result.next_offset == bench.log.log_end_offset
    return b"".join(part.read() for part in result.slices)


async def test_a_wrong_checksum_before_garbled_records_is_damage() -> None:
    bench = Bench()
    bench.log.update_config(dataclasses.replace(COMPACTED, cleanup_policy="delete"))
    bench.log.append_as_leader(with_body(KEYED, b"\xff" * 40), leader_epoch=0)
    bench.log.update_config(COMPACTED)
    bench.log.roll()
    bench.log.sync()
    bench.storage.inode("/data/table-0/00000000000000000000.log").data[80] ^= 1
    assert await bench.clean() == 0
    (reason,) = bench.manager.cleaner.uncleanable.values()
    assert "00000000000000000000.log is damaged at byte 0" in reason
    assert isinstance(bench.manager.failed[TABLE], LogCorruptError)


async def test_a_hole_is_not_taken_for_records_that_were_compacted_away() -> None:
    """A closed segment lost its last batches, which no index tells of; nobody has read there yet."""
    bench = Bench(config=dataclasses.replace(COMPACTED, index_interval_bytes=350))
    for number in range(20):
        bench.put((b"%d" % number, b"x"))
    bench.log.roll()
    await bench.stop()
    inode = bench.storage.inode("/data/table-0/00000000000000000000.log")
    starts = [position for position, _ in iter_batches(bytes(inode.data))]
    del inode.data[starts[-1] :]
    bench.start()
    assert not bench.manager.failed
    assert await bench.clean() == 0
    (reason,) = bench.manager.cleaner.uncleanable.values()
    assert "the segment ends at offset" in reason
    assert isinstance(bench.manager.failed[TABLE], SegmentEndsElsewhere)


async def test_a_batch_of_an_epoch_that_none_can_be_is_not_copied() -> None:
    """No checksum covers the epoch."""
    bench = Bench()
    for number in range(20):
        bench.put((b"a", b"%d" % number))
    bench.log.roll()
    bench.log.sync()
    bench.storage.inode("/data/table-0/00000000000000000000.log").data[12] ^= 0x80
    assert await bench.clean() == 0
    (reason,) = bench.manager.cleaner.uncleanable.values()
    assert (
        "00000000000000000000.log is damaged at byte 0: the batch at offset 0 is of leader epoch -" in reason
    )
    assert isinstance(bench.manager.failed[TABLE], LogCorruptError)


def put_with_a_rotten_offset(bench: Bench, number: int, byte: int, bit: int) -> list[int]:
    """Where each of twenty batches of a closed segment is, one of which has a bit of its base offset wrong."""
    for value in range(20):
        bench.put((b"a", b"%d" % value))
    bench.log.roll()
    bench.log.sync()
    data = bench.storage.inode("/data/table-0/00000000000000000000.log").data
    starts = [position for position, _ in iter_batches(bytes(data))]
    data[starts[number] + byte] ^= bit
    return starts


@pytest.mark.parametrize(
    ("number", "byte", "bit"),
    [(0, 1, 0x02), (-1, 1, 0x02), (2, 7, 0x01), (3, 7, 0x01), (3, 0, 0x80)],
    ids=["first-far-ahead", "last-far-ahead", "ahead-by-one", "back-by-one", "negative"],
)
async def test_a_batch_at_an_offset_that_it_cannot_be_at_takes_no_records_place(
    number: int, byte: int, bit: int
) -> None:
    """No checksum covers the offset; its records would count as the last of their keys."""
    bench = Bench()
    put_with_a_rotten_offset(bench, number, byte, bit)
    assert await bench.clean() == 0
    (reason,) = bench.manager.cleaner.uncleanable.values()
    assert "00000000000000000000.log is damaged at byte" in reason
    assert isinstance(bench.manager.failed[TABLE], LogCorruptError)


@pytest.mark.parametrize("buffer_bytes", [1, 200, 300])
@pytest.mark.parametrize("number", range(1, 7))
async def test_batches_that_are_read_apart_are_in_order_as_well(buffer_bytes: int, number: int) -> None:
    """Whichever batch a piece of the segment begins with."""
    bench = Bench(cleaner=CleanerConfig(io_buffer_bytes=buffer_bytes))
    starts = put_with_a_rotten_offset(bench, number, 7, 0x01)
    assert await bench.clean() == 0
    (reason,) = bench.manager.cleaner.uncleanable.values()
    goes_back = number if number % 2 else number + 1
    assert f"00000000000000000000.log is damaged at byte {starts[goes_back]}:" in reason


async def test_the_throttle_pauses() -> None:
    bench = Bench(cleaner=CleanerConfig(io_max_bytes_per_s=1e9))
    for _ in range(8):
        bench.put((b"a", b"1"))
    bench.log.roll()
    assert await bench.clean() == 1


async def test_what_was_made_of_old_segments_is_as_old() -> None:
    """Records without a timestamp age from the last change of their file."""
    bench = Bench()
    bench.storage.now_ms = lambda: 4000
    for number in range(6):
        bench.put((b"a", b"%d" % number))
    bench.log.roll()
    bench.storage.now_ms = lambda: 9000
    assert await bench.clean() == 1
    bench.put((b"a", b"on"))
    assert bench.storage.inode(f"{FOLDER}/{0:020d}.log").modified_ms == 4000
