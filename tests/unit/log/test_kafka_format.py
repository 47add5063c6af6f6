"""Kafka's formats, proved from outside: other libraries read the segments written here, and the
indexes are read by their documented layout."""

from __future__ import annotations

import importlib
import struct
import warnings
from itertools import pairwise
from pathlib import Path

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioKafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AioKafkaRecords

from kraft.runtime.disk import RealDisk
from partitions.log.config import LogConfig
from partitions.log.log import PartitionLog
from partitions.records.batch import iter_batches
from partitions.records.builder import build_batch
from tests.support.logs import PARTITION, halt

with warnings.catch_warnings():  # kafka-python reads its schemas by a deprecated call
    warnings.simplefilter("ignore")
    KafkaPythonRecords = importlib.import_module("kafka.record.memory_records").MemoryRecords
    KafkaPythonBuilder = importlib.import_module("kafka.record.default_records").DefaultRecordBatchBuilder

CODECS = (0, 1, 3)
"""None, gzip, lz4: kafka-python takes the others from packages that are not among the test dependencies."""


def written_folder(tmp_path: Path) -> Path:
    folder = tmp_path / str(PARTITION)
    config = LogConfig(segment_bytes=20_000, index_interval_bytes=512)
    log = PartitionLog.open(RealDisk(), str(folder), PARTITION, config, now_ms=lambda: 0, halt=halt)
    for number in range(300):
        records = [
            (
                1_000_000 + number,
                b"key-%d" % number,
                b"value-%d-%d" % (number, part),
                (("h", b"\0" * 3), ("n", None)),
            )
            for part in range(3)
        ]
        log.append_as_leader(build_batch(records, codec=CODECS[number % 3]), leader_epoch=number // 100)
    log.close()
    return folder


@pytest.mark.parametrize("reader", [KafkaPythonRecords, AioKafkaRecords], ids=["kafka-python", "aiokafka"])
def test_other_libraries_read_the_segments(tmp_path: Path, reader: type) -> None:
    found = []
    for path in sorted(written_folder(tmp_path).glob("*.log")):
        records = reader(path.read_bytes())
        while (batch := records.next_batch()) is not None:
            assert batch.validate_crc()
            found += [(record.offset, record.timestamp, record.key, record.value) for record in batch]
    assert found == [
        (
            offset,
            1_000_000 + offset // 3,
            b"key-%d" % (offset // 3),
            b"value-%d-%d" % (offset // 3, offset % 3),
        )
        for offset in range(900)
    ]


def test_batches_of_other_libraries_are_accepted(tmp_path: Path) -> None:
    log = PartitionLog.open(
        RealDisk(), f"{tmp_path}/{PARTITION}", PARTITION, LogConfig(), now_ms=lambda: 0, halt=halt
    )
    for builder_type in (KafkaPythonBuilder, AioKafkaBuilder):
        for codec in CODECS:
            builder = builder_type(
                magic=2,
                compression_type=codec,
                is_transactional=0,
                producer_id=-1,
                producer_epoch=-1,
                base_sequence=-1,
                batch_size=10_000,
            )
            for number in range(10):
                builder.append(number, timestamp=5000 + number, key=b"k", value=b"v" * 50, headers=[])
            log.append_as_leader(bytes(builder.build()), leader_epoch=0)
    assert log.log_end_offset == 60


def test_indexes_are_kafkas(tmp_path: Path) -> None:
    folder = written_folder(tmp_path)
    logs = sorted(folder.glob("*.log"))
    assert len(logs) > 2
    for path in logs:
        data = path.read_bytes()
        base = int(path.stem)
        batches = dict(iter_batches(data))
        offsets = list(struct.iter_unpack(">ii", path.with_suffix(".index").read_bytes()))
        times = list(struct.iter_unpack(">qi", path.with_suffix(".timeindex").read_bytes()))
        assert offsets
        assert times
        for relative, position in offsets:
            assert batches[position].last_offset == base + relative
        for (_, before), (_, after) in pairwise(offsets):
            assert after - before > 512 or before == 0
        for entries in (offsets, times):
            assert all(one[0] < other[0] and one[1] < other[1] for one, other in pairwise(entries))
        by_last_offset = {header.last_offset: header for header in batches.values()}
        for timestamp, relative in times:
            assert by_last_offset[base + relative].max_timestamp == timestamp
        assert times[-1][0] == max(header.max_timestamp for header in batches.values())
    snapshots = sorted(int(path.stem) for path in folder.glob("*.snapshot"))
    assert snapshots == [int(path.stem) for path in logs[1:]] + [900]
