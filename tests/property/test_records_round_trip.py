"""Properties of record batches: what is written is read back; nothing else than records or a refusal."""

from __future__ import annotations

import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from partitions.records.batch import (
    CorruptBatchError,
    Record,
    decode_records,
    iter_batches,
    parse_header,
    stamp,
    stamped_header_prefix,
    verify_crc,
)
from partitions.records.builder import RecordTuple, build_batch
from partitions.records.compression import Codec, DecompressionError, OutputLimitError, compress, decompress
from partitions.records.header import MAX_BASE_OFFSET
from tests.support.examples import examples

CAP_BYTES = 1 << 20
CODECS = st.sampled_from(list(Codec))
CONTENT = st.binary(max_size=40) | st.integers(0, 20_000).map(lambda size: b"x" * size)
HEADERS = st.lists(st.tuples(st.text(max_size=8), st.none() | CONTENT), max_size=4)
TIMESTAMPS = st.integers(-1, 2**62) | st.integers(1_700_000_000_000, 1_700_000_100_000)
RECORDS = st.lists(
    st.tuples(TIMESTAMPS, st.none() | CONTENT, st.none() | CONTENT, HEADERS), min_size=1, max_size=12
)
OFFSETS = st.integers(0, MAX_BASE_OFFSET)
EPOCHS = st.integers(-1, 2**31 - 1)


@given(RECORDS, CODECS, OFFSETS, EPOCHS, st.binary(max_size=3))
def test_what_is_written_is_read_back(
    records: list[RecordTuple], codec: Codec, base_offset: int, epoch: int, lead: bytes
) -> None:
    batch = build_batch(records, base_offset=base_offset, codec=codec, leader_epoch=epoch)
    buffer = lead + batch
    header = parse_header(buffer, len(lead))
    verify_crc(buffer, len(lead), header)
    assert header.size_bytes == len(batch)
    assert header.partition_leader_epoch == epoch
    assert decode_records(buffer, len(lead), header, max_decompressed_bytes=CAP_BYTES) == [
        Record(base_offset + delta, timestamp, key, value, tuple(headers))
        for delta, (timestamp, key, value, headers) in enumerate(records)
    ]


@given(st.lists(st.tuples(RECORDS, CODECS), max_size=4), OFFSETS.map(lambda offset: offset // 2), EPOCHS)
def test_stamped_batches_form_a_log(
    batches: list[tuple[list[RecordTuple], Codec]], start: int, epoch: int
) -> None:
    buffer = bytearray(b"".join(build_batch(records, codec=codec) for records, codec in batches))
    offset = start
    for position, header in iter_batches(bytes(buffer)):
        prefix = stamped_header_prefix(offset, header.batch_length, epoch)
        stamp(buffer, position, base_offset=offset, leader_epoch=epoch)
        assert buffer[position : position + 16] == prefix
        offset += header.last_offset_delta + 1
    offsets = []
    for position, header in iter_batches(buffer):
        verify_crc(buffer, position, header)
        records = decode_records(buffer, position, header, max_decompressed_bytes=CAP_BYTES)
        offsets += [record.offset for record in records]
    assert offsets == list(range(start, offset))


@given(
    CODECS,
    st.binary(max_size=300) | st.binary(max_size=20).map(lambda data: data * 3000),
    st.integers(0, 70_000),
)
def test_the_limit_is_exact(codec: Codec, data: bytes, max_bytes: int) -> None:
    packed = compress(codec, data)
    if len(data) <= max_bytes:
        assert decompress(codec, packed, max_bytes=max_bytes) == data
    else:
        try:
            decompress(codec, packed, max_bytes=max_bytes)
        except OutputLimitError:
            return
        raise AssertionError("the limit was passed")


@given(
    CODECS, st.binary(max_size=200), st.sampled_from([b"", b"\x82SNAPPY\0" + b"\0" * 8, b"\x28\xb5\x2f\xfd"])
)
def test_decompressing_anything_yields_bytes_or_a_refusal(codec: Codec, data: bytes, lead: bytes) -> None:
    try:
        assert len(decompress(codec, lead + data, max_bytes=1000)) <= 1000
    except DecompressionError:
        pass


EDITS = st.lists(
    st.tuples(st.sampled_from(["set", "cut", "insert"]), st.floats(0, 1), st.binary(min_size=1, max_size=12)),
    min_size=1,
    max_size=4,
)


@settings(max_examples=examples(200))
@given(RECORDS, CODECS, EDITS, st.booleans())
def test_mangled_batches_yield_records_or_a_refusal(
    records: list[RecordTuple], codec: Codec, edits: list[tuple[str, float, bytes]], repair_length: bool
) -> None:
    batch = bytearray(build_batch(records, codec=codec))
    for kind, place, content in edits:
        position = int(place * len(batch))
        match kind:
            case "set":
                batch[position : position + len(content)] = content
            case "cut":
                del batch[position : position + len(content)]
            case _:
                batch[position:position] = content
    if repair_length and len(batch) >= 12:
        struct.pack_into(">i", batch, 8, len(batch) - 12)
    try:
        for position, header in iter_batches(batch):
            read = decode_records(batch, position, header, max_decompressed_bytes=CAP_BYTES)
            assert len(read) == header.record_count
            assert all(header.base_offset <= record.offset <= header.last_offset for record in read)
    except CorruptBatchError:
        pass
