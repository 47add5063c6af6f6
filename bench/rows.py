"""The rows of the table: what is run, against which brokers, and how often.

A row runs against the null broker and against a real cluster in turn; what is reported is the median
of its runs. Records are of 100 bytes; rates count values only, as in 2014. CPU of the brokers counts
from the start of the load until they have nothing left to do, so that replication counts too.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bench.brokers import TOPIC, Brokers, Cluster, null_broker
from bench.machine import cpu_seconds, settle
from bench.processes import children
from bench.workers import RECORD_BYTES

PARTITIONS = 6
WORKERS = "bench.workers"
LATENCY_RATE = 1_000
"""Records per second of the latency row."""


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
        """One node where there is one replica: the null broker is one process too."""
        return self.replicas

    def records(self, base: int) -> int:
        """Records in total, a multiple of what divides them evenly."""
        step = PARTITIONS * 1_000
        return max(step, round(base * self.share / step) * step)


ROWS: tuple[Row, ...] = (
    Row("produce-1x", "one producer, no replication", 1, replicas=1, repeats=3, share=1.0),
    Row("produce-3x-async", "one producer, 3x asynchronous", 1),
    Row("produce-3x-sync", "one producer, 3x synchronous", 1, acks="-1"),
    Row("producers-3x-async", "three producers, 3x asynchronous", 3),
    Row("consume", "one consumer", consumers=1, replicas=1, repeats=3, share=1.0),
    Row("consumers", "three consumers", consumers=3),
    Row("both", "producer and consumer", 1, 1),
    Row("latency", "end to end latency, 3x, acks=all", acks="-1", is_latency=True, share=0.002),
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
    """A row's medians, and every run for those who want to see how they spread."""

    row: Row
    records: int
    null: Sample
    real: Sample
    ratio: float
    cpu_ratio: float
    runs: tuple[tuple[Sample, Sample], ...]


def run_row(row: Row, base_records: int, brokers: Cluster) -> RowResult:
    """Runs a row in alternation, null broker first. Raises BenchError."""
    records = row.records(base_records)
    runs = []
    for _ in range(row.repeats):
        runs.append((_run_null(row, records), _run_real(row, records, brokers)))
    null = median([run[0] for run in runs])
    real = median([run[1] for run in runs])
    return RowResult(
        row,
        records,
        null,
        real,
        ratio=statistics.median(run[1].records_per_s / run[0].records_per_s for run in runs),
        cpu_ratio=statistics.median(
            run[1].broker_cpu_s_per_gb / max(run[0].broker_cpu_s_per_gb, 1e-9) for run in runs
        ),
        runs=tuple(runs),
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


def _run_real(row: Row, records: int, brokers: Cluster) -> Sample:
    with brokers.topic(1 if row.is_latency else PARTITIONS, row.replicas) as topic:
        if row.consumers:
            _measure(brokers, [_producer(brokers.bootstrap, topic, records, "1")])
        return _measure(brokers, _loads(row, brokers.bootstrap, topic, records))


def _loads(row: Row, bootstrap: str, topic: str, records: int) -> list[list[object]]:
    """The arguments of the row's workers."""
    if row.is_latency:
        return [["latency", bootstrap, topic, records, LATENCY_RATE]]
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
