"""Appending as leader and as follower, reading back, rolling."""

from __future__ import annotations

import dataclasses
import errno

import pytest

from kraft.runtime.disk import RealDisk
from partitions.log.config import LogConfig
from partitions.log.errors import AppendError, LogStorageError, OffsetOutOfRange, UnexpectedAppendOffset
from partitions.log.log import PartitionLog
from partitions.records.batch import iter_batches
from partitions.records.builder import build_batch
from partitions.records.compression import compress
from tests.support.forged_batches import with_body, with_fields
from tests.support.logs import (
    FOLDER,
    PARTITION,
    SMALL,
    FailingDisk,
    Halted,
    batch_of,
    full_disk,
    halt,
    lead,
    memory_disk,
    open_log,
    read_records,
)


def filled(log: PartitionLog, batches: int = 30, *, leader_epoch: int = 1) -> list[bytes]:
    values = [f"value-{number:04d}".encode() for number in range(2 * batches)]
    for number in range(batches):
        log.append_as_leader(
            batch_of(*values[2 * number : 2 * number + 2], timestamp=1000 + number),
            leader_epoch=leader_epoch,
        )
    return values


def test_append_assigns_offsets_and_epoch() -> None:
    log = open_log(memory_disk())
    info = log.append_as_leader(batch_of(b"a", b"b", timestamp=7), leader_epoch=4)
    assert (info.first_offset, info.last_offset, info.max_timestamp) == (0, 1, 7)
    assert (info.batches, info.duplicate, info.log_append_time, info.log_start_offset) == (1, False, -1, 0)
    info = log.append_as_leader(memoryview(bytearray(batch_of(b"c"))), leader_epoch=5)
    assert (info.first_offset, info.last_offset, log.log_end_offset) == (2, 2, 3)
    assert read_records(log) == [(0, 4, b"a"), (1, 4, b"b"), (2, 5, b"c")]
    assert log.epochs.entries == ((4, 0), (5, 2))


def test_one_append_of_many_batches_is_one_write() -> None:
    disk = FailingDisk(memory_disk())
    log = open_log(disk)
    disk.calls.clear()
    info = log.append_as_leader(batch_of(b"a") + batch_of(b"b", b"c") + batch_of(b"d"), leader_epoch=0)
    assert disk.calls == [("append", f"{FOLDER}/00000000000000000000.log")]
    assert (info.first_offset, info.last_offset, info.batches) == (0, 3, 3)
    assert [record.value for record in read_records(log)] == [b"a", b"b", b"c", b"d"]


def test_reads_start_with_the_batch_that_holds_the_offset() -> None:
    log = open_log(memory_disk())
    filled(log)
    for offset in range(60):
        result = log.read(offset, 1, up_to_offset=60)
        [(position, header)] = iter_batches(b"".join(part.read() for part in result.slices))
        assert (position, header.base_offset) == (0, offset - offset % 2)
        assert (result.start_offset, result.next_offset) == (header.base_offset, header.next_offset)


def test_reads_stop_below_the_limit_and_within_the_size() -> None:
    log = open_log(memory_disk())
    filled(log)
    size = log.size_bytes // 30
    for up_to in range(1, 61):
        result = log.read(0, 1 << 20, up_to_offset=up_to)
        assert result.size_bytes == up_to // 2 * size
        if result.slices:
            assert result.next_offset == up_to - up_to % 2
    for max_bytes in range(0, 12 * size, 7):
        whole = max_bytes // size
        assert log.read(10, max_bytes, up_to_offset=60).size_bytes == max(whole, 1) * size
        result = log.read(10, max_bytes, up_to_offset=60, min_one_batch=False)
        assert (result.size_bytes, result.next_offset) == (whole * size, 10 + 2 * whole)


