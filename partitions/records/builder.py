"""The building of record batches v2 (KIP-98), for the broker itself and its tests.

Guarantees: a batch has a valid CRC and consecutive offsets from `base_offset`, and reads back as the same records
in every Kafka client. Called by the Raft journal (one opaque record per entry), by coordinators and markers, by the
cleaner, and by callers that produce without a client library.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from crc32c import crc32c

from partitions.records.compression import compress
from partitions.records.control import ControlType, encode_control_key
from partitions.records.header import (
    CONTROL_BIT,
    CRC_POSITION,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
)
from partitions.records.record import Headers, encode_record

RecordTuple: TypeAlias = tuple[int, bytes | None, bytes | None, Headers]
"""Timestamp in ms, key, value, headers."""


def build_batch(
    records: Sequence[RecordTuple],
    *,
    base_offset: int = 0,
    codec: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    leader_epoch: int = NO_LEADER_EPOCH,
    is_control: bool = False,
    is_transactional: bool = False,
) -> bytes:
    """One batch of `records`, at least one, compressed with `codec`.

    Raises ValueError if there is no record or the codec's number is unknown.
    """
    if not records:
        raise ValueError("a batch holds at least one record")
    base_timestamp = records[0][0]
    body = b"".join(
        [
            encode_record(timestamp - base_timestamp, delta, key, value, headers)
            for delta, (timestamp, key, value, headers) in enumerate(records)
        ]
    )
    if codec:
        body = compress(codec, body)
    batch = bytearray(HEADER_BYTES)
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        HEADER_BYTES - LOG_OVERHEAD_BYTES + len(body),
        leader_epoch,
        MAGIC_V2,
        0,
        codec | is_control * CONTROL_BIT | is_transactional * TRANSACTIONAL_BIT,
        len(records) - 1,
        base_timestamp,
        max(record[0] for record in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    crc = crc32c(body, crc32c(batch[CRC_START:]))
    batch[CRC_POSITION:CRC_START] = crc.to_bytes(4, "big")
    return bytes(batch) + body


def build_opaque_batch(
    value: bytes,
    *,
    offset: int,
    leader_epoch: int,
    timestamp: int,
    is_control: bool = False,
    headers: Headers = (),
) -> bytes:
    """A batch of one record without key, whose value is `value`: an entry of the Raft journal.

    A control batch gets the key `ControlType.OPAQUE`: Kafka's readers see a control record of an unknown type.
    """
    key = encode_control_key(ControlType.OPAQUE) if is_control else None
    return build_batch(
        [(timestamp, key, value, headers)],
        base_offset=offset,
        leader_epoch=leader_epoch,
        is_control=is_control,
    )
