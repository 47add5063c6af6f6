"""The opening of a log after a crash: every byte read and every CRC compared, from the page cache."""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path
from typing import NamedTuple

from bench.errors import BenchError
from bench.micro.logs import batch_of_bytes, cpu_s, open_log
from partitions.log.config import LogConfig

LOG_BYTES = 512 * 1024 * 1024
SEGMENT_BYTES = 128 * 1024 * 1024
BATCH_BYTES = (1_000_000, 64_000, 16_000)
"""The first two are sizes of busy producers."""
ROUNDS = 3
_APPEND_BYTES = 1_000_000


class Recovery(NamedTuple):
    """Of a log whose recovery point is 0; the median, by CPU time."""

    batch_bytes: int
    gb_per_s: float


def recovery(directory: Path, batch_bytes: int, *, log_bytes: int = LOG_BYTES) -> Recovery:
    """Fills a log, drops it without closing, and opens it."""
    config = LogConfig(segment_bytes=SEGMENT_BYTES)
    records = batch_of_bytes(batch_bytes) * max(1, _APPEND_BYTES // batch_bytes)
    log = open_log(directory / "log", config)
    try:
        while log.size_bytes < log_bytes:
            log.append_as_leader(records, leader_epoch=0)
        end, size_bytes = log.log_end_offset, log.size_bytes
        log.abandon()
        spent_s = []
        for _ in range(ROUNDS):
            spent_s.append(cpu_s(lambda: _recover(directory / "log", config, end)))
        return Recovery(batch_bytes, size_bytes / statistics.median(spent_s) / 1e9)
    finally:
        shutil.rmtree(directory / "log")


def _recover(directory: Path, config: LogConfig, end: int) -> None:
    log = open_log(directory, config, clean=False)
    if log.log_end_offset != end:
        raise BenchError(f"the log came back up to offset {log.log_end_offset} instead of {end}")
    log.abandon()
