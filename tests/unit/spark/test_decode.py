"""The columnar decoder against the record decoder, record by record, and its audit of the offsets."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.protocol.fetch import AbortedTransaction
from kraft.spark.columns import COLUMN_NAMES, arrow_schema
from kraft.spark.data_loss import LossPolicy
from kraft.spark.decode import SliceDecoder
from kraft.spark.errors import CorruptDataError, DataLossError
from partitions.records.batch import decode_records, iter_batches, stamp_log_append_time
from partitions.records.builder import RecordTuple, build_batch
from partitions.records.header import CRC_POSITION, CRC_START, HEADER, HEADER_BYTES, LOG_OVERHEAD_BYTES
from tests.support.examples import examples

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_BYTES = 1 << 24


PLAIN = COLUMN_NAMES[:-1]


def decoder(start: int, end: int, *, plan_epoch: int = 5, headers: bool = False) -> SliceDecoder:
    return SliceDecoder(
        "orders",
        3,
        start,
        end,
        plan_epoch=plan_epoch,
        columns=COLUMN_NAMES if headers else PLAIN,
        loss=LossPolicy(),
    )


def rows(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def expected(data: bytes, start: int, end: int, *, headers: bool) -> list[dict[str, Any]]:
    """The rows by the plain record decoder."""
    found = []
    for position, header in iter_batches(data):
        if header.is_control:
            continue
        for record in decode_records(data, position, header, max_decompressed_bytes=MAX_BYTES):
            if start <= record.offset < end:
                row = {
                    "key": record.key,
                    "value": record.value,
                    "topic": "orders",
                    "partition": 3,
                    "offset": record.offset,
                    "timestamp": EPOCH + timedelta(milliseconds=record.timestamp),
                    "timestampType": int(header.uses_log_append_time),
                }
                if headers:
                    row["headers"] = [{"key": k, "value": v} for k, v in record.headers] or None
                found.append(row)
    return found


def with_crc(batch: bytearray) -> bytes:
    """A batch that was tampered with, with a checksum that fits again."""
    from crc32c import crc32c

    batch[CRC_POSITION:CRC_START] = crc32c(bytes(batch[CRC_START:])).to_bytes(4, "big")
    return bytes(batch)


def raw_batch(body: bytes, count: int, *, base_offset: int = 0, last_delta: int | None = None) -> bytes:
    batch = bytearray(build_batch([(0, None, b"x", ())], base_offset=base_offset)[:HEADER_BYTES]) + body
    fields = list(HEADER.unpack_from(batch))
    fields[1] = len(batch) - LOG_OVERHEAD_BYTES
    fields[6] = count - 1 if last_delta is None else last_delta
    fields[12] = count
    HEADER.pack_into(batch, 0, *fields)
    return with_crc(batch)


payloads = st.none() | st.binary(max_size=300)
header_lists = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)
records = st.tuples(st.integers(-1, 4_000_000_000_000), payloads, payloads, header_lists)


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, int]:
    """Batches of any codec with gaps and control batches between them, and the log end offset."""
    data, offset, epoch = b"", draw(st.integers(0, 2**40)), 0
    for _ in range(draw(st.integers(1, 5))):
        offset += draw(st.sampled_from([0, 0, 3]))
        epoch += draw(st.sampled_from([0, 0, 1]))
        batch = bytearray(
            build_batch(
                draw(st.lists(records, min_size=1, max_size=12)),
                base_offset=offset,
                codec=draw(st.integers(0, 4)),
                leader_epoch=epoch,
                is_control=draw(st.sampled_from([False, False, True])),
            )
        )
        if draw(st.booleans()):
            stamp_log_append_time(batch, 0, timestamp=draw(st.integers(0, 4_000_000_000_000)))
        data += batch
        *_, (_, header) = iter_batches(data)
        offset = header.next_offset
    return data, offset


@settings(deadline=None, max_examples=examples(60))
@given(logs(), st.data(), st.booleans())
def test_rows_are_those_of_the_record_decoder(
    log: tuple[bytes, int], data: st.DataObject, headers: bool
) -> None:
    raw, log_end = log
    (_, first), *_ = iter_batches(raw)
    start = data.draw(st.integers(first.base_offset, log_end - 1))
    end = data.draw(st.integers(start + 1, log_end))
    slice_decoder = decoder(start, end, headers=headers)
    batches = list(slice_decoder.feed(raw))
    assert rows(batches) == expected(raw, start, end, headers=headers)
    assert all(batch.schema.equals(arrow_schema(COLUMN_NAMES if headers else PLAIN)) for batch in batches)
    for batch in batches:
        batch.validate(full=True)
    slice_decoder.check_complete()
    assert slice_decoder.audit.records == sum(batch.num_rows for batch in batches)
    missing = {offset for hole in slice_decoder.audit.holes for offset in range(*hole)}
    filled = {
        offset for _, header in iter_batches(raw) for offset in range(header.base_offset, header.next_offset)
    }
    assert missing == set(range(start, end)) - filled


@pytest.mark.parametrize("codec", range(5))
def test_long_batches_of_one_size_of_many_and_of_both(codec: int) -> None:
    chance = random.Random(7)
    same: list[RecordTuple] = [(1000 + index, b"key", b"v" * 100, ()) for index in range(9000)]
    mixed: list[RecordTuple] = [
        (1000 + index, None, chance.randbytes(chance.randrange(20_000 if index % 100 == 0 else 90)), ())
        for index in range(3000)
    ]
    data = b"".join(
        [
            build_batch(same, base_offset=0, codec=codec),
            build_batch(mixed, base_offset=9000, codec=0),
            build_batch(same[:40] + mixed + same, base_offset=12_000, codec=codec),
        ]
    )
    slice_decoder = decoder(10, 24_000)
    assert rows(list(slice_decoder.feed(data))) == expected(data, 10, 24_000, headers=False)
    slice_decoder.check_complete()


def test_columns_are_exactly_what_spark_expects() -> None:
    types = pytest.importorskip("pyspark.sql.pandas.types")
    from kraft.spark.schema import source_schema

    for columns in (PLAIN, COLUMN_NAMES, ("value", "offset")):
        wanted = types.to_arrow_schema(source_schema(columns), timezone="UTC")
        assert wanted.equals(arrow_schema(columns)), wanted


def test_a_fetch_torn_in_its_last_batch_is_continued_by_the_next() -> None:
    one, two = (build_batch([(0, None, b"a", ()), (0, None, b"b", ())], base_offset=base) for base in (0, 2))
    slice_decoder = decoder(1, 4)
    assert [row["offset"] for row in rows(list(slice_decoder.feed(one + two[:-1])))] == [1]
    assert slice_decoder.position == 2
    assert [row["offset"] for row in rows(list(slice_decoder.feed(one + two)))] == [2, 3]
    slice_decoder.check_complete()


def test_offsets_without_records_are_counted() -> None:
    data = b"".join(
        [
            build_batch([(0, None, b"a", ())], base_offset=12),
            build_batch([(0, b"\0\0\0\1", b"", ())], base_offset=13, is_control=True, is_transactional=True),
            raw_batch(b"", 0, base_offset=14, last_delta=4),
            build_batch([(0, None, b"b", ())], base_offset=30),
        ]
    )
    slice_decoder = decoder(10, 25)
    assert [row["offset"] for row in rows(list(slice_decoder.feed(data)))] == [12]
    slice_decoder.check_complete()
    audit = slice_decoder.audit
    assert (audit.records, audit.control, audit.gaps) == (1, 1, 13)
    assert audit.holes == [(10, 12), (14, 25)]


def test_records_compacted_inside_a_batch_are_gaps() -> None:
    body = b"".join(bytes([2 * 7, 0, 0, 2 * delta, 1, 2, 65, 0]) for delta in (1, 4))
    slice_decoder = decoder(100, 106)
    batches = list(slice_decoder.feed(raw_batch(body, 2, base_offset=100, last_delta=5)))
    assert [row["offset"] for row in rows(batches)] == [101, 104]
    slice_decoder.check_complete()
    assert slice_decoder.audit.gaps == 4
    assert slice_decoder.audit.holes == [(100, 101), (102, 104), (105, 106)]


def test_records_compacted_out_of_an_aborted_batch_are_gaps() -> None:
    """Also where the slice begins inside the batch."""
    body = b"".join(bytes([2 * 7, 0, 0, 2 * delta, 1, 2, 65, 0]) for delta in (1, 4))
    batch = bytearray(raw_batch(body, 2, base_offset=100, last_delta=5))
    fields = list(HEADER.unpack_from(batch))
    fields[5] |= 0x10  # transactional
    fields[9] = 7
    HEADER.pack_into(batch, 0, *fields)
    slice_decoder = decoder(103, 106)
    assert not list(slice_decoder.feed(with_crc(batch), [AbortedTransaction(7, 100)]))
    slice_decoder.check_complete()
    assert (slice_decoder.audit.aborted, slice_decoder.audit.gaps) == (1, 2)
    assert slice_decoder.audit.holes == [(103, 104), (105, 106)]


def test_no_more_than_a_thousand_holes_are_named_but_all_are_counted() -> None:
    data = b"".join(build_batch([(0, None, b"a", ())], base_offset=base) for base in range(1, 5001, 2))
    slice_decoder = decoder(0, 5000)
    assert sum(batch.num_rows for batch in slice_decoder.feed(data)) == 2500
    slice_decoder.check_complete()
    assert slice_decoder.audit.gaps == 2500
    assert slice_decoder.audit.holes == [(base, base + 1) for base in range(0, 2000, 2)]


def test_an_unfinished_slice_is_not_complete() -> None:
    slice_decoder = decoder(0, 5)
    list(slice_decoder.feed(build_batch([(0, None, b"a", ())])))
    with pytest.raises(DataLossError, match="5 offsets, but 1 were accounted for"):
        slice_decoder.check_complete()


def test_a_batch_younger_than_the_plan_means_truncation() -> None:
    data = build_batch([(0, None, b"a", ())], leader_epoch=6)
    with pytest.raises(DataLossError, match="leader epoch 6 after this read was planned under epoch 5"):
        list(decoder(0, 1).feed(data))
    beyond = build_batch([(0, None, b"a", ())], leader_epoch=5) + build_batch(
        [(0, None, b"a", ())], base_offset=1, leader_epoch=6
    )
    assert len(rows(list(decoder(0, 1).feed(beyond)))) == 1


def test_leader_epochs_do_not_go_back() -> None:
    data = build_batch([(0, None, b"a", ())], leader_epoch=4) + build_batch(
        [(0, None, b"a", ())], base_offset=1, leader_epoch=3
    )
    with pytest.raises(CorruptDataError, match="leader epoch 3, the one before it 4"):
        list(decoder(0, 2).feed(data))


def test_a_flipped_bit_is_found() -> None:
    data = bytearray(build_batch([(0, None, b"a" * 50, ())]))
    data[-5] ^= 1
    with pytest.raises(CorruptDataError, match=r"orders-3.*checksum.*Nothing was skipped"):
        list(decoder(0, 1).feed(bytes(data)))


@pytest.mark.parametrize(
    ("body", "count", "reason"),
    [
        (bytes([12, 0, 0, 0, 1, 1, 0]), 2, "cannot lie in"),
        (bytes([14, 0, 0, 0, 1, 1, 0]), 1, "from its end"),
        (bytes([12, 0, 0, 0, 1, 1, 0, 0]), 1, "from its end"),
        (bytes([12, 0, 0, 0, 1, 60, 0]), 1, "longer than the record"),
        (bytes([12, 0, 0, 0, 3, 1, 0]), 1, "impossible length"),
        (bytes([12, 0, 0, 2, 1, 1, 0]), 1, "outside its batch"),
        (bytes([12, 0, 0, 1, 1, 1, 0]), 1, "outside its batch"),
        (bytes([12, 0, 0, 0, 1, 1, 0]) * 2, 2, "do not ascend"),
        (bytes([32, 0]) + b"\xff" * 9 + bytes([1, 0, 1, 1, 0, 0]), 1, "timestamp is beyond"),
        (bytes([0x28, 0]) + b"\xff" * 14 + bytes([1, 0, 1, 1, 0]), 1, "more than ten bytes"),
        (b"\xff" * 11 + b"\x01", 1, "more than ten bytes"),
        (b"\xff" * 7, 1, "cut off"),
        (bytes([12, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF]), 1, "reaches beyond"),
    ],
)
def test_forged_records_yield_no_rows(body: bytes, count: int, reason: str) -> None:
    with pytest.raises(CorruptDataError, match=reason):
        list(decoder(0, count).feed(raw_batch(body, count)))


@settings(deadline=None, max_examples=examples(150))
@given(st.binary(max_size=80), st.integers(1, 5))
def test_random_bytes_raise_one_kind_of_error(body: bytes, count: int) -> None:
    try:
        list(decoder(0, count, headers=True).feed(raw_batch(body, count)))
    except CorruptDataError:
        pass  # what most random bytes are


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        (bytes([4, 2, 97, 2, 98]), "cut off or too long|claims"),
        (bytes([2, 20, 97, 2, 98]), "key is longer"),
        (bytes([2, 2, 97, 20, 98]), "value is longer"),
        (bytes([2, 2, 97, 2, 98, 0]), "do not end"),
    ],
)
def test_forged_headers_yield_no_rows(headers: bytes, reason: str) -> None:
    record = bytes([0, 0, 0, 1, 1]) + headers
    with pytest.raises(CorruptDataError, match=reason):
        list(decoder(0, 1, headers=True).feed(raw_batch(bytes([2 * len(record)]) + record, 1)))


def test_a_header_key_that_is_not_utf8_does_not_stop_the_read() -> None:
    record = bytes([0, 0, 0, 1, 1, 2, 2, 0xFF, 1])
    (row,) = rows(list(decoder(0, 1, headers=True).feed(raw_batch(bytes([2 * len(record)]) + record, 1))))
    assert row["headers"] == [{"key": "�", "value": None}]


def test_a_compressed_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraft.spark.decode.MAX_DECOMPRESSED_BYTES", 1 << 20)
    data = build_batch([(0, None, bytes(2 << 20), ())], codec=4)
    with pytest.raises(CorruptDataError, match="offset 0"):
        list(decoder(0, 1).feed(data))
