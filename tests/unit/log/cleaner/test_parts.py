"""The offset map, raw records, grouping and the throttle, each alone."""

from __future__ import annotations

import dataclasses
from itertools import compress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from partitions.log.cleaner.offset_map import NOT_FOUND, SLOT_BYTES, OffsetMap
from partitions.log.cleaner.raw_records import raw_records
from partitions.log.cleaner.rewrite import batch_with
from partitions.log.cleaner.sources import GROUP_MAX_SEGMENTS, SourceSegment, group_segments
from partitions.log.cleaner.throttle import Throttle
from partitions.log.config import LogConfig
from partitions.log.config_values import INT_MAX
from partitions.records.batch import HEADER_BYTES, decode_records, parse_header, records_body, verify_crc
from partitions.records.builder import build_batch
from partitions.records.compression import Codec
from partitions.records.header import DELETE_HORIZON_BIT
from partitions.records.record import MalformedRecordError, encode_varint

KEYS = st.binary(max_size=3)


@given(st.lists(st.tuples(KEYS, st.integers(0, 2**62))), st.integers(1, 40))
def test_the_map_is_a_dict_until_it_is_full(puts: list[tuple[bytes, int]], slots: int) -> None:
    offsets, model = OffsetMap(slots, load_factor=0.9), dict[bytes, int]()
    for key, offset in puts:
        if offsets.put(key, offset):
            model[key] = offset
        else:
            assert key not in model
            assert len(model) >= min(1, slots)
        assert len(offsets) == len(model)
    for key, _ in puts:
        assert offsets.get(key) == model.get(key, NOT_FOUND)


def test_the_map_takes_no_more_memory_than_it_may() -> None:
    offsets = OffsetMap.within(SLOT_BYTES * 100, load_factor=0.9, max_keys=10**9)
    assert sum(offsets.put(b"%d" % number, number) for number in range(200)) == 90
    small = OffsetMap.within(SLOT_BYTES * 10**6, load_factor=0.5, max_keys=3)
    assert [small.put(b"%d" % number, number) for number in range(3)] == [True] * 3
    assert not small.put(b"3", 3) or small.put(b"4", 4) is False


RECORDS = st.lists(
    st.tuples(
        st.integers(0, 2**41),
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=200),
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=9)), max_size=2),
    ),
    min_size=1,
    max_size=5,
)


@given(RECORDS)
def test_raw_records_say_what_records_say(
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
) -> None:
    batch = build_batch(records, base_offset=5)
    header = parse_header(batch)
    decoded = decode_records(batch, 0, header, max_decompressed_bytes=1 << 20)
    raw = list(raw_records(batch[HEADER_BYTES:], header.record_count))
    assert [
        (5 + r.offset_delta, header.base_timestamp + r.timestamp_delta, r.key, r.has_value) for r in raw
    ] == [(record.offset, record.timestamp, record.key, record.value is not None) for record in decoded]
    assert raw[0].start == 0
    assert raw[-1].end == len(batch) - HEADER_BYTES


@given(RECORDS, st.sampled_from(Codec), st.none() | st.integers(0, 2**41), st.data())
def test_what_is_kept_of_a_batch_says_what_it_said(
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    codec: Codec,
    horizon_ms: int | None,
    data: st.DataObject,
) -> None:
    batch = build_batch(records, base_offset=5, codec=codec)
    header = parse_header(batch)
    decoded = decode_records(batch, 0, header, max_decompressed_bytes=1 << 20)
    stays = data.draw(st.lists(st.booleans(), min_size=len(records), max_size=len(records)).filter(any))
    body = records_body(batch, 0, header, max_decompressed_bytes=1 << 20)
    kept = compress(raw_records(body, header.record_count), stays)
    cleaned = batch_with(header, body, kept, new_horizon_ms=horizon_ms)
    verify_crc(cleaned, 0, parse_header(cleaned))
    left = list(compress(decoded, stays))
    assert decode_records(cleaned, 0, parse_header(cleaned), max_decompressed_bytes=1 << 20) == left
    expected = header._replace(
        record_count=len(left),
        max_timestamp=max(record.timestamp for record in left),
        batch_length=parse_header(cleaned).batch_length,
        crc=parse_header(cleaned).crc,
    )
    if horizon_ms is not None:
        expected = expected._replace(
            attributes=header.attributes | DELETE_HORIZON_BIT, base_timestamp=horizon_ms
        )
    assert parse_header(cleaned) == expected


