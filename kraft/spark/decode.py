"""Record batches v2 to the columns of Spark's Kafka source, a whole fetch at a time.

Each record of the slice comes out exactly once, in order, and nothing outside of it; the rest is counted
(`SliceAudit`). CRCs are checked. Bytes that are not sound batches, or offsets that go back, raise instead of yielding
rows; so does a batch written by a leader younger than the plan, unless data loss is only warned of. A read_committed
reader leaves out the batches of aborted transactions, as the broker names them (KIP-98). Memory is bounded by the fetch
and by MAX_DECOMPRESSED_BYTES a batch. `slice_reader.py` calls it.

No Python object is made per record. A Python loop only follows the chain of record lengths; numpy then reads each field
of all records at once (`record_fields.py`), and Arrow copies keys and values into columns (`columns.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kraft.protocol.fetch import AbortedTransaction
from kraft.spark.columns import ColumnBuilder
from kraft.spark.data_loss import LossPolicy
from kraft.spark.errors import CorruptDataError, DataLossError
from kraft.spark.record_fields import BatchSpan, Int64s, MalformedRecordsError, read_fields
from partitions.records.aborted import AbortedBatches
from partitions.records.batch import (
    HEADER_BYTES,
    BatchHeader,
    CorruptBatchError,
    parse_header,
    records_body,
    verify_crc,
)

MAX_DECOMPRESSED_BYTES = 256 << 20
"""A compressed batch that unfolds to more fails the read."""
TARGET_ROWS_BYTES = 16 << 20
"""Decompressed batches are handed on to Spark in portions of about this size."""
MAX_NAMED_HOLES = 1000
"""The audit of a slice names no more ranges than these; it counts all of their offsets."""


@dataclass
class SliceAudit:
    """What the offsets of a slice turned out to be: their sum is the number of offsets passed."""

    records: int = 0
    control: int = 0
    """Transaction markers and the like."""
    gaps: int = 0
    """Offsets that hold nothing any more: compacted away."""
    aborted: int = 0
    """Records of aborted transactions, left out of a read_committed read."""
    lost: int = 0
    """Offsets skipped with a warning, since failOnDataLoss is false."""
    _holes: list[tuple[int, int]] = field(default_factory=list)

    @property
    def offsets(self) -> int:
        return self.records + self.control + self.gaps + self.aborted + self.lost

    @property
    def holes(self) -> list[tuple[int, int]]:
        """Where the gaps are: ranges (start, end), ascending, apart from each other; MAX_NAMED_HOLES at most."""
        merged: list[tuple[int, int]] = []
        for start, end in sorted(self._holes):
            if merged and merged[-1][1] == start:
                merged[-1] = merged[-1][0], end
            else:
                merged.append((start, end))
        return merged[:MAX_NAMED_HOLES]

    def pass_hole(self, start: int, end: int) -> None:
        self.gaps += end - start
        if self._holes and self._holes[-1][1] == start:
            self._holes[-1] = self._holes[-1][0], end
        elif len(self._holes) < 2 * MAX_NAMED_HOLES:  # of one fetch, those between batches come before others
            self._holes.append((start, end))


class _Pending(NamedTuple):
    """A data batch whose records wait to be decoded together with its neighbours'."""

    header: BatchHeader
    position: int
    """Where the records start in the fetched bytes; unused if `body` is given."""
    body: bytes | None
    """The decompressed records, if they were compressed."""


