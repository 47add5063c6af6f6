"""`python -m bench.simulation`: the speed of the simulated world, all tracing and judging included.

Two kinds of runs are measured by their CPU time, each run in a process of its own. One loaded cluster without
faults gives virtual seconds per CPU second; the default swarm gives seeds per core-hour. CPU seconds, unlike
seconds of a clock, do not count other work on the machine. Caches and a busy sibling core slow them down all the
same, so the best of several runs counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.machine import facts
from kraft.chaos.outcome import Outcome
from kraft.chaos.pool import IsolatedRunError, run_isolated
from kraft.chaos.run import run
from kraft.chaos.scenario import NodeSpec, Scenario, TopicSpec, WorkloadSpec
from kraft.chaos.swarm import DEFAULT_SECONDS, scenario_of

LIMIT_VIRTUAL_S_PER_CPU_S = 10.0
LIMIT_OPERATIONS_PER_VIRTUAL_S = 200.0
LIMIT_SEEDS_PER_CORE_HOUR = 600.0
SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class Figures:
    """The results of one kind of run."""

    runs: int
    virtual_s: float
    cpu_s: float
    virtual_s_per_cpu_s: float
    operations_per_virtual_s: float
    steps_per_cpu_s: float
    seeds_per_core_hour: float


def loaded(seed: int, seconds: float) -> Scenario:
    """Three combined nodes and a replicated topic; more than 200 operations a second, half of them polls."""
    return Scenario(
        seed=seed,
        seconds=seconds,
        nodes=tuple(NodeSpec(node_id) for node_id in (1, 2, 3)),
        topics=(TopicSpec("orders", 3, 3, {"min.insync.replicas": "2", "segment.bytes": "65536"}),),
        workloads=(
            WorkloadSpec("idempotent-producer", 0, "orders", -1, 85.0),
            WorkloadSpec("producer", 1, "orders", 1, 30.0),
            WorkloadSpec("consumer", 2, "orders", -1, 80.0),
            WorkloadSpec("consumer", 3, "orders", -1, 80.0),
        ),
    )


def measure(scenarios: Sequence[Scenario]) -> list[Outcome]:
    """Plays each in a process of its own. Raises IsolatedRunError, also for a run that failed."""
    outcomes = []
    for scenario in scenarios:
        outcome = run_isolated(partial(run, scenario))
        if outcome.error:
            raise IsolatedRunError(f"seed {scenario.seed}: {outcome.error}")
        outcomes.append(outcome)
    return outcomes


def figures(outcomes: Sequence[Outcome]) -> Figures:
    """All runs together."""
    virtual_s = sum(outcome.virtual_s for outcome in outcomes)
    cpu_s = sum(outcome.cpu_s for outcome in outcomes)
    return Figures(
        runs=len(outcomes),
        virtual_s=round(virtual_s, 2),
        cpu_s=round(cpu_s, 2),
        virtual_s_per_cpu_s=round(virtual_s / cpu_s, 2),
        operations_per_virtual_s=round(sum(outcome.operations for outcome in outcomes) / virtual_s, 1),
        steps_per_cpu_s=round(sum(outcome.steps for outcome in outcomes) / cpu_s),
        seeds_per_core_hour=round(SECONDS_PER_HOUR * len(outcomes) / cpu_s),
    )


def best(outcomes: Sequence[Outcome]) -> Outcome:
    """The one of several runs of the same scenario that took the least CPU time."""
    return min(outcomes, key=lambda outcome: outcome.cpu_s)


def missed(load: Figures, swarm: Figures | None) -> list[str]:
    """The limits that were missed, as sentences."""
    found = []
    if load.virtual_s_per_cpu_s < LIMIT_VIRTUAL_S_PER_CPU_S:
        found.append(f"fewer than {LIMIT_VIRTUAL_S_PER_CPU_S:g} virtual seconds per CPU second under load")
    if load.operations_per_virtual_s < LIMIT_OPERATIONS_PER_VIRTUAL_S:
        found.append(f"the load is below {LIMIT_OPERATIONS_PER_VIRTUAL_S:g} operations per virtual second")
    if swarm is not None and swarm.seeds_per_core_hour < LIMIT_SEEDS_PER_CORE_HOUR:
        found.append(f"fewer than {LIMIT_SEEDS_PER_CORE_HOUR:g} seeds of the swarm per core-hour")
    return found


def _table(load: Figures, median: float, swarm: Figures | None) -> Table:
    table = Table(title="The simulated world on one core")
    table.add_column("figure")
    table.add_column("under load", justify="right")
    table.add_column("default swarm", justify="right")

    def row(title: str, name: str) -> None:
        values = [f"{getattr(kind, name):,g}" if kind is not None else "-" for kind in (load, swarm)]
        table.add_row(title, *values)

    row("runs", "runs")
    row("virtual seconds per CPU second", "virtual_s_per_cpu_s")
    table.add_row("  the median run", f"{median:,g}", "")
    row("client operations per virtual second", "operations_per_virtual_s")
    row("callbacks per CPU second", "steps_per_cpu_s")
    row("seeds per core-hour", "seeds_per_core_hour")
    return table


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.simulation",
        description="How fast clusters are simulated, tracing and judging included.",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=DEFAULT_SECONDS,
        help="virtual seconds of load in a run (default %(default)s)",
    )
    parser.add_argument("--repeats", type=int, default=3, help="runs of each (default %(default)s)")
    parser.add_argument("--seeds", type=int, default=8, help="seeds of the swarm (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--check", action="store_true", help="exit 1 if a limit is missed")
    given = parser.parse_args(arguments)
    if given.seconds <= 0 or given.repeats < 1 or given.seeds < 0:
        parser.error("--seconds and --repeats are above 0, --seeds is not below 0")
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    given = _arguments(arguments)
    try:
        runs = measure([loaded(1, given.seconds)] * given.repeats)
        seeds = [scenario_of(seed, seconds=given.seconds) for seed in range(1, given.seeds + 1)]
        swarm_rounds = [measure(seeds) for _ in range(given.repeats)]
    except IsolatedRunError as error:
        print(f"the benchmark could not go on: {error}", file=sys.stderr)
        return 1
    load = figures([best(runs)])
    median = round(runs[0].virtual_s / statistics.median(outcome.cpu_s for outcome in runs), 2)
    swarm = figures([best(of_a_seed) for of_a_seed in zip(*swarm_rounds, strict=True)]) if seeds else None
    failures = missed(load, swarm)
    if given.json:
        document: dict[str, Any] = {
            "load": {**asdict(load), "runs": given.repeats, "median_virtual_s_per_cpu_s": median},
            "swarm": None if swarm is None else asdict(swarm),
            "missed": failures,
            "machine": facts(),
        }
        print(json.dumps(document, indent=1))
    else:
        console = Console()
        console.print(_table(load, median, swarm))
        for failure in failures:
            console.print(f"missed: {failure}")
    return 1 if given.check and failures else 0


if __name__ == "__main__":
    sys.exit(main())
