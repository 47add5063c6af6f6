"""The 61 bytes that open a record batch of format v2 (KIP-98), parsed in one go.

Guarantees: a parsed header has magic 2 and lengths, counts and offsets that a batch can have. It says nothing about
the bytes behind it (`batch.py` checks those against the buffer and the CRC). Every part that handles batches
without opening them works on it: the log, its recovery, the produce and fetch paths, followers, the Raft journal.

Layout (big endian, byte offsets): baseOffset 0, batchLength 8, partitionLeaderEpoch 12, magic 16, crc 17,
attributes 21, lastOffsetDelta 23, baseTimestamp 27, maxTimestamp 35, producerId 43, producerEpoch 51, baseSequence
53, recordCount 57, records 61. The CRC-32C covers byte 21 to the end, so the bytes before it can be patched without
a new checksum.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes of one or more batches; a memoryview has the format `B`."""

HEADER_BYTES = 61
LOG_OVERHEAD_BYTES = 12
"""baseOffset and batchLength, which `batch_length` does not count."""
_MIN_BATCH_LENGTH = HEADER_BYTES - LOG_OVERHEAD_BYTES
MAGIC_POSITION = 16
CRC_POSITION = 17
CRC_START = 21
"""First byte that the CRC covers."""
MAGIC_V2 = 2

HEADER = struct.Struct(">qiibIhiqqqhii")
OFFSET_AND_LENGTH = struct.Struct(">qi")

ATTRIBUTES_LOW_POSITION = 22
"""The byte that holds all attributes in use."""
CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1
NO_TIMESTAMP = -1
MAX_SEQUENCE = 2**31 - 1
MAX_BASE_OFFSET = 2**63 - 1 - 2**31
"""The largest base offset for which no record of a batch can leave 64 bits."""


_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_POSITION = 35


def max_timestamp_of(buffer: Buffer) -> int:
    """The largest timestamp (ms) in the header at the buffer's start, which has all its 61 bytes."""
    timestamp: int = _MAX_TIMESTAMP.unpack_from(buffer, _MAX_TIMESTAMP_POSITION)[0]
    return timestamp


class CorruptBatchError(ValueError):
    """The bytes are not a whole, sound record batch.

    `position` is the place in the buffer (the batch's first byte unless a closer one is known);
    `code` is the name of Kafka's error for the sender of the bytes.
    """

    code = "CORRUPT_MESSAGE"

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"{message} (byte {position})")
        self.position = position


class UnsupportedMagicError(CorruptBatchError):
    """A message set of format v0 or v1, which Kafka itself no longer takes since 4.0 (KIP-724)."""

    code = "UNSUPPORTED_FOR_MESSAGE_FORMAT"


class UnsupportedCodecError(CorruptBatchError):
    """The attributes name a compression codec that does not exist."""

    code = "UNSUPPORTED_COMPRESSION_TYPE"


class DecompressedTooLargeError(CorruptBatchError):
    """The records would unfold beyond the caller's limit; they were not unfolded."""

    code = "MESSAGE_TOO_LARGE"


class BatchHeader(NamedTuple):
    """The fields of the header as stored; offsets count records, times are ms."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return self.batch_length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        """Offset of the last record (compaction may have removed the record, never the offset)."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset after the batch: the log end offset once the batch is appended."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """Number of the compression codec (`compression.Codec`, or a number that none has)."""
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        """Holds a control record (a transaction marker, or the quorum's own), not user data."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def is_transactional(self) -> bool:
        """Part of a transaction: read_committed readers wait for its marker."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def uses_log_append_time(self) -> bool:
        """Every record's timestamp is `max_timestamp`, set by the leader."""
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which the cleaner may drop the tombstones and markers in here (KIP-534), if it has set one."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def oldest_time_ms(self) -> int:
        """The time of the oldest record, as far as a header tells; -1 if the records have none."""
        if self.uses_log_append_time or self.delete_horizon_ms is not None:
            return self.max_timestamp  # the first record's time is not what stands in its place
        return self.base_timestamp

    @property
    def has_producer_id(self) -> bool:
        """Sent by an idempotent or transactional producer."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; sequences wrap from 2^31 - 1 to 0. -1 without sequences."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE


HeaderFields: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""The fields of a `BatchHeader`, in its order."""
header_of: Callable[[HeaderFields], BatchHeader] = partial(tuple.__new__, BatchHeader)
"""As `BatchHeader._make`, which counts the fields once more, in Python, for every batch."""


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`. Needs the 61 bytes only: the records may lie elsewhere.

    Raises CorruptBatchError if fewer bytes are left, or if a length, count or offset is impossible;
    UnsupportedMagicError for message sets of format v0 and v1.
    """
    return header_of(parse_header_fields(buffer, position))


def parse_header_fields(buffer: Buffer, position: int) -> HeaderFields:
    """As `parse_header`, for callers that need most fields of every batch: unpacked into local variables they cost a
    tenth of a look-up by name."""
    if len(buffer) - position < HEADER_BYTES:
        raise _short_header(buffer, position)
    fields: HeaderFields = HEADER.unpack_from(buffer, position)
    base_offset, batch_length, _, magic, _, _, last_offset_delta, _, _, _, _, _, record_count = fields
    if (
        magic != MAGIC_V2
        or batch_length < _MIN_BATCH_LENGTH
        or not 0 <= base_offset <= MAX_BASE_OFFSET
        or last_offset_delta < 0
        or record_count < 0
    ):
        raise _impossible_header(header_of(fields), position)
    return fields


def _short_header(buffer: Buffer, position: int) -> CorruptBatchError:
    """A message set of an old format may be shorter than a v2 header: say so rather than 'torn'."""
    left = max(len(buffer) - position, 0)
    if left > MAGIC_POSITION and buffer[position + MAGIC_POSITION] < MAGIC_V2:
        return _old_magic(buffer[position + MAGIC_POSITION], position)
    return CorruptBatchError(f"{left} bytes are left, a batch header needs {HEADER_BYTES}", position)


def _old_magic(magic: int, position: int) -> UnsupportedMagicError:
    return UnsupportedMagicError(
        f"message format v{magic} is not supported: send record batches of format v2 (Kafka 0.11 or later)",
        position,
    )


def _impossible_header(header: BatchHeader, position: int) -> CorruptBatchError:
    if header.magic in (0, 1):
        return _old_magic(header.magic, position)
    if header.magic != MAGIC_V2:
        return CorruptBatchError(f"unknown magic {header.magic}", position)
    if header.batch_length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
        return CorruptBatchError(f"batch length {header.batch_length} is below a header's", position)
    return CorruptBatchError(
        f"impossible base offset {header.base_offset}, last offset delta {header.last_offset_delta}"
        f" or record count {header.record_count}",
        position,
    )
