"""The command `python -m bench.replication`: it runs the measures, prints a table or JSON, and checks the limits."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.limits import Limit
from bench.parts import Measured, Part, end_on_sigterm, parser_of, run_parts, whole_numbers
from bench.replication import catch_up, failovers, idle, latency, scale, throughput

MIN_ASYNC_RATIO = 0.5
MIN_SYNC_RATIO = 0.4
MAX_CPU_RATIO = 4.0
MAX_LATENCY_P50_MS = 5.0
MAX_LATENCY_P99_MS = 20.0
MIN_CATCH_UP_MB_PER_S = 200.0
MAX_IDLE_PERCENT = 5.0
MAX_CREATE_S = 60.0
MAX_WRITABLE_S = 5.0
MAX_RESTART_S = 30.0
MAX_KILL_P50_S = 1.5
MAX_KILL_P99_S = 3.0
MAX_STOP_MS = 500.0


def _throughput(directory: Path, given: argparse.Namespace) -> Measured:
    figures = throughput.throughput(directory, given.records, given.repeats)
    ratio, cpu = "rate / unreplicated", "brokers' CPU per GB / unreplicated"
    return figures.document(), [
        Limit(f"acks=1, 3x: {ratio}", figures.async_ratio, MIN_ASYNC_RATIO, "", True),
        Limit(f"acks=-1, 3x: {ratio}", figures.sync_ratio, MIN_SYNC_RATIO, "", True),
        Limit(f"acks=1, 3x: {cpu}", figures.async_cpu_ratio, MAX_CPU_RATIO, "", False),
        Limit(f"acks=-1, 3x: {cpu}", figures.sync_cpu_ratio, MAX_CPU_RATIO, "", False),
    ]


def _latency(directory: Path, given: argparse.Namespace) -> Measured:
    figures = latency.latency(directory, given.records, given.latency_s)
    name = f"acks=-1 at {figures.records_per_s:,.0f} records/s, a tenth of the maximum"
    return figures._asdict(), [
        Limit(f"{name}: p50", figures.p50_ms, MAX_LATENCY_P50_MS, "ms", False),
        Limit(f"{name}: p99", figures.p99_ms, MAX_LATENCY_P99_MS, "ms", False),
    ]


def _catch_up(directory: Path, given: argparse.Namespace) -> Measured:
    figures = catch_up.catch_up(directory, given.catch_up_gb)
    name = f"a follower {figures.gb:.2f} GB behind catches up"
    return figures._asdict(), [Limit(name, figures.mb_per_s, MIN_CATCH_UP_MB_PER_S, "MB/s", True)]


def _idle(directory: Path, given: argparse.Namespace) -> Measured:
    figures = idle.idle(directory, given.idle_partitions, given.idle_s)
    name = f"{figures.partitions:,} idle partitions, 3x: the busiest broker"
    return figures._asdict(), [Limit(name, figures.percent, MAX_IDLE_PERCENT, "% of a core", False)]


def _scale(directory: Path, given: argparse.Namespace) -> Measured:
    figures = scale.scale(directory, given.partitions)
    name = f"{figures.partitions:,} partitions, 3x"
    return figures._asdict(), [
        Limit(f"{name}: created and in sync", figures.create_s, MAX_CREATE_S, "s", False),
        Limit(f"{name}: all writable after a session's end", figures.writable_s, MAX_WRITABLE_S, "s", False),
        Limit(f"{name}: stopped, started, all writable", figures.restart_s, MAX_RESTART_S, "s", False),
    ]


def _failover(directory: Path, given: argparse.Namespace) -> Measured:
    figures = failovers.failovers(directory, given.kills, given.stops)
    name = f"leader killed, {given.kills} times: first acknowledged write"
    return figures.document(), [
        Limit(f"{name}, p50", figures.kill_p50_s, MAX_KILL_P50_S, "s", False),
        Limit(f"{name}, p99", figures.kill_p99_s, MAX_KILL_P99_S, "s", False),
        Limit(
            f"leader stopped, {given.stops} times: slowest write", figures.stop_ms, MAX_STOP_MS, "ms", False
        ),
    ]


PARTS: Final[Mapping[str, Part]] = {
    "throughput": _throughput,
    "latency": _latency,
    "catch-up": _catch_up,
    "idle": _idle,
    "scale": _scale,
    "failover": _failover,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(
        "bench.replication",
        "What replication costs, how far it scales, and how soon a partition is written to again.",
        PARTS,
    )
    parser.add_argument(
        "--records", type=int, default=3_000_000, help="of a run with replication (default %(default)s)"
    )
    parser.add_argument("--repeats", type=int, default=3, help="of the throughput (default %(default)s)")
    parser.add_argument("--latency-s", type=int, default=15, help="of paced load (default %(default)s)")
    parser.add_argument("--catch-up-gb", type=float, default=1.0, help="to copy (default %(default)s)")
    parser.add_argument("--idle-partitions", type=int, default=3_000, help="default %(default)s")
    parser.add_argument("--idle-s", type=int, default=30, help="of watching them (default %(default)s)")
    parser.add_argument(
        "--partitions", type=int, default=10_000, help="of the part scale (default %(default)s)"
    )
    parser.add_argument("--kills", type=int, default=20, help="of leaders (default %(default)s)")
    parser.add_argument("--stops", type=int, default=5, help="of leaders, controlled (default %(default)s)")
    given = parser.parse_args(arguments)
    counted = ("records", "repeats", "latency_s", "idle_partitions", "idle_s", "partitions", "kills", "stops")
    whole_numbers(parser, given, counted)
    if not given.catch_up_gb > 0:
        parser.error("--catch-up-gb is above 0")
    return run_parts(PARTS, given)


if __name__ == "__main__":
    end_on_sigterm()
    sys.exit(main())
