"""The records of `__transaction_state`: Kafka's TransactionLogKey and TransactionLogValue.

Both versions of the value are read. Version 1, which has tagged fields, is written from transaction.version 1 on
(KIP-890), so that brokers of before can read what was written before.
"""

from __future__ import annotations

from typing import Final

from kraft.coordinator.record_schema import RecordSchema
from kraft.coordinator.shard import Record
from kraft.protocol.schema import INT32, Message, array, int8, int16, int32, int64, message, string

KEY_TYPE: Final = 0
NO_PRODUCER_ID: Final = -1
FIRST_FLEXIBLE_VERSION: Final = 1


@message
class TransactionLogKey(Message):
    transactional_id: str = string("0")


@message
class PartitionsSchema(Message):
    topic: str = string("0+")
    partition_ids: list[int] = array(INT32, "0+")


@message
class TransactionLogValue(Message):
    """Timestamps are wall time in ms; `transaction_partitions` is None of an id that is Empty."""

    producer_id: int = int64("0+")
    previous_producer_id: int = int64("1+", tag=0, default=NO_PRODUCER_ID, ignorable=True)
    next_producer_id: int = int64("1+", tag=1, default=NO_PRODUCER_ID, ignorable=True)
    """What the producer goes on with when the transaction has ended; -1: with what it has."""
    producer_epoch: int = int16("0+")
    transaction_timeout_ms: int = int32("0+")
    transaction_status: int = int8("0+")
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, "0+", nullable="0+")
    transaction_last_update_timestamp_ms: int = int64("0+")
    transaction_start_timestamp_ms: int = int64("0+")
    client_transaction_version: int = int16("1+", tag=2, ignorable=True)


KEY = RecordSchema(TransactionLogKey, KEY_TYPE, read=range(KEY_TYPE, KEY_TYPE + 1), flexible_from=None)
_VALUES: Final = tuple(
    RecordSchema(TransactionLogValue, version, read=range(2), flexible_from=FIRST_FLEXIBLE_VERSION)
    for version in range(2)
)
"""By the version that is written."""
VALUE: Final = _VALUES[-1]
"""To read with."""


def encode(transactional_id: str, value: TransactionLogValue, transaction_version: int) -> Record:
    """The record as it is written at this level of transaction.version. Raises ProtocolError for an id that is longer
    than 32,767 bytes."""
    values = _VALUES[min(transaction_version, 1)]
    return Record(KEY.encode(TransactionLogKey(transactional_id)), values.encode(value))


def tombstone(transactional_id: str) -> Record:
    return Record(KEY.encode(TransactionLogKey(transactional_id)), None)
