"""The throughput of one producer, replicated and not, on the same three brokers: rates, and the brokers' CPU per GB.

The rows take turns, so that all see the same machine; medians are compared. CPU counts from the start of the load
until the brokers are idle, so that later copying by followers counts, too.

All rows store equally many bytes: without replication three times as many records are sent. On a virtual machine
whose host takes free memory back, the first touch of a page is a fault there, charged to the broker, ten times as
dear as the write itself. Memory given back a moment ago is spared this, but there is only enough of it to store few
records once, not three times. Rows of equally many records would mostly compare that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from bench.brokers import cluster
from bench.rows import Row, Sample, median, run_real

NODES = 3
UNREPLICATED = Row("unreplicated", "one producer, no replication", 1, replicas=1, share=float(NODES))
ASYNC = Row("async", "one producer, 3x asynchronous", 1, share=1.0)
SYNC = Row("sync", "one producer, 3x synchronous", 1, acks="-1", share=1.0)
ROWS = (UNREPLICATED, ASYNC, SYNC)


class Throughput(NamedTuple):
    """Medians of each row, and all runs by the row's key."""

    unreplicated: Sample
    asynchronous: Sample
    synchronous: Sample
    runs: dict[str, list[Sample]]

    @property
    def async_ratio(self) -> float:
        return self.asynchronous.records_per_s / self.unreplicated.records_per_s

    @property
    def sync_ratio(self) -> float:
        return self.synchronous.records_per_s / self.unreplicated.records_per_s

    @property
    def async_cpu_ratio(self) -> float:
        return self.asynchronous.broker_cpu_s_per_gb / self.unreplicated.broker_cpu_s_per_gb

    @property
    def sync_cpu_ratio(self) -> float:
        return self.synchronous.broker_cpu_s_per_gb / self.unreplicated.broker_cpu_s_per_gb

    def document(self) -> dict[str, Any]:
        """As JSON values; CPU is in seconds per GB (10^9 bytes) of record values, all brokers together."""
        return {
            "async_ratio": self.async_ratio,
            "sync_ratio": self.sync_ratio,
            "async_cpu_ratio": self.async_cpu_ratio,
            "sync_cpu_ratio": self.sync_cpu_ratio,
            "runs": {key: [_document(sample) for sample in samples] for key, samples in self.runs.items()},
        }


def _document(sample: Sample) -> dict[str, float]:
    return {
        "records_per_s": sample.records_per_s,
        "broker_cpu_s_per_gb": sample.broker_cpu_s_per_gb,
        "client_cpu_s_per_gb": sample.client_cpu_s_per_gb,
    }


def throughput(directory: Path, records: int, repeats: int) -> Throughput:
    """Runs every row `repeats` times; the replicated ones send about `records` records. Raises BenchError."""
    runs: dict[str, list[Sample]] = {row.key: [] for row in ROWS}
    with cluster(directory / "throughput", NODES) as brokers:
        for _ in range(repeats):
            for row in ROWS:
                runs[row.key].append(run_real(row, row.records(records), brokers))
    unreplicated, asynchronous, synchronous = (median(runs[row.key]) for row in ROWS)
    return Throughput(unreplicated, asynchronous, synchronous, runs)
