"""The rows of the table: each row's load, its brokers, and its repetitions.

A row runs against the null broker and against a real cluster in turn; the median of its runs is reported. Rates count
values only, as in 2014. CPU of the brokers counts from the start of the load until they are idle, so that replication
counts, too.

The rows of the benchmark of 2014 come twice: with our parameters, which keep the client from being the limit, and with
those of 2014. The Java producer of that time put one batch of each partition into a request; librdkafka sends each
batch in a request of its own, so that the small batches of 2014 cost a broker more requests here than they did then.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bench.brokers import TOPIC, Brokers, Cluster, null_broker
from bench.machine import bare_file, cpu_seconds, settle
from bench.processes import children
from bench.workers import RECORD_BYTES, turn_records

PARTITIONS = 6
WORKERS = "bench.workers"
OVERHEAD_BYTES = 7
"""Of a record in a log beside its value; its part of the batch header is far below a byte."""
STORED_RECORD_BYTES = RECORD_BYTES + OVERHEAD_BYTES
"""Of a record of 100 bytes in a log."""
TICK_S_PER_GB = 0.01
"""Stands for a CPU time too short to be seen."""
LATENCY_STEP = 1_000


@dataclass(frozen=True)
class Parameters:
    """What the producers of a row are told."""

    group: str
    """The rows of one group are one table."""
    title: str
    settings: tuple[str, ...] = ()
    """SETTING=VALUE, over `bench.workers.PRODUCER_SETTINGS`."""
    batch_records: int | None = None
    """How many records of 100 bytes fill a batch, in what the null broker serves; None: as it makes them itself."""


OURS = Parameters("ours", "batches of up to 1 MB, 50 ms linger")
OF_2014 = Parameters(
    "2014",
    "parameters of 2014: 8,196-byte batches, no linger, 64 MB buffer",
    (
        "batch.size=8196",
        "linger.ms=0",
        "queue.buffering.max.kbytes=65536",
        # As many 100-byte records as these are. librdkafka spends more on a smaller one than its size.
        "queue.buffering.max.messages=671088",
        "max.in.flight.requests.per.connection=5",
    ),
    8196 // STORED_RECORD_BYTES,
)
ONE_RECORD = replace(OF_2014, settings=(*OF_2014.settings, "batch.num.messages=1"), batch_records=1)


@dataclass(frozen=True)
class Row:
    """`producers` write and `consumers` read `share` of the run's bytes, each their part of it."""

    key: str
    title: str
    producers: int = 0
    consumers: int = 0
    acks: str = "1"
    replicas: Literal[1, 3] = 3
    repeats: int = 1
    share: float = 0.5
    is_latency: bool = False
    record_bytes: int = RECORD_BYTES
    parameters: Parameters = OURS

    @property
    def nodes(self) -> int:
        """One node for one replica: the null broker is one process, too."""
        return self.replicas

    @property
    def stores_one_copy(self) -> bool:
        """Whether the broker's work is to receive bytes and store them once."""
        return bool(self.producers) and self.replicas == 1

    def records(self, base: int) -> int:
        """Records in total, so many that every worker and every partition gets the same number.

        `base` is in records of 100 bytes.
        """
        turns = PARTITIONS * turn_records(self.record_bytes) * max(1, self.producers)
        step = LATENCY_STEP if self.is_latency else turns
        wanted = base * self.share * RECORD_BYTES / self.record_bytes
        return max(step, round(wanted / step) * step)


SIZES: tuple[Row, ...] = tuple(
    Row(
        f"2014-{size}-bytes",
        f"{size:,}-byte records, no replication",
        1,
        replicas=1,
        share=share,
        record_bytes=size,
        parameters=OF_2014,
    )
    # The larger the records, the more bytes a second: shares that take about as long.
    for size, share in ((10, 0.1), (100, 0.5), (1_000, 1.0), (10_000, 2.0), (100_000, 3.0))
)
"""The effect of a record's size: the larger, the fewer records and the more bytes a second."""
ROWS: tuple[Row, ...] = (
    Row("produce-1x", "one producer, no replication", 1, replicas=1, repeats=5, share=1.0),
    Row("produce-3x-async", "one producer, 3x asynchronous", 1),
    Row("produce-3x-sync", "one producer, 3x synchronous", 1, acks="-1"),
    Row("producers-3x-async", "three producers, 3x asynchronous", 3),
    Row("consume", "one consumer", consumers=1, replicas=1, repeats=5, share=1.0),
    Row("consumers", "three consumers", consumers=3),
    Row("both", "producer and consumer", 1, 1),
    Row("latency", "end to end latency, 3x, acks=all", acks="-1", is_latency=True, share=0.001),
    Row("2014-produce-1x", "one producer, no replication", 1, replicas=1, repeats=3, parameters=OF_2014),
    Row("2014-produce-3x-async", "one producer, 3x asynchronous", 1, parameters=OF_2014),
    Row("2014-produce-3x-sync", "one producer, 3x synchronous", 1, acks="-1", parameters=OF_2014),
    Row("2014-producers-3x-async", "three producers, 3x asynchronous", 3, parameters=OF_2014),
    Row("2014-consume", "one consumer", consumers=1, replicas=1, repeats=3, parameters=OF_2014),
    Row("2014-consumers", "three consumers", consumers=3, parameters=OF_2014),
    Row("2014-both", "producer and consumer", 1, 1, parameters=OF_2014),
    *SIZES,
    Row("2014-one-record", "one record a request", 1, replicas=1, share=0.05, parameters=ONE_RECORD),
)
GROUPS: dict[str, tuple[str, ...]] = {
    # A record at a time knows neither batches nor linger, so that the latency of 2014 is ours, too.
    "2014": tuple(row.key for row in ROWS if row.parameters.group == "2014" or row.is_latency)
}
"""Names of several rows."""


