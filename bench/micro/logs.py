"""The logs of the measures, and batches to fill them with."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from bench.errors import BenchError
from kraft.runtime.disk import RealDisk
from partitions.log.config import LogConfig
from partitions.log.log import PartitionLog
from partitions.log.storage import LogStorage
from partitions.records.builder import build_batch
from partitions.topic_partition import TopicPartition

PARTITION = TopicPartition("bench", 0)


def halt(reason: str) -> None:
    """The halt port of a log whose disk failed."""
    raise BenchError(f"the log halted: {reason}")


def now_ms() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000_000


def open_log(
    directory: Path, config: LogConfig | None = None, *, clean: bool = True, storage: LogStorage | None = None
) -> PartitionLog:
    """The log in this folder, or a new one."""
    return PartitionLog.open(
        RealDisk(),
        str(directory),
        PARTITION,
        config or LogConfig(max_message_bytes=8 * 1024 * 1024),
        now_ms=now_ms,
        halt=halt,
        clean_shutdown=clean,
        storage=storage,
    )


def batch_of_bytes(size_bytes: int, *, timestamp: int | None = None) -> bytes:
    """One batch of one incompressible record, of about this size."""
    at_ms = now_ms() if timestamp is None else timestamp
    overhead = len(build_batch([(at_ms, None, b"", ())]))
    return build_batch([(at_ms, None, os.urandom(max(1, size_bytes - overhead)), ())])


def cpu_s(action: Callable[[], object]) -> float:
    """The action's CPU time, the kernel's included: no action measured so waits for anything, and other work on the
    machine matters less than to the wall clock."""
    began_s = time.process_time()
    action()
    return time.process_time() - began_s
