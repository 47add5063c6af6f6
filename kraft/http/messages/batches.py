"""Fetched batches, opened: the records that a reader asked for, and an account of what was left out.

Pure, and run in the executor: opening costs time for each record. Batches in which nothing can match a search are not
taken apart. Guarantees: one call opens `JOB_BYTES` and one more batch at most; no batch makes it hold more than
`UNFOLDED_MAX_BYTES`, `RECORDS_MAX` records or `HEADERS_MAX` headers; each offset that was passed is a record, or
counted in `Skipped`.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from kraft.http.messages.views import Json
from partitions.records.aborted import AbortedBatches, AbortedTransaction
from partitions.records.batch import (
    BatchHeader,
    Buffer,
    CorruptBatchError,
    DecompressedTooLargeError,
    iter_batches,
    records_body,
    verify_crc,
)
from partitions.records.record import MalformedRecordError, Record, decode_body, header_count

JOB_BYTES: Final = 4 * 1024 * 1024
"""Unfolded; some tens of milliseconds of a thread."""
UNFOLDED_MAX_BYTES: Final = 32 * 1024 * 1024
RECORDS_MAX: Final = 250_000
HEADERS_MAX: Final = 500_000
"""Of a batch: a header of two bytes takes more than thirty times as many when it is decoded."""
_HEADER_LEAST_BYTES: Final = 2


@dataclass(slots=True)
class Skipped:
    """What was passed and not shown."""

    control: int = 0
    """Markers of transactions."""
    aborted: int = 0
    """Records of aborted transactions."""
    absent: int = 0
    """Offsets that hold no record: compaction removed it, or a transaction or a batch never used them."""
    deleted: int = 0
    """Offsets that retention, or a user, deleted before they were read."""
    damaged: int = 0
    """Batches that fail their checksum or are malformed."""
    too_large: int = 0
    """Batches that unfold to more than this reader opens, or hold more records or headers."""

    def add(self, other: Skipped) -> None:
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

    def view(self) -> Json:
        return asdict(self)


class Needle(NamedTuple):
    """What a search looks for: bytes, in some of a record's fields."""

    wanted: bytes
    ignore_case: bool
    """Of ASCII letters; `wanted` is in lower case then."""
    in_key: bool
    in_value: bool
    in_headers: bool

    def may_be_in(self, body: bytes) -> bool:
        """Whether records that lie in these bytes may match: fields lie there as they are."""
        return self._is_in(body)

    def matches(self, record: Record) -> bool:
        return (
            (self.in_key and self._is_in(record.key))
            or (self.in_value and self._is_in(record.value))
            or (
                self.in_headers
                and any(self._is_in(name.encode()) or self._is_in(value) for name, value in record.headers)
            )
        )

    def _is_in(self, data: bytes | None) -> bool:
        return data is not None and self.wanted in (data.lower() if self.ignore_case else data)


class Span(NamedTuple):
    """Which records of a partition: offsets from `start` up to, not including, `end`; the first or the last `limit`."""

    partition: int
    start: int
    end: int
    limit: int
    newest: bool = False
    needle: Needle | None = None


Row: TypeAlias = tuple[BatchHeader, Record]


@dataclass(slots=True)
class Opened:
    """What came of one answer."""

    span: Span
    next_offset: int
    """Where to read on: all before it is here, or in `skipped`."""
    rows: deque[Row] = field(default_factory=deque)
    records: int = 0
    """That were looked at."""
    matched: int = 0
    """Of them, those that fit the search, also where `rows` keeps only the newest."""
    unfolded_bytes: int = 0
    skipped: Skipped = field(default_factory=Skipped)
    error: str | None = None
    """Why nobody can read on, in a sentence."""

    @property
    def is_full(self) -> bool:
        return not self.span.newest and len(self.rows) >= self.span.limit


def open_batches(data: Buffer, aborted: Sequence[AbortedTransaction], span: Span) -> Opened:
    """The records of `span` in an answer to a fetch at `span.start`."""
    opened = Opened(span, span.start, rows=deque(maxlen=span.limit if span.newest else None))
    hidden = AbortedBatches(aborted)
    try:
        for position, header in iter_batches(data):
            if opened.unfolded_bytes >= JOB_BYTES or opened.is_full:
                break
            if header.base_offset >= span.end:
                opened.skipped.absent += span.end - opened.next_offset
                opened.next_offset = span.end
                break
            if header.next_offset <= opened.next_offset:
                hidden.hides(data, position, header)
                continue
            opened.skipped.absent += max(header.base_offset - opened.next_offset, 0)
            _open(opened, hidden, data, position, header)
    except CorruptBatchError as error:  # where the next batch begins is not known
        opened.skipped.damaged += 1
        opened.error = f"{error}; what follows it in this answer cannot be told apart"
    return opened


def _open(opened: Opened, hidden: AbortedBatches, data: Buffer, position: int, header: BatchHeader) -> None:
    """One batch, of which something lies in the span."""
    skipped, span = opened.skipped, opened.span
    start = max(opened.next_offset, header.base_offset)
    try:
        verify_crc(data, position, header)
        if hidden.hides(data, position, header):
            skipped.aborted += header.record_count
        elif header.is_control:
            skipped.control += header.record_count
        elif header.record_count > RECORDS_MAX:
            skipped.too_large += 1
        else:
            body = records_body(data, position, header, max_decompressed_bytes=UNFOLDED_MAX_BYTES)
            opened.unfolded_bytes += len(body)
            _take(opened, header, body, start)
            return
    except DecompressedTooLargeError:
        skipped.too_large += 1
    except (CorruptBatchError, MalformedRecordError):
        skipped.damaged += 1
    opened.next_offset = min(header.next_offset, span.end)


def _take(opened: Opened, header: BatchHeader, body: bytes, start: int) -> None:
    """The records from `start` on. Raises MalformedRecordError."""
    span = opened.span
    is_whole = start == header.base_offset and header.next_offset <= span.end
    if is_whole and span.needle is not None and not span.needle.may_be_in(body):
        opened.records += header.record_count
        opened.skipped.absent += header.last_offset_delta + 1 - header.record_count
        opened.next_offset = header.next_offset
        return
    if len(body) > HEADERS_MAX * _HEADER_LEAST_BYTES and header_count(body, header) > HEADERS_MAX:
        opened.skipped.too_large += 1
        opened.next_offset = min(header.next_offset, span.end)
        return
    expected = start
    for record in decode_body(body, header):
        if record.offset < start:
            continue
        if record.offset >= span.end or opened.is_full:
            break
        opened.skipped.absent += record.offset - expected
        expected = record.offset + 1
        opened.records += 1
        if span.needle is None or span.needle.matches(record):
            opened.matched += 1
            opened.rows.append((header, record))
    if not opened.is_full:
        end = min(header.next_offset, span.end)
        opened.skipped.absent += end - expected
        expected = end
    opened.next_offset = expected


def in_order(rows: Mapping[int, Sequence[Row]], limit: int, *, newest: bool) -> list[tuple[int, Row]]:
    """The first, or the newest, `limit` rows of several partitions, each with its partition: in the order of time, as
    far as each partition's own order allows."""
    if not newest:
        streams = [[(number, row) for row in rows[number]] for number in sorted(rows)]
        return list(islice(heapq.merge(*streams, key=_time), limit))
    backwards = [[(number, row) for row in reversed(rows[number])] for number in sorted(rows, reverse=True)]
    return list(islice(heapq.merge(*backwards, key=lambda one: -_time(one)), limit))[::-1]


def _time(one: tuple[int, Row]) -> int:
    return one[1][1].timestamp
