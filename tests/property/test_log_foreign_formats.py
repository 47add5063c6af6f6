"""Kafka's format, proved from outside: kafka-python's and aiokafka's record readers read every segment that
a log writes, record by record with right checksums; and a log takes the batches that they build, and reads
them back equal. All codecs, headers, null keys and values, producer ids, the transactional flag."""

from __future__ import annotations

import importlib
import warnings
from typing import Any, NamedTuple

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioKafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AioKafkaRecords
from hypothesis import given, settings
from hypothesis import strategies as st

from partitions.log.config import LogConfig
from partitions.log.log import PartitionLog
from partitions.records.batch import decode_records, iter_batches, verify_crc
from partitions.records.builder import RecordTuple, build_batch
from partitions.records.compression import Codec
from tests.support.examples import examples
from tests.support.logs import FOLDER, new_storage, open_log, simulated_disk

with warnings.catch_warnings():  # kafka-python reads its schemas by a deprecated call
    warnings.simplefilter("ignore")
    KafkaPythonRecords = importlib.import_module("kafka.record.memory_records").MemoryRecords
    KafkaPythonBuilder = importlib.import_module("kafka.record.default_records").DefaultRecordBatchBuilder

READERS = pytest.mark.parametrize(
    "reader", [KafkaPythonRecords, AioKafkaRecords], ids=["kafka-python", "aiokafka"]
)
BUILDERS = pytest.mark.parametrize(
    "builder", [KafkaPythonBuilder, AioKafkaBuilder], ids=["kafka-python", "aiokafka"]
)
CONFIG = LogConfig(segment_bytes=5000, index_interval_bytes=200)
"""The longest batch of the strategies below has 4,600 bytes; one longer than a segment would be refused."""
UNFOLDED_MAX_BYTES = 1 << 20
BATCH_BYTES = 1 << 16
NEWEST_MS = 2_000_000_000_000

payloads = st.none() | st.binary(max_size=40) | st.binary(min_size=1, max_size=3).map(lambda part: part * 100)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3).map(tuple)
timestamps = st.integers(0, NEWEST_MS)
records = st.lists(st.tuples(timestamps, payloads, payloads, headers), min_size=1, max_size=6)


class Sent(NamedTuple):
    """A batch as it is sent."""

    records: list[RecordTuple]
    codec: Codec
    producer: tuple[int, int, int]
    """Id, epoch, first sequence; -1 each without idempotence."""
    is_transactional: bool


@st.composite
def histories(draw: st.DrawFn) -> list[Sent]:
    """Batches of two producers and of none; sequences go on as they must."""
    sequences = {7: 0, 8: 0}
    sent = []
    for content in draw(st.lists(records, min_size=1, max_size=12)):
        producer_id = draw(st.sampled_from([-1, 7, 8]))
        producer = (-1, -1, -1)
        if producer_id >= 0:
            producer = (producer_id, 3, sequences[producer_id])
            sequences[producer_id] += len(content)
        is_transactional = producer_id == 8
        sent.append(Sent(content, draw(st.sampled_from(Codec)), producer, is_transactional))
    return sent


def new_log() -> tuple[PartitionLog, Any]:
    storage = new_storage()
    return open_log(simulated_disk(storage), CONFIG, now_ms=NEWEST_MS), storage


def segments(storage: Any) -> list[bytes]:
    return [
        data
        for path, data in sorted(storage.files().items())
        if path.startswith(FOLDER) and path.endswith(".log")
    ]


def foreign_headers(pairs: Any) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((name, None if value is None else bytes(value)) for name, value in pairs)


@READERS
@settings(max_examples=examples(60), deadline=None)
@given(history=histories())
def test_other_libraries_read_what_a_log_writes(reader: Any, history: list[Sent]) -> None:
    log, storage = new_log()
    for number, sent in enumerate(history):
        producer_id, epoch, sequence = sent.producer
        batch = build_batch(
            sent.records,
            codec=sent.codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=sent.is_transactional,
        )
        log.append_as_leader(batch, leader_epoch=number // 4, origin="coordinator")
    read = []
    flags = []
    for data in segments(storage):
        stored = reader(data)
        while (batch := stored.next_batch()) is not None:
            assert batch.validate_crc()
            flags.append((batch.is_transactional, batch.is_control_batch, batch.producer_id))
            for record in batch:
                assert record.checksum is None
                read.append(
                    (
                        record.offset,
                        record.timestamp,
                        record.key,
                        record.value,
                        foreign_headers(record.headers),
                    )
                )
    written = [record for sent in history for record in sent.records]
    assert read == [(offset, *record) for offset, record in enumerate(written)]
    assert flags == [(sent.is_transactional, False, sent.producer[0]) for sent in history]


@BUILDERS
@settings(max_examples=examples(60), deadline=None)
@given(history=histories())
def test_a_log_takes_what_other_libraries_write(builder: Any, history: list[Sent]) -> None:
    log, _ = new_log()
    for sent in history:
        producer_id, epoch, sequence = sent.producer
        build = builder(
            magic=2,
            compression_type=sent.codec,
            is_transactional=sent.is_transactional,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            batch_size=BATCH_BYTES,
        )
        for number, (timestamp, key, value, pairs) in enumerate(sent.records):
            assert build.append(number, timestamp=timestamp, key=key, value=value, headers=list(pairs))
        log.append_as_leader(bytes(build.build()), leader_epoch=0, origin="coordinator")
    read = []
    offset = 0
    while offset < log.log_end_offset:
        result = log.read(offset, BATCH_BYTES, up_to_offset=log.log_end_offset)
        data = b"".join(part.read() for part in result.slices)
        for position, header in iter_batches(data):
            verify_crc(data, position, header)
            read += decode_records(data, position, header, max_decompressed_bytes=UNFOLDED_MAX_BYTES)
        offset = result.next_offset
    written = [record for sent in history for record in sent.records]
    assert [tuple(record) for record in read] == [(number, *record) for number, record in enumerate(written)]
