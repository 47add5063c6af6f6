"""What a leader asks of single records where the topic wants it, and what it asks of every client's body."""

from __future__ import annotations

from dataclasses import replace

import pytest

from partitions.log.config import LogConfig
from partitions.log.errors import AppendError, InvalidRecords
from partitions.log.log import PartitionLog
from partitions.log.record_checks import RECORD_ERRORS_MAX
from partitions.records.batch import HEADER_BYTES, decode_records, iter_batches, parse_header, verify_crc
from partitions.records.builder import RecordTuple, build_batch
from partitions.records.compression import Codec, compress
from partitions.records.control import ControlType
from partitions.records.markers import build_marker
from tests.support.forged_batches import with_body, with_fields
from tests.support.logs import memory_disk, open_log

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
COMPACTED = LogConfig(cleanup_policy="compact")
CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")


def log_with(config: LogConfig) -> PartitionLog:
    return open_log(memory_disk(), config, now_ms=NOW_MS)


def keyed(*keys: bytes | None, timestamp: int = NOW_MS) -> list[RecordTuple]:
    return [(timestamp, key, b"v%d" % number, ()) for number, key in enumerate(keys)]


def stored(log: PartitionLog) -> bytes:
    result = log.read(0, 1 << 24, up_to_offset=log.log_end_offset)
    return b"".join(part.read() for part in result.slices)


def refusal(log: PartitionLog, records: bytes) -> AppendError:
    with pytest.raises(AppendError) as error:
        log.append_as_leader(records, leader_epoch=0)
    assert log.log_end_offset == log.size_bytes == 0, "nothing was appended"
    return error.value


# ---- keys


@pytest.mark.parametrize("codec", range(5))
def test_a_compacted_topic_names_the_records_without_a_key(codec: int) -> None:
    error = refusal(log_with(COMPACTED), build_batch(keyed(b"a", None, b"b", None), codec=codec))
    assert isinstance(error, InvalidRecords)
    assert error.code == "INVALID_RECORD"
    assert [record.batch_index for record in error.record_errors] == [1, 3]
    assert "without key" in error.record_errors[0].message
    assert "2 record errors in total" in str(error)
    assert "record 1: Compacted topic" in str(error)


def test_a_compacted_topic_takes_tombstones_and_empty_keys() -> None:
    log = log_with(replace(COMPACTED, cleanup_policy="compact,delete"))
    log.append_as_leader(build_batch([(NOW_MS, b"a", None, ()), (NOW_MS, b"", b"v", ())]), leader_epoch=0)
    assert log.log_end_offset == 2


def test_a_refusal_names_a_bounded_number_of_records() -> None:
    error = refusal(log_with(COMPACTED), build_batch(keyed(*[None] * (RECORD_ERRORS_MAX + 5))))
    assert isinstance(error, InvalidRecords)
    assert len(error.record_errors) == RECORD_ERRORS_MAX


def test_a_coordinator_needs_keys_too_and_the_journal_does_not() -> None:
    log = log_with(COMPACTED)
    with pytest.raises(InvalidRecords):
        log.append_as_leader(build_batch(keyed(None)), leader_epoch=0, origin="coordinator")
    marker = build_marker(1, 0, ControlType.COMMIT, coordinator_epoch=0, timestamp=NOW_MS)
    log.append_as_leader(marker, leader_epoch=0, origin="coordinator")
    log.append_as_leader(build_batch(keyed(None)), leader_epoch=0, origin="raft")
    assert log.log_end_offset == 2


# ---- timestamps


@pytest.mark.parametrize(
    ("timestamp", "fits"),
    [
        (NOW_MS, True),
        (NOW_MS + HOUR_MS, True),
        (NOW_MS + HOUR_MS + 1, False),
        (0, True),
        (-1, True),
    ],
)
def test_the_default_bounds_are_an_hour_ahead_and_none_back(timestamp: int, fits: bool) -> None:
    log, records = log_with(LogConfig()), build_batch(keyed(b"a", timestamp=timestamp))
    if fits:
        log.append_as_leader(records, leader_epoch=0)
        return
    error = refusal(log, records)
    assert isinstance(error, InvalidRecords)
    assert (error.code, [record.batch_index for record in error.record_errors]) == ("INVALID_TIMESTAMP", [0])


@pytest.mark.parametrize("codec", range(5))
def test_records_that_are_too_old_are_named_whatever_the_newest_is(codec: int) -> None:
    config = LogConfig(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500)
    times = [NOW_MS, NOW_MS - 1000, NOW_MS - 1001, NOW_MS + 500, NOW_MS + 501, -1]
    records = [(time, None, b"v", ()) for time in times]
    error = refusal(log_with(config), build_batch(records, codec=codec))
    assert isinstance(error, InvalidRecords)
    assert error.code == "INVALID_TIMESTAMP"
    assert [record.batch_index for record in error.record_errors] == [2, 4]
    assert f"within [{NOW_MS - 1000}, {NOW_MS + 500}]" in error.record_errors[0].message


