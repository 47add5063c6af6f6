"""The fields of many records at once: numpy arrays of offsets, times and byte positions.

Either every array tells the truth about the bytes (lengths add up, nothing reaches outside its record, offsets ascend
and stay inside their batch), or MalformedRecordsError is raised. It follows KIP-98's record layout: length, attributes,
timestamp delta, offset delta, key length, key, value length, value, number of headers, headers; all numbers zigzag
varints. `decode.py` calls it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from partitions.records.header import BatchHeader

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

MAX_TIMESTAMP_MS = (2**63 - 1) // 1000
"""Spark's timestamps are 64 bits of microseconds."""
_MIN_RECORD_BYTES = 7
_MAX_VARINT_SHIFT = 63
_MIN_RUN = 32
"""Fewer records of one size are walked faster than found."""
_MAX_RUN = 2048
"""How far a run is looked for: bounds what is spent on a record when sizes alternate."""
_STRETCH = 512
"""How many records are walked before a run is tried again."""


class MalformedRecordsError(ValueError):
    """The bytes are not the records that the batch header promises."""


class BatchSpan(NamedTuple):
    """Where a batch's (decompressed) records lie in a buffer: bytes from `start` up to `end`."""

    header: BatchHeader
    start: int
    end: int


class RecordFields(NamedTuple):
    """One entry a record in each array. Positions are bytes in the buffer that was read.

    `key_ends` < `key_starts` means a null key, likewise for values.
    """

    offsets: Int64s
    timestamps_ms: Int64s
    timestamp_types: npt.NDArray[np.int32]
    key_starts: Int64s
    key_ends: Int64s
    value_starts: Int64s
    value_ends: Int64s
    header_starts: Int64s
    """Where the number of headers stands."""
    record_ends: Int64s

    @property
    def row_count(self) -> int:
        return len(self.offsets)

    def clip(self, first: int, end: int) -> RecordFields:
        """Only the records with offsets from `first` on and below `end`."""
        low, high = (int(index) for index in np.searchsorted(self.offsets, (first, end)))
        if low == 0 and high == self.row_count:
            return self
        return RecordFields._make(array[low:high] for array in self)


def read_fields(buffer: bytes, spans: list[BatchSpan]) -> RecordFields:
    """The fields of all records in `spans`, which are in the order of offsets.

    Raises MalformedRecordsError. Takes time and memory in proportion to the bytes that are there.
    """
    data = np.frombuffer(buffer, np.uint8)
    heads: list[Int64s] = []
    for span in spans:
        _follow_chain(buffer, data, span, heads)
    try:
        return _read(data, np.concatenate(heads), spans)
    except IndexError as error:
        raise MalformedRecordsError("a record reaches beyond the end of its batch") from error


def _follow_chain(buffer: bytes, data: Bytes, span: BatchSpan, heads: list[Int64s]) -> None:
    """Appends arrays of where each record's length stands.

    Records of one size, as metrics and fixed formats have them, are found by runs: where the same
    length stands at every multiple of it, the chain is proved without being walked. The others are
    walked, a stretch at a time.
    """
    header, at, end = span
    left = header.record_count
    if left * _MIN_RECORD_BYTES > end - at:
        raise MalformedRecordsError(f"{left} records cannot lie in {end - at} bytes")
    try:
        while left:
            run = _run(buffer, data, at, end, left) if left >= _MIN_RUN else None
            if run is None:
                walked: list[int] = []
                at = _walk(buffer, at, min(left, _STRETCH), walked)
                run = np.array(walked, np.int64)
            else:
                at = int(run[-1] + run[1] - run[0])
            heads.append(run)
            left -= len(run)
    except IndexError as error:
        raise MalformedRecordsError("a record is cut off") from error
    if at != end:
        raise MalformedRecordsError(
            f"the records of the batch at offset {header.base_offset} end {at - end:+} bytes from its end"
        )