class SliceDecoder:
    """Decodes the fetched bytes of one slice, in the order of offsets.

    `position` is the next offset to fetch, `last_epoch` the leader epoch of the last batch seen (-1:
    none), for the next fetch. `plan_epoch` is the leader epoch under which the slice's end was
    captured: a batch of a later epoch below that end has replaced one that was committed then.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        plan_epoch: int,
        columns: Sequence[str],
        loss: LossPolicy,
    ) -> None:
        self.audit = SliceAudit()
        self.position = start
        self.last_epoch = -1
        self._name = f"{topic}-{partition}"
        self._start = start
        self._end = end
        self._plan_epoch = plan_epoch
        self._columns = ColumnBuilder(topic, partition, columns)
        self._loss = loss

    def skip_to(self, offset: int) -> None:
        """Passes offsets that are lost, by at most the rest of the slice; what follows may be of any history."""
        until = min(offset, self._end)
        self.audit.lost += until - self.position
        self.position = until
        self.forget_history()

    def forget_history(self) -> None:
        """The records from here on need not continue those before."""
        self.last_epoch = -1

    def feed(
        self, data: bytes, aborted: Sequence[AbortedTransaction] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Decodes what one fetch at `position` returned; a torn last batch is left for the next fetch.

        `aborted`: the aborted transactions that the broker named in that answer, for a read_committed read.

        Exhaust the iterator: `position` and the audit are right only then. Raises CorruptDataError,
        DataLossError.
        """
        fetched_at = self.position
        try:
            yield from self._feed(data, AbortedBatches(aborted or ()))
        except (CorruptBatchError, MalformedRecordsError) as error:
            raise CorruptDataError(
                f"{self._name}: the data fetched at offset {fetched_at} cannot be read: {error}."
                " Nothing was skipped. Check the leader's disk, or leave these offsets out with"
                " startingOffsets and endingOffsets."
            ) from error

    def check_complete(self) -> None:
        """The audit at the end of the slice: every offset is accounted for. Raises DataLossError."""
        expected = self._end - self._start
        if self.position != self._end or self.audit.offsets != expected:
            raise DataLossError(
                f"{self._name}: the slice from {self._start} to {self._end} has {expected} offsets,"
                f" but {self.audit.offsets} were accounted for: {self.audit.records} records,"
                f" {self.audit.control} control records, {self.audit.gaps} gaps, {self.audit.aborted} aborted,"
                f" up to offset {self.position}."
            )

    def _feed(self, data: bytes, aborted: AbortedBatches) -> Iterator[pa.RecordBatch]:
        pending: list[_Pending] = []
        from_offset, unfolded_bytes = self.position, 0
        for position, header in whole_batches(data):
            if header.next_offset <= self.position:
                continue  # a broker may start with a batch that ends before the offset asked for
            if header.base_offset >= self._end:
                self._pass_gap(self._end)
                break
            self._check_epoch(header)
            verify_crc(data, position, header)
            self._pass_gap(header.base_offset)
            self.last_epoch = header.partition_leader_epoch
            if aborted.hides(data, position, header) or header.is_control or not header.record_count:
                self._pass_batch_without_rows(data, position, header)
                continue
            body = None
            if header.codec:
                body = records_body(data, position, header, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)
                unfolded_bytes += len(body)
            pending.append(_Pending(header, position + HEADER_BYTES, body))
            self.position = min(header.next_offset, self._end)
            if unfolded_bytes >= TARGET_ROWS_BYTES:
                yield from self._decode(data, pending, from_offset)
                pending, from_offset, unfolded_bytes = [], self.position, 0
        if pending:
            yield from self._decode(data, pending, from_offset)

    def _check_epoch(self, header: BatchHeader) -> None:
        if header.partition_leader_epoch > self._plan_epoch >= 0:
            self._loss.report(
                f"{self._name}: offset {header.base_offset} was written again under leader epoch"
                f" {header.partition_leader_epoch} after this read was planned under epoch"
                f" {self._plan_epoch} up to offset {self._end}: committed records were truncated by an"
                " unclean leader election."
            )
            self._plan_epoch = header.partition_leader_epoch
        if header.partition_leader_epoch < self.last_epoch:
            raise CorruptDataError(
                f"{self._name}: the batch at offset {header.base_offset} has leader epoch"
                f" {header.partition_leader_epoch}, the one before it {self.last_epoch}."
            )

    def _pass_gap(self, until: int) -> None:
        if until > self.position:
            self.audit.pass_hole(self.position, until)
            self.position = until

    def _pass_batch_without_rows(self, data: bytes, position: int, header: BatchHeader) -> None:
        next_offset = min(header.next_offset, self._end)
        records = next_offset - self.position
        if header.record_count != header.next_offset - header.base_offset:  # only then it pays to look inside
            offsets = _offsets(data, position, header)
            records = self._pass_holes_between(offsets, self.position, next_offset)
        if header.is_control:
            self.audit.control += records
        else:
            self.audit.aborted += records
        self.position = next_offset

    def _decode(self, data: bytes, pending: list[_Pending], from_offset: int) -> Iterator[pa.RecordBatch]:
        """The rows of the batches, from `from_offset` on and below the slice's end."""
        buffer, spans = _spans(data, pending)
        everything = read_fields(buffer, spans)
        fields = everything.clip(from_offset, self._end)
        self.audit.records += fields.row_count
        at = 0
        for header, *_ in pending:
            offsets = everything.offsets[at : at + header.record_count]
            at += header.record_count
            if header.record_count != header.next_offset - header.base_offset:
                start, end = max(header.base_offset, from_offset), min(header.next_offset, self._end)
                self._pass_holes_between(offsets, start, end)
        if fields.row_count:
            yield self._columns.build(buffer, fields)

    def _pass_holes_between(self, offsets: Int64s, start: int, end: int) -> int:
        """Audits the offsets from `start` up to `end` that are not among these; returns how many of these are."""
        low, high = (int(index) for index in np.searchsorted(offsets, (start, end)))
        edges = np.concatenate([[start - 1], offsets[low:high], [end]])
        for before in np.flatnonzero(np.diff(edges) > 1).tolist():
            self.audit.pass_hole(int(edges[before]) + 1, int(edges[before + 1]))
        return high - low


def whole_batches(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch that is there in full.

    Brokers may tear the last batch off at the size limit (KIP-74), but never the only one.
    """
    position, size = 0, len(data)
    while size - position >= HEADER_BYTES:
        header = parse_header(data, position)
        end = position + header.size_bytes
        if end > size:
            break
        yield position, header
        position = end
    if size and not position:
        raise CorruptBatchError(f"the broker sent {size} bytes without a whole batch", 0)


def _offsets(data: bytes, position: int, header: BatchHeader) -> Int64s:
    """Of the records that a batch still has. Raises MalformedRecordsError, CorruptBatchError."""
    if not header.record_count:
        return np.empty(0, np.int64)
    body = None
    if header.codec:
        body = records_body(data, position, header, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)
    return read_fields(*_spans(data, [_Pending(header, position + HEADER_BYTES, body)])).offsets


def _spans(data: bytes, pending: list[_Pending]) -> tuple[bytes, list[BatchSpan]]:
    """One buffer that holds all the records, and where each batch's lie.

    Uncompressed records are decoded where they are; with compressed ones a buffer is put together.
    """
    spans = []
    if all(item.body is None for item in pending):
        for item in pending:
            end = item.position - HEADER_BYTES + item.header.size_bytes
            spans.append(BatchSpan(item.header, item.position, end))
        return data, spans
    pieces: list[bytes | memoryview] = []
    at = 0
    view = memoryview(data)
    for item in pending:
        piece: bytes | memoryview
        if item.body is None:
            piece = view[item.position : item.position - HEADER_BYTES + item.header.size_bytes]
        else:
            piece = item.body
        spans.append(BatchSpan(item.header, at, at + len(piece)))
        pieces.append(piece)
        at += len(piece)
    return (item.body if len(pieces) == 1 and item.body is not None else b"".join(pieces)), spans
