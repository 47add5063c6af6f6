"""Batches in a buffer: golden bytes both ways, iteration, checksum, stamping, opening."""

from __future__ import annotations

import struct
import tracemalloc

import pytest

from partitions.records.batch import (
    CorruptBatchError,
    Record,
    decode_records,
    iter_batches,
    parse_header,
    stamp,
    stamp_log_append_time,
    stamped_header_prefix,
    verify_crc,
)
from partitions.records.builder import RecordTuple, build_batch, build_opaque_batch
from partitions.records.compression import Codec
from partitions.records.control import ControlType, decode_control_type, encode_control_key

NO_LIMIT = 1 << 30

# As another implementation's builder wrote it (leader epoch 0).
GOLDEN_RECORDS: list[RecordTuple] = [
    (1700000000000, b"key", b"value", [("h", b"1")]),
    (1700000000005, None, None, ()),
]
GOLDEN = bytes.fromhex(
    "00000000000000000000004b000000000233f94b7a0000000000010000018bcfe568000000018bcfe56805"
    "ffffffffffffffffffffffffffff00000002"
    "24000000066b65790a76616c756502026802310c000a02010100"
)


def records_of(buffer: bytes | bytearray | memoryview) -> list[Record]:
    """All records of all batches, checksums verified."""
    records: list[Record] = []
    for position, header in iter_batches(buffer):
        verify_crc(buffer, position, header)
        records += decode_records(buffer, position, header, max_decompressed_bytes=NO_LIMIT)
    return records


def test_golden_bytes_are_read() -> None:
    assert records_of(GOLDEN) == [
        Record(0, 1700000000000, b"key", b"value", (("h", b"1"),)),
        Record(1, 1700000000005, None, None, ()),
    ]


def test_golden_bytes_are_written() -> None:
    assert build_batch(GOLDEN_RECORDS, leader_epoch=0) == GOLDEN


def test_header_fields_are_written() -> None:
    batch = build_batch(
        [(50, b"a", b"b", ()), (70, b"", b"", ()), (60, None, b"c", ())],
        base_offset=1 << 40,
        codec=Codec.LZ4,
        producer_id=9,
        producer_epoch=3,
        base_sequence=77,
        leader_epoch=12,
        is_control=True,
        is_transactional=True,
    )
    header = parse_header(batch)
    assert header.size_bytes == len(batch)
    assert (header.base_offset, header.last_offset, header.record_count) == (1 << 40, (1 << 40) + 2, 3)
    assert (header.base_timestamp, header.max_timestamp) == (50, 70)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, 77)
    assert header.partition_leader_epoch == 12
    assert header.codec == Codec.LZ4
    assert header.is_control
    assert header.is_transactional
    assert not header.uses_log_append_time


@pytest.mark.parametrize("codec", list(Codec))
def test_null_and_empty_are_kept_apart(codec: Codec) -> None:
    batch = build_batch(
        [(5, None, None, [("n", None), ("e", b""), ("", b"x"), ("ü", b"\xff")]), (-1, b"", b"", ())],
        base_offset=3,
        codec=codec,
    )
    assert records_of(batch) == [
        Record(3, 5, None, None, (("n", None), ("e", b""), ("", b"x"), ("ü", b"\xff"))),
        Record(4, -1, b"", b"", ()),
    ]


@pytest.mark.parametrize("length", [63, 64, 127, 128, 8191, 8192, 8193, 1_100_000])
def test_lengths_around_the_steps_of_a_varint(length: int) -> None:
    key, value = b"k" * length, b"v" * (length + 1)
    header_key = "h" * min(length, 10_000)
    batch = build_batch(
        [(0, key, value, [(header_key, value)]), (2**62, None, key, ()), (-1, value, None, ())]
    )
    assert records_of(batch) == [
        Record(0, 0, key, value, ((header_key, value),)),
        Record(1, 2**62, None, key, ()),
        Record(2, -1, value, None, ()),
    ]


def test_more_headers_than_one_byte_counts() -> None:
    headers = tuple((f"h{number}", b"%d" % number) for number in range(300))
    assert records_of(build_batch([(0, None, b"", headers)]))[0].headers == headers


def test_a_header_key_that_is_not_utf8_does_not_hide_its_batch() -> None:
    batch = build_batch([(0, None, b"v", [("abc", b"x")])])
    batch = batch.replace(b"\x06abc", b"\x06a\xffc")
    header = parse_header(batch)
    (record,) = decode_records(batch, 0, header, max_decompressed_bytes=NO_LIMIT)
    assert record.headers == (("a\ufffdc", b"x"),)


def test_batches_are_found_one_after_another() -> None:
    sizes = (1, 3, 2)
    batches = [
        build_batch([(0, None, b"x" * size, ())] * size, base_offset=offset)
        for size, offset in zip(sizes, (0, 1, 4), strict=True)
    ]
    found = list(iter_batches(b"".join(batches)))
    assert [position for position, _ in found] == [0, len(batches[0]), len(batches[0]) + len(batches[1])]
    assert [(header.base_offset, header.next_offset) for _, header in found] == [(0, 1), (1, 4), (4, 6)]
    assert list(iter_batches(b"")) == []


