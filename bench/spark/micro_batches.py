"""A stream of single records, and one that has nothing to do.

The time of a micro-batch is that of the whole trigger without `latestOffset`, in which a source may wait for records.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from bench.brokers import cluster
from bench.errors import BenchError
from bench.spark.sessions import OURS, Spark, durations_ms, options, processes

WARM_UP = 10
BATCH_S = 60.0
LOOK_S = 0.02


class MicroBatches(NamedTuple):
    batch_p50_ms: dict[str, float]
    """By source; `one-row` is the trivial one."""
    why_alone: str | None

    @property
    def above_trivial_ms(self) -> float:
        return self.batch_p50_ms[OURS] - self.batch_p50_ms["one-row"]


class Idle(NamedTuple):
    """Per cent of a core."""

    python_percent: dict[str, float]
    jvm_percent: dict[str, float]
    jvm_alone_percent: float
    """Without any stream."""


def micro_batches(made: Spark, directory: Path, count: int) -> MicroBatches:
    """Raises BenchError."""
    p50 = {}
    with cluster(directory / "brokers", 1) as brokers:
        producer = Producer({"bootstrap.servers": brokers.bootstrap, "linger.ms": 0, "log_level": 0})

        def send(topic: str) -> None:
            producer.produce(topic, b"x" * 100)
            if producer.flush(BATCH_S):
                raise BenchError(f"a record for topic {topic} was not acknowledged")

        for source in made.sources:
            with brokers.topic(1, 1, name=f"single-{source}") as topic:
                given = options(brokers.bootstrap, topic)
                p50[source] = _p50_ms(
                    made.session, source, given, directory, count, lambda topic=topic: send(topic)
                )
        p50["one-row"] = _p50_ms(made.session, "one-row", {}, directory, count, lambda: None)
    return MicroBatches(p50, made.why_alone)


def _p50_ms(
    session: SparkSession,
    source: str,
    given: dict[str, str],
    directory: Path,
    count: int,
    send: Callable[[], None],
) -> float:
    query = _start(session, source, given, directory)
    try:
        for number in range(WARM_UP + count):
            send()
            _await_batches(query, number + 1)
        took = [one["triggerExecution"] - one.get("latestOffset", 0) for one in durations_ms(query)]
    finally:
        query.stop()
    return statistics.median(took[WARM_UP : WARM_UP + count])


def _start(session: SparkSession, source: str, given: dict[str, str], directory: Path) -> Any:
    frame = session.readStream.format(source).options(**given).load()
    checkpoint = directory / f"checkpoint-{source}-{time.monotonic_ns()}"
    return frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()


def _await_batches(query: Any, count: int) -> None:
    deadline_s = time.monotonic() + BATCH_S
    while True:
        last = query.lastProgress
        if last is not None and last["batchId"] + 1 >= count and last["numInputRows"]:
            return
        if not query.isActive or time.monotonic() > deadline_s:
            raise BenchError(f"micro-batch {count} did not come: {query.exception()}")
        time.sleep(LOOK_S)


def idle(made: Spark, directory: Path, watch_s: float) -> Idle:
    """Raises BenchError."""
    python, jvm = {}, {}
    _, jvm_alone = _cpu_percent(watch_s)
    with cluster(directory / "brokers", 1) as brokers, brokers.topic(1, 1) as topic:
        producer = Producer({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
        producer.produce(topic, b"x")
        if producer.flush(BATCH_S):
            raise BenchError("a record was not acknowledged")
        for source in made.sources:
            query = _start(made.session, source, options(brokers.bootstrap, topic), directory)
            try:
                _await_batches(query, 1)
                python[source], jvm[source] = _cpu_percent(watch_s)
            finally:
                query.stop()
    return Idle(python, jvm, jvm_alone)


def _cpu_percent(watch_s: float) -> tuple[float, float]:
    """Of a core: the Python processes, the JVM. One that ends meanwhile is left out."""
    watched = processes(os.getpid())
    before = watched.cpu_s()
    time.sleep(watch_s)
    spent = {pid: cpu_s - before[pid] for pid, cpu_s in watched.cpu_s().items() if pid in before}
    python_s, jvm_s = (sum(spent.get(pid, 0.0) for pid in pids) for pids in (watched.python, watched.jvm))
    return 100 * python_s / watch_s, 100 * jvm_s / watch_s
