"""A batch written anew with fewer records, or with none.

Guarantees: base and last offset, leader epoch, producer, sequence, codec and timestamp type are the
old batch's, so that offsets keep their meaning and a producer's state survives; only records are
missing. A batch without records is a bare header. With a delete horizon (KIP-534) the base timestamp
becomes the horizon and attribute bit 6 says so; the records' timestamps stay what they were.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from partitions.log.cleaner.raw_records import RawRecord
from partitions.records.batch import assembled
from partitions.records.compression import compress
from partitions.records.header import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    NO_TIMESTAMP,
    BatchHeader,
)
from partitions.records.record import encode_varint

_ATTRIBUTES: Final = b"\x00"
"""A record's attributes: a byte of which no bit is used."""


def empty_batch(header: BatchHeader) -> bytes:
    """The batch without its records: uncompressed, no delete horizon, the largest timestamp as it was."""
    return assembled(
        header._replace(
            attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT),
            base_timestamp=NO_TIMESTAMP,
            record_count=0,
        ),
        b"",
    )


def batch_with(
    header: BatchHeader, body: bytes, kept: Iterable[RawRecord], *, new_horizon_ms: int | None
) -> bytes:
    """The batch with these of its records, at least one, in their order; `body` is decompressed.

    `new_horizon_ms` gives the batch a delete horizon; with None it keeps the one that it has.
    Takes the records one by one, and of each no more than its bytes.
    """
    records = bytearray()
    if new_horizon_ms is None:
        count, latest_delta = _copy(body, kept, records)
        attributes, base_timestamp = header.attributes, header.base_timestamp
    else:
        count, latest_delta = _copy_shifted(body, kept, records, header.base_timestamp - new_horizon_ms)
        attributes, base_timestamp = header.attributes | DELETE_HORIZON_BIT, new_horizon_ms
    max_timestamp = header.max_timestamp
    if not header.uses_log_append_time:
        max_timestamp = header.base_timestamp + latest_delta
    return assembled(
        header._replace(
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            record_count=count,
        ),
        compress(header.codec, records) if header.codec else records,
    )


def _copy(body: bytes, kept: Iterable[RawRecord], records: bytearray) -> tuple[int, int]:
    """Appends the records, neighbours at once; says how many there are, and the largest timestamp delta."""
    count = latest_delta = start = end = 0
    with memoryview(body) as view:
        for record in kept:
            if not count or record.timestamp_delta > latest_delta:
                latest_delta = record.timestamp_delta
            count += 1
            if record.start != end:
                records += view[start:end]
                start = record.start
            end = record.end
        records += view[start:end]
    return count, latest_delta


def _copy_shifted(
    body: bytes, kept: Iterable[RawRecord], records: bytearray, shift_ms: int
) -> tuple[int, int]:
    """As `_copy`, but what is appended has timestamp deltas that are larger by `shift_ms`."""
    count = latest_delta = 0
    with memoryview(body) as view:
        for record in kept:
            if not count or record.timestamp_delta > latest_delta:
                latest_delta = record.timestamp_delta
            count += 1
            timestamp = encode_varint(record.timestamp_delta + shift_ms)
            length = len(_ATTRIBUTES) + len(timestamp) + record.end - record.fields_start
            records += encode_varint(length) + _ATTRIBUTES + timestamp
            records += view[record.fields_start : record.end]
    return count, latest_delta
