"""Record batches v2 (KIP-98) in place in a buffer: iterate, check, stamp, open.

Guarantees: no byte behind a header is touched before its lengths were checked against the buffer. Any bad bytes
raise CorruptBatchError and nothing else. Iterating, checking and stamping cost per batch, copy nothing and never
look at single records: this is the hot path of produce, replication and recovery. `decode_records` opens a batch,
for callers that need records.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final

from crc32c import crc32c

from partitions.records.compression import Codec, DecompressionError, OutputLimitError, compress, decompress
from partitions.records.header import (
    CODEC_MASK,
    CRC_POSITION,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    NO_LEADER_EPOCH,
    BatchHeader,
    Buffer,
    CorruptBatchError,
    DecompressedTooLargeError,
    UnsupportedCodecError,
    UnsupportedMagicError,
    parse_header,
)
from partitions.records.record import MalformedRecordError, Record, decode_body

__all__ = [
    "HEADER_BYTES",
    "LOG_OVERHEAD_BYTES",
    "BatchHeader",
    "Buffer",
    "CorruptBatchError",
    "DecompressedTooLargeError",
    "Record",
    "UnsupportedCodecError",
    "UnsupportedMagicError",
    "assembled",
    "decode_records",
    "iter_batches",
    "parse_header",
    "recompressed",
    "records_body",
    "stamp",
    "stamp_log_append_time",
    "stamped_header_prefix",
    "verify_crc",
    "verify_stamped",
    "with_max_timestamp",
]

_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_LEADER_EPOCH_POSITION = 12
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_ATTRIBUTES_POSITION = 21
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_POSITION = 35
_LAST_CODEC = max(Codec)


def iter_batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Every batch of the buffer: its position and header. CRCs are not checked.

    Raises CorruptBatchError, after the whole batches before it, at the first batch that is impossible or torn off
    by the buffer's end; its `position` is the end of the sound part.
    """
    position = 0
    size = len(buffer)
    while position < size:
        header = parse_header(buffer, position)
        end = position + header.batch_length + LOG_OVERHEAD_BYTES
        if end > size:
            raise _torn(header, position, size)
        yield position, header
        position = end


def verify_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Compare the stored CRC-32C with that of byte 21 to the batch's end, without copying.

    Raises CorruptBatchError if they differ or the buffer ends before the batch does.
    """
    end = position + header.batch_length + LOG_OVERHEAD_BYTES
    if end > len(buffer):
        raise _torn(header, position, len(buffer))
    with memoryview(buffer) as view, view[position + CRC_START : end] as covered:
        computed = crc32c(covered)
    if computed != header.crc:
        raise CorruptBatchError(
            f"the batch at offset {header.base_offset} fails its checksum:"
            f" stored {header.crc:#010x}, computed {computed:#010x}",
            position,
        )


def verify_stamped(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """As `verify_crc`, for a batch that a leader has stamped: it also refuses an epoch below -1, which no CRC
    covers."""
    verify_crc(buffer, position, header)
    if header.partition_leader_epoch < NO_LEADER_EPOCH:
        raise CorruptBatchError(
            f"the batch at offset {header.base_offset} is of leader epoch {header.partition_leader_epoch}",
            position,
        )


def stamp(buffer: bytearray | memoryview, position: int, *, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and partition leader epoch into the batch at `position`, in place.

    Both lie before the bytes that the CRC covers, so it stays valid. `buffer` is writable.
    """
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + _LEADER_EPOCH_POSITION, leader_epoch)


stamped_header_prefix: Final[Callable[[int, int, int], bytes]] = struct.Struct(">qii").pack
"""The first 16 bytes of a batch with this base offset, `batch_length` and leader epoch.

For read-only buffers: writev of this and of the batch from byte 16 on stores the stamped batch
without copying it.
"""


