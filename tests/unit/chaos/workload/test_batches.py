"""Batches of simulated clients are sound, and read as what they are."""

from __future__ import annotations

import random

import pytest

from kraft.chaos.workload.batches import Decoder, draw_values, encode_values
from kraft.protocol.fetch import AbortedTransaction
from partitions.records.batch import CorruptBatchError, iter_batches, stamp, verify_crc
from partitions.records.control import ControlType
from partitions.records.markers import build_marker


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


def part(value: bytes, base_offset: int, producer_id: int) -> bytearray:
    """A batch of a transaction."""
    batch = bytearray(
        encode_values(
            (value,), 1, producer_id=producer_id, base_sequence=0, producer_epoch=4, transactional=True
        )
    )
    stamp(batch, 0, base_offset=base_offset, leader_epoch=2)
    return batch


def end(kind: ControlType, base_offset: int, producer_id: int) -> bytearray:
    batch = bytearray(build_marker(producer_id, 5, kind, coordinator_epoch=0, timestamp=1))
    stamp(batch, 0, base_offset=base_offset, leader_epoch=2)
    return batch


def test_a_batch_of_a_transaction_carries_its_epoch():
    [(_, header)] = iter_batches(part(b"a", 0, 7))
    assert (header.producer_id, header.producer_epoch, header.is_transactional) == (7, 4, True)


LOG = (
    part(b"a", 0, 7)
    + part(b"b", 1, 8)
    + end(ControlType.ABORT, 2, 7)
    + part(b"c", 3, 7)
    + end(ControlType.COMMIT, 4, 8)
    + end(ControlType.COMMIT, 5, 7)
)
"""Producer 7 aborts a and commits c, producer 8 commits b."""


def test_markers_are_no_records():
    assert Decoder().read(memoryview(LOG), 0) == ([(0, b"a"), (1, b"b"), (3, b"c")], 6)


def test_the_records_of_aborted_transactions_are_left_out():
    aborted = [AbortedTransaction(7, 0)]
    decoder = Decoder()
    for _ in range(2):
        assert decoder.read(memoryview(LOG), 0, aborted) == ([(1, b"b"), (3, b"c")], 6)


def test_a_transaction_is_aborted_from_its_first_offset_on():
    assert Decoder().read(memoryview(LOG), 0, [AbortedTransaction(7, 3)]) == ([(0, b"a"), (1, b"b")], 6)


def test_an_aborted_transaction_that_began_before_the_answer():
    records = part(b"d", 10, 7) + end(ControlType.ABORT, 11, 7) + part(b"e", 12, 7)
    assert Decoder().read(memoryview(records), 10, [AbortedTransaction(7, 2)]) == ([(12, b"e")], 13)