def test_a_read_covers_several_segments_one_slice_each() -> None:
    log = open_log(memory_disk())
    values = filled(log)
    assert len(log.segment_base_offsets) > 2
    result = log.read(0, 1 << 20, up_to_offset=log.log_end_offset)
    assert len(result.slices) == len(log.segment_base_offsets)
    assert result.size_bytes == log.size_bytes
    assert [record.value for record in read_records(log, max_bytes=1 << 20)] == values


def test_reading_at_the_limit_gives_nothing_and_outside_of_the_log_is_an_error() -> None:
    log = open_log(memory_disk())
    filled(log)
    for offset, up_to in ((60, 60), (10, 10), (10, 5), (60, 99)):
        assert log.read(offset, 100, up_to_offset=up_to) == ((), 0, offset, offset)
    log.delete_segments_before(log.segment_base_offsets[1])
    for offset in (61, log.log_start_offset - 1, -1):
        with pytest.raises(OffsetOutOfRange, match="is outside the log"):
            log.read(offset, 100, up_to_offset=60)


def test_slices_survive_deletion_truncation_and_close(tmp_path: object) -> None:
    disk = RealDisk()
    folder = f"{tmp_path}/orders-3"
    log = PartitionLog.open(disk, folder, PARTITION, SMALL, now_ms=lambda: 0, halt=halt)
    filled(log)
    held = log.read(0, 1 << 20, up_to_offset=60).slices
    before = [part.read() for part in held]
    log.delete_segments_before(log.segment_base_offsets[1])
    log.close()
    assert held[0].fileno() >= 0
    assert [part.read() for part in held] == before


def test_segments_roll_by_size_and_names_are_kafkas() -> None:
    disk = memory_disk()
    log = open_log(disk)
    filled(log)
    bases = log.segment_base_offsets
    names = disk.list_dir(FOLDER)
    for base in bases:
        for suffix in ("log", "index", "timeindex"):
            assert f"{base:020d}.{suffix}" in names
    assert [f"{base:020d}.snapshot" in names for base in bases] == [False] + [True] * (len(bases) - 1)
    for base in bases:
        assert len(disk.read_bytes(f"{FOLDER}/{base:020d}.log")) <= SMALL.segment_bytes


def test_segments_roll_by_the_age_of_their_first_batch() -> None:
    log = open_log(memory_disk(), LogConfig(segment_ms=1000))
    for timestamp in (5000, 5500, 6000, 6001, 6500, 7002):
        log.append_as_leader(batch_of(b"x", timestamp=timestamp), leader_epoch=0)
    assert log.segment_base_offsets == (0, 3, 5)


def test_segments_without_timestamps_roll_by_the_clock() -> None:
    clock = [0]
    log = PartitionLog.open(
        memory_disk(), FOLDER, PARTITION, LogConfig(segment_ms=1000), now_ms=lambda: clock[0], halt=halt
    )
    for now in (0, 500, 1000, 1001, 1500, 2002):
        clock[0] = now
        log.append_as_leader(batch_of(b"x", timestamp=-1), leader_epoch=0)
    assert log.segment_base_offsets == (0, 3, 5)


def rolled_at(folder: str, jitter_ms: int) -> int:
    """The age in ms at which the first segment of a log in this folder was closed."""
    config = LogConfig(segment_ms=1000, segment_jitter_ms=jitter_ms)
    log = PartitionLog.open(memory_disk(), folder, PARTITION, config, now_ms=lambda: 0, halt=halt)
    age_ms = -1
    while len(log.segment_base_offsets) == 1:
        age_ms += 1
        log.append_as_leader(batch_of(b"x", timestamp=5000 + age_ms), leader_epoch=0)
    return age_ms


def test_jitter_takes_a_part_of_the_age_that_differs_between_partitions() -> None:
    folders = [f"/data/orders-{number}" for number in range(8)]
    assert {rolled_at(folder, 0) for folder in folders} == {1001}
    ages = [rolled_at(folder, 200) for folder in folders]
    assert all(801 <= age <= 1001 for age in ages)
    assert len(set(ages)) > 4
    assert ages == [rolled_at(folder, 200) for folder in folders]


