"""The columns of Spark's own Kafka source, as Arrow arrays from the positions of records' fields.

A batch's schema is exactly the one that Spark derives from `source.py`'s (names, order, types, nullability; plain
binary, timestamps in UTC): Spark hands the buffers to the JVM as they are and would misread others. `decode.py` calls
it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from kraft.spark.record_fields import Int64s, MalformedRecordsError, RecordFields

HEADER_STRUCT = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS_TYPE = pa.list_(pa.field("element", HEADER_STRUCT))
_FIELDS = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("timestampType", pa.int32()),
]
SCHEMA = pa.schema(_FIELDS)
SCHEMA_WITH_HEADERS = pa.schema([*_FIELDS, pa.field("headers", HEADERS_TYPE)])

_MICROSECONDS = 1000
_MAX_VARINT_BITS = 70
_MIN_HEADER_BYTES = 2


class ColumnBuilder:
    """Builds the rows of one partition."""

    def __init__(self, topic: str, partition: int, *, include_headers: bool) -> None:
        self._topic = topic.encode()
        self._partition = partition
        self._include_headers = include_headers
        self.schema = SCHEMA_WITH_HEADERS if include_headers else SCHEMA

    def build(self, buffer: bytes, fields: RecordFields) -> pa.RecordBatch:
        """One row a record; `fields` holds positions in `buffer`. Raises MalformedRecordsError."""
        count = fields.row_count
        columns = [
            _binary(buffer, fields.key_starts, fields.key_ends),
            _binary(buffer, fields.value_starts, fields.value_ends),
            self._topics(count),
            pa.array(np.full(count, self._partition, np.int32)),
            pa.array(fields.offsets),
            pa.array(fields.timestamps_ms * _MICROSECONDS).view(pa.timestamp("us", tz="UTC")),
            pa.array(fields.timestamp_types),
        ]
        if self._include_headers:
            columns.append(_headers(buffer, fields))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _topics(self, count: int) -> pa.Array:
        length = len(self._topic)
        ends = np.arange(0, (count + 1) * length, length, dtype=np.int32)
        return pa.Array.from_buffers(
            pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(self._topic * count)]
        )


def _binary(buffer: bytes, starts: Int64s, ends: Int64s) -> pa.Array:
    """A binary column of the bytes from each start to its end; null where the end is the lower one.

    The buffer is looked at as an array of binaries in which every second element is wanted and the
    others are what lies between; Arrow then takes the wanted ones.
    """
    count = len(starts)
    null = ends < starts
    any_null = bool(null.any())
    if any_null and null.all():
        return pa.nulls(count, pa.binary())
    edges = np.empty(2 * count + 1, np.int32)
    edges[0:-1:2] = starts
    edges[1::2] = np.maximum(starts, ends) if any_null else ends
    edges[-1] = edges[-2]
    everything = pa.Array.from_buffers(
        pa.binary(), 2 * count, [None, pa.py_buffer(edges), pa.py_buffer(buffer)]
    )
    wanted = pa.array(np.arange(0, 2 * count, 2, dtype=np.int64), mask=null if any_null else None)
    return everything.take(wanted)


def _headers(buffer: bytes, fields: RecordFields) -> pa.Array:
    """Null for a record without headers, as Spark's Kafka source has it."""
    counts = np.frombuffer(buffer, np.uint8)[fields.header_starts]
    if not counts.any():
        return pa.nulls(fields.row_count, HEADERS_TYPE)
    keys: list[str] = []
    values: list[bytes | None] = []
    ends: list[int | None] = [0]
    nulls: list[bool] = []
    for at, end in zip(fields.header_starts.tolist(), fields.record_ends.tolist(), strict=True):
        if buffer[at]:
            _read_headers(buffer, at, end, keys, values)
        nulls.append(not buffer[at])
        ends.append(len(keys))
    structs = pa.StructArray.from_arrays(
        [pa.array(keys, pa.string()), pa.array(values, pa.binary())],
        fields=[HEADER_STRUCT.field("key"), HEADER_STRUCT.field("value")],
    )
    arrays: Any = pa.ListArray
    return arrays.from_arrays(
        pa.array(ends, pa.int32()), structs, type=HEADERS_TYPE, mask=pa.array(nulls, pa.bool_())
    )


def _read_headers(buffer: bytes, at: int, end: int, keys: list[str], values: list[bytes | None]) -> None:
    """Appends one record's headers; they fill the bytes from `at` to `end`."""
    count, at = _varint(buffer, at, end)
    if not 0 <= count <= (end - at) // _MIN_HEADER_BYTES:
        raise MalformedRecordsError(f"a record claims {count} headers in {end - at} bytes")
    for _ in range(count):
        length, at = _varint(buffer, at, end)
        if not 0 <= length <= end - at:
            raise MalformedRecordsError("a header's key is longer than its record")
        # As Java does: a key that is not UTF-8 must not make its whole batch unreadable.
        keys.append(buffer[at : at + length].decode("utf-8", "replace"))
        length, at = _varint(buffer, at + length, end)
        if not -1 <= length <= end - at:
            raise MalformedRecordsError("a header's value is longer than its record")
        values.append(None if length < 0 else buffer[at : at + length])
        at += max(length, 0)
    if at != end:
        raise MalformedRecordsError("a record's headers do not end where the record does")


def _varint(buffer: bytes, at: int, end: int) -> tuple[int, int]:
    """A zigzag varint and the position behind it, which is at most `end`."""
    raw = shift = 0
    while at < end and shift < _MAX_VARINT_BITS:
        byte = buffer[at]
        at += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
    raise MalformedRecordsError("a number in a record's headers is cut off or too long")
