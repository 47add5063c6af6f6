"""Appending as leader, against `os.writev` of the same buffers to a file of the same file system."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NamedTuple

from bench.micro.logs import batch_of_bytes, cpu_s, open_log

ROUNDS = 21
LARGE_BYTES = 1_000_000
LARGE_BATCHES = 64
SMALL_BYTES = 1_000
SMALL_BATCHES = 20_000


class Appends(NamedTuple):
    """The best of several rounds each, in which log and bare loop take turns with a new file."""

    batch_bytes: int
    batches_per_append: int
    batches_per_s: float
    mb_per_s: float
    bare_batches_per_s: float
    ratio: float
    """Of the rates, log to bare loop."""


def appends(directory: Path, batch_bytes: int, batches: int, *, per_append: int = 1) -> Appends:
    """Appends of `per_append` batches each; the bare loop makes one call for as many bytes."""
    records = batch_of_bytes(batch_bytes) * per_append
    times = batches // per_append
    pairs = [
        (_appended_s(directory / "log", records, times), _written_s(directory / "bare", records, times))
        for _ in range(ROUNDS)
    ]
    log_s = min(pair[0] for pair in pairs)
    bare_s = min(pair[1] for pair in pairs)
    done = times * per_append
    return Appends(
        batch_bytes=batch_bytes,
        batches_per_append=per_append,
        batches_per_s=done / log_s,
        mb_per_s=times * len(records) / log_s / 1e6,
        bare_batches_per_s=done / bare_s,
        ratio=bare_s / log_s,
    )


def _appended_s(directory: Path, records: bytes, times: int) -> float:
    log = open_log(directory)

    def append() -> None:
        for _ in range(times):
            log.append_as_leader(records, leader_epoch=0)

    try:
        return cpu_s(append)
    finally:
        log.abandon()
        shutil.rmtree(directory)


def _written_s(path: Path, records: bytes, times: int) -> float:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    buffers = [records]

    def write() -> None:
        for _ in range(times):
            os.writev(descriptor, buffers)

    try:
        return cpu_s(write)
    finally:
        os.close(descriptor)
        path.unlink()