def test_jitter_takes_no_more_than_the_whole_age() -> None:
    assert 1 <= rolled_at("/data/orders-1", 10**15) <= 1001


def test_segments_roll_when_an_index_is_full() -> None:
    log = open_log(memory_disk(), LogConfig(index_interval_bytes=0, index_size_max_bytes=24))
    for number in range(20):
        log.append_as_leader(batch_of(b"x", timestamp=number), leader_epoch=0)
    # Two time entries of 12 bytes fit: the first batch of a segment has none.
    assert log.segment_base_offsets == (0, 3, 6, 9, 12, 15, 18)


def test_segments_roll_before_relative_offsets_overflow() -> None:
    log = open_log(memory_disk())
    log.append_as_follower(batch_of(b"a", base_offset=0, leader_epoch=0))
    log.append_as_follower(batch_of(b"b", base_offset=2**31 - 1, leader_epoch=0))
    log.append_as_follower(batch_of(b"c", base_offset=2**31, leader_epoch=0))
    assert log.segment_base_offsets == (0, 2**31)
    assert [record.offset for record in read_records(log)] == [0, 2**31 - 1, 2**31]
    with pytest.raises(UnexpectedAppendOffset, match="too wide"):
        log.append_as_follower(batch_of(b"d", base_offset=2**33, leader_epoch=0))


@pytest.mark.parametrize(
    ("offsets", "bases"),
    [
        ((0, 5, 2**31 - 1), (0,)),
        ((0, 2**31), (0, 1)),
        ((0, 2**31 - 5, 2**31 + 5), (0, 2**31 - 4)),
        ((2**31 - 1, 2**32 - 1, 2**32, 6_442_450_943), (0, 2**31, 2**32)),
    ],
)
def test_a_follower_that_gets_far_apart_batches_at_once_rolls_between_them(
    offsets: tuple[int, ...], bases: tuple[int, ...]
) -> None:
    """A compacted leader sends what lies in several of its segments."""
    disk = memory_disk()
    log = open_log(disk)
    batches = [batch_of(b"%d" % offset, base_offset=offset, leader_epoch=0) for offset in offsets]
    info = log.append_as_follower(b"".join(batches))
    assert (info.last_offset, info.batches) == (offsets[-1], len(offsets))
    for _ in range(2):
        assert log.segment_base_offsets == bases
        assert [record.offset for record in read_records(log)] == list(offsets)
        log = open_log(disk)  # the process was killed


def test_what_comes_behind_a_hole_that_no_segment_spans_is_left_out() -> None:
    log = open_log(memory_disk())
    sound, far = batch_of(b"a", leader_epoch=0), batch_of(b"b", base_offset=2**32, leader_epoch=0)
    assert log.append_as_follower(sound + far).last_offset == 0
    with pytest.raises(UnexpectedAppendOffset, match="too wide") as error:
        log.append_as_follower(far)
    assert error.value.first_offset == 2**32
    assert [record.offset for record in read_records(log)] == [0]


