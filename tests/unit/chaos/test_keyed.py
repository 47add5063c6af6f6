"""Records with keys: what the history says of them, and what lies in the log."""

from random import Random

from kraft.chaos.keyed import is_tombstone, key_of, keyed_value, record_of, value_of
from kraft.chaos.workload.batches import Decoder, draw_keyed_values, encode_values

VALUE, TOMBSTONE = keyed_value(b"k1", b"a:1", tombstone=False), keyed_value(b"k1", b"a:2", tombstone=True)


def test_a_record_says_its_key_and_name_and_whether_it_deletes():
    assert [is_tombstone(one) for one in (VALUE, TOMBSTONE)] == [False, True]
    assert [key_of(one) for one in (VALUE, TOMBSTONE)] == [b"k1", b"k1"]
    assert keyed_value(b"k1", b"a:1", tombstone=True) != VALUE


def test_a_tombstone_has_no_value_in_the_log_and_keeps_its_name():
    assert record_of(VALUE) == (b"k1", b"a:1", ())
    key, value, headers = record_of(TOMBSTONE)
    assert (key, value) == (b"k1", None)
    assert value_of(key, value, headers) == TOMBSTONE


def test_what_has_no_key_is_its_value():
    assert value_of(None, b"v", ()) == b"v"
    assert value_of(None, None, ()) == b""


def test_batches_of_keyed_values_read_back_as_they_were():
    values = draw_keyed_values(Random(1), "p.1", 0)
    values += draw_keyed_values(Random(2), "p.2", 0)
    batch = encode_values(values, 1_000, keyed=True)
    assert Decoder().read(memoryview(batch), 0) == (list(enumerate(values)), len(values))


def test_few_keys_many_records_and_some_tombstones():
    rng = Random(3)
    values = [value for n in range(600) for value in draw_keyed_values(rng, "p.1", 10 * n)]
    assert len(set(values)) == len(values)
    keys = [key_of(value) for value in values]
    assert 20 < len(set(keys)) <= 60
    assert keys.count(b"k0") > 10 * keys.count(b"k59") > 0
    assert 0.05 < sum(map(is_tombstone, values)) / len(values) < 0.3