@given(st.binary(max_size=60), st.integers(0, 5))
def test_raw_records_refuse_what_is_none(body: bytes, count: int) -> None:
    try:
        records = list(raw_records(body, count))
    except MalformedRecordError:
        return
    assert len(records) == count


SOUND = b"\x0e\x00\x02\x02\x02k\x00\x00"
"""One record: at 1 ms, one offset behind the first of its batch, with a key and an empty value."""


def test_a_record_that_is_sound_is_taken() -> None:
    assert list(raw_records(SOUND, 1)) == [(0, 8, 3, 1, 1, b"k", True)]


@pytest.mark.parametrize(
    ("body", "count", "message"),
    [
        (SOUND, 0, "8 bytes follow the last record"),
        (SOUND, 2, "record 1 is cut off"),
        (SOUND[:5], 1, "record 0 is cut off"),
        (SOUND[:-1], 1, "record 0 is cut off"),
        (b"\x01" + SOUND[1:], 1, "record 0 has lengths that contradict each other"),
        (SOUND[:3] + b"\x01" + SOUND[4:], 1, "record 0 has lengths that contradict each other"),
        (SOUND[:6] + b"\x04\x00", 1, "record 0 has lengths that contradict each other"),
        (SOUND + b"\xff" * 10 + b"\x00", 2, "record 1 has a number of more than ten bytes"),
        (SOUND[:3] + b"\xff" * 10 + b"\x00", 1, "record 0 has a number of more than ten bytes"),
    ],
)
def test_raw_records_say_why_they_refuse(body: bytes, count: int, message: str) -> None:
    with pytest.raises(MalformedRecordError, match=f"^{message}$"):
        list(raw_records(body, count))


@given(st.integers(-(2**63), 2**63 - 1))
@example(128)
@example(128**2)
def test_varints_are_those_of_records(number: int) -> None:
    assert len(encode_varint(number)) <= 10
    batch = build_batch([(0, b"", b"", ()), (abs(number) >> 1, b"", b"", ())])
    body = batch[HEADER_BYTES:]
    record = list(raw_records(body, 2))[1]
    assert encode_varint(record.timestamp_delta) == body[record.start + 2 : record.fields_start]


def sources(*sizes: int, span: int = 10) -> list[SourceSegment]:
    return [SourceSegment(n * span, (n + 1) * span, f"/{n}", size, 0) for n, size in enumerate(sizes)]


def test_groups_fit_into_a_segment() -> None:
    config = LogConfig(segment_bytes=100)
    assert [len(group) for group in group_segments(sources(40, 60, 1, 100, 0, 50, 51), config)] == [
        2,
        1,
        2,
        1,
        1,
    ]
    assert [len(group) for group in group_segments(sources(150, 10), config)] == [1, 1]
    assert group_segments([], config) == []


def test_groups_are_bounded_by_offsets_count_and_index() -> None:
    wide = sources(1, 1, 1, span=INT_MAX // 2)
    assert [len(group) for group in group_segments(wide, LogConfig())] == [2, 1]
    many = sources(*[1] * (GROUP_MAX_SEGMENTS + 1))
    assert [len(group) for group in group_segments(many, LogConfig())] == [GROUP_MAX_SEGMENTS, 1]
    tight = dataclasses.replace(LogConfig(), index_size_max_bytes=36)
    assert [len(group) for group in group_segments(sources(4096, 4096, 4096), tight)] == [3]
    assert [len(group) for group in group_segments(sources(4097, 4097, 4097), tight)] == [1, 1, 1]


def test_the_throttle_keeps_the_rate() -> None:
    throttle = Throttle(100.0)
    assert throttle.pause_s(50, 10.0) == 0.0  # a second's worth is saved up
    assert throttle.pause_s(100, 10.0) == pytest.approx(0.5)
    assert throttle.pause_s(100, 10.5) == pytest.approx(1.0)
    assert throttle.pause_s(0, 1000.0) == 0.0
    assert Throttle(float("inf")).pause_s(10**12, 5.0) == 0.0