def test_a_leader_refuses_an_append_that_no_segment_spans() -> None:
    """Each batch is as wide as the records may be that unfold from it."""
    log = open_log(memory_disk(), LogConfig())
    wide = with_fields(batch_of(b"a"), last_offset_delta=2**31 - 2, record_count=2**31 - 1)
    log.append_as_leader(wide, leader_epoch=0, origin="coordinator")
    with pytest.raises(AppendError) as error:
        log.append_as_leader(wide + wide, leader_epoch=0, origin="coordinator")
    assert error.value.code == "RECORD_LIST_TOO_LARGE"
    assert (log.log_end_offset, log.segment_base_offsets) == (2**31 - 1, (0,))
    log.append_as_leader(wide, leader_epoch=0, origin="coordinator")
    assert log.segment_base_offsets == (0, 2**31 - 1)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (b"", "INVALID_RECORD"),
        (batch_of(b"x")[:-1], "CORRUPT_MESSAGE"),
        (batch_of(b"x") + b"\0", "CORRUPT_MESSAGE"),
        (batch_of(b"x")[:-1] + b"?", "CORRUPT_MESSAGE"),
        (batch_of(b"x" * 800), "MESSAGE_TOO_LARGE"),
        (batch_of(b"x", base_offset=1), "INVALID_RECORD"),
        (batch_of(b"x", producer=(1, 0, -1)), "INVALID_RECORD"),
        (build_batch([(0, b"\0\0\0\0", b"\0" * 6, ())], is_control=True), "INVALID_RECORD"),
        (build_batch([(0, None, b"x", ())], is_transactional=True), "INVALID_RECORD"),
        (b"".join(batch_of(b"x" * 100) for _ in range(8)), "RECORD_LIST_TOO_LARGE"),
    ],
)
def test_refused_appends_leave_nothing(records: bytes, code: str) -> None:
    log = open_log(memory_disk())
    log.append_as_leader(batch_of(b"first"), leader_epoch=0)
    with pytest.raises(AppendError) as error:
        log.append_as_leader(records, leader_epoch=0)
    assert error.value.code == code
    assert (log.log_end_offset, len(read_records(log))) == (1, 1)


def test_counts_that_do_not_match_the_offsets_are_refused() -> None:
    forged = bytearray(batch_of(b"a", b"b"))
    forged[57:61] = (3).to_bytes(4, "big")
    _fix_crc(forged)
    log = open_log(memory_disk())
    with pytest.raises(AppendError, match="spans 2 offsets") as error:
        log.append_as_leader(forged, leader_epoch=0)
    assert error.value.code == "INVALID_RECORD"


def _fix_crc(batch: bytearray) -> None:
    from crc32c import crc32c

    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")