def test_a_torn_tail_is_reported_behind_the_whole_batches() -> None:
    whole, torn = build_batch([(0, None, b"a", ())]), build_batch([(0, None, b"b" * 100, ())], base_offset=1)
    for size in range(1, len(torn)):
        batches = iter_batches(whole + torn[:size])
        assert next(batches)[1].base_offset == 0
        with pytest.raises(CorruptBatchError) as tear:
            next(batches)
        assert tear.value.position == len(whole)


def test_checksum_covers_every_byte_from_the_attributes_on() -> None:
    lead = b"12345"
    batch = build_batch([(0, b"key", b"value", ())])
    header = parse_header(batch)
    for position in range(21, len(batch)):
        forged = bytearray(lead + batch)
        forged[len(lead) + position] ^= 0x10
        with pytest.raises(CorruptBatchError, match="fails its checksum") as refusal:
            verify_crc(forged, len(lead), header)
        assert refusal.value.position == len(lead)
    with pytest.raises(CorruptBatchError):
        verify_crc(batch[:-1], 0, header)


def test_stamping_keeps_the_checksum() -> None:
    batch = bytearray(b"lead" + build_batch([(0, None, b"v", ()), (1, None, b"w", ())]))
    stamp(batch, 4, base_offset=2**40, leader_epoch=6)
    header = parse_header(batch, 4)
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (2**40, 2**40 + 1, 6)
    verify_crc(batch, 4, header)
    with memoryview(batch) as view:
        stamp(view[4:], 0, base_offset=9, leader_epoch=7)
    assert parse_header(batch, 4) == header._replace(base_offset=9, partition_leader_epoch=7)
    assert batch[:4] == b"lead"


def test_the_stamped_prefix_equals_stamping_in_place() -> None:
    batch = build_batch([(0, None, b"v", ())])
    stamped = bytearray(batch)
    stamp(stamped, 0, base_offset=77, leader_epoch=3)
    prefix = stamped_header_prefix(77, parse_header(batch).batch_length, 3)
    assert len(prefix) == 16
    assert prefix + batch[16:] == stamped


def test_log_append_time_is_every_records_time() -> None:
    batch = bytearray(b".." + build_batch([(10, None, b"a", ()), (20, None, b"b", ())], codec=Codec.GZIP))
    stamp_log_append_time(batch, 2, timestamp=5000)
    header = parse_header(batch, 2)
    verify_crc(batch, 2, header)
    assert header.uses_log_append_time
    assert header.codec == Codec.GZIP
    assert (header.base_timestamp, header.max_timestamp) == (10, 5000)
    records = decode_records(batch, 2, header, max_decompressed_bytes=NO_LIMIT)
    assert [record.timestamp for record in records] == [5000, 5000]


def test_iterating_checking_and_stamping_copy_nothing() -> None:
    batch = bytearray(build_batch([(0, None, b"x" * 4_000_000, ())]))
    tracemalloc.start()
    try:
        for position, header in iter_batches(batch):
            verify_crc(batch, position, header)
            stamp(batch, position, base_offset=1, leader_epoch=1)
            stamp_log_append_time(batch, position, timestamp=1)
        assert tracemalloc.get_traced_memory()[1] < 20_000
    finally:
        tracemalloc.stop()


def test_buffers_can_be_resized_after_a_refusal() -> None:
    """No view outlives its call: a receive buffer is reused at once."""
    batch = bytearray(build_batch([(0, None, b"v", ())], codec=Codec.ZSTD))
    header = parse_header(batch)
    batch[-1] ^= 1
    for check in (
        lambda: verify_crc(batch, 0, header),
        lambda: decode_records(batch, 0, header, max_decompressed_bytes=0),
    ):
        with pytest.raises(CorruptBatchError):
            check()
    batch.clear()


def test_an_opaque_batch_is_one_record() -> None:
    batch = build_opaque_batch(b"proposal", offset=41, leader_epoch=5, timestamp=99)
    assert parse_header(batch).partition_leader_epoch == 5
    assert records_of(batch) == [Record(41, 99, None, b"proposal", ())]


def test_an_opaque_control_batch_says_what_it_is() -> None:
    batch = build_opaque_batch(b"", offset=1, leader_epoch=1, timestamp=0, is_control=True)
    assert parse_header(batch).is_control
    (record,) = records_of(batch)
    assert decode_control_type(record.key) is ControlType.OPAQUE


def test_empty_batches_and_unknown_codecs_are_not_built() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        build_batch([])
    with pytest.raises(ValueError, match="5 is not a valid Codec"):
        build_batch([(0, None, b"v", ())], codec=5)
    with pytest.raises(ValueError, match="64 bits"):
        build_batch([(-(2**63), None, b"v", ()), (2**63 - 1, None, b"v", ())])


def test_control_keys() -> None:
    assert decode_control_type(b"\0\0\0\0") is ControlType.ABORT
    assert decode_control_type(b"\0\0\0\1") is ControlType.COMMIT
    assert decode_control_type(b"\0\0\0\2") is ControlType.LEADER_CHANGE
    assert decode_control_type(struct.pack(">hhq", 1, 1, 9)) is ControlType.COMMIT, "later versions append"
    assert decode_control_type(struct.pack(">hh", 0, 999)) is ControlType.UNKNOWN
    for known in ControlType:
        assert decode_control_type(encode_control_key(known)) is known
    for broken in (None, b"", b"\0\0\0", b"\xff\xff\0\0"):
        with pytest.raises(ValueError, match="control record's key"):
            decode_control_type(broken)