def _run(buffer: bytes, data: Bytes, at: int, end: int, left: int) -> Int64s | None:
    """The heads of the records from `at` on that have the length of the first; None if they are few."""
    first, second = buffer[at], buffer[at + 1]
    if first < 128:
        size, width = 1 + (first >> 1), 1
    elif second < 128:
        size, width = 2 + ((first & 127 | second << 7) >> 1), 2
    else:
        return None
    possible = min(left, (end - at) // size, _MAX_RUN)
    if possible < _MIN_RUN:
        return None
    same = data[at : at + possible * size : size] == first
    if width == 2:
        same &= data[at + 1 : at + possible * size : size] == second
    count = int(same.argmin()) or possible  # the first record is the same as itself
    if count < _MIN_RUN:
        return None
    return np.arange(at, at + count * size, size, dtype=np.int64)


def _walk(buffer: bytes, at: int, count: int, heads: list[int]) -> int:
    """Appends the heads of the next `count` records, returns where they end.

    The only loop over records in Python. IndexError where the bytes end early.
    """
    append = heads.append
    for _ in range(count):
        append(at)
        raw = buffer[at]
        if raw < 128:
            at += 1 + (raw >> 1)
            continue
        second = buffer[at + 1]
        if second < 128:
            at += 2 + ((raw & 127 | second << 7) >> 1)
        else:
            at = _after_long_length(buffer, at)
    return at


def _after_long_length(buffer: bytes, at: int) -> int:
    """Where a record ends whose length has three bytes or more."""
    raw = 0
    for shift in range(0, _MAX_VARINT_SHIFT + 1, 7):
        byte = buffer[at]
        at += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            return at + (raw >> 1)
    raise MalformedRecordsError("a record's length has more than ten bytes")


def _read(data: Bytes, heads: Int64s, spans: list[BatchSpan]) -> RecordFields:
    lengths, at = _varints(data, heads)
    record_ends = at + lengths
    timestamp_deltas, at = _varints(data, at + 1)  # one byte of attributes, unused
    offset_deltas, at = _varints(data, at)
    key_lengths, key_starts = _varints(data, at)
    _check_lengths(key_lengths, data)
    value_lengths, value_starts = _varints(data, key_starts + np.maximum(key_lengths, 0))
    _check_lengths(value_lengths, data)
    header_starts = value_starts + np.maximum(value_lengths, 0)
    if (header_starts >= record_ends).any():
        raise MalformedRecordsError("a record's key and value are longer than the record")
    offsets, timestamps, types = _absolute(spans, offset_deltas, timestamp_deltas)
    return RecordFields(
        offsets,
        timestamps,
        types,
        key_starts,
        key_starts + key_lengths,
        value_starts,
        value_starts + value_lengths,
        header_starts,
        record_ends,
    )


def _check_lengths(lengths: Int64s, data: Bytes) -> None:
    """-1 is null; before a length moves a position, it must be one that cannot overflow it."""
    if (lengths < -1).any() or (lengths > len(data)).any():
        raise MalformedRecordsError("a key or value has an impossible length")


def _varints(data: Bytes, at: Int64s) -> tuple[Int64s, Int64s]:
    """The zigzag varint at each position, and the positions behind them."""
    first = data[at]
    raw = first.astype(np.uint64)
    at = at + 1
    longer = np.flatnonzero(first > 127)
    shift = 7
    if longer.size:
        raw &= np.uint64(127)
    while longer.size:
        if shift > _MAX_VARINT_SHIFT:
            raise MalformedRecordsError("a number has more than ten bytes")
        everywhere = longer.size == at.size
        byte = data[at] if everywhere else data[at[longer]]
        low = (byte & 127).astype(np.uint64) << np.uint64(shift)
        if everywhere:
            raw |= low
            at += 1
        else:
            raw[longer] |= low
            at[longer] += 1
        longer = longer[byte > 127]
        shift += 7
    signs = (raw & np.uint64(1)).astype(np.int64)
    return (raw >> np.uint64(1)).astype(np.int64) ^ -signs, at


def _absolute(
    spans: list[BatchSpan], offset_deltas: Int64s, timestamp_deltas: Int64s
) -> tuple[Int64s, Int64s, npt.NDArray[np.int32]]:
    """Offsets, timestamps (ms) and timestamp types from the deltas and the batches' headers."""
    headers = [span.header for span in spans]
    counts = np.array([header.record_count for header in headers], np.int64)

    def spread(values: list[int], kind: Any = np.int64) -> Any:
        """One value a batch to one value a record."""
        return np.repeat(np.array(values, kind), counts)

    if (offset_deltas < 0).any() or (offset_deltas > spread([h.last_offset_delta for h in headers])).any():
        raise MalformedRecordsError("a record's offset lies outside its batch")
    offsets = spread([header.base_offset for header in headers]) + offset_deltas
    if (offsets[1:] <= offsets[:-1]).any():
        raise MalformedRecordsError("the records' offsets do not ascend")
    append_time = [header.uses_log_append_time for header in headers]
    bases = [h.max_timestamp if h.uses_log_append_time else h.base_timestamp for h in headers]
    types = spread([int(by_broker) for by_broker in append_time], np.int32)
    if any(append_time):
        timestamp_deltas = np.where(types == 1, 0, timestamp_deltas)
    limit = MAX_TIMESTAMP_MS
    timestamps = spread(bases) + timestamp_deltas
    if (  # with base and delta in bounds, their sum has not overflowed
        max(abs(base) for base in bases) > limit
        or _any_beyond(timestamp_deltas, 2 * limit)
        or _any_beyond(timestamps, limit)
    ):
        raise MalformedRecordsError(
            f"a record's timestamp is beyond {limit} ms, more than a timestamp column can hold"
        )
    return offsets, timestamps, types


def _any_beyond(numbers: Int64s, limit: int) -> bool:
    return bool((numbers > limit).any() or (numbers < -limit).any())
