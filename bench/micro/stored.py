"""Whether a producer of 100-byte records is slower when the broker already holds much data.

"Throughput versus stored data" of the benchmark of 2014: one producer fills one topic, slice after slice;
the rate of the first slices is compared with that of the last ones. Everything is deleted afterwards.
"""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path
from typing import NamedTuple

from bench.brokers import cluster
from bench.errors import BenchError
from bench.machine import cpu_seconds, settle
from bench.processes import children
from bench.rows import PARTITIONS, STORED_RECORD_BYTES
from bench.workers import BATCH_RECORDS, RECORD_BYTES

LITTLE_GB = 0.2
SLICES_COMPARED = 5
SLICE_RECORDS = BATCH_RECORDS * PARTITIONS * 60
"""1.8 million records, about 0.19 GB."""
SPARE_GB = 5.0
"""To be left free on the disk."""


class Stored(NamedTuple):
    """Medians of the slices that began with little and with much on disk."""

    little_gb: float
    much_gb: float
    little_records_per_s: float
    much_records_per_s: float
    little_cpu_s_per_gb: float
    """Of the broker's process, for a GB of values: what else runs on the machine matters less to it."""
    much_cpu_s_per_gb: float

    @property
    def ratio(self) -> float:
        return self.much_records_per_s / self.little_records_per_s


def stored(directory: Path, much_gb: float) -> Stored:
    """Fills a topic up to `much_gb`. Raises BenchError where the disk has no room for it."""
    slice_gb = SLICE_RECORDS * STORED_RECORD_BYTES / 1e9
    slices = SLICES_COMPARED + max(SLICES_COMPARED, round(much_gb / slice_gb))
    free_gb = shutil.disk_usage(directory).free / 1e9
    if free_gb < slices * slice_gb + SPARE_GB:
        raise BenchError(
            f"{slices * slice_gb:.1f} GB and {SPARE_GB:.0f} GB to spare do not fit on the disk of {directory}:"
            f" it has {free_gb:.1f} GB free; ask for less with --stored-gb"
        )
    with cluster(directory / "stored", 1) as brokers, brokers.topic(PARTITIONS, 1) as topic:
        _produce(brokers.bootstrap, topic, round(LITTLE_GB * 1e9 / STORED_RECORD_BYTES))
        rates: list[float] = []
        spent: list[float] = []
        for _ in range(slices):
            settle(brokers.pids())
            before_s = cpu_seconds(brokers.pids())
            rates.append(_produce(brokers.bootstrap, topic, SLICE_RECORDS))
            spent.append((cpu_seconds(brokers.pids()) - before_s) / (SLICE_RECORDS * RECORD_BYTES / 1e9))
    return Stored(
        little_gb=LITTLE_GB,
        much_gb=LITTLE_GB + (slices - SLICES_COMPARED) * slice_gb,
        little_records_per_s=statistics.median(rates[:SLICES_COMPARED]),
        much_records_per_s=statistics.median(rates[-SLICES_COMPARED:]),
        little_cpu_s_per_gb=statistics.median(spent[:SLICES_COMPARED]),
        much_cpu_s_per_gb=statistics.median(spent[-SLICES_COMPARED:]),
    )


def _produce(bootstrap: str, topic: str, records: int) -> float:
    """Records/s of one producer."""
    load = ["produce", bootstrap, topic, PARTITIONS, records, "1"]
    with children("bench.workers", [load]) as (worker,):
        worker.go()
        report = worker.result()
    return report["records"] / report["elapsed_s"]
