"""Transaction markers (KIP-98): the control batches that end a producer's transactions.

Guarantees: a marker that was read names a known end and a coordinator epoch. A control batch that a cleaning has
emptied, or one of another kind, is no marker. A marker's batch holds one record, carries the producer's id and
epoch, and counts as transactional. Called by the log for every control batch of a producer, by checks of stored
files, and by transaction coordinators.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from partitions.records.batch import decode_records
from partitions.records.builder import build_batch
from partitions.records.control import ControlType, decode_control_type, encode_control_key
from partitions.records.header import NO_LEADER_EPOCH, BatchHeader, Buffer, CorruptBatchError
from partitions.records.record import Record

_VALUE: Final = struct.Struct(">hi")
_VALUE_VERSION: Final = 0
_MAX_BODY_BYTES: Final = 64 * 1024
"""A marker's body, unfolded: one record of a few bytes, with room for fields of later versions."""
_ENDS: Final = (ControlType.ABORT, ControlType.COMMIT)


class EndTransactionMarker(NamedTuple):
    """A marker's content, without the producer's id and epoch, which its batch's header holds."""

    kind: ControlType
    """ABORT or COMMIT."""
    coordinator_epoch: int
    """Leader epoch of the transaction log's partition at the coordinator that wrote it."""

    @property
    def is_abort(self) -> bool:
        return self.kind is ControlType.ABORT


def build_marker(
    producer_id: int,
    producer_epoch: int,
    kind: ControlType,
    *,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """The control batch that ends the producer's transaction, COMMIT or ABORT; `timestamp` in ms."""
    assert kind in _ENDS
    value = _VALUE.pack(_VALUE_VERSION, coordinator_epoch)
    return build_batch(
        [(timestamp, encode_control_key(kind), value, ())],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
        is_control=True,
        is_transactional=True,
    )


def read_marker(buffer: Buffer, position: int, header: BatchHeader) -> EndTransactionMarker | None:
    """The marker in the control batch at `position`; None if it is empty or no transaction's marker.

    Raises CorruptBatchError.
    """
    if not header.record_count:
        return None
    return marker_in(
        decode_records(buffer, position, header, max_decompressed_bytes=_MAX_BODY_BYTES), position
    )


def marker_in(records: Sequence[Record], position: int = 0) -> EndTransactionMarker | None:
    """As `read_marker`, for a control batch at `position` that is open already."""
    if not records:
        return None
    record = records[0]
    try:
        kind = decode_control_type(record.key)
    except ValueError as error:
        raise CorruptBatchError(str(error), position) from error
    if kind not in _ENDS:
        return None
    if record.value is None or len(record.value) < _VALUE.size:
        raise CorruptBatchError(f"a transaction marker's value needs {_VALUE.size} bytes", position)
    version, coordinator_epoch = _VALUE.unpack_from(record.value)
    if version < 0:
        raise CorruptBatchError(f"a transaction marker has the impossible version {version}", position)
    return EndTransactionMarker(kind, coordinator_epoch)
