"""What of a batch survives a cleaning: Kafka's rules (KIP-98, KIP-534), batch by batch.

Guarantees: of each key the last record below the offset map's end stays, unless it is a tombstone
whose delete horizon has passed, and everything above that end stays; what an aborted transaction wrote
goes. A tombstone, or a marker of a transaction without data, is first given a horizon, by the first
pass that keeps it, and goes with a later one. A batch of which no record is left stays as a header if
it is the last of an active producer, whose sequence and epoch it carries, or the last of the cleaned
file, so that a segment still ends where the next one begins. Pure; the cleaner's jobs call it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import compress

from partitions.log.cleaner.offset_map import OffsetMap
from partitions.log.cleaner.raw_records import RawRecord, raw_records
from partitions.log.cleaner.rewrite import batch_with, empty_batch
from partitions.log.cleaner.transactions import CleanedTransactions, LastBatch
from partitions.log.config_values import LONG_MAX
from partitions.records.batch import BatchHeader, records_body
from partitions.records.control import ControlType, decode_control_type

MAX_DECOMPRESSED_BYTES = 256 * 1024 * 1024
"""The largest batch, unfolded, that the cleaner opens."""


def batch_body(data: memoryview, at: int, header: BatchHeader) -> bytes:
    """The batch's records, decompressed. Raises CorruptBatchError."""
    return records_body(data, at, header, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)


def control_type(data: memoryview, at: int, header: BatchHeader) -> ControlType | None:
    """What a control batch says; None if it was emptied. Raises CorruptBatchError, ValueError."""
    if not header.record_count:
        return None
    for record in raw_records(batch_body(data, at, header), header.record_count):
        return decode_control_type(record.key)
    return None


class BatchFilter:
    """One pass over a log with a full offset map. It is handed from job to job."""

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        last_batches: Mapping[int, LastBatch],
        *,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._offsets = offsets
        self._transactions = transactions
        self._last_batches = last_batches
        self._now_ms = now_ms
        self._new_horizon_ms = min(now_ms + delete_retention_ms, LONG_MAX)

    def clean(
        self, data: memoryview, at: int, header: BatchHeader, *, ends_file: bool
    ) -> bytes | memoryview | None:
        """The batch as it is, a smaller one, or None if nothing of it stays. To be called in offset order.

        Raises CorruptBatchError, MalformedRecordError, ValueError for bytes that are no records.
        """
        kind = control_type(data, at, header) if header.is_control else None
        if header.is_control:
            unneeded = self._transactions.on_control(header, kind)
            horizon_ms = header.delete_horizon_ms
            goes = unneeded and (kind is None or (horizon_ms is not None and horizon_ms <= self._now_ms))
            sets_horizon = unneeded and horizon_ms is None
        else:
            goes = self._transactions.on_data(header)
            sets_horizon = False
        whole = data[at : at + header.size_bytes]
        if not goes and header.record_count:
            if header.is_control:
                return self._control(data, at, header) if sets_horizon else whole
            if header.base_offset > self._offsets.latest_offset:
                return whole
            kept = self._keep(data, at, header)
            if kept is not None:
                return kept
        if not ends_file and not self._is_last_of_producer(header):
            return None
        return whole if not header.record_count else empty_batch(header)

    def take_needed_aborts(self) -> set[int]:
        """As `CleanedTransactions.take_needed_aborts`, of the batches cleaned since the last call."""
        return self._transactions.take_needed_aborts()

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._last_batches.get(header.producer_id) if header.has_producer_id else None
        if last is None:
            return False
        if last.last_offset is not None:
            return header.last_offset == last.last_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _control(self, data: memoryview, at: int, header: BatchHeader) -> bytes:
        body = batch_body(data, at, header)
        records = raw_records(body, header.record_count)
        return batch_with(header, body, records, new_horizon_ms=self._new_horizon_ms)

    def _keep(self, data: memoryview, at: int, header: BatchHeader) -> bytes | memoryview | None:
        """A data batch less the records that go; None if all do."""
        body = batch_body(data, at, header)
        horizon_ms = header.delete_horizon_ms
        keeps_tombstones = horizon_ms is None or self._now_ms < horizon_ms
        stays = bytearray()
        """A byte for each record, and no more: nobody bounds how many a batch has but its size, unfolded."""
        kept_count, tombstones = 0, False
        for record in raw_records(body, header.record_count):
            if self._stays(record, header.base_offset + record.offset_delta, keeps_tombstones):
                stays.append(True)
                kept_count += 1
                tombstones |= not record.has_value
            else:
                stays.append(False)
        if not kept_count:
            return None
        # A batch that is clean in part only waits for its horizon: all its tombstones share one.
        wholly_clean = header.last_offset <= self._offsets.latest_offset
        new_horizon_ms = self._new_horizon_ms if tombstones and horizon_ms is None and wholly_clean else None
        if kept_count == header.record_count and new_horizon_ms is None:
            return data[at : at + header.size_bytes]
        kept = compress(raw_records(body, header.record_count), stays)
        return batch_with(header, body, kept, new_horizon_ms=new_horizon_ms)

    def _stays(self, record: RawRecord, offset: int, keeps_tombstones: bool) -> bool:
        if offset > self._offsets.latest_offset:
            return True
        if record.key is None:
            return False  # from before the topic was compacted: such a record has no place in it
        return offset >= self._offsets.get(record.key) and (record.has_value or keeps_tombstones)
