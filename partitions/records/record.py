"""Single records inside a batch v2, in KIP-98's varint encoding, read and written.

Guarantees: decoding takes time and memory in proportion to the real bytes, never to a claimed length. It yields
exactly the promised number of records, filling the bytes to the end, or raises MalformedRecordError. Called by
`batch.decode_records` and `builder.py`.

A record: length, then attributes (one byte, unused), timestamp delta, offset delta, key length and
key, value length and value, number of headers, and per header the key's length and UTF-8 bytes and
the value's length and bytes. All numbers are zigzag varints; a length of -1 is null.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from partitions.records.header import BatchHeader

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]

MIN_RECORD_BYTES = 7
"""A record without key, value and headers: seven one-byte fields."""
_MIN_HEADER_BYTES = 2
_MIN_INT64, _MAX_INT64 = -(2**63), 2**63 - 1
_MAX_VARINT_BITS = 70
_THREE_BYTES = 1 << 14
"""The bound by which varints of up to two bytes are read in place: a first byte above 127 plus (second - 1) << 7 is
the number if the second byte is the last, and at least this bound if it is not."""
_NULL = 1
"""The zigzag form of -1."""
_ENCODED_NULL = b"\x01"
_ENCODED_ZERO = b"\x00"
_ONE_BYTE_VARINTS = tuple(bytes([number << 1 ^ number >> 63]) for number in range(-64, 64))
_NO_HEADERS: tuple[tuple[str, bytes | None], ...] = ()


class MalformedRecordError(ValueError):
    """The bytes behind a batch's header are not the records that the header promises."""


class RecordFieldError(Exception):
    """The fault of a record; `decode_body` adds which record it is."""


