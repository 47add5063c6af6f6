"""Producer state in `%020d.snapshot` files, in Kafka's format (version 1).

Guarantees: a snapshot that decodes is exactly the state at the offset in its name; a damaged one is
refused and the log falls back to an older one. Layout: version int16, CRC-32C uint32 of all that
follows, entry count int32, entries of (producer id int64, epoch int16, last sequence int32, last
offset int64, offset delta int32, timestamp int64, coordinator epoch int32, first offset of the open
transaction int64). Kafka writes one entry a producer; here a producer has one for each retained
batch, oldest first, so that the whole window survives a restart. Kafka's reader takes the last.
"""

from __future__ import annotations

import struct
from typing import Final

from crc32c import crc32c

from partitions.log.producers.producer_state import BATCHES_RETAINED, NO_OFFSET, BatchRange, ProducerEntry
from partitions.log.segment import file_name

SNAPSHOT_SUFFIX: Final = ".snapshot"
_VERSION: Final = 1
_PREFIX: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")


def snapshot_path(directory: str, offset: int) -> str:
    """Where a log's snapshot at this offset is, if there is one."""
    return f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"


class SnapshotFormatError(ValueError):
    """The bytes are not a whole producer state snapshot of version 1."""


def encode_snapshot(producers: dict[int, ProducerEntry]) -> bytes:
    """The file's content; equal states give equal bytes."""
    entries: list[bytes] = []
    for producer_id in sorted(producers):
        entry = producers[producer_id]
        known = entry.batches or [BatchRange(-1, NO_OFFSET, 0, entry.last_timestamp)]
        for number, batch in enumerate(known, start=1):
            newest = number == len(known)
            entries.append(
                _ENTRY.pack(
                    producer_id,
                    entry.epoch,
                    batch.last_sequence,
                    batch.last_offset,
                    batch.offset_delta,
                    entry.last_timestamp if newest else batch.timestamp,
                    entry.coordinator_epoch,
                    entry.transaction_first_offset,
                )
            )
    body = b"".join([_COUNT.pack(len(entries)), *entries])
    return _PREFIX.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> dict[int, ProducerEntry]:
    """The producers in a snapshot. Raises SnapshotFormatError."""
    if len(data) < _PREFIX.size + _COUNT.size:
        raise SnapshotFormatError(f"a producer snapshot has at least 10 bytes, not {len(data)}")
    version, crc = _PREFIX.unpack_from(data)
    body = memoryview(data)[_PREFIX.size :]
    if version != _VERSION:
        raise SnapshotFormatError(f"producer snapshot version {version} is not {_VERSION}")
    if crc32c(body) != crc:
        raise SnapshotFormatError("the producer snapshot fails its checksum")
    (count,) = _COUNT.unpack_from(body)
    if count * _ENTRY.size != len(body) - _COUNT.size:
        raise SnapshotFormatError(f"the producer snapshot does not hold the {count} entries it announces")
    producers: dict[int, ProducerEntry] = {}
    for fields in _ENTRY.iter_unpack(body[_COUNT.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first_offset = fields
        entry = producers.get(producer_id)
        if entry is None or entry.epoch != epoch:
            entry = producers[producer_id] = ProducerEntry(epoch)
        entry.last_timestamp = timestamp
        entry.coordinator_epoch = coordinator_epoch
        entry.transaction_first_offset = first_offset
        if offset != NO_OFFSET and len(entry.batches) < BATCHES_RETAINED:
            entry.batches.append(BatchRange(sequence, offset, delta, timestamp))
    return producers
