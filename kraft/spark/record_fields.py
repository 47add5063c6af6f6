"""The fields of many records at once: numpy arrays of offsets, times and byte positions.

Guarantees: either every array tells the truth about the bytes - lengths add up, nothing reaches
outside its record, offsets ascend and stay inside their batch - or MalformedRecordsError. Follows
KIP-98's record layout: length, attributes, timestamp delta, offset delta, key length, key, value
length, value, number of headers, headers; all numbers zigzag varints. Called by `decode.py`.
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
_TWO_BYTES = 1 << 14


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
    def count(self) -> int:
        return len(self.offsets)

    def clip(self, first: int, end: int) -> RecordFields:
        """Only the records with offsets from `first` on and below `end`."""
        low, high = (int(index) for index in np.searchsorted(self.offsets, (first, end)))
        if low == 0 and high == self.count:
            return self
        return RecordFields._make(array[low:high] for array in self)


def read_fields(buffer: bytes, spans: list[BatchSpan]) -> RecordFields:
    """The fields of all records in `spans`, which are in the order of offsets.

    Raises MalformedRecordsError. Takes time and memory in proportion to the bytes that are there.
    """
    data = np.frombuffer(buffer, np.uint8)
    heads: list[int] = []
    for span in spans:
        _follow_chain(buffer, span, heads)
    try:
        return _read(data, np.array(heads, np.int64), spans)
    except IndexError as error:
        raise MalformedRecordsError("a record reaches beyond the end of its batch") from error


def _follow_chain(buffer: bytes, span: BatchSpan, heads: list[int]) -> None:
    """Appends where each record's length stands. The only loop over records in Python."""
    header, at, end = span
    count = header.record_count
    if count * _MIN_RECORD_BYTES > end - at:
        raise MalformedRecordsError(f"{count} records cannot lie in {end - at} bytes")
    append = heads.append
    try:
        for _ in range(count):
            append(at)
            raw = buffer[at]
            if raw < 128:
                at += 1 + (raw >> 1)
                continue
            raw += (buffer[at + 1] - 1) << 7
            at += 2
            if raw >= _TWO_BYTES:
                raw -= _TWO_BYTES
                shift = 14
                while True:
                    byte = buffer[at]
                    at += 1
                    raw |= (byte & 127) << shift
                    if byte < 128:
                        break
                    shift += 7
                    if shift > _MAX_VARINT_SHIFT:
                        raise MalformedRecordsError("a record's length has more than ten bytes")
            at += raw >> 1
    except IndexError as error:
        raise MalformedRecordsError("a record is cut off") from error
    if at != end:
        raise MalformedRecordsError(
            f"the records of the batch at offset {header.base_offset} end {at - end:+} bytes from its end"
        )


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
    bases = [h.max_timestamp if by_broker else h.base_timestamp for h, by_broker in zip(headers, append_time, strict=True)]
    types = spread([int(by_broker) for by_broker in append_time], np.int32)
    if any(append_time):
        timestamp_deltas = np.where(types == 1, 0, timestamp_deltas)
    limit = MAX_TIMESTAMP_MS
    timestamps = spread(bases) + timestamp_deltas
    if (
        max(abs(base) for base in bases) > limit
        or (np.abs(timestamp_deltas) > 2 * limit).any()
        or (np.abs(timestamps) > limit).any()
    ):
        raise MalformedRecordsError(
            f"a record's timestamp is beyond {limit} ms, more than a timestamp column can hold"
        )
    return offsets, timestamps, types