def stamp_log_append_time(buffer: bytearray | memoryview, position: int, *, timestamp: int) -> None:
    """Make `timestamp` (ms) the time of every record of the batch: attribute, max timestamp, new CRC.

    For topics with message.timestamp.type=LogAppendTime. The whole batch lies in `buffer`. Base
    timestamp and deltas stay as the producer sent them, as in Kafka; readers ignore them.
    """
    size_bytes = HEADER.unpack_from(buffer, position)[1] + LOG_OVERHEAD_BYTES
    (attributes,) = _ATTRIBUTES.unpack_from(buffer, position + _ATTRIBUTES_POSITION)
    _ATTRIBUTES.pack_into(buffer, position + _ATTRIBUTES_POSITION, attributes | LOG_APPEND_TIME_BIT)
    _MAX_TIMESTAMP.pack_into(buffer, position + _MAX_TIMESTAMP_POSITION, timestamp)
    with memoryview(buffer) as view, view[position + CRC_START : position + size_bytes] as covered:
        _CRC.pack_into(buffer, position + CRC_POSITION, crc32c(covered))


def with_max_timestamp(buffer: Buffer, position: int, header: BatchHeader, timestamp: int) -> bytes:
    """A copy of the whole batch at `position` whose header names this largest timestamp (ms), with its CRC."""
    copy = bytearray(buffer[position : position + header.size_bytes])
    _MAX_TIMESTAMP.pack_into(copy, _MAX_TIMESTAMP_POSITION, timestamp)
    _CRC.pack_into(copy, CRC_POSITION, crc32c(memoryview(copy)[CRC_START:]))
    return bytes(copy)


def records_body(buffer: Buffer, position: int, header: BatchHeader, *, max_decompressed_bytes: int) -> bytes:
    """The batch's records as bytes, decompressed: for `decode_records` and for columnar decoders.

    Raises CorruptBatchError; its subclass DecompressedTooLargeError before much more than the limit
    is allocated, UnsupportedCodecError if the attributes name no codec. The CRC is not checked.
    """
    end = position + header.size_bytes
    if end > len(buffer):
        raise _torn(header, position, len(buffer))
    codec = header.codec
    if codec > _LAST_CODEC:
        raise UnsupportedCodecError(f"compression codec {codec} does not exist", position)
    with memoryview(buffer) as view, view[position + HEADER_BYTES : end] as body:
        if not codec:
            return bytes(body)
        try:
            return decompress(codec, body, max_bytes=max_decompressed_bytes)
        except OutputLimitError as error:
            raise DecompressedTooLargeError(_blame(header, error), position) from error
        except DecompressionError as error:
            raise CorruptBatchError(_blame(header, error), position) from error


def recompressed(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    codec: int,
    level: int | None,
    max_decompressed_bytes: int,
) -> bytes:
    """The same batch with its records in another codec; raises as `records_body` does.

    Only the body, the codec in the attributes, the length and the CRC differ.
    """
    body = records_body(buffer, position, header, max_decompressed_bytes=max_decompressed_bytes)
    changed = header._replace(attributes=header.attributes & ~CODEC_MASK | codec)
    return assembled(changed, compress(codec, body, level=level))


def assembled(header: BatchHeader, body: bytes | bytearray) -> bytes:
    """The batch of this header and body, with the length and the checksum that they have together."""
    length = HEADER_BYTES - LOG_OVERHEAD_BYTES + len(body)
    batch = bytearray(HEADER.pack(*header._replace(batch_length=length)))
    _CRC.pack_into(batch, CRC_POSITION, crc32c(body, crc32c(batch[CRC_START:])))
    return bytes(batch) + body


def decode_records(
    buffer: Buffer, position: int, header: BatchHeader, *, max_decompressed_bytes: int
) -> list[Record]:
    """Every record of the batch at `position`, with absolute offsets and effective timestamps.

    The limit holds for compressed batches; the others are in memory already. Control batches yield
    their control record (`control.decode_control_type` reads its key). Raises as `records_body`
    does, and CorruptBatchError if the bytes are not exactly the promised number of records.
    """
    body = records_body(buffer, position, header, max_decompressed_bytes=max_decompressed_bytes)
    try:
        return decode_body(body, header)
    except MalformedRecordError as error:
        raise CorruptBatchError(_blame(header, error), position) from error


def _blame(header: BatchHeader, error: Exception) -> str:
    return f"the batch at offset {header.base_offset} cannot be read: {error}"


def _torn(header: BatchHeader, position: int, size: int) -> CorruptBatchError:
    return CorruptBatchError(
        f"the batch at offset {header.base_offset} has {header.size_bytes} bytes,"
        f" the buffer ends after {size - position}",
        position,
    )
