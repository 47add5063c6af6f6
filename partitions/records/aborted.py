"""Which batches of an answer to a fetch belong to aborted transactions (KIP-98), as a read_committed reader needs it.

Pure. Called by the Spark connector and by the console's readers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from partitions.records.batch import decode_records
from partitions.records.control import ControlType, decode_control_type
from partitions.records.header import BatchHeader, Buffer, CorruptBatchError

MAX_MARKER_BYTES: Final = 1 << 10


class AbortedTransaction(Protocol):
    """As the leader names it beside the records."""

    @property
    def producer_id(self) -> int: ...

    @property
    def first_offset(self) -> int: ...


class AbortedBatches:
    """Tells, batch after batch of one answer, which are to be left out."""

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        self._to_come = sorted(transactions, key=lambda one: one.first_offset, reverse=True)
        self._open: set[int] = set()
        """Producers whose records are of an aborted transaction, up to its marker."""

    def hides(self, data: Buffer, position: int, header: BatchHeader) -> bool:
        """Whether the batch is to be left out. Raises CorruptBatchError."""
        while self._to_come and self._to_come[-1].first_offset <= header.last_offset:
            self._open.add(self._to_come.pop().producer_id)
        if header.producer_id not in self._open or not header.is_transactional:
            return False
        if not header.is_control:
            return True
        if _control_type(data, position, header) is ControlType.ABORT:
            self._open.discard(header.producer_id)
        return False


def _control_type(data: Buffer, position: int, header: BatchHeader) -> ControlType | None:
    """By the key alone, as Kafka's readers tell; None of a batch that a cleaning has emptied."""
    for record in decode_records(data, position, header, max_decompressed_bytes=MAX_MARKER_BYTES):
        try:
            return decode_control_type(record.key)
        except ValueError as error:
            raise CorruptBatchError(str(error), position) from error
    return None
