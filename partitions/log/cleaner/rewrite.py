"""A batch written anew with fewer records, or with none.

Guarantees: base and last offset, leader epoch, producer, sequence, codec and timestamp type are the
old batch's, so that offsets keep their meaning and a producer's state survives; only records are
missing. A batch without records is a bare header. With a delete horizon (KIP-534) the base timestamp
becomes the horizon and attribute bit 6 says so; the records' timestamps stay what they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from crc32c import crc32c

from partitions.log.cleaner.raw_records import RawRecord, encode_varint
from partitions.records.compression import compress
from partitions.records.header import (
    CODEC_MASK,
    CRC_POSITION,
    CRC_START,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
)

_ATTRIBUTES: Final = b"\x00"
"""A record's attributes: a byte of which no bit is used."""


def empty_batch(header: BatchHeader) -> bytes:
    """The batch without its records: uncompressed, no delete horizon, the largest timestamp as it was."""
    return _assemble(
        header._replace(
            attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT),
            base_timestamp=NO_TIMESTAMP,
            record_count=0,
        ),
        b"",
    )


def batch_with(
    header: BatchHeader, body: bytes, kept: Sequence[RawRecord], *, new_horizon_ms: int | None
) -> bytes:
    """The batch with these of its records, at least one; `body` is decompressed.

    `new_horizon_ms` gives the batch a delete horizon; with None it keeps the one that it has.
    """
    max_timestamp = header.max_timestamp
    if not header.uses_log_append_time:
        max_timestamp = header.base_timestamp + max(record.timestamp_delta for record in kept)
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if new_horizon_ms is None:
        records = b"".join([body[record.start : record.end] for record in kept])
    else:
        shift = base_timestamp - new_horizon_ms
        records = b"".join([_shifted(body, record, shift) for record in kept])
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = new_horizon_ms
    if header.codec:
        records = compress(header.codec, records)
    return _assemble(
        header._replace(
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            record_count=len(kept),
        ),
        records,
    )


def _shifted(body: bytes, record: RawRecord, shift_ms: int) -> bytes:
    """The record with a timestamp delta that is larger by `shift_ms`."""
    timestamp = encode_varint(record.timestamp_delta + shift_ms)
    content = b"".join((_ATTRIBUTES, timestamp, body[record.fields_start : record.end]))
    return encode_varint(len(content)) + content


def _assemble(header: BatchHeader, records: bytes) -> bytes:
    """Header and records with the right length and checksum."""
    batch = bytearray(HEADER_BYTES)
    length = HEADER_BYTES - LOG_OVERHEAD_BYTES + len(records)
    HEADER.pack_into(batch, 0, *header._replace(batch_length=length, crc=0))
    checksum = crc32c(records, crc32c(batch[CRC_START:]))
    batch[CRC_POSITION:CRC_START] = checksum.to_bytes(4, "big")
    return bytes(batch) + records
