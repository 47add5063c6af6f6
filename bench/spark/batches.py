"""A topic read whole, as a batch: counted, to Parquet, a checksum of all values; and as a stream that ends."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from bench.brokers import cluster
from bench.errors import BenchError
from bench.rows import PARTITIONS
from bench.spark.sessions import OURS, SPARKS, Spark, options, peak_mb, processes
from bench.spark.topics import Filled, fill
from bench.workers import RECORD_BYTES

CODECS = ("none", "lz4", "zstd", "snappy", "gzip")
WARM_UP_RECORDS = 60_000
STREAM_S = 600.0


class Rates(NamedTuple):
    """Rows per second of each run, by source and by what is done."""

    records: int
    codec: str
    rows_per_s: dict[str, dict[str, list[float]]]
    ceiling: dict[str, list[float]]
    """Of rows from ready buffers."""
    worker_mb: float
    """The most memory of a Python process, in reads of ours alone."""
    why_alone: str | None

    def ratio(self, work: str) -> float | None:
        """Ours to Spark's own; None if that is not there."""
        if SPARKS not in self.rows_per_s:
            return None
        ours, sparks = (statistics.median(self.rows_per_s[source][work]) for source in (OURS, SPARKS))
        return ours / sparks


Work = Callable[[DataFrame, Path, Filled], None]
"""Consumes all rows. Raises BenchError if they are not those that the topic holds."""


def _count(frame: DataFrame, _folder: Path, filled: Filled) -> None:
    _expect("rows", frame.count(), filled.records)


def _parquet(frame: DataFrame, folder: Path, _filled: Filled) -> None:
    frame.write.mode("overwrite").parquet(str(folder))


def _checksum(frame: DataFrame, _folder: Path, filled: Filled) -> None:
    row = frame.selectExpr("sum(crc32(value))").first()
    _expect("the checksum", None if row is None else row[0], filled.checksum)


def _expect(name: str, found: Any, wanted: int) -> None:
    if found != wanted:
        raise BenchError(f"{name}: {found} instead of {wanted}")


WORKS: dict[str, Work] = {"count": _count, "parquet": _parquet, "checksum": _checksum}


def batches(
    made: Spark, directory: Path, records: int, repeats: int, codec: str, works: tuple[str, ...]
) -> Rates:
    """In turn, ours first; after one run of each that warms up. Raises BenchError."""
    rates: dict[str, dict[str, list[float]]] = {
        source: {work: [] for work in (*works, "stream")} for source in made.sources
    }
    ceiling: dict[str, list[float]] = {work: [] for work in works if work != "checksum"}
    with cluster(directory / "brokers", 1) as brokers:
        with brokers.topic(PARTITIONS, 1, name="warm-up") as topic:
            filled = fill(brokers.bootstrap, topic, PARTITIONS, WARM_UP_RECORDS, codec)
            for source in made.sources:
                _run_all(made.session, source, options(brokers.bootstrap, topic), filled, directory, works)
        with brokers.topic(PARTITIONS, 1) as topic:
            filled = fill(brokers.bootstrap, topic, PARTITIONS, records, codec)
            worker_mb = 0.0
            for number in range(repeats):
                for source in made.sources:
                    took = _run_all(
                        made.session, source, options(brokers.bootstrap, topic), filled, directory, works
                    )
                    for work, seconds in took.items():
                        rates[source][work].append(records / seconds)
                    if number == 0 and source == OURS:
                        worker_mb = peak_mb(processes(os.getpid()).python)
            ready = {"rows": str(records), "bytes": str(RECORD_BYTES), "partitions": str(PARTITIONS)}
            for work in list(ceiling) * repeats:
                ceiling[work].append(
                    records / _run(made.session, "ready", ready, WORKS[work], filled, directory)
                )
    return Rates(records, codec, rates, ceiling, worker_mb, made.why_alone)


def _run_all(
    session: SparkSession,
    source: str,
    given: dict[str, str],
    filled: Filled,
    directory: Path,
    works: tuple[str, ...],
) -> dict[str, float]:
    """Seconds, by what is done."""
    took = {work: _run(session, source, given, WORKS[work], filled, directory) for work in works}
    return {**took, "stream": _stream(session, source, given, filled, directory)}


def _run(
    session: SparkSession, source: str, given: dict[str, str], work: Work, filled: Filled, directory: Path
) -> float:
    folder = directory / "rows.parquet"
    began_s = time.monotonic()
    work(session.read.format(source).options(**given).load(), folder, filled)
    took_s = time.monotonic() - began_s
    if folder.exists() and work is _parquet:
        _expect("rows of Parquet", session.read.parquet(str(folder)).count(), filled.records)
    return took_s


def _stream(
    session: SparkSession, source: str, given: dict[str, str], filled: Filled, directory: Path
) -> float:
    """All that there is, in micro-batches that go nowhere."""
    checkpoint = directory / f"checkpoint-{source}-{time.monotonic_ns()}"
    began_s = time.monotonic()
    frame = session.readStream.format(source).options(**given).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    if not query.awaitTermination(int(STREAM_S)):
        query.stop()
        raise BenchError(f"a stream of {source} did not end within {STREAM_S:g} s")
    took_s = time.monotonic() - began_s
    _expect("rows of the stream", sum(one["numInputRows"] for one in query.recentProgress), filled.records)
    return took_s
