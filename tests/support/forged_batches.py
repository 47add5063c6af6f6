"""Record batches that lie, with a right checksum: what a broken or hostile producer could send."""

from __future__ import annotations

from crc32c import crc32c

from partitions.records.header import (
    CRC_POSITION,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
)


def with_fields(batch: bytes, **fields: int) -> bytes:
    """The batch with other header fields (`BatchHeader`'s names) and the checksum for them."""
    return _sealed(batch[:HEADER_BYTES], batch[HEADER_BYTES:], fields)


def with_body(batch: bytes, body: bytes) -> bytes:
    """The batch's header before another body, with the length and the checksum for it."""
    length = HEADER_BYTES - LOG_OVERHEAD_BYTES + len(body)
    return _sealed(batch[:HEADER_BYTES], body, {"batch_length": length})


def _sealed(header: bytes, body: bytes, fields: dict[str, int]) -> bytes:
    packed = bytearray(HEADER.pack(*BatchHeader._make(HEADER.unpack(header))._replace(**fields)))
    packed[CRC_POSITION:CRC_START] = crc32c(body, crc32c(packed[CRC_START:])).to_bytes(4, "big")
    return bytes(packed) + body
