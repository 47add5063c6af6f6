"""The records of offsets, byte for byte as Kafka's tools read them; what they cost a batch; what cannot be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.coordinator.groups.offset_records import (
    NO_EXPIRY_MS,
    Committed,
    Place,
    decode_key,
    decode_value,
    encode,
    encode_tombstone,
    expiring,
)
from kraft.coordinator.groups.offsets import _batch_bytes
from kraft.coordinator.record_schema import type_of_key
from kraft.protocol.errors import ProtocolError
from kraft.protocol.primitives import ZERO_UUID
from partitions.records.builder import build_batch

PLACE = Place("group-1", "topic", 7)
TOPIC_ID = bytes(range(16))
KEY = bytes.fromhex("0001 0007 67726f75702d31 0005 746f706963 00000007")
TIME_MS = 0x0000_018B_CFE5_6800


def test_a_key_has_type_1_group_topic_and_partition() -> None:
    record = encode_tombstone(PLACE)
    assert record == (KEY, None)
    assert type_of_key(record.key) == 1
    assert decode_key(KEY) == PLACE
    assert decode_key(b"\0\0" + KEY[2:]) == PLACE  # type 0 is the same


def test_a_value_has_version_4_and_the_topic_id_as_tagged_field_0() -> None:
    committed = Committed(0x1234, 5, "ab", TIME_MS, NO_EXPIRY_MS, TOPIC_ID)
    key, value = encode(PLACE, committed)
    expected = "0004 0000000000001234 00000005 03 6162 0000018bcfe56800 01 00 10" + TOPIC_ID.hex()
    assert (key, value) == (KEY, bytes.fromhex(expected))
    assert decode_value(bytes.fromhex(expected), {}) == committed


def test_a_value_with_an_expiry_of_its_own_has_version_1() -> None:
    committed = expiring(Committed(0x1234, 5, "ab", TIME_MS, TIME_MS + 1, TOPIC_ID))
    assert committed == Committed(0x1234, -1, "ab", TIME_MS, TIME_MS + 1, ZERO_UUID)
    _, value = encode(PLACE, committed)
    assert value == bytes.fromhex("0001 0000000000001234 0002 6162 0000018bcfe56800 0000018bcfe56801")
    assert decode_value(value, {}) == committed


@pytest.mark.parametrize(
    ("data", "leader_epoch"),
    [
        ("0000 0000000000001234 0002 6162 0000018bcfe56800", -1),
        ("0001 0000000000001234 0002 6162 0000018bcfe56800 ffffffffffffffff", -1),
        ("0002 0000000000001234 0002 6162 0000018bcfe56800", -1),
        ("0003 0000000000001234 00000005 0002 6162 0000018bcfe56800", 5),
        ("0004 0000000000001234 00000005 03 6162 0000018bcfe56800 00", 5),
        ("0004 0000000000001234 00000005 03 6162 0000018bcfe56800 01 09 01 ff", 5),
    ],
    ids=["0", "1", "2", "3", "4", "4-with-a-tag-of-later-times"],
)
def test_records_without_a_topic_id_are_read(data: str, leader_epoch: int) -> None:
    expected = Committed(0x1234, leader_epoch, "ab", TIME_MS, NO_EXPIRY_MS, ZERO_UUID)
    assert decode_value(bytes.fromhex(data), {}) == expected


@given(
    offset=st.integers(-(2**63), 2**63 - 1),
    epoch=st.integers(-1, 2**31 - 1),
    metadata=st.text(max_size=8) | st.sampled_from(["x" * 126, "x" * 127, "ü" * 63, "ü" * 64, "x" * 20_000]),
    topic_id=st.binary(min_size=16, max_size=16),
)
def test_what_is_written_is_read_whatever_its_length(
    offset: int, epoch: int, metadata: str, topic_id: bytes
) -> None:
    committed = Committed(offset, epoch, metadata, TIME_MS, NO_EXPIRY_MS, topic_id)
    record = encode(PLACE, committed)
    assert record.value is not None
    assert decode_value(record.value, {}) == committed


def test_equal_topic_ids_become_one_object() -> None:
    known: dict[bytes, bytes] = {}
    record = encode(PLACE, Committed(1, 1, "", TIME_MS, NO_EXPIRY_MS, TOPIC_ID))
    assert record.value is not None
    first, second = (decode_value(bytes(bytearray(record.value)), known) for _ in range(2))
    assert first.topic_id is second.topic_id


@given(st.data())
def test_what_is_cut_or_unknown_is_refused(data: st.DataObject) -> None:
    committed = Committed(1, 1, "text", TIME_MS, NO_EXPIRY_MS, TOPIC_ID)
    key, value = encode(PLACE, committed)
    assert value is not None
    with pytest.raises(ProtocolError):
        decode_value(value[: data.draw(st.integers(0, len(value) - 1))], {})
    with pytest.raises(ProtocolError):
        decode_key(key[: data.draw(st.integers(0, len(key) - 1))])
    with pytest.raises(ProtocolError):
        decode_value(b"\0\5" + value[2:], {})
    with pytest.raises(ProtocolError):
        decode_value(value[:15] + b"\xff" + value[16:], {})


@given(st.lists(st.integers(0, 70_000), min_size=1, max_size=40), st.integers(0, 2**40))
def test_a_batch_is_never_larger_than_was_counted_before(sizes: list[int], later_ms: int) -> None:
    records = [encode(PLACE, Committed(1, 1, "x" * min(size, 32_000), 0, -1, TOPIC_ID)) for size in sizes]
    tuples = [(index * later_ms, key, value, ()) for index, (key, value) in enumerate(records)]
    assert len(build_batch(tuples)) <= _batch_bytes(records)