class Record(NamedTuple):
    """One record; `offset` is absolute, `timestamp` in ms since the Unix epoch (-1: none)."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def decode_body(body: bytes, header: BatchHeader) -> list[Record]:
    """All records of a batch, from its decompressed bytes. Raises MalformedRecordError.

    Lengths inside a record need no check of their own: positions only move forward and a slice ends with the bytes,
    so in a record that ends at its own length all of them were right.
    """
    if header.record_count * MIN_RECORD_BYTES > len(body):
        raise MalformedRecordError(f"{header.record_count} records cannot lie in {len(body)} bytes")
    records: list[Record] = []
    try:
        position = _decode_into(records, body, header)
    except IndexError as error:
        raise MalformedRecordError(f"record {len(records)} is cut off") from error
    except RecordFieldError as error:
        raise MalformedRecordError(f"record {len(records)} {error}") from error
    if position != len(body):
        raise MalformedRecordError(f"{len(body) - position} bytes follow the last record")
    return records


def _decode_into(records: list[Record], body: bytes, header: BatchHeader) -> int:
    """The hot loop; returns where it ended. IndexError if the bytes end early."""
    base_offset, last_delta, base_time = header.base_offset, header.last_offset_delta, header.base_timestamp
    append_time = header.max_timestamp if header.uses_log_append_time else None
    new_tuple = tuple.__new__  # what Record(...) does, less a Python frame
    at, delta = 0, -1
    for _ in range(header.record_count):
        raw, at = body[at], at + 1
        if raw > 127:
            raw, at = raw + (body[at] - 1 << 7), at + 1
            if raw >= _THREE_BYTES:
                raw, at = long_varint(raw, body, at)
        negative, end = raw & 1, at + (raw >> 1)
        raw, at = body[at + 1], at + 2  # the byte between is the record's attributes
        if raw > 127:
            raw, at = raw + (body[at] - 1 << 7), at + 1
            if raw >= _THREE_BYTES:
                raw, at = long_varint(raw, body, at)
        time = base_time + ((raw >> 1) ^ -(raw & 1))
        raw, at = body[at], at + 1
        if raw > 127:
            raw, at = raw + (body[at] - 1 << 7), at + 1
            if raw >= _THREE_BYTES:
                raw, at = long_varint(raw, body, at)
        previous, delta = delta, (raw >> 1) ^ -(raw & 1)
        if not previous < delta <= last_delta or not _MIN_INT64 <= time <= _MAX_INT64:
            raise RecordFieldError("has an impossible offset or timestamp")
        key = value = None
        raw, at = body[at], at + 1
        if raw > 127:
            raw, at = raw + (body[at] - 1 << 7), at + 1
            if raw >= _THREE_BYTES:
                raw, at = long_varint(raw, body, at)
        if raw != _NULL:
            key, at = body[at : at + (raw >> 1)], at + (raw >> 1)
            negative |= raw & 1
        raw, at = body[at], at + 1
        if raw > 127:
            raw, at = raw + (body[at] - 1 << 7), at + 1
            if raw >= _THREE_BYTES:
                raw, at = long_varint(raw, body, at)
        if raw != _NULL:
            value, at = body[at : at + (raw >> 1)], at + (raw >> 1)
            negative |= raw & 1
        headers, at = decode_headers(body, at) if body[at] else (_NO_HEADERS, at + 1)
        if at != end or negative:
            raise RecordFieldError("has lengths that contradict each other")
        time = time if append_time is None else append_time
        records.append(new_tuple(Record, (base_offset + delta, time, key, value, headers)))
    return at


def decode_headers(body: bytes, at: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    """The headers that begin with their number at `at`, and the position behind them."""
    count, at = _varint(body, at)
    if not 0 <= count <= (len(body) - at) // _MIN_HEADER_BYTES:
        raise RecordFieldError(f"claims {count} headers in {len(body) - at} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        length, at = _varint(body, at)
        if not 0 <= length <= len(body) - at:
            raise RecordFieldError(f"has a header whose key claims {length} of {len(body) - at} bytes")
        # As Java does: a key that is not UTF-8 must not make its whole batch unreadable.
        key, at = body[at : at + length].decode("utf-8", "replace"), at + length
        length, at = _varint(body, at)
        if not -1 <= length <= len(body) - at:
            raise RecordFieldError(f"has a header whose value claims {length} of {len(body) - at} bytes")
        if length < 0:
            headers.append((key, None))
        else:
            headers.append((key, body[at : at + length]))
            at += length
    return tuple(headers), at


def skip_headers(body: bytes, at: int) -> int:
    """The position behind the headers that begin with their number at `at`; refuses what `decode_headers` refuses.

    Builds nothing: a header of two bytes, decoded, takes more than thirty times as many.
    """
    count, at = _varint(body, at)
    size = len(body)
    if not 0 <= count <= (size - at) // _MIN_HEADER_BYTES:
        raise RecordFieldError(f"claims {count} headers in {size - at} bytes")
    for _ in range(count):
        raw, at = body[at], at + 1
        if raw > 127:
            raw, at = raw + (body[at] - 1 << 7), at + 1
            if raw >= _THREE_BYTES:
                raw, at = long_varint(raw, body, at)
        if raw & 1 or raw >> 1 > size - at:
            raise RecordFieldError(
                f"has a header whose key claims {(raw >> 1) ^ -(raw & 1)} of {size - at} bytes"
            )
        at += raw >> 1
        raw, at = body[at], at + 1
        if raw > 127:
            raw, at = raw + (body[at] - 1 << 7), at + 1
            if raw >= _THREE_BYTES:
                raw, at = long_varint(raw, body, at)
        if raw & 1:
            if raw != _NULL:
                raise RecordFieldError(
                    f"has a header whose value claims {(raw >> 1) ^ -(raw & 1)} of {size - at} bytes"
                )
        elif raw >> 1 > size - at:
            raise RecordFieldError(f"has a header whose value claims {raw >> 1} of {size - at} bytes")
        else:
            at += raw >> 1
    return at


def header_count(body: bytes, header: BatchHeader) -> int:
    """How many headers the records of a batch claim to have, from its decompressed bytes: what decoding would build.

    Builds nothing, and looks at no header. Raises MalformedRecordError at bytes that cannot be the next record.
    """
    at = total = 0
    for number in range(header.record_count):
        try:
            length, start = _varint(body, at)
            if length < 0:
                raise MalformedRecordError(f"record {number} has an impossible length")
            _, at = _varint(body, start + 1)  # the byte between is the record's attributes
            _, at = _varint(body, at)
            for _ in ("key", "value"):
                size, at = _varint(body, at)
                at += max(size, 0)
            count, _ = _varint(body, at)
        except IndexError as error:
            raise MalformedRecordError(f"record {number} is cut off") from error
        total += max(count, 0)
        at = start + length
    return total


def record_times(body: bytes, header: BatchHeader) -> Iterator[tuple[int, int]]:
    """Offset and timestamp (ms) of each record in turn, from the batch's decompressed bytes.

    Looks at nothing else and builds nothing, so that a lookup may stop at the record that it wants. Raises
    MalformedRecordError at bytes that cannot be the next record.
    """
    base_offset, last_delta, base_time = header.base_offset, header.last_offset_delta, header.base_timestamp
    append_time = header.max_timestamp if header.uses_log_append_time else None
    size, at, delta = len(body), 0, -1
    for number in range(header.record_count):
        try:
            length, start = _varint(body, at)
            time_delta, at = _varint(body, start + 1)  # the byte between is the record's attributes
            previous, (delta, at) = delta, _varint(body, at)
        except IndexError as error:
            raise MalformedRecordError(f"record {number} is cut off") from error
        except RecordFieldError as error:
            raise MalformedRecordError(f"record {number} {error}") from error
        end, time = start + length, base_time + time_delta
        if not at < end <= size or not previous < delta <= last_delta or not _MIN_INT64 <= time <= _MAX_INT64:
            raise MalformedRecordError(f"record {number} has an impossible length, offset or timestamp")
        at = end
        yield base_offset + delta, time if append_time is None else append_time


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint and the position behind it."""
    raw, at = body[at], at + 1
    if raw > 127:
        raw, at = raw + (body[at] - 1 << 7), at + 1
        if raw >= _THREE_BYTES:
            raw, at = long_varint(raw, body, at)
    return (raw >> 1) ^ -(raw & 1), at


