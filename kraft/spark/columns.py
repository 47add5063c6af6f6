"""The columns of Spark's own Kafka source, as Arrow arrays from the positions of records' fields.

A batch's schema is exactly the one that Spark derives from `source.py`'s (names, order, types, nullability; plain
binary, timestamps in UTC): Spark hands the buffers to the JVM as they are and would misread others. `decode.py` calls
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kraft.spark.record_fields import Int64s, MalformedRecordsError, RecordFields

HEADERS = "headers"
HEADER_STRUCT = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS_TYPE = pa.list_(pa.field("element", HEADER_STRUCT))
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": _TIMESTAMP,
    "timestampType": pa.int32(),
    HEADERS: HEADERS_TYPE,
}
COLUMN_NAMES = tuple(_TYPES)

_MICROSECONDS = 1000
_MAX_VARINT_BITS = 70
_MIN_HEADER_BYTES = 2


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The fields of these columns, in this order; all nullable, as Spark's source has them."""
    return pa.schema([pa.field(name, _TYPES[name]) for name in columns])


class ColumnBuilder:
    """Builds the rows of one partition: only the columns that are asked for."""

    def __init__(self, topic: str, partition: int, columns: Sequence[str]) -> None:
        self._topic = topic.encode()
        self._partition = partition
        self.schema = arrow_schema(columns)

    def build(self, buffer: bytes, fields: RecordFields) -> pa.RecordBatch:
        """One row a record; `fields` holds positions in `buffer`. Raises MalformedRecordsError."""
        arrays = [self._column(name, buffer, fields) for name in self.schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, name: str, buffer: bytes, fields: RecordFields) -> pa.Array:
        match name:
            case "key":
                return _binary(buffer, fields.key_starts, fields.key_ends)
            case "value":
                return _binary(buffer, fields.value_starts, fields.value_ends)
            case "topic":
                return self._topics(fields.row_count)
            case "partition":
                return pa.array(np.full(fields.row_count, self._partition, np.int32))
            case "offset":
                return pa.array(fields.offsets)
            case "timestamp":
                return pa.array(fields.timestamps_ms * _MICROSECONDS).view(_TIMESTAMP)
            case "timestampType":
                return pa.array(fields.timestamp_types)
            case _:
                return _headers(buffer, fields)

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
