"""The body check says of every body what decoding it says."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from partitions.records.batch import HEADER_BYTES, parse_header
from partitions.records.body_check import Misfit, RecordBounds, look_through
from partitions.records.builder import build_batch
from partitions.records.record import MalformedRecordError, decode_body, record_times

ANY = RecordBounds(-(2**63), 2**63 - 1, key=False)
TIMES = st.integers(-5, 300_000)
BYTES = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2)
RECORDS = st.lists(st.tuples(TIMES, BYTES, BYTES, HEADERS), min_size=1, max_size=80)


@given(RECORDS, TIMES, TIMES, st.booleans(), st.integers(0, 5))
def test_misfits_are_those_that_decoding_finds(
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    earliest: int,
    latest: int,
    key: bool,
    at_most: int,
) -> None:
    batch = build_batch(records)
    found = look_through(
        batch[HEADER_BYTES:], parse_header(batch, 0), RecordBounds(earliest, latest, key), at_most=at_most
    )
    expected = [
        Misfit(number, time, record_key is not None)
        for number, (time, record_key, _, _) in enumerate(records)
        if (key and record_key is None) or not (time == -1 or earliest <= time <= latest)
    ]
    assert found.misfits == expected[:at_most]
    assert found.max_timestamp == max(-1, *(time for time, _, _, _ in records))


@given(RECORDS, st.data())
def test_a_body_is_sound_where_it_can_be_decoded(
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    data: st.DataObject,
) -> None:
    batch = build_batch(records)
    header, body = parse_header(batch, 0), bytearray(batch[HEADER_BYTES:])
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(body[: data.draw(st.integers(0, len(body)))]) if data.draw(st.booleans()) else bytes(body)
    assert reason(lambda: look_through(cut, header, ANY, at_most=1)) == reason(
        lambda: decode_body(cut, header)
    )


@given(RECORDS, st.booleans(), st.data())
def test_times_are_those_of_the_decoded_records(
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    is_append_time: bool,
    data: st.DataObject,
) -> None:
    batch = bytearray(build_batch(records, base_offset=7))
    batch[22] |= 8 * is_append_time
    header, body = parse_header(batch, 0), batch[HEADER_BYTES:]
    whole = [(record.offset, record.timestamp) for record in decode_body(bytes(body), header)]
    assert list(record_times(bytes(body), header)) == whole
    cut = bytes(body[: data.draw(st.integers(0, len(body) - 1))])
    assert reason(lambda: list(record_times(cut, header))) is not None
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    torn = bytes(body)
    if reason(lambda: list(record_times(torn, header))) is not None:
        assert reason(lambda: decode_body(torn, header)) is not None, "what can be decoded has its times"


def test_headers_are_looked_through_without_a_copy_of_them() -> None:
    batch = build_batch([(5, b"k", None, [("", b"")] * 300_000)])
    header, body = parse_header(batch, 0), batch[HEADER_BYTES:]
    tracemalloc.start()
    try:
        look_through(body, header, ANY, at_most=1)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 10_000


def reason(call: Callable[[], object]) -> str | None:
    """Why the call refuses the body."""
    try:
        call()
    except MalformedRecordError as error:
        return str(error)
    return None