def long_varint(raw: int, body: bytes, at: int) -> tuple[int, int]:
    """A varint of three bytes or more, before zigzag decoding; `raw` sums up its first two."""
    raw -= _THREE_BYTES
    for shift in range(14, _MAX_VARINT_BITS, 7):
        byte = body[at]
        at += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            return raw, at
    raise RecordFieldError("has a number of more than ten bytes")


def encode_record(
    timestamp_delta: int, offset_delta: int, key: bytes | None, value: bytes | None, headers: Headers
) -> bytes:
    """One record as it lies in a batch. Raises ValueError if a delta needs more than 64 bits."""
    parts = [b"\x00", encode_varint(timestamp_delta), encode_varint(offset_delta)]
    if key is None:
        parts.append(_ENCODED_NULL)
    else:
        parts += (encode_varint(len(key)), key)
    _append_nullable(parts, value)
    parts.append(encode_varint(len(headers)) if headers else _ENCODED_ZERO)
    for name, content in headers:
        _append_nullable(parts, name.encode())
        _append_nullable(parts, content)
    encoded = b"".join(parts)
    return encode_varint(len(encoded)) + encoded


def _append_nullable(parts: list[bytes], data: bytes | None) -> None:
    if data is None:
        parts.append(_ENCODED_NULL)
    else:
        parts += (encode_varint(len(data)), data)


def encode_varint(number: int) -> bytes:
    """A zigzag varint. Raises ValueError for a number of more than 64 bits."""
    if -64 <= number < 64:
        return _ONE_BYTE_VARINTS[number + 64]
    if not _MIN_INT64 <= number <= _MAX_INT64:
        raise ValueError(f"{number} does not fit into 64 bits")
    raw = number << 1 ^ number >> 63
    if raw < 1 << 14:
        return bytes((raw & 127 | 128, raw >> 7))
    encoded = bytearray()
    while raw > 127:
        encoded.append(raw & 127 | 128)
        raw >>= 7
    encoded.append(raw)
    return bytes(encoded)
