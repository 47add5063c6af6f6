"""Batches of simulated clients are sound, and read as what they are."""

from __future__ import annotations

import random

import pytest

from kraft.chaos.workload.batches import Decoder, draw_values, encode_values
from partitions.records.batch import CorruptBatchError, iter_batches, stamp, verify_crc


def stamped(values: tuple[bytes, ...], base_offset: int) -> bytearray:
    batch = bytearray(encode_values(values, 1, producer_id=7, base_sequence=3))
    stamp(batch, 0, base_offset=base_offset, leader_epoch=2)
    return batch


def test_an_idempotent_batch_carries_its_identity():
    batch = encode_values((b"a", b"b"), 1_000, producer_id=7, base_sequence=3)
    [(position, header)] = iter_batches(batch)
    verify_crc(batch, position, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.record_count) == (
        7,
        0,
        3,
        2,
    )


def test_a_plain_batch_has_none():
    [(_, header)] = iter_batches(encode_values((b"a",), 1_000))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)


def test_drawn_values_differ():
    rng = random.Random(1)
    values = [value for n in range(50) for value in draw_values(rng, "orders-0/p.1", 10 * n)]
    assert len(set(values)) == len(values) > 100


def test_records_have_their_offsets_wherever_the_batch_lies():
    decoder = Decoder()
    for base_offset in (0, 10, 500):  # the second time the bytes are known
        read = decoder.read(memoryview(stamped((b"a", b"b", b"c"), base_offset)), base_offset)
        assert read == (
            [(base_offset, b"a"), (base_offset + 1, b"b"), (base_offset + 2, b"c")],
            base_offset + 3,
        )


def test_reading_begins_at_the_position():
    records = stamped((b"a", b"b"), 10) + stamped((b"c", b"d", b"e"), 12) + stamped((b"f",), 15)
    read = Decoder().read(memoryview(records), 13)
    assert read == ([(13, b"d"), (14, b"e"), (15, b"f")], 16)


def test_nothing_new_leaves_the_position():
    assert Decoder().read(memoryview(stamped((b"a",), 3)), 9) == ([], 9)


@pytest.mark.parametrize("known", [False, True])
def test_damage_is_found_whether_or_not_the_sound_batch_is_known(known):
    decoder, batch = Decoder(), stamped((b"value",), 0)
    if known:
        decoder.read(memoryview(batch), 0)
    batch[-3] ^= 1
    with pytest.raises(CorruptBatchError):
        decoder.read(memoryview(batch), 0)
