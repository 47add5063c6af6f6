"""The rows of the table: each row's load, its brokers, and its repetitions.

A row runs against the null broker and against a real cluster in turn; the median of its runs is reported. Records
have 100 bytes; rates count values only, as in 2014. CPU of the brokers counts from the start of the load until they
are idle, so that replication counts, too.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bench.brokers import TOPIC, Brokers, Cluster, null_broker
from bench.machine import bare_file, cpu_seconds, settle
from bench.processes import children
from bench.workers import BATCH_RECORDS, RECORD_BYTES

PARTITIONS = 6
WORKERS = "bench.workers"
STORED_RECORD_BYTES = 107
"""Of a record of 100 bytes in a log, batch headers included."""
TICK_S_PER_GB = 0.01
"""Stands for a CPU time too short to be seen."""
LATENCY_STEP = 1_000


@dataclass(frozen=True)
class Row:
    """`producers` write and `consumers` read `share` of the run's records, each their part of it."""

    key: str
    title: str
    producers: int = 0
    consumers: int = 0
    acks: str = "1"
    replicas: Literal[1, 3] = 3
    repeats: int = 1
    share: float = 0.5
    is_latency: bool = False

    @property
    def nodes(self) -> int:
        """One node for one replica: the null broker is one process, too."""
        return self.replicas

    @property
    def stores_one_copy(self) -> bool:
        """Whether the broker's work is to receive bytes and store them once."""
        return bool(self.producers) and self.replicas == 1

    def records(self, base: int) -> int:
        """Records in total, so many that every worker and every partition gets the same number."""
        step = LATENCY_STEP if self.is_latency else PARTITIONS * BATCH_RECORDS * max(1, self.producers)
        return max(step, round(base * self.share / step) * step)


ROWS: tuple[Row, ...] = (
    Row("produce-1x", "one producer, no replication", 1, replicas=1, repeats=5, share=1.0),
    Row("produce-3x-async", "one producer, 3x asynchronous", 1),
    Row("produce-3x-sync", "one producer, 3x synchronous", 1, acks="-1"),
    Row("producers-3x-async", "three producers, 3x asynchronous", 3),
    Row("consume", "one consumer", consumers=1, replicas=1, repeats=5, share=1.0),
    Row("consumers", "three consumers", consumers=3),
    Row("both", "producer and consumer", 1, 1),
    Row("latency", "end to end latency, 3x, acks=all", acks="-1", is_latency=True, share=0.001),
)


@dataclass(frozen=True)
class Sample:
    """One run of a row, or the median of several."""

    records_per_s: float
    broker_cpu_s_per_gb: float
    client_cpu_s_per_gb: float
    p50_ms: float | None = None
    p99_ms: float | None = None
    p999_ms: float | None = None

    @property
    def mb_per_s(self) -> float:
        return self.records_per_s * RECORD_BYTES / 1e6


@dataclass(frozen=True)
class RowResult:
    """A row's medians, and every run (null, real), which show the spread."""

    row: Row
    records: int
    null: Sample
    real: Sample
    file_cpu_s_per_gb: float | None
    """CPU of a bare writer of as many bytes, just before; for rows that store one copy."""
    runs: tuple[tuple[Sample, Sample], ...]

    @property
    def ratio(self) -> float:
        """The ratio of the rates, real to null."""
        return self.real.records_per_s / self.null.records_per_s

    @property
    def cpu_ratio(self) -> float:
        """The ratio of the brokers' CPU, real to null."""
        return self.real.broker_cpu_s_per_gb / max(self.null.broker_cpu_s_per_gb, TICK_S_PER_GB)

    @property
    def storing_cpu_ratio(self) -> float | None:
        """The ratio of the brokers' CPU, real to the null broker and the bare writer together."""
        if self.file_cpu_s_per_gb is None:
            return None
        bare = self.null.broker_cpu_s_per_gb + self.file_cpu_s_per_gb
        return self.real.broker_cpu_s_per_gb / max(bare, TICK_S_PER_GB)


def run_row(row: Row, base_records: int, brokers: Cluster) -> RowResult:
    """Runs a row in alternation, null broker first. Raises BenchError."""
    records = row.records(base_records)
    runs: list[tuple[Sample, Sample]] = []
    file_costs: list[float] = []
    for _ in range(row.repeats):
        null = _run_null(row, records)
        # The bare file stays while the broker writes: both then take memory in the same state.
        size_bytes = records * STORED_RECORD_BYTES if row.stores_one_copy else 0
        with bare_file(size_bytes, brokers.local.directory) as file_cpu_s:
            runs.append((null, run_real(row, records, brokers)))
        file_costs.append(file_cpu_s / (records * RECORD_BYTES / 1e9))
    null = median([run[0] for run in runs])
    real = median([run[1] for run in runs])
    file_cost = statistics.median(file_costs)
    return RowResult(
        row,
        records,
        null,
        real,
        file_cost if row.stores_one_copy else None,
        tuple(runs),
    )


def median(samples: Sequence[Sample]) -> Sample:
    """Field by field."""

    def of(name: str) -> float | None:
        values = [getattr(sample, name) for sample in samples]
        return None if None in values else statistics.median(values)

    return Sample(**{name: of(name) for name in Sample.__dataclass_fields__})  # type: ignore[arg-type]


def _run_null(row: Row, records: int) -> Sample:
    with null_broker(
        1 if row.is_latency else PARTITIONS, records=records if row.consumers else 0, keep=row.is_latency
    ) as null:
        return _measure(null, _loads(row, null.bootstrap, TOPIC, records))


def run_real(row: Row, records: int, brokers: Cluster) -> Sample:
    """Runs a row once, on a new topic of the cluster. Raises BenchError."""
    with brokers.topic(1 if row.is_latency else PARTITIONS, row.replicas) as topic:
        if row.consumers:
            _measure(brokers, [_producer(brokers.bootstrap, topic, records, "1")])
        return _measure(brokers, _loads(row, brokers.bootstrap, topic, records))


def _loads(row: Row, bootstrap: str, topic: str, records: int) -> list[list[object]]:
    """The arguments of the row's workers."""
    if row.is_latency:
        return [["latency", bootstrap, topic, records]]
    loads = [_producer(bootstrap, topic, records // row.producers, row.acks) for _ in range(row.producers)]
    for number in range(row.consumers):
        partitions = PARTITIONS // row.consumers
        loads.append(["consume", bootstrap, topic, number * partitions, partitions, records // row.consumers])
    return loads


def _producer(bootstrap: str, topic: str, records: int, acks: str) -> list[object]:
    return ["produce", bootstrap, topic, PARTITIONS, records, acks]


def _measure(brokers: Brokers, loads: Sequence[Sequence[object]]) -> Sample:
    """Runs the workers together; the rate is that of all records until the last worker is done."""
    pids = brokers.pids()
    with children(WORKERS, loads) as workers:
        before_s = cpu_seconds(pids)
        for worker in workers:
            worker.go()
        reports = [worker.result() for worker in workers]
    settle(pids)
    spent_s = cpu_seconds(pids) - before_s
    records = sum(report["records"] for report in reports)
    gigabytes = records * RECORD_BYTES / 1e9
    return Sample(
        records_per_s=records / max(report["elapsed_s"] for report in reports),
        broker_cpu_s_per_gb=spent_s / gigabytes,
        client_cpu_s_per_gb=sum(report["client_cpu_s"] for report in reports) / gigabytes,
        p50_ms=reports[0].get("p50_ms"),
        p99_ms=reports[0].get("p99_ms"),
        p999_ms=reports[0].get("p999_ms"),
    )
