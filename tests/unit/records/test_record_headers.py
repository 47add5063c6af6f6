"""Headers that are skipped and headers that are decoded end at one place, or are refused for one reason."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import example, given
from hypothesis import strategies as st

from partitions.records.record import RecordFieldError, decode_headers, encode_record, skip_headers

PARTS = st.binary(max_size=4) | st.binary(min_size=60, max_size=70) | st.binary(min_size=8190, max_size=8194)
"""Around the lengths at which a varint takes one byte more."""
LENGTHS = st.integers(-2, 5) | st.sampled_from([63, 64, 8191, 8192, 2**31, -(2**31), 2**63 - 1, 2**69])


def varint(number: int, excess: int = 0) -> bytes:
    """A zigzag varint, perhaps with bytes that say nothing."""
    raw = number << 1 if number >= 0 else (-number << 1) - 1
    encoded = bytearray()
    while raw > 127 or excess > 0:
        excess -= raw <= 127
        encoded.append(raw & 127 | 128)
        raw >>= 7
    encoded.append(raw)
    return bytes(encoded)


@st.composite
def headers(draw: st.DrawFn) -> bytes:
    """Headers as they lie in a record, keys that are not UTF-8 among them; a number may be a lie, or too long."""
    pairs = draw(st.lists(st.tuples(PARTS, st.none() | PARTS), max_size=3))
    numbers = [len(pairs)]
    contents = [b""]
    for key, value in pairs:
        numbers += (len(key), -1 if value is None else len(value))
        contents += (key, value or b"")
    excess = [0] * len(numbers)
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(numbers) - 1))
        if draw(st.booleans()):
            numbers[place] = draw(LENGTHS)
        else:
            excess[place] = draw(st.sampled_from([1, 2, 9]))
    return b"".join(map(bytes.__add__, map(varint, numbers, excess), contents))


@given(headers() | st.binary(max_size=12), st.binary(max_size=3), st.integers(0, 3), st.booleans())
@example(b"\x02\x04\xff\xfe\x01", b"", 0, False)
@example(b"\x02\x04\xed\xa0\x01", b"", 0, False)
@example(b"\x04\x00\x01", b"", 0, True)
@example(b"\x02\x01\x01", b"", 0, True)
@example(b"\x02\x04a", b"", 0, True)
@example(b"\x02\x02a\x03", b"", 0, True)
@example(b"\x02\x02a\x04b", b"", 0, True)
@example(b"\x02\x80\x80\x00\x01", b"", 0, True)
def test_skipped_is_what_could_be_decoded(encoded: bytes, before: bytes, cut: int, is_last: bool) -> None:
    """The examples: keys that are not UTF-8, each number that claims just too much, a number longer than needed."""
    body = before + encoded[: len(encoded) - cut] + (b"" if is_last else b"\x00\x07")
    decoded = outcome(lambda: decode_headers(body, len(before))[1])
    assert outcome(lambda: skip_headers(body, len(before))) == decoded


@given(st.lists(st.tuples(st.text(max_size=3), st.none() | PARTS), min_size=1, max_size=3))
def test_what_was_encoded_is_skipped_whole(pairs: list[tuple[str, bytes | None]]) -> None:
    fields = b"\x00\x00\x00\x01\x01"
    """What lies between a record's length and its headers."""
    record = encode_record(0, 0, None, None, pairs)
    at = record.index(fields) + len(fields)
    assert decode_headers(record, at) == (tuple(pairs), len(record))
    assert skip_headers(record, at) == len(record)


def outcome(call: Callable[[], int]) -> int | str:
    """Where the call ends, or why it refuses the bytes."""
    try:
        return call()
    except IndexError:
        return "cut off"
    except RecordFieldError as error:
        return str(error)
