"""What a cleaning holds of a batch is bounded by its bytes, unfolded, however many records these are."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence

import pytest

from partitions.log.cleaner import jobs
from partitions.log.cleaner.filter import BatchFilter
from partitions.log.cleaner.offset_map import OffsetMap
from partitions.log.cleaner.sources import SourceSegment
from partitions.log.cleaner.transactions import CleanedTransactions
from partitions.records.batch import parse_header, records_body
from partitions.records.builder import build_batch
from partitions.records.compression import Codec
from partitions.records.control import ControlType, encode_control_key
from tests.support.logs import memory_disk

COUNT = 8_000
MAX_FOLD = 6
"""Whoever makes an object of each record holds more than twenty times their bytes. What is needed is less than
four times: the body, what stays of it, and that as a batch."""
OLD, NEW, MARKER = b"o", b"n", encode_control_key(ControlType.ABORT)
FULL, TOMBSTONE = b"", None
Records = Sequence[tuple[bytes, bytes | None]]


class Folded:
    """A segment of one small batch that unfolds to many tiny records."""

    def __init__(self, records: Records) -> None:
        batch = build_batch(
            [(0, key, value, ()) for key, value in records],
            codec=Codec.ZSTD,
            is_control=records[0][0] == MARKER,
        )
        body = records_body(batch, 0, parse_header(batch), max_decompressed_bytes=1 << 30)
        assert len(body) > 8 * len(batch), "what is held of the stored bytes counts for little"
        self.body_bytes = len(body)
        self.disk = memory_disk()
        file = self.disk.open("/data/old", create=True)
        file.append([batch])
        file.close()
        self.source = SourceSegment(0, COUNT, "/data/old", len(batch), 0)
        self.start = jobs.PiecePlace.start_of(self.source)
        self.transactions = CleanedTransactions([])
        self.offsets = OffsetMap(8, load_factor=0.9)

    def map(self) -> None:
        jobs.map_offsets(
            self.disk, self.source, self.start, self.source.size_bytes, self.offsets, self.transactions, 0
        )

    def clean(self) -> None:
        """Leaves none of the records with the key OLD."""
        self.offsets.put(NEW, 0)
        self.offsets.put(OLD, COUNT)
        self.offsets.latest_offset = COUNT - 1
        kept = BatchFilter(self.offsets, self.transactions, {}, now_ms=10**9, delete_retention_ms=1)
        jobs.clean_piece(
            self.disk, kept, self.source, self.start, "/data/new", 0, True, self.source.size_bytes
        )

    def record_count(self) -> int:
        """Of the batch that was left."""
        file = self.disk.open("/data/new")
        try:
            return parse_header(file.read(0, file.size())).record_count
        finally:
            file.close()


def held_bytes(job: Callable[[], None]) -> int:
    """The most that a job holds at a time."""
    tracemalloc.start()
    try:
        job()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_keys_are_mapped_in_bounded_memory() -> None:
    segment = Folded([(NEW, FULL)] * COUNT)
    assert held_bytes(segment.map) < MAX_FOLD * segment.body_bytes
    assert segment.offsets.get(NEW) == COUNT - 1


@pytest.mark.parametrize(
    ("records", "left"),
    [
        pytest.param([(NEW, FULL)] * COUNT, COUNT, id="all stay"),
        pytest.param([(OLD, FULL)] + [(NEW, FULL)] * (COUNT - 1), COUNT - 1, id="one goes"),
        pytest.param([(OLD, FULL), (NEW, FULL)] * (COUNT // 2), COUNT // 2, id="half go"),
        pytest.param([(OLD, FULL)] * COUNT, 0, id="none stay"),
        pytest.param([(NEW, TOMBSTONE)] + [(NEW, FULL)] * (COUNT - 1), COUNT, id="tombstones get a horizon"),
        pytest.param([(MARKER, FULL)] * COUNT, COUNT, id="markers get a horizon"),
    ],
)
def test_a_batch_is_cleaned_in_bounded_memory(records: Records, left: int) -> None:
    segment = Folded(records)
    assert held_bytes(segment.clean) < MAX_FOLD * segment.body_bytes
    assert segment.record_count() == left