@dataclass(frozen=True)
class Sample:
    """One run of a row, or the median of several."""

    records_per_s: float
    mb_per_s: float
    broker_cpu_s_per_gb: float
    client_cpu_s_per_gb: float
    p50_ms: float | None = None
    p99_ms: float | None = None
    p999_ms: float | None = None
    producers_records_per_s: float | None = None
    """Of the producers alone, where there are consumers beside them; and the other way round."""
    consumers_records_per_s: float | None = None


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
        size_bytes = records * (row.record_bytes + OVERHEAD_BYTES) if row.stores_one_copy else 0
        with bare_file(size_bytes, brokers.local.directory) as file_cpu_s:
            runs.append((null, run_real(row, records, brokers)))
        file_costs.append(file_cpu_s / (records * row.record_bytes / 1e9))
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
        1 if row.is_latency else PARTITIONS,
        records=records if row.consumers else 0,
        batch_records=row.parameters.batch_records,
        keep=row.is_latency,
    ) as null:
        return measure(null, loads_of(row, null.bootstrap, TOPIC, records), row.record_bytes)


def run_real(row: Row, records: int, brokers: Cluster) -> Sample:
    """Runs a row once, on a new topic of the cluster. Raises BenchError."""
    with brokers.topic(1 if row.is_latency else PARTITIONS, row.replicas) as topic:
        if row.consumers:
            filling = [_producer(row, brokers.bootstrap, topic, records, "1")]
            measure(brokers, filling, row.record_bytes)
        return measure(brokers, loads_of(row, brokers.bootstrap, topic, records), row.record_bytes)


def loads_of(row: Row, bootstrap: str, topic: str, records: int) -> list[list[object]]:
    """The arguments of the row's workers."""
    if row.is_latency:
        return [["latency", bootstrap, topic, records]]
    of_each = records // max(1, row.producers)
    loads = [_producer(row, bootstrap, topic, of_each, row.acks) for _ in range(row.producers)]
    for number in range(row.consumers):
        partitions = PARTITIONS // row.consumers
        loads.append(["consume", bootstrap, topic, number * partitions, partitions, records // row.consumers])
    return loads


def _producer(row: Row, bootstrap: str, topic: str, records: int, acks: str) -> list[object]:
    parameters = (row.record_bytes, *row.parameters.settings)
    return ["produce", bootstrap, topic, PARTITIONS, records, acks, *parameters]


def measure(brokers: Brokers, loads: Sequence[Sequence[object]], record_bytes: int) -> Sample:
    """Runs the workers together, at `brokers`; the rate is that of all records until the last worker is done."""
    pids = brokers.pids()
    with children(WORKERS, loads) as workers:
        before_s = cpu_seconds(pids)
        for worker in workers:
            worker.go()
        reports = [worker.result() for worker in workers]
    settle(pids)
    spent_s = cpu_seconds(pids) - before_s
    gigabytes = sum(report["records"] for report in reports) * record_bytes / 1e9
    rate = _rate(reports)
    sides = {
        kind: [report for load, report in zip(loads, reports, strict=True) if load[0] == kind]
        for kind in ("produce", "consume")
    }
    apart = all(sides.values())
    return Sample(
        records_per_s=rate,
        mb_per_s=rate * record_bytes / 1e6,
        broker_cpu_s_per_gb=spent_s / gigabytes,
        client_cpu_s_per_gb=sum(report["client_cpu_s"] for report in reports) / gigabytes,
        p50_ms=reports[0].get("p50_ms"),
        p99_ms=reports[0].get("p99_ms"),
        p999_ms=reports[0].get("p999_ms"),
        producers_records_per_s=_rate(sides["produce"]) if apart else None,
        consumers_records_per_s=_rate(sides["consume"]) if apart else None,
    )


def _rate(reports: Sequence[Mapping[str, float]]) -> float:
    """Records a second of workers that started together, until the last one is done."""
    records = sum(report["records"] for report in reports)
    return records / max(report["elapsed_s"] for report in reports)
