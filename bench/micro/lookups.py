"""Lookups of an offset and of a time in a log of many segments.

Timestamps rise and fall from batch to batch, so that no segment's largest one says anything about the next one's.
Every batch has an index entry, as if segments were much larger.
"""

from __future__ import annotations

import random
import shutil
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.micro.logs import cpu_s, open_log
from partitions.log.config import LogConfig
from partitions.log.index import OffsetIndex, OffsetIndexView
from partitions.log.log import PartitionLog
from partitions.records.builder import build_batch

SEGMENTS = 1_000
BATCHES = 512
"""Batches, and about as many index entries, in a segment."""
LOOKUPS = 20_000
ROUNDS = 5
LARGEST_ENTRIES = 262_144
"""Of a segment of 1 GiB with an entry every 4 KiB."""
STEP_MS = 1_000


class Lookups(NamedTuple):
    """Microseconds of CPU time of one lookup, medians of rounds over random offsets and times."""

    segments: int
    first_time_lookup_ms: float
    """After a start, before any segment was asked for its largest timestamp."""
    offset_us: float
    """From an offset to its segment and the index's position in it."""
    time_us: float
    """From a time to the first segment that reaches it and the index's position in it."""
    read_us: float
    """From an offset to the range of the file that answers a fetch, in segments that were found at start: most
    reads at a random offset compare some CRCs first."""
    list_offset_us: float
    """From a time to the record: what ListOffsets costs, batch headers and one batch's records included."""
    largest_index_us: float
    """In the offset index of a segment of 1 GiB."""


def lookups(directory: Path) -> Lookups:
    """Writes the log, opens it anew, and looks things up in it."""
    rng = random.Random(1)
    newest_ms = _write(directory / "log", rng)
    log = open_log(directory / "log")
    try:
        offsets = [rng.randrange(log.log_end_offset) for _ in range(LOOKUPS)]
        times = [rng.randrange(STEP_MS, newest_ms) for _ in range(LOOKUPS)]
        first_s = cpu_s(lambda: log.offset_for_timestamp(times[0]))
        return Lookups(
            segments=SEGMENTS,
            first_time_lookup_ms=first_s * 1e3,
            offset_us=_each_us(_offset_lookup(log), offsets),
            time_us=_each_us(_time_lookup(log), times),
            read_us=_each_us(lambda at: log.read(at, 1, up_to_offset=log.log_end_offset), offsets),
            list_offset_us=_each_us(log.offset_for_timestamp, times),
            largest_index_us=_largest_us(rng),
        )
    finally:
        log.abandon()
        shutil.rmtree(directory / "log")


def _write(directory: Path, rng: random.Random) -> int:
    """The log, closed cleanly; returns its largest timestamp."""
    newest_ms = 0
    log = None
    for number in range(SEGMENTS):
        times = [
            STEP_MS * (number + 1) + rng.randrange(-20 * STEP_MS, 20 * STEP_MS) // 2 for _ in range(BATCHES)
        ]
        newest_ms = max(newest_ms, *times)
        records = b"".join(build_batch([(max(1, at_ms), None, b"%06d" % number, ())]) for at_ms in times)
        if log is None:
            size = len(records)
            log = open_log(directory, LogConfig(segment_bytes=size, index_interval_bytes=0))
        log.append_as_leader(records, leader_epoch=0)
    assert log is not None
    log.close()
    return newest_ms


def _offset_lookup(log: PartitionLog) -> Callable[[int], int]:
    segments = log._segments

    def look_up(offset: int) -> int:
        segment = segments[segments.position_for(offset)]
        return segment.offset_index.floor(offset - segment.base_offset)

    return look_up


def _time_lookup(log: PartitionLog) -> Callable[[int], int]:
    segments = log._segments

    def look_up(time_ms: int) -> int:
        number = segments.first_reaching(time_ms)
        return -1 if number is None else segments[number].locate_time(time_ms)

    return look_up


def _largest_us(rng: random.Random) -> float:
    index = OffsetIndex()
    for number in range(1, LARGEST_ENTRIES + 1):
        index.append(number, number * 4096 % 2**31)
    view = OffsetIndexView(memoryview(index.encode_from(0)).toreadonly())
    return _each_us(view.floor, [rng.randrange(LARGEST_ENTRIES) for _ in range(LOOKUPS)])


def _each_us(look_up: Callable[[int], object], keys: Sequence[int]) -> float:
    def look_up_all() -> None:
        for key in keys:
            look_up(key)

    look_up_all()  # maps what has to be mapped
    return statistics.median(cpu_s(look_up_all) for _ in range(ROUNDS)) / len(keys) * 1e6
