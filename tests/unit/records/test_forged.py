"""Bytes that lie: whatever is cut, flipped or forged, CorruptBatchError is the only answer."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable

import pytest

from partitions.records.batch import CorruptBatchError, Record, decode_records, iter_batches, parse_header
from partitions.records.builder import RecordTuple, build_batch
from partitions.records.compression import Codec, compress
from partitions.records.header import HEADER_BYTES

CAP_BYTES = 1 << 20
RECORDS: list[RecordTuple] = [
    (1000, b"key", b"v" * 70, [("header", b"x"), ("null", None)]),
    (90, None, None, ()),
    (1001, b"", b"last", [("", b"")]),
]
# One record, so that its fields lie at known places behind the header.
SIMPLE = build_batch([(0, b"kk", b"vvv", [("h", b"i")])])
LENGTH, TIMESTAMP, OFFSET, KEY, VALUE, HEADER_COUNT, HEADER_KEY, HEADER_VALUE = (
    61, 63, 64, 65, 68, 72, 73, 75,
)  # fmt: skip
HUGE = [
    b"\xfe\xff\xff\xff\x0f",
    b"\xfe" + b"\xff" * 8 + b"\x01",
    b"\x80\x80\x80\x80\x10",
    b"\x80\x01",
    b"\x7e",
]
NEGATIVE = [b"\x03", b"\x05", b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01"]
ENDLESS = [b"\xff" * 40, b"\x80" * 11 + b"\x00"]


def read(buffer: bytes | bytearray) -> list[Record]:
    """Every record; any exception but CorruptBatchError fails the test that calls this."""
    return [
        record
        for position, header in iter_batches(buffer)
        for record in decode_records(buffer, position, header, max_decompressed_bytes=CAP_BYTES)
    ]


def with_length(batch: bytes | bytearray) -> bytearray:
    """The batch with a length field that tells the truth."""
    repaired = bytearray(batch)
    struct.pack_into(">i", repaired, 8, len(repaired) - 12)
    return repaired


def test_the_fields_lie_where_these_tests_forge_them() -> None:
    assert SIMPLE[LENGTH] == 2 * (len(SIMPLE) - LENGTH - 1)
    assert SIMPLE[TIMESTAMP:KEY] == b"\0\0"
    assert (SIMPLE[KEY], SIMPLE[VALUE], SIMPLE[HEADER_COUNT]) == (4, 6, 2)
    assert SIMPLE[HEADER_KEY:] == b"\x02h\x02i"


@pytest.mark.parametrize("codec", list(Codec))
def test_truncated_at_every_position(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec)
    assert len(read(batch)) == len(RECORDS)
    for size in range(1, len(batch)):
        with pytest.raises(CorruptBatchError):
            read(batch[:size])
        if size >= HEADER_BYTES:
            with pytest.raises(CorruptBatchError):
                read(with_length(batch[:size]))


def test_compressed_bytes_of_truncated_records() -> None:
    plain = build_batch(RECORDS)
    for codec in Codec:
        head = build_batch(RECORDS, codec=codec)[:HEADER_BYTES]
        for size in range(len(plain) - HEADER_BYTES):
            with pytest.raises(CorruptBatchError):
                read(with_length(head + compress(codec, plain[HEADER_BYTES : HEADER_BYTES + size])))
        with pytest.raises(CorruptBatchError):
            read(with_length(head + compress(codec, plain[HEADER_BYTES:] + b"\0")))


@pytest.mark.parametrize("codec", list(Codec))
def test_every_byte_replaced(codec: Codec) -> None:
    """Without a checksum in the way: nothing but records or a refusal, at any byte."""
    batch = build_batch(RECORDS, codec=codec)
    refused = 0
    for position in range(len(batch)):
        for value in (0, 1, 0x7F, 0x80, 0xFF, batch[position] ^ 1):
            forged = bytearray(batch)
            forged[position] = value
            try:
                read(forged)
            except CorruptBatchError:
                refused += 1
    assert refused > len(batch), "most replacements are found even without the checksum"


@pytest.mark.parametrize("field", [LENGTH, KEY, VALUE, HEADER_COUNT, HEADER_KEY, HEADER_VALUE])
@pytest.mark.parametrize("number", [*HUGE, *NEGATIVE, *ENDLESS], ids=bytes.hex)
def test_forged_lengths_and_counts(field: int, number: bytes) -> None:
    forged = with_length(SIMPLE[:field] + number + SIMPLE[field + 1 :])
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatchError):
            read(forged)
        assert tracemalloc.get_traced_memory()[1] < 50_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("field", [LENGTH, HEADER_COUNT, HEADER_KEY])
def test_what_cannot_be_null(field: int) -> None:
    with pytest.raises(CorruptBatchError):
        read(with_length(SIMPLE[:field] + b"\x01" + SIMPLE[field + 1 :]))


@pytest.mark.parametrize("forge", [lambda length: length - 2, lambda length: length + 2])
def test_a_record_must_end_where_its_length_says(forge: Callable[[int], int]) -> None:
    forged = bytearray(SIMPLE)
    forged[LENGTH] = forge(forged[LENGTH])
    with pytest.raises(CorruptBatchError, match="contradict each other"):
        read(forged)


@pytest.mark.parametrize("count", [0, 1, 2, 4, 5, 1000, 2**31 - 1])
@pytest.mark.parametrize("codec", list(Codec))
def test_the_record_count_must_match(codec: Codec, count: int) -> None:
    forged = bytearray(build_batch(RECORDS, codec=codec))
    struct.pack_into(">i", forged, 57, count)
    struct.pack_into(">i", forged, 23, max(count - 1, 2))
    with pytest.raises(CorruptBatchError, match="record"):
        read(forged)


@pytest.mark.parametrize("delta", [b"\x02", b"\x01", b"\x80\x80\x04", b"\xff\xff\xff\xff\x0f"], ids=bytes.hex)
def test_offsets_stay_within_the_batch(delta: bytes) -> None:
    """An offset beyond the header's last one, or before the first, would collide with others'."""
    forged = bytearray(SIMPLE[:OFFSET] + delta + SIMPLE[OFFSET + 1 :])
    forged[LENGTH] += 2 * (len(delta) - 1)
    with pytest.raises(CorruptBatchError, match="impossible offset"):
        read(with_length(forged))


def test_offsets_rise() -> None:
    forged = bytearray(build_batch([(0, None, b"a", ()), (0, None, b"b", ())]))
    assert [record.offset for record in read(forged)] == [0, 1]
    forged[-5] = 0
    with pytest.raises(CorruptBatchError, match="impossible offset"):
        read(forged)


@pytest.mark.parametrize(("base", "delta"), [(2**63 - 1, b"\x02"), (-(2**63), b"\x01")])
def test_timestamps_stay_within_64_bits(base: int, delta: bytes) -> None:
    forged = bytearray(SIMPLE)
    struct.pack_into(">q", forged, 27, base)
    assert read(forged)[0].timestamp == base
    forged[TIMESTAMP : TIMESTAMP + 1] = delta
    with pytest.raises(CorruptBatchError, match="timestamp"):
        read(forged)


def test_gaps_that_compaction_left_are_read() -> None:
    """The cleaner keeps a batch's last offset and the deltas of the records that stay (KIP-98)."""
    kept = bytearray(build_batch([(0, b"a", b"1", ()), (0, b"c", b"3", ())], base_offset=100))
    kept[-6] = 2 * 5
    struct.pack_into(">i", kept, 23, 9)
    assert [record.offset for record in read(kept)] == [100, 105]
    assert parse_header(kept).next_offset == 110
    empty = with_length(kept[:HEADER_BYTES])
    struct.pack_into(">i", empty, 57, 0)
    assert read(empty) == []


def test_the_refusal_names_offset_and_position() -> None:
    forged = bytearray(build_batch(RECORDS) + build_batch([(0, None, b"v", ())], base_offset=3))
    forged[-1] = 0x7E
    with pytest.raises(
        CorruptBatchError, match=r"the batch at offset 3 cannot be read: .*record 0"
    ) as refusal:
        read(forged)
    assert refusal.value.position == len(build_batch(RECORDS))
