"""Batches read from bytes without the product's reading code, against what the product writes."""

from hypothesis import given
from hypothesis import strategies as st

from kraft.chaos.oracles.scan import batches_of_append, chain, first_unsound, sound_batches, without_displaced
from kraft.chaos.oracles.shadow_log import Batch
from partitions.log.append import stamp_batches
from partitions.records.batch import iter_batches
from partitions.records.builder import build_batch
from tests.unit.chaos.oracles.model import batch_bytes

RECORDS = [(0, None, b"value", ())]


def test_sound_batches_are_found_in_all_segments() -> None:
    first, second = batch_bytes(0, epoch=1), batch_bytes(1, epoch=2, value=b"w")
    found = sound_batches([first, second])
    assert [(batch.base, batch.next, batch.epoch) for batch in found] == [(0, 1, 1), (1, 2, 2)]


@given(position=st.integers(12, 68), bit=st.integers(0, 7))
def test_a_batch_with_a_flipped_bit_is_not_the_batch_that_was_written(position: int, bit: int) -> None:
    data = batch_bytes(0, value=b"value")
    whole = sound_batches([data])
    damaged = bytearray(data)
    damaged[position] ^= 1 << bit
    assert sound_batches([bytes(damaged)]) != whole
    assert sound_batches([data + bytes(damaged) + data])[0] == whole[0]


@given(cut=st.integers(0, 200))
def test_a_torn_tail_is_left_out(cut: int) -> None:
    data = batch_bytes(0) + batch_bytes(1)
    found = sound_batches([data[:cut]])
    assert found == sound_batches([data])[: len(found)]
    assert len(found) == min(2, cut // len(batch_bytes(0)))


def test_a_chain_has_no_batch_twice_and_none_behind_the_end() -> None:
    batches = [Batch(0, 2, 0, 1), Batch(2, 3, 0, 2), Batch(0, 2, 0, 1), Batch(3, 5, 0, 3)]
    assert chain(batches, 0, 4) == batches[:2]
    assert chain(batches, 2, 5) == [batches[1], batches[3]]


def test_an_append_is_understood_as_leader_and_as_follower() -> None:
    sent = memoryview(build_batch(RECORDS * 3) + build_batch(RECORDS))
    buffers, placed, _, _ = stamp_batches(sent, list(iter_batches(sent)), 10, 7)
    as_leader = batches_of_append(buffers, placed)
    written = b"".join(buffers)
    assert as_leader == sound_batches([written])
    assert [(batch.base, batch.next, batch.epoch) for batch in as_leader] == [(10, 13, 7), (13, 14, 7)]
    assert batches_of_append([memoryview(written)], placed) == as_leader


def test_a_broken_header_hides_nothing_that_is_known() -> None:
    pieces = [batch_bytes(offset, value=b"%d" % offset) for offset in range(4)]
    known = sound_batches([b"".join(pieces)])
    broken = bytearray(b"".join(pieces))
    broken[len(pieces[0]) + 8] ^= 0x40
    assert [batch.base for batch in sound_batches([broken])] == [0]
    assert [batch.base for batch in sound_batches([broken], known)] == [0, 2, 3]
    assert sound_batches([bytes(4096)], known) == []


def test_a_rotten_batch_is_left_out_at_another_offset_only_and_nothing_else_is() -> None:
    rotten, other = Batch(5, 7, 0, 9), Batch(1, 3, 0, 8)
    moved = rotten._replace(base=1, next=3)
    alike = [other, rotten, rotten._replace(epoch=4), Batch(1, 2, 0, 9), Batch(3, 5, 0, 7)]
    assert without_displaced([*alike, moved], [rotten, other], [rotten]) == alike
    assert without_displaced([moved], [rotten, moved], [rotten]) == [moved], "two that are alike were written"
    assert without_displaced([moved], [rotten], []) == [moved]


def test_the_first_batch_that_is_not_sound_is_named() -> None:
    pieces = [batch_bytes(offset) for offset in range(3)]
    assert first_unsound(b"") == ""
    assert first_unsound(memoryview(b"".join(pieces))) == ""
    damaged = bytearray(b"".join(pieces))
    damaged[len(pieces[0]) + len(pieces[1]) - 1] ^= 1
    assert "offset 1" in first_unsound(damaged)
    assert "no batch" in first_unsound(b"".join(pieces)[: len(pieces[0]) + 20])
    assert "length" in first_unsound(b"".join(pieces)[:-1])
