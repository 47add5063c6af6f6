"""The command `python -m bench.transactions`: it runs the measures, prints a table or JSON, and checks the limits."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.limits import Limit
from bench.parts import Measured, Part, end_on_sigterm, parser_of, run_parts, whole_numbers
from bench.rows import PARTITIONS
from bench.transactions import latency, processing, producing

MIN_PRODUCING_RATIO = 0.7
MIN_PROCESSED_PER_S = 50_000.0
MAX_P50_MS = 20.0
MAX_P99_MS = 80.0


def _producing(directory: Path, given: argparse.Namespace) -> Measured:
    found = producing.producing(directory, given.records, given.repeats)
    name = f"transactions of {producing.TRANSACTION_MS} ms: rate / idempotent"
    return {**found._asdict(), "ratio": found.ratio}, [
        Limit(name, found.ratio, MIN_PRODUCING_RATIO, "", True)
    ]


def _processing(directory: Path, given: argparse.Namespace) -> Measured:
    found = processing.processing(directory, given.processed)
    name = "consume, transform, produce exactly once"
    return found._asdict(), [Limit(name, found.per_s, MIN_PROCESSED_PER_S, "/s", True)]


def _latency(directory: Path, given: argparse.Namespace) -> Measured:
    found = latency.latency(directory, given.commits)
    name = f"a commit over {latency.PARTITIONS} partitions is read"
    return found._asdict(), [
        Limit(f"{name}: p50", found.p50_ms, MAX_P50_MS, "ms", False),
        Limit(f"{name}: p99", found.p99_ms, MAX_P99_MS, "ms", False),
    ]


PARTS: Final[Mapping[str, Part]] = {"producing": _producing, "processing": _processing, "latency": _latency}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bench.transactions", "What transactions cost, and how soon they are read.", PARTS)
    parser.add_argument("--records", type=int, default=6_000_000, help="to produce (default %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="of producing (default %(default)s)")
    parser.add_argument("--processed", type=int, default=900_000, help="records (default %(default)s)")
    parser.add_argument(
        "--commits", type=int, default=1_000, help="of the part latency (default %(default)s)"
    )
    given = parser.parse_args(arguments)
    whole_numbers(parser, given, ("records", "repeats", "processed", "commits"))
    if given.records % PARTITIONS or given.processed % PARTITIONS:
        parser.error(f"--records and --processed are multiples of {PARTITIONS}")
    return run_parts(PARTS, given)


if __name__ == "__main__":
    end_on_sigterm()
    sys.exit(main())
