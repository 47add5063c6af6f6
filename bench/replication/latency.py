"""The latency of acknowledged writes at a tenth of the cluster's maximal rate, 3x, acks=-1."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from bench.brokers import cluster
from bench.machine import cpu_seconds
from bench.processes import children
from bench.replication.throughput import NODES, SYNC
from bench.rows import PARTITIONS, WORKERS, run_real

SHARE = 0.1


class Latency(NamedTuple):
    """From the call that sends a record to its acknowledgement, linger included, as librdkafka measures it."""

    maximum_records_per_s: float
    """The rate of the same producer just before, at full speed."""
    records_per_s: float
    """Of the paced load."""
    records: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    brokers_cores: float
    """CPU seconds of all brokers in a second of the paced load."""
    client_cores: float


def latency(directory: Path, records: int, seconds: int) -> Latency:
    """Finds the maximal rate with about `records` records, then sends `seconds` of a tenth of it."""
    with cluster(directory / "latency", NODES) as brokers:
        maximum = run_real(SYNC, SYNC.records(records), brokers).records_per_s
        rate = max(1, round(maximum * SHARE))
        with brokers.topic(PARTITIONS, NODES) as topic:
            load = ["paced", brokers.bootstrap, topic, PARTITIONS, rate, rate * seconds]
            with children(WORKERS, [load]) as (worker,):
                before_s = cpu_seconds(brokers.pids())
                worker.go()
                report = worker.result()
                spent_s = cpu_seconds(brokers.pids()) - before_s
    return Latency(
        maximum_records_per_s=maximum,
        records_per_s=report["records"] / report["elapsed_s"],
        records=int(report["records"]),
        p50_ms=report["p50_ms"],
        p99_ms=report["p99_ms"],
        p999_ms=report["p999_ms"],
        brokers_cores=spent_s / report["elapsed_s"],
        client_cores=report["client_cpu_s"] / report["elapsed_s"],
    )