@pytest.mark.parametrize("codec", range(5))
def test_a_client_cannot_claim_more_records_than_unfold_from_its_bytes(codec: int) -> None:
    """Whatever the claim, followers and readers would have to go by it: each record takes an offset."""
    log = open_log(memory_disk(), LogConfig())
    tiny = build_batch([(0, None, b"", ())], codec=codec)
    for count in (2**31 - 1, 256 * 1024 * 1024 // 7 + 1, 100_000):
        with pytest.raises(AppendError, match="cannot lie in") as error:
            log.append_as_leader(
                with_fields(tiny, last_offset_delta=count - 1, record_count=count), leader_epoch=0
            )
        assert error.value.code == "INVALID_RECORD"
    assert log.log_end_offset == 0


@pytest.mark.parametrize("codec", range(1, 5))
def test_as_many_records_as_any_codec_packs_into_few_bytes_are_taken(codec: int) -> None:
    log = open_log(memory_disk(), LogConfig())
    batch = build_batch([(0, None, b"", ())], codec=codec)
    records = 400_000
    folded = compress(codec, (b"\x0c" + bytes(6)) * records)
    crowded = with_fields(with_body(batch, folded), last_offset_delta=records - 1, record_count=records)
    log.append_as_leader(crowded, leader_epoch=0)
    assert log.log_end_offset == records


def test_clients_do_not_choose_log_append_time_or_unknown_codecs() -> None:
    log = open_log(memory_disk())
    for attributes, code in ((8, "INVALID_TIMESTAMP"), (5, "UNSUPPORTED_COMPRESSION_TYPE")):
        forged = bytearray(batch_of(b"a"))
        forged[21:23] = attributes.to_bytes(2, "big")
        _fix_crc(forged)
        with pytest.raises(AppendError) as error:
            log.append_as_leader(forged, leader_epoch=0)
        assert error.value.code == code


def test_the_journal_may_write_control_batches() -> None:
    log = open_log(memory_disk())
    barrier = build_batch([(0, b"\0\0\0\0", None, ())], is_control=True, base_offset=77)
    log.append_as_leader(barrier, leader_epoch=3, origin="raft")
    assert (log.log_end_offset, log.epochs.entries) == (1, ((3, 0),))


def test_log_append_time_is_stamped_with_a_new_checksum() -> None:
    config = dataclasses.replace(SMALL, message_timestamp_type="LogAppendTime")
    log = open_log(memory_disk(), config, now_ms=123_456)
    sent = batch_of(b"a", b"b", timestamp=7)
    info = log.append_as_leader(sent + batch_of(b"c"), leader_epoch=0)
    assert (info.log_append_time, info.max_timestamp) == (123_456, 123_456)
    assert [record.value for record in read_records(log)] == [b"a", b"b", b"c"]
    assert log.offset_for_timestamp(123_456) == (123_456, 0, 0)
    assert sent == batch_of(b"a", b"b", timestamp=7), "the request's bytes are not ours to change"


def test_an_older_leader_epoch_cannot_append() -> None:
    log = open_log(memory_disk())
    lead(log, 5)
    with pytest.raises(AppendError, match="leader epoch 4 is over") as error:
        log.append_as_leader(batch_of(b"a"), leader_epoch=4)
    assert error.value.code == "FENCED_LEADER_EPOCH"


# ---- follower


def test_a_follower_stores_the_leaders_bytes() -> None:
    leader, follower = open_log(memory_disk()), open_log(memory_disk())
    for number in range(40):
        leader.append_as_leader(batch_of(b"v%d" % number, b"w"), leader_epoch=number // 10)
    while follower.log_end_offset < leader.log_end_offset:
        result = leader.read(follower.log_end_offset, 2500, up_to_offset=leader.log_end_offset)
        data = b"".join(part.read() for part in result.slices)
        info = follower.append_as_follower(data)
        assert (info.last_offset + 1, info.size_bytes) == (result.next_offset, len(data))
    assert read_records(follower) == read_records(leader)
    assert follower.epochs == leader.epochs
    assert all(
        len(part.read()) <= SMALL.segment_bytes for part in follower.read(0, 9999, up_to_offset=80).slices
    )


def test_a_follower_accepts_holes_and_refuses_to_go_back() -> None:
    log = open_log(memory_disk())
    log.append_as_follower(batch_of(b"a", base_offset=0, leader_epoch=1))
    log.append_as_follower(
        batch_of(b"b", base_offset=5, leader_epoch=1) + batch_of(b"c", base_offset=9, leader_epoch=2)
    )
    assert read_records(log) == [(0, 1, b"a"), (5, 1, b"b"), (9, 2, b"c")]
    result = log.read(2, 1, up_to_offset=10)
    assert (result.start_offset, result.next_offset) == (5, 9)
    assert log.read(2, 999, up_to_offset=8).next_offset == 8
    assert log.epochs.entries == ((1, 0), (2, 6)), "the hole may be of the later epoch"
    for bad in (
        batch_of(b"x", base_offset=9, leader_epoch=2),
        batch_of(b"x", base_offset=12, leader_epoch=2) + batch_of(b"y", base_offset=11, leader_epoch=2),
    ):
        with pytest.raises(UnexpectedAppendOffset):
            log.append_as_follower(bad)
    with pytest.raises(AppendError) as error:
        log.append_as_follower(batch_of(b"x", base_offset=10, leader_epoch=1))
    assert error.value.code == "CORRUPT_MESSAGE", "it is asked for again, and the leader checks what it has"
    with pytest.raises(AppendError) as error:
        log.append_as_follower(batch_of(b"x", base_offset=10, leader_epoch=2)[:-2])
    assert error.value.code == "CORRUPT_MESSAGE"
    assert log.log_end_offset == 10
    assert log.append_as_follower(b"").batches == 0


def test_a_follower_takes_nothing_of_a_later_epoch_than_the_one_it_follows() -> None:
    log = open_log(memory_disk())
    later = batch_of(b"x", base_offset=2, leader_epoch=70)
    sent = batch_of(b"a", base_offset=0, leader_epoch=5) + batch_of(b"b", base_offset=1, leader_epoch=7)
    info = log.append_as_follower(
        sent + later + batch_of(b"y", base_offset=3, leader_epoch=7), leader_epoch=7
    )
    assert (info.last_offset, info.batches, info.size_bytes) == (1, 2, len(sent)), (
        "what is before it, as Kafka does"
    )
    with pytest.raises(AppendError, match="epoch 70, and was sent in epoch 7") as error:
        log.append_as_follower(later, leader_epoch=7)
    assert error.value.code == "CORRUPT_MESSAGE"
    assert log.epochs.entries == ((5, 0), (7, 1))
    assert read_records(log) == [(0, 5, b"a"), (1, 7, b"b")]


# ---- failing disks


@pytest.mark.parametrize("torn_bytes", [0, 1, 60, 100])
def test_a_full_disk_refuses_appends_and_tears_nothing(torn_bytes: int) -> None:
    inner = memory_disk()
    disk = FailingDisk(inner)
    log = open_log(disk)
    filled(log, 3)
    disk.fail, disk.torn_bytes = full_disk, torn_bytes
    for _ in range(2):
        with pytest.raises(AppendError, match="injected") as error:
            log.append_as_leader(batch_of(b"lost"), leader_epoch=1)
        assert error.value.code == "KAFKA_STORAGE_ERROR"
    before = read_records(log)
    disk.fail = lambda operation, path: None
    log.append_as_leader(batch_of(b"back"), leader_epoch=1)
    assert read_records(log) == [*before, (6, 1, b"back")]
    assert open_log(inner).log_end_offset == 7


def test_a_full_disk_at_a_roll_leaves_the_old_segment_in_use() -> None:
    inner = memory_disk()
    disk = FailingDisk(inner)
    log = open_log(disk)
    filled(log, 9)
    assert log.segment_base_offsets == (0,)
    for step in ("snapshot", "log", "index", "timeindex"):
        disk.fail = lambda operation, path, step=step: (
            errno.ENOSPC if operation == "create" and path.endswith("." + step) else None
        )
        with pytest.raises(AppendError) as error:
            filled(log, 5)
        assert error.value.code == "KAFKA_STORAGE_ERROR"
        with pytest.raises(LogStorageError):
            log.roll()
        assert log.segment_base_offsets == (0,)
        assert not any(
            name.endswith(".log") and name > "00000000000000000000.log" for name in inner.list_dir(FOLDER)
        )
    disk.fail = lambda operation, path: None
    values = read_records(log)
    log.roll()
    log.append_as_leader(batch_of(b"next"), leader_epoch=1)
    assert read_records(log)[:-1] == values
    assert read_records(open_log(inner)) == read_records(log)


def test_a_failed_fsync_halts_and_is_never_tried_again() -> None:
    disk = FailingDisk(memory_disk())
    log = open_log(disk)
    filled(log, 2)
    disk.fail = lambda operation, path: errno.EIO if operation == "sync" else None
    with pytest.raises(Halted, match=r"fsync of .* failed"):
        log.sync()
    disk.fail = lambda operation, path: None
    disk.calls.clear()
    for attempt in (log.sync, log.close, lambda: filled(log, 1), lambda: log.read(0, 1, up_to_offset=1)):
        with pytest.raises(LogStorageError, match=r"fsync of .* failed"):
            attempt()
    assert disk.calls == []


def test_a_closed_log_refuses_everything() -> None:
    log = open_log(memory_disk())
    log.close()
    log.close()
    with pytest.raises(LogStorageError, match="is closed"):
        log.append_as_leader(batch_of(b"x"), leader_epoch=0)
    with pytest.raises(LogStorageError, match="is closed"):
        log.read(0, 1, up_to_offset=1)