def test_a_broken_upper_bound_opens_the_batch_only_to_name_records() -> None:
    records = [(NOW_MS, None, b"v", ()), (NOW_MS + 2 * HOUR_MS, None, b"v", ())]
    error = refusal(log_with(LogConfig()), build_batch(records))
    assert isinstance(error, InvalidRecords)
    assert [record.batch_index for record in error.record_errors] == [1]


LYING = (
    (LogConfig(), NOW_MS + 2 * HOUR_MS),
    (COMPACTED, NOW_MS + 1),
    (COMPACTED, NOW_MS - 1),
    (COMPACTED, -1),
    (LogConfig(message_timestamp_before_max_ms=HOUR_MS), NOW_MS + HOUR_MS),
    (LogConfig(compression_type="zstd"), NOW_MS + 2 * HOUR_MS),
)


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize(("config", "claimed"), LYING)
def test_a_batch_that_was_opened_names_the_largest_timestamp_of_its_records(
    config: LogConfig, claimed: int, codec: int
) -> None:
    """Else a producer could keep a segment, and all after it, from ever being deleted by time."""
    records: list[RecordTuple] = [
        (NOW_MS - 5, b"a", b"v", ()),
        (NOW_MS, b"b", b"v", ()),
        (-1, b"c", b"v", ()),
    ]
    honest = build_batch(records, codec=codec, producer_id=7, producer_epoch=0, base_sequence=0)
    log = log_with(config)
    info = log.append_as_leader(with_fields(honest, max_timestamp=claimed), leader_epoch=3)
    assert info.max_timestamp == NOW_MS
    data = stored(log)
    ((_, header),) = iter_batches(data)
    verify_crc(data, 0, header)
    assert (header.max_timestamp, header.partition_leader_epoch, header.producer_id) == (NOW_MS, 3, 7)
    opened = decode_records(data, 0, header, max_decompressed_bytes=1 << 20)
    assert [(record.timestamp, record.key) for record in opened] == [
        (time, key) for time, key, _, _ in records
    ]
    found = log.offset_for_max_timestamp()
    assert found is not None
    assert found[:2] == (NOW_MS, 1)


def test_a_batch_without_any_time_claims_none() -> None:
    log = log_with(COMPACTED)
    lying = with_fields(build_batch(keyed(b"a", b"b", timestamp=-1)), max_timestamp=NOW_MS)
    assert log.append_as_leader(lying, leader_epoch=0).max_timestamp == -1


def test_timestamps_of_the_append_have_no_bounds() -> None:
    config = LogConfig(
        message_timestamp_type="LogAppendTime",
        message_timestamp_before_max_ms=0,
        message_timestamp_after_max_ms=0,
    )
    log = log_with(config)
    info = log.append_as_leader(build_batch(keyed(b"a", b"b", timestamp=5)), leader_epoch=0)
    assert (info.log_append_time, info.max_timestamp) == (NOW_MS, NOW_MS)
    data = stored(log)
    header = parse_header(data, 0)
    verify_crc(data, 0, header)
    assert (header.uses_log_append_time, header.max_timestamp) == (True, NOW_MS)
    times = {r.timestamp for r in decode_records(data, 0, header, max_decompressed_bytes=1 << 20)}
    assert times == {NOW_MS}


# ---- codec


@pytest.mark.parametrize("sent", range(5))
@pytest.mark.parametrize("wanted", CODECS)
def test_another_codec_is_stored_as_the_topic_wants(sent: int, wanted: str) -> None:
    log = log_with(LogConfig(compression_type=wanted))
    records = keyed(b"a", None, b"c" * 3000)
    batch = build_batch(records, codec=sent, producer_id=7, producer_epoch=2, base_sequence=0)
    info = log.append_as_leader(batch, leader_epoch=3)
    assert (info.first_offset, info.last_offset) == (0, 2)
    data = stored(log)
    [(_, header)] = iter_batches(data)
    verify_crc(data, 0, header)
    target = Codec.NONE if wanted == "uncompressed" else Codec[wanted.upper()]
    before = parse_header(batch, 0)
    assert header.codec == target
    assert header[7:] == before[7:]
    found = decode_records(data, 0, header, max_decompressed_bytes=1 << 20)
    assert [(r.timestamp, r.key, r.value, r.headers) for r in found] == records
    assert log.append_as_leader(batch, leader_epoch=3).duplicate


def test_batches_in_the_topics_codec_and_the_producers_choice_pass_through() -> None:
    for config, codec in ((LogConfig(compression_type="lz4"), 3), (LogConfig(), 1), (LogConfig(), 4)):
        log = log_with(config)
        batch = build_batch(keyed(b"a"), codec=codec)
        log.append_as_leader(batch, leader_epoch=0)
        assert stored(log)[16:] == batch[16:]


