"""Records of a batch as byte ranges: what the cleaner asks of a record, without building one.

Guarantees: a record that is kept is copied byte for byte, headers and all; bytes that cannot be the
promised records raise MalformedRecordError, never anything else. One record at a time is held: six bytes
can be one, of which what is said here takes thirty times as many. Layout of a record: `records.record`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from partitions.records.record import MalformedRecordError, RecordFieldError, long_varint

_THREE_BYTES: Final = 1 << 14
"""As in `records.record`: varints of up to two bytes are read in place."""


class RawRecord(NamedTuple):
    """Where a record lies in the batch's decompressed bytes, and what it says."""

    start: int
    end: int
    fields_start: int
    """Where the offset delta begins, and with it all that does not depend on the base timestamp."""
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def raw_records(body: bytes, record_count: int) -> Iterator[RawRecord]:
    """The batch's records in order. Raises MalformedRecordError."""
    new_tuple = tuple.__new__  # what RawRecord(...) does, less a Python frame
    size, at = len(body), 0
    for number in range(record_count):
        start = at
        try:
            raw, at = body[at], at + 1
            if raw > 127:
                raw, at = raw + (body[at] - 1 << 7), at + 1
                if raw >= _THREE_BYTES:
                    raw, at = long_varint(raw, body, at)
            end = at + ((raw >> 1) ^ -(raw & 1))
            time, at = body[at + 1], at + 2  # the byte between is the record's attributes
            if time > 127:
                time, at = time + (body[at] - 1 << 7), at + 1
                if time >= _THREE_BYTES:
                    time, at = long_varint(time, body, at)
            fields_start = at
            delta, at = body[at], at + 1
            if delta > 127:
                delta, at = delta + (body[at] - 1 << 7), at + 1
                if delta >= _THREE_BYTES:
                    delta, at = long_varint(delta, body, at)
            raw, at = body[at], at + 1
            if raw > 127:
                raw, at = raw + (body[at] - 1 << 7), at + 1
                if raw >= _THREE_BYTES:
                    raw, at = long_varint(raw, body, at)
            key = None
            if not raw & 1:
                key, at = body[at : at + (raw >> 1)], at + (raw >> 1)
            raw, at = body[at], at + 1
            if raw > 127:
                raw, at = raw + (body[at] - 1 << 7), at + 1
                if raw >= _THREE_BYTES:
                    raw, at = long_varint(raw, body, at)
        except IndexError as error:
            raise MalformedRecordError(f"record {number} is cut off") from error
        except RecordFieldError as error:
            raise MalformedRecordError(f"record {number} {error}") from error
        has_value = not raw & 1
        if delta & 1 or at + (raw >> 1 if has_value else 0) > end:
            raise MalformedRecordError(f"record {number} has lengths that contradict each other")
        if end > size:
            raise MalformedRecordError(f"record {number} is cut off")
        time = (time >> 1) ^ -(time & 1)
        yield new_tuple(RawRecord, (start, end, fields_start, time, delta >> 1, key, has_value))
        at = end
    if at != size:
        raise MalformedRecordError(f"{size - at} bytes follow the last record")
