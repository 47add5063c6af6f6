"""Transactions in tests, written by hand into a log, and a consumer that reads committed records only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from partitions.log.log import PartitionLog
from partitions.records.batch import BatchHeader, decode_records, iter_batches, verify_crc
from partitions.records.builder import build_batch
from partitions.records.control import ControlType
from partitions.records.markers import build_marker, read_marker

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT


class Transaction(NamedTuple):
    """One transaction in a list of batches."""

    producer_id: int
    offsets: tuple[int, ...]
    """Base offsets of its batches."""
    marker_offset: int | None
    kind: ControlType | None

    @property
    def first_offset(self) -> int:
        return self.offsets[0]


def transactions_in(
    batches: Sequence[BatchHeader], kinds: Mapping[int, ControlType]
) -> Iterator[Transaction]:
    """The transactions in order of their ends, open ones last; `kinds` are the markers' by offset."""
    opened: dict[int, list[int]] = {}
    for batch in batches:
        if batch.is_control:
            offsets = opened.pop(batch.producer_id, None)
            if offsets is not None:
                yield Transaction(
                    batch.producer_id, tuple(offsets), batch.base_offset, kinds[batch.base_offset]
                )
        elif batch.is_transactional:
            opened.setdefault(batch.producer_id, []).append(batch.base_offset)
    for producer_id, offsets in opened.items():
        yield Transaction(producer_id, tuple(offsets), None, None)


def transactional(
    producer_id: int, *values: bytes, epoch: int = 0, sequence: int = -1, timestamp: int = 1000
) -> bytes:
    """A batch of a transaction."""
    return build_batch(
        [(timestamp, None, value, ()) for value in values],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


def marker_of(
    producer_id: int, kind: ControlType, *, epoch: int = 0, coordinator_epoch: int = 0, timestamp: int = 1000
) -> bytes:
    """What ends a transaction."""
    return build_marker(producer_id, epoch, kind, coordinator_epoch=coordinator_epoch, timestamp=timestamp)


def put(log: PartitionLog, *batches: bytes) -> int:
    """Appends as a coordinator does; the first offset."""
    return log.append_as_leader(b"".join(batches), leader_epoch=0, origin="coordinator").first_offset


class Seen(NamedTuple):
    """A record that a consumer was given."""

    offset: int
    key: bytes | None
    value: bytes | None


def read_committed(
    log: PartitionLog, start: int, high_watermark: int, max_bytes: int = 10_000
) -> Iterator[Seen]:
    """What a consumer sees from `start` up to the last stable offset, fetch by fetch, as Kafka's does it."""
    position = start
    stable = log.last_stable_offset(high_watermark)
    while position < stable:
        result = log.read(position, max_bytes, up_to_offset=stable)
        if result.next_offset == position:
            return  # compaction has left nothing up to there
        aborted = sorted(
            log.aborted_transactions(position, result.next_offset), key=lambda entry: entry.first_offset
        )
        skipped: set[int] = set()
        data = b"".join(part.read() for part in result.slices)
        for at, header in iter_batches(data):
            verify_crc(data, at, header)
            while aborted and aborted[0].first_offset <= header.last_offset:
                skipped.add(aborted.pop(0).producer_id)
            if header.is_control:
                marker = read_marker(data, at, header)
                if marker is not None and marker.is_abort:
                    skipped.discard(header.producer_id)
                continue
            if header.is_transactional and header.producer_id in skipped:
                continue
            for record in decode_records(data, at, header, max_decompressed_bytes=1 << 20):
                if record.offset >= position:
                    yield Seen(record.offset, record.key, record.value)
        position = result.next_offset