def test_the_level_is_the_topics() -> None:
    text = b" ".join(b"%d" % (number * number) for number in range(4000))
    sizes = []
    for level in (1, 9):
        log = log_with(LogConfig(compression_type="gzip", compression_gzip_level=level))
        log.append_as_leader(build_batch([(NOW_MS, None, text, ())]), leader_epoch=0)
        sizes.append(log.size_bytes)
    assert sizes[1] < sizes[0]


def test_what_grows_beyond_the_topics_limit_is_refused() -> None:
    batch = build_batch([(NOW_MS, None, bytes(5000), ())], codec=Codec.ZSTD)
    config = LogConfig(compression_type="uncompressed", max_message_bytes=1000)
    assert len(batch) < 1000
    assert refusal(log_with(config), batch).code == "MESSAGE_TOO_LARGE"


# ---- bodies


def test_bodies_that_cannot_be_what_the_header_says_are_refused_unopened() -> None:
    plain = build_batch(keyed(b"a", b"b"))
    many = with_fields(plain, record_count=100, last_offset_delta=99)
    assert refusal(log_with(LogConfig()), many).code == "INVALID_RECORD"
    none = with_fields(plain, record_count=0, last_offset_delta=0)
    assert refusal(log_with(LogConfig()), none).code == "INVALID_RECORD"
    for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD):
        for body in (b"", plain[HEADER_BYTES:], compress(Codec.SNAPPY, plain[HEADER_BYTES:])):
            error = refusal(log_with(LogConfig()), with_body(with_fields(plain, attributes=codec), body))
            assert (error.code, codec.name.lower() in str(error)) == ("INVALID_RECORD", True)


@pytest.mark.parametrize("codec", range(5))
def test_a_broken_body_is_refused_where_records_are_looked_at(codec: int) -> None:
    whole = build_batch(keyed(b"a", b"b", b"c"), codec=codec)
    plain = build_batch(keyed(b"a", b"b", b"c"))[HEADER_BYTES:]
    for body in (plain[:-1], plain + b"\0", plain[:4] + b"\x7f" + plain[5:]):
        error = refusal(log_with(COMPACTED), with_body(whole, compress(codec, body)))
        assert error.code == "INVALID_RECORD"
        assert not isinstance(error, InvalidRecords)
    if codec:
        assert refusal(log_with(COMPACTED), with_body(whole, whole[HEADER_BYTES:-1])).code == "INVALID_RECORD"


# ---- beside the event loop


def test_only_what_takes_long_is_checked_beside() -> None:
    large = build_batch([(NOW_MS, b"k", bytes(10_000), ())])
    packed = build_batch(keyed(b"a"), codec=Codec.ZSTD)
    small = build_batch(keyed(b"a"))
    for config in (COMPACTED, LogConfig(message_timestamp_before_max_ms=5)):
        log = log_with(config)
        assert log.check_beside(small) is None
        for records in (large, packed):
            job = log.check_beside(records)
            assert job is not None
            checked = job()
            assert log.log_end_offset == 0
            log.append_as_leader(checked, leader_epoch=0)
            assert stored(log)[16:] == records[16:]
            log.truncate_fully_and_start_at(0)
    assert log_with(LogConfig()).check_beside(large) is None
    zstd = log_with(LogConfig(compression_type="zstd"))
    assert zstd.check_beside(packed) is None, "it is in the codec already"
    assert zstd.check_beside(large) is not None


@pytest.mark.parametrize("codec", ["producer", "zstd"])
def test_records_of_the_future_are_looked_at_beside_on_a_plain_topic_too(codec: str) -> None:
    log = log_with(LogConfig(compression_type=codec))
    late = NOW_MS + HOUR_MS + 1
    packed = build_batch(keyed(b"a", b"b", timestamp=late), codec=Codec.ZSTD)
    job = log.check_beside(packed)
    assert job is not None, "such a batch may unfold to many times its size"
    with pytest.raises(InvalidRecords):
        job()
    at_the_bound = build_batch(keyed(b"a", timestamp=late - 1), codec=Codec.ZSTD)
    assert log.check_beside(at_the_bound) is None
    assert log_with(LogConfig()).check_beside(build_batch(keyed(b"a", timestamp=late))) is None, "it is small"
    appended = log_with(LogConfig(message_timestamp_type="LogAppendTime"))
    assert appended.check_beside(packed) is None
    assert log_with(LogConfig()).check_beside(packed[: HEADER_BYTES - 1]) is None, "the append refuses it"


def test_a_check_beside_refuses_what_the_append_would() -> None:
    job = log_with(COMPACTED).check_beside(build_batch(keyed(None), codec=Codec.GZIP))
    assert job is not None
    with pytest.raises(InvalidRecords):
        job()
    torn = build_batch([(NOW_MS, b"k", bytes(10_000), ())])[:-1]
    with pytest.raises(AppendError):
        log_with(COMPACTED).check_beside(torn)
