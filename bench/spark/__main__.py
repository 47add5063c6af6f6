"""The command `python -m bench.spark`: it runs the measures, prints a table or JSON, and checks the limits.

It wants a PySpark for whose version Spark's own Kafka source is served (4.2.0); with another one it measures ours
alone, and the limits that compare are left out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException

from bench.errors import BenchError
from bench.limits import Limit
from bench.parts import Measured, Part, end_on_sigterm, parser_of, run_parts, whole_numbers
from bench.rows import PARTITIONS
from bench.spark import batches, micro_batches
from bench.spark.report import print_figures
from bench.spark.sessions import spark

MIN_RATIO = {"count": 2.3, "parquet": 1.6, "checksum": 2.2, "stream": 1.5}
MIN_COMPRESSED_RATIO = 1.5
MAX_ABOVE_TRIVIAL_MS = 100.0
MAX_IDLE_PERCENT = 5.0
MAX_WORKER_MB = 300.0
OF_COMPRESSED = ("count", "checksum")


def _batches(codec: str, directory: Path, given: argparse.Namespace) -> Measured:
    works = tuple(batches.WORKS) if codec == "none" else OF_COMPRESSED
    found = batches.batches(spark(alone=given.alone), directory, given.records, given.repeats, codec, works)
    limits = [Limit(f"{codec}: memory of a Python worker", found.worker_mb, MAX_WORKER_MB, "MB", False)]
    ratios = {work: found.ratio(work) for work in (*works, "stream")}
    for work, ratio in ratios.items():
        if ratio is not None:
            bound = MIN_RATIO[work] if codec == "none" else MIN_COMPRESSED_RATIO
            limits.append(Limit(f"{codec}: {work}, rate / Spark's own", ratio, bound, "", True))
    return {**found._asdict(), "ratios": ratios}, limits


def _micro_batches(directory: Path, given: argparse.Namespace) -> Measured:
    found = micro_batches.micro_batches(spark(alone=given.alone), directory, given.single)
    name = "a micro-batch of one record, p50, above a trivial source"
    limit = Limit(name, found.above_trivial_ms, MAX_ABOVE_TRIVIAL_MS, "ms", False)
    return {**found._asdict(), "above_trivial_ms": found.above_trivial_ms}, [limit]


def _idle(directory: Path, given: argparse.Namespace) -> Measured:
    found = micro_batches.idle(spark(alone=given.alone), directory, given.watch_s)
    percent = found.python_percent[micro_batches.OURS]
    return found._asdict(), [
        Limit("an idle stream, beyond the JVM", percent, MAX_IDLE_PERCENT, "% of a core", False)
    ]


def _reported(part: Part) -> Part:
    """What Spark raises ends this part, and not the others."""

    def run(directory: Path, given: argparse.Namespace) -> Measured:
        try:
            return part(directory, given)
        except PySparkException as error:
            raise BenchError(f"Spark has failed: {error}") from error

    return run


PARTS: Final[Mapping[str, Part]] = {
    **{f"batch-{codec}": _reported(partial(_batches, codec)) for codec in batches.CODECS},
    "micro-batches": _reported(_micro_batches),
    "idle": _reported(_idle),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bench.spark", "The Spark connector beside Spark's own Kafka source.", PARTS)
    parser.add_argument("--records", type=int, default=5_000_000, help="in a topic (default %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="of each reading (default %(default)s)")
    parser.add_argument("--single", type=int, default=50, help="micro-batches (default %(default)s)")
    parser.add_argument("--watch-s", type=int, default=30, help="of an idle stream (default %(default)s)")
    parser.add_argument("--alone", action="store_true", help="without Spark's own source: fetch no jars")
    given = parser.parse_args(arguments)
    whole_numbers(parser, given, ("records", "repeats", "single", "watch_s"))
    given.records -= given.records % PARTITIONS
    if not given.records:
        parser.error(f"--records is at least {PARTITIONS}")
    return run_parts(PARTS, given, show=print_figures)


if __name__ == "__main__":
    end_on_sigterm()
    sys.exit(main())
