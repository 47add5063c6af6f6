"""One run of the benchmark: clusters up, rows, clusters down. It owns the scratch folder and the order.

The replicated rows and the measurements of the cluster itself come first, on three nodes; then the rows without
replication, on one. Only one cluster runs at a time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.brokers import Cluster, cluster
from bench.failover import failover_s
from bench.machine import resident_bytes
from bench.rows import ROWS, Row, RowResult, run_row

DEFAULT_RECORDS = 3_000_000
START_KEY, FAILOVER_KEY = "start", "failover"
KEYS = (*(row.key for row in ROWS), START_KEY, FAILOVER_KEY)
START_REPEATS = 3
REST_S = 3.0
"""After the start, before the memory of a node at rest is read."""


@dataclass
class Measured:
    """The results of a run; `cluster` holds failover_s, resting_mb, start_s and their details."""

    rows: dict[str, RowResult] = field(default_factory=dict)
    cluster: dict[str, Any] = field(default_factory=dict)


def run(records: int, keys: Collection[str], scratch: Path, on_step: Callable[[str], None]) -> Measured:
    """Runs the rows and measurements in `keys`. `on_step` gets the name of each next step. Raises BenchError."""
    measured = Measured()
    wanted = [row for row in ROWS if row.key in keys]
    replicated = [row for row in wanted if row.nodes > 1]
    if replicated or START_KEY in keys or FAILOVER_KEY in keys:
        starts = _extra_starts(scratch, on_step) if START_KEY in keys else []
        on_step("three nodes start")
        with cluster(scratch / "three", 3) as brokers:
            _at_rest(measured, brokers, starts)
            for row in replicated:
                _run(measured, row, records, brokers, on_step)
            if FAILOVER_KEY in keys:
                on_step("leader killed")
                gaps_s = failover_s(brokers)
                measured.cluster["failover_s"] = max(gaps_s.values())
                measured.cluster["failover_by_role_s"] = gaps_s
    unreplicated = [row for row in wanted if row.nodes == 1]
    if unreplicated:
        on_step("one node starts")
        with cluster(scratch / "one", 1) as brokers:
            for row in unreplicated:
                _run(measured, row, records, brokers, on_step)
    measured.rows = {row.key: measured.rows[row.key] for row in wanted}
    return measured


def steps(keys: Collection[str]) -> int:
    """How often `on_step` will be called."""
    wanted = [row for row in ROWS if row.key in keys]
    needs_three = START_KEY in keys or FAILOVER_KEY in keys or any(row.nodes > 1 for row in wanted)
    return (
        len(wanted)
        + (START_REPEATS - 1) * (START_KEY in keys)
        + (FAILOVER_KEY in keys)
        + needs_three
        + any(row.nodes == 1 for row in wanted)
    )


def _extra_starts(scratch: Path, on_step: Callable[[str], None]) -> list[float]:
    starts = []
    for _ in range(START_REPEATS - 1):
        on_step("three nodes start")
        with cluster(scratch / "start", 3) as brokers:
            starts.append(brokers.start_s)
    return starts


def _at_rest(measured: Measured, brokers: Cluster, starts: list[float]) -> None:
    if starts:
        starts = [*starts, brokers.start_s]
        measured.cluster["start_s"] = statistics.median(starts)
        measured.cluster["starts_s"] = starts
        time.sleep(REST_S)
        measured.cluster["resting_mb"] = max(resident_bytes(pid) for pid in brokers.pids()) / 1e6


def _run(
    measured: Measured, row: Row, records: int, brokers: Cluster, on_step: Callable[[str], None]
) -> None:
    on_step(row.title)
    measured.rows[row.key] = run_row(row, records, brokers)
