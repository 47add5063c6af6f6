"""Records of a batch as byte ranges: what the cleaner asks of a record, without building one.

Guarantees: a record that is kept is copied byte for byte, headers and all; bytes that cannot be the
promised records raise MalformedRecordError, never anything else. Layout of a record: `records.record`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from partitions.records.record import MalformedRecordError

_MAX_VARINT_BITS: Final = 70


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
    at = 0
    for number in range(record_count):
        try:
            record = _record(body, at)
        except IndexError as error:
            raise MalformedRecordError(f"record {number} is cut off") from error
        if record.end > len(body):
            raise MalformedRecordError(f"record {number} is cut off")
        yield record
        at = record.end
    if at != len(body):
        raise MalformedRecordError(f"{len(body) - at} bytes follow the last record")


def _record(body: bytes, start: int) -> RawRecord:
    length, at = _varint(body, start)
    end = at + length
    timestamp_delta, fields_start = _varint(body, at + 1)  # behind the attributes, one byte
    offset_delta, at = _varint(body, fields_start)
    key_bytes, at = _varint(body, at)
    key = None
    if key_bytes >= 0:
        key, at = body[at : at + key_bytes], at + key_bytes
    value_bytes, at = _varint(body, at)
    if at + max(value_bytes, 0) > end or offset_delta < 0:
        raise MalformedRecordError("a record has lengths that contradict each other")
    return RawRecord(start, end, fields_start, timestamp_delta, offset_delta, key, value_bytes >= 0)


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint and the position behind it."""
    raw = body[at]
    at += 1
    if raw > 127:
        raw &= 127
        for shift in range(7, _MAX_VARINT_BITS, 7):
            byte = body[at]
            at += 1
            raw |= (byte & 127) << shift
            if byte < 128:
                break
        else:
            raise MalformedRecordError("a record has a number of more than ten bytes")
    return (raw >> 1) ^ -(raw & 1), at


def encode_varint(number: int) -> bytes:
    """A zigzag varint."""
    raw = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while raw > 127:
        encoded.append(raw & 127 | 128)
        raw >>= 7
    encoded.append(raw)
    return bytes(encoded)
