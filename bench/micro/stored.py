"""A producer of 100-byte records against a broker that already holds much data: is it slower?

"Throughput versus stored data" of the benchmark of 2014: one producer fills a topic of one broker. Then that broker
and another one with little data take slices in turns, so that the file system's other work at that moment slows
both. Memory that deleted files have just given back is cheaper than other memory, so each broker has it every other
time. Everything is deleted afterwards.
"""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path
from typing import NamedTuple

from bench.brokers import Cluster, cluster
from bench.errors import BenchError
from bench.machine import cpu_seconds, settle
from bench.processes import children
from bench.rows import PARTITIONS, STORED_RECORD_BYTES
from bench.workers import BATCH_RECORDS, RECORD_BYTES

LITTLE_GB = 0.2
PAIRS = 16
"""Slices of either broker, an even number: one alone may be 15 % slower than the next."""
SLICE_GB = BATCH_RECORDS * PARTITIONS * 60 * STORED_RECORD_BYTES / 1e9
"""About 0.19, 1.8 million records."""
SPARE_GB = 5.0
"""Space to be left free on the disk."""


class Stored(NamedTuple):
    """Means of the slices of the broker with little and of the broker with much on disk."""

    little_gb: float
    much_gb: float
    little_records_per_s: float
    much_records_per_s: float
    little_cpu_s_per_gb: float
    """CPU of the broker's process for a GB of values: other work on the machine matters less to it."""
    much_cpu_s_per_gb: float

    @property
    def ratio(self) -> float:
        return self.much_records_per_s / self.little_records_per_s


class _Slice(NamedTuple):
    """The result of one run of the producer."""

    records_per_s: float
    cpu_s_per_gb: float


def stored(directory: Path, much_gb: float) -> Stored:
    """Fills a topic up to `much_gb`. Raises BenchError where the disk has no room for it."""
    needed_gb = max(much_gb, LITTLE_GB) + PAIRS * SLICE_GB + LITTLE_GB + SLICE_GB
    free_gb = shutil.disk_usage(directory).free / 1e9
    if free_gb < needed_gb + SPARE_GB:
        raise BenchError(
            f"{needed_gb:.1f} GB and {SPARE_GB:.0f} GB to spare do not fit on the disk of {directory}:"
            f" it has {free_gb:.1f} GB free; ask for less with --stored-gb"
        )
    little: list[_Slice] = []
    much: list[_Slice] = []
    with (
        cluster(directory / "much", 1) as full,
        full.topic(PARTITIONS, 1) as full_topic,
        cluster(directory / "little", 1) as empty,
    ):
        _produce(full, full_topic, max(much_gb, LITTLE_GB))
        for number in range(PAIRS):
            with empty.topic(PARTITIONS, 1) as empty_topic:
                _produce(empty, empty_topic, LITTLE_GB)
                turns = [(empty, empty_topic, little), (full, full_topic, much)]
                for brokers, topic, slices in turns if number % 2 else reversed(turns):
                    slices.append(_produce(brokers, topic, SLICE_GB))
    return Stored(
        little_gb=LITTLE_GB,
        much_gb=max(much_gb, LITTLE_GB),
        little_records_per_s=statistics.harmonic_mean(slice_.records_per_s for slice_ in little),
        much_records_per_s=statistics.harmonic_mean(slice_.records_per_s for slice_ in much),
        little_cpu_s_per_gb=statistics.fmean(slice_.cpu_s_per_gb for slice_ in little),
        much_cpu_s_per_gb=statistics.fmean(slice_.cpu_s_per_gb for slice_ in much),
    )


def _produce(brokers: Cluster, topic: str, stored_gb: float) -> _Slice:
    """One producer, until as much more is stored."""
    records = round(stored_gb * 1e9 / STORED_RECORD_BYTES)
    load = ["produce", brokers.bootstrap, topic, PARTITIONS, records, "1"]
    settle(brokers.pids())
    before_s = cpu_seconds(brokers.pids())
    with children("bench.workers", [load]) as (worker,):
        worker.go()
        report = worker.result()
    return _Slice(
        report["records"] / report["elapsed_s"],
        (cpu_seconds(brokers.pids()) - before_s) / (records * RECORD_BYTES / 1e9),
    )
