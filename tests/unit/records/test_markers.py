"""Transaction markers: what is written is read, also by others, and what is none is told from a broken one."""

from __future__ import annotations

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord
from aiokafka.record.memory_records import MemoryRecords

from partitions.records.batch import CorruptBatchError, parse_header, verify_crc
from partitions.records.builder import build_batch
from partitions.records.control import ControlType, encode_control_key
from partitions.records.markers import EndTransactionMarker, build_marker, read_marker

ENDS = [(ControlType.ABORT, ABORT_MARKER), (ControlType.COMMIT, COMMIT_MARKER)]


def control_batch(key: bytes | None, value: bytes | None) -> bytes:
    return build_batch([(1, key, value, ())], producer_id=7, producer_epoch=0, is_control=True)


@pytest.mark.parametrize(("kind", "theirs"), ENDS)
def test_a_marker_is_what_others_take_for_one(kind: ControlType, theirs: ControlRecord) -> None:
    data = build_marker(41, 3, kind, coordinator_epoch=9, timestamp=1000, base_offset=24, leader_epoch=2)
    header = parse_header(data)
    verify_crc(data, 0, header)
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (24, 24, 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (41, 3, -1)
    assert header.is_control
    assert header.is_transactional
    assert read_marker(b"xx" + data, 2, header) == EndTransactionMarker(kind, 9)
    batch = MemoryRecords(data).next_batch()
    assert batch.is_control_batch
    assert batch.is_transactional
    (record,) = batch
    assert ControlRecord.parse(record.key) == theirs
    assert record.value == b"\0\0\0\0\0\x09"


def test_fields_of_later_versions_are_passed_over() -> None:
    data = control_batch(b"\0\1" + b"\0\1" + b"more", b"\0\1" + b"\0\0\0\5" + b"more")
    assert read_marker(data, 0, parse_header(data)) == EndTransactionMarker(ControlType.COMMIT, 5)


def test_other_control_batches_are_no_markers() -> None:
    for kind in (ControlType.LEADER_CHANGE, ControlType.OPAQUE):
        data = control_batch(encode_control_key(kind), None)
        assert read_marker(data, 0, parse_header(data)) is None
    data = control_batch(b"\0\0\x7f\xff", b"")
    assert read_marker(data, 0, parse_header(data)) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"\0", b""),
        (b"\0\0\0\1", None),
        (b"\0\0\0\1", b"\0\0\0\0\0"),
        (b"\0\0\0\1", b"\xff" * 6),
    ],
)
def test_a_broken_marker_is_an_error(key: bytes | None, value: bytes | None) -> None:
    data = control_batch(key, value)
    with pytest.raises(CorruptBatchError) as caught:
        read_marker(b"xx" + data, 2, parse_header(data))
    assert caught.value.position == 2
