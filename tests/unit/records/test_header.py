"""The 61 bytes of a batch header: golden bytes, derived fields, and what is refused."""

from __future__ import annotations

import struct

import pytest

from partitions.records.batch import BatchHeader, CorruptBatchError, UnsupportedMagicError, parse_header
from partitions.records.builder import build_batch
from partitions.records.header import HEADER_BYTES

# Field by field as KIP-98 lists them; every value differs from every other and from its default.
GOLDEN = bytes.fromhex(
    "0102030405060708"  # base offset
    "00000031"  # batch length: a header without records
    "0000000b"  # partition leader epoch
    "02"  # magic
    "deadbeef"  # crc
    "003c"  # attributes: zstd, log append time, transactional, control
    "00000002"  # last offset delta
    "0000018bcfe56800"  # base timestamp
    "0000018bcfe56bff"  # max timestamp
    "0000000000000fa0"  # producer id
    "0007"  # producer epoch
    "7fffffff"  # base sequence
    "00000003"  # record count
)


def header(**changes: int) -> BatchHeader:
    return parse_header(GOLDEN)._replace(**changes)


def test_golden_fields() -> None:
    assert parse_header(GOLDEN) == BatchHeader(
        base_offset=0x0102030405060708,
        batch_length=49,
        partition_leader_epoch=11,
        magic=2,
        crc=0xDEADBEEF,
        attributes=0x3C,
        last_offset_delta=2,
        base_timestamp=1700000000000,
        max_timestamp=1700000001023,
        producer_id=4000,
        producer_epoch=7,
        base_sequence=2**31 - 1,
        record_count=3,
    )


def test_derived_fields() -> None:
    parsed = parse_header(b"\0" * 5 + GOLDEN, 5)
    assert parsed.size_bytes == HEADER_BYTES
    assert parsed.last_offset == 0x0102030405060708 + 2
    assert parsed.next_offset == 0x0102030405060708 + 3
    assert parsed.codec == 4
    assert parsed.uses_log_append_time
    assert parsed.is_transactional
    assert parsed.is_control
    assert parsed.has_producer_id
    assert parsed.delete_horizon_ms is None


def test_flags_are_independent() -> None:
    flags = ("uses_log_append_time", "is_transactional", "is_control")
    for bit, name in zip((0x08, 0x10, 0x20), flags, strict=True):
        parsed = header(attributes=bit)
        assert [flag for flag in flags if getattr(parsed, flag)] == [name]
    assert header(attributes=0x40).delete_horizon_ms == 1700000000000
    assert not header(producer_id=-1).has_producer_id


@pytest.mark.parametrize(
    ("base", "delta", "last"),
    [(0, 0, 0), (5, 4, 9), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 2, 4, 2), (-1, 9, -1)],
)
def test_sequences_wrap_to_zero(base: int, delta: int, last: int) -> None:
    assert header(base_sequence=base, last_offset_delta=delta).last_sequence == last


@pytest.mark.parametrize("size", range(HEADER_BYTES))
def test_short_headers_are_refused(size: int) -> None:
    with pytest.raises(CorruptBatchError) as refusal:
        parse_header(GOLDEN[:size])
    assert refusal.value.code == "CORRUPT_MESSAGE"
    assert refusal.value.position == 0


@pytest.mark.parametrize(
    ("position", "field", "value"),
    [
        (0, ">q", -1),
        (0, ">q", 2**63 - 1),
        (8, ">i", 48),
        (8, ">i", -1),
        (8, ">i", -(2**31)),
        (16, ">b", 3),
        (16, ">b", -1),
        (23, ">i", -1),
        (57, ">i", -1),
    ],
)
def test_impossible_fields_are_refused(position: int, field: str, value: int) -> None:
    forged = bytearray(b"..." + GOLDEN)
    struct.pack_into(field, forged, 3 + position, value)
    with pytest.raises(CorruptBatchError) as refusal:
        parse_header(forged, 3)
    assert refusal.value.position == 3
    assert refusal.value.code == "CORRUPT_MESSAGE"


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("size", [17, 26, 34, 200])
def test_old_message_formats_have_their_own_code(magic: int, size: int) -> None:
    """A message set may be shorter than a v2 header; the answer says more than 'torn'."""
    old = bytearray(size)
    old[16] = magic
    with pytest.raises(UnsupportedMagicError, match=f"format v{magic} is not supported") as refusal:
        parse_header(old)
    assert refusal.value.code == "UNSUPPORTED_FOR_MESSAGE_FORMAT"


def test_every_buffer_type_parses_alike() -> None:
    batch = build_batch([(1, b"k", b"v", ())])
    buffers = (batch, bytearray(batch), memoryview(batch), memoryview(bytearray(batch)))
    assert len({parse_header(buffer) for buffer in buffers}) == 1
