"""Other implementations of the format read what is written here, and the other way round."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from typing import Any

import aiokafka.record.default_records as aiokafka_records
import pytest

from partitions.records.batch import (
    Record,
    decode_records,
    iter_batches,
    parse_header,
    stamp_log_append_time,
    verify_crc,
)
from partitions.records.builder import RecordTuple, build_batch
from partitions.records.compression import Codec

with warnings.catch_warnings():  # kafka-python reads its schemas by a deprecated call
    warnings.simplefilter("ignore", DeprecationWarning)
    kafka_python_records = importlib.import_module("kafka.record.default_records")

RECORDS: list[RecordTuple] = [
    (1700000000000, None, b"", ()),
    (1700000000007, b"key", b"v" * 5000, [("trace", b"\x00\xff"), ("none", None), ("ü", b"")]),
    (1699999999999, b"", None, ()),
    *((1700000000000 + number, b"k%d" % number, b"value %d" % (number % 7), ()) for number in range(300)),
]
EXPECTED = [
    Record(offset, timestamp, key, value, tuple(headers))
    for offset, (timestamp, key, value, headers) in enumerate(RECORDS)
]
# kafka-python takes snappy and zstd from packages that are not among the test dependencies.
KAFKA_PYTHON_CODECS = [Codec.NONE, Codec.GZIP, Codec.LZ4]
OTHERS = [(kafka_python_records, codec) for codec in KAFKA_PYTHON_CODECS] + [
    (aiokafka_records, codec) for codec in Codec
]
OTHER_IDS = [f"{module.__name__.split('.')[0]}-{codec.name.lower()}" for module, codec in OTHERS]


def built_by(module: Any, codec: Codec, records: Sequence[RecordTuple], **changes: int) -> bytes:
    fields = {"is_transactional": 0, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1} | changes
    builder = module.DefaultRecordBatchBuilder(magic=2, compression_type=codec, batch_size=1 << 24, **fields)
    for offset, (timestamp, key, value, headers) in enumerate(records):
        assert builder.append(offset, timestamp, key, value, list(headers))
    return bytes(builder.build())


def read_by(module: Any, batch: bytes) -> list[Record]:
    other = module.DefaultRecordBatch(batch)
    assert other.validate_crc()
    return [
        Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
        for record in other
    ]


def read_here(batch: bytes | bytearray) -> list[Record]:
    ((position, header),) = iter_batches(batch)
    verify_crc(batch, position, header)
    return decode_records(batch, position, header, max_decompressed_bytes=1 << 20)


@pytest.mark.parametrize(("module", "codec"), OTHERS, ids=OTHER_IDS)
def test_they_read_what_is_written_here(module: Any, codec: Codec) -> None:
    assert read_by(module, build_batch(RECORDS, codec=codec)) == EXPECTED


@pytest.mark.parametrize(("module", "codec"), OTHERS, ids=OTHER_IDS)
def test_what_they_write_is_read_here(module: Any, codec: Codec) -> None:
    batch = built_by(
        module, codec, RECORDS, producer_id=11, producer_epoch=2, base_sequence=30, is_transactional=1
    )
    assert read_here(batch) == EXPECTED
    ((_, header),) = iter_batches(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (11, 2, 30)
    assert header.is_transactional
    assert header.last_sequence == 30 + len(RECORDS) - 1
    assert (header.base_timestamp, header.max_timestamp) == (1700000000000, 1700000000299)


@pytest.mark.parametrize("module", [kafka_python_records, aiokafka_records])
def test_uncompressed_batches_are_identical(module: Any) -> None:
    theirs = built_by(module, Codec.NONE, RECORDS)
    assert theirs == build_batch(RECORDS, leader_epoch=parse_header(theirs).partition_leader_epoch)


@pytest.mark.parametrize(("module", "codec"), OTHERS, ids=OTHER_IDS)
def test_log_append_time_is_read_alike(module: Any, codec: Codec) -> None:
    batch = bytearray(built_by(module, codec, RECORDS))
    stamp_log_append_time(batch, 0, timestamp=1800000000000)
    records = read_here(batch)
    assert records == read_by(module, bytes(batch))
    assert {record.timestamp for record in records} == {1800000000000}
