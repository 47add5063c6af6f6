"""The cleaning of a compacted log: how long the broker's event loop stands still meanwhile, and how fast it goes.

The loop is uvloop as in `kraft server`, the cleaner and its executor are the broker's. A timer of a millisecond
tells how late the loop is. Other work on the machine makes it late as well. So the same timer is first read beside
an idle executor, and beside one whose jobs compute in plain Python and fsync: they hold the interpreter's lock as
any computing does, and no longer.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import NamedTuple

from bench.processes import Child
from partitions.records.compression import Codec

TIMEOUT_S = 900.0
CONTROL_S = 5.0
"""How long the loop is watched beside each of the two other executors."""


class Shape(NamedTuple):
    """A log with about two records of each key, so that rather more than half goes."""

    codec: Codec
    value_bytes: int
    text_bytes: int
    """Bytes of values that are drawn before they repeat, which decides how well a codec does."""
    batch_records: int
    keys: int
    log_bytes: int
    segment_bytes: int
    cleaned_segment_bytes: int
    """`segment.bytes` at the cleaning; if it is more than before, old segments are merged."""


_MIB = 1024 * 1024
SHAPES = {
    "1 KB records, one segment of 1 GB": Shape(
        Codec.NONE, 1_000, _MIB, 60, 500_000, 1_060_000_000, 1024 * _MIB, 1024 * _MIB
    ),
    "1 KB records, segments of 1 MB become 64 MB": Shape(
        Codec.NONE, 1_000, _MIB, 60, 120_000, 256_000_000, _MIB, 64 * _MIB
    ),
    "100-byte records": Shape(Codec.NONE, 75, _MIB, 160, 1_200_000, 240_000_000, 64 * _MIB, 64 * _MIB),
    "100-byte records, lz4, batches of 1 MB": Shape(
        Codec.LZ4, 75, 4096, 36_000, 1_200_000, 64_000_000, 16 * _MIB, 16 * _MIB
    ),
    "100-byte records, zstd, batches of 1 MB": Shape(
        Codec.ZSTD, 75, 4096, 75_000, 1_200_000, 32_000_000, 16 * _MIB, 16 * _MIB
    ),
}


class Lateness(NamedTuple):
    """Of the loop's timer, in ms."""

    longest_ms: float
    p999_ms: float


class Compaction(NamedTuple):
    """One log, cleaned once."""

    records: int
    log_mb: float
    left_mb: float
    """Of the log, behind the cleaning."""
    segments: int
    mb_per_s: float
    """Bytes of the log a second, from the flush before the cleaning to the checkpoint behind it."""
    cleaning: Lateness
    resting: Lateness
    """Beside an executor without jobs."""
    computing: Lateness
    """Beside jobs that compute and fsync."""

    def figures(self) -> dict[str, object]:
        """As JSON has it."""
        late = {name: getattr(self, name)._asdict() for name in ("cleaning", "resting", "computing")}
        return {**self._asdict(), **late}


def compaction(
    directory: Path, name: str, *, log_bytes: int | None = None, control_s: float = CONTROL_S
) -> Compaction:
    """Fills a log of this shape, of `log_bytes` if told so, and cleans it, all in a process of its own.

    Raises BenchError.
    """
    data = directory / "compaction"
    try:
        arguments = [name, data, log_bytes or SHAPES[name].log_bytes, control_s]
        with Child("bench.micro.compactor", arguments) as compactor:
            report = json.loads(compactor.read_line(TIMEOUT_S))
    finally:
        shutil.rmtree(data, ignore_errors=True)
    late = {key: Lateness(*report.pop(key)) for key in ("cleaning", "resting", "computing")}
    return Compaction(**report, **late)
