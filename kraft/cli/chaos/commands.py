"""`kraft chaos`: plays whole clusters under deterministic simulation, shrinks a case that fails, lists the faults.

A command imports the simulation when it runs: the others start faster.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.markup import escape

from kraft.cli.chaos.campaign import OneRunFiles, play
from kraft.cli.chaos.comparison import compare
from kraft.cli.chaos.display import shrink_progress
from kraft.cli.chaos.experiments import explain, list_experiments
from kraft.cli.chaos.experiments import run as run_experiment
from kraft.cli.chaos.options import (
    CaseFile,
    CaseOut,
    Counters,
    FaultNames,
    FirstSeed,
    Jobs,
    Minutes,
    ReportFile,
    Seconds,
    Seed,
    Seeds,
    TraceAllFile,
    TraceFile,
    Verify,
    case_of,
    check_writable,
    jobs_or_cores,
    select,
)
from kraft.cli.chaos.quorum import quorum
from kraft.cli.chaos.replay import replay
from kraft.cli.shared.interrupts import ends_like_ctrl_c
from kraft.cli.shared.options import Json
from kraft.cli.shared.output import console, fail, print_json, print_line, print_table
from kraft.user_error import EXIT_UNDECIDED, EXIT_USAGE, UserError

if TYPE_CHECKING:
    from kraft.chaos.scenario import Scenario

app = typer.Typer(help="Whole clusters under deterministic simulation: one seed decides everything.")
app.command()(quorum)
app.command()(replay)
app.command("run")(run_experiment)
app.command()(compare)
app.command("list")(list_experiments)
app.command()(explain)


@app.command()
def simulate(
    seed: Seed = None,
    seeds: Seeds = None,
    first_seed: FirstSeed = None,
    minutes: Minutes = None,
    seconds: Seconds = None,
    jobs: Jobs = None,
    faults: FaultNames = None,
    verify: Verify = False,
    trace: TraceFile = None,
    trace_all: TraceAllFile = None,
    report: ReportFile = None,
    case: CaseFile = None,
    counters: Counters = False,
    as_json: Json = False,
) -> None:
    """Play clusters under faults and judge every promise.

    Exit code 0: all held; 1: a promise or determinism was broken; 2: wrong usage; 3: it could not be told.
    """
    files = OneRunFiles(trace, trace_all, report)
    files.check(is_one=(seed is not None or case is not None) and not verify)
    selection = select(
        seed=seed,
        case=case,
        seeds=seeds,
        first_seed=first_seed,
        minutes=minutes,
        seconds=seconds,
        faults=faults,
    )
    play(selection, files, jobs=jobs, verify=verify, all_counters=counters, as_json=as_json)


@app.command()
def shrink(
    seed: Seed = None,
    case: CaseFile = None,
    seconds: Seconds = None,
    faults: FaultNames = None,
    oracle: Annotated[
        str, typer.Option(help="The oracle that must go on failing; by default the first that does.")
    ] = "",
    runs_max: Annotated[int, typer.Option(min=1, help="Play at most so many candidates.")] = 200,
    jobs: Jobs = None,
    out: CaseOut = None,
    as_json: Json = False,
) -> None:
    """Take away faults, operations, time and settings while the same oracle fails; write what is left.

    Exit code 0: the case is written; 2: wrong usage; 3: nothing fails, so that there is nothing to shrink.
    """
    if (seed is None) == (case is None):
        fail("name what is to be shrunk, with --seed or with --case", EXIT_USAGE)
    check_writable(out)
    [scenario] = select(seed=seed, case=case, seconds=seconds, faults=faults).scenarios
    if case is not None:
        oracle = oracle or case_of(case).oracle
    with ends_like_ctrl_c():
        _shrink(cast("Scenario", scenario), oracle, runs_max, jobs_or_cores(jobs), out, as_json)


@app.command()
def faults(as_json: Json = False) -> None:
    """List the faults, and which of them are in the default swarm."""
    from rich.table import Table

    from kraft.chaos.faults import FAULTS

    if as_json:
        rows = [{"name": f.name, "doc": f.doc, "default": f.by_default} for f in FAULTS.values()]
        print_json({"faults": rows})
        return
    table = Table("fault", "default", "what happens", box=None)
    for fault in FAULTS.values():
        table.add_row(escape(fault.name), "yes" if fault.by_default else "", escape(fault.doc))
    print_table(table)


def _shrink(
    scenario: Scenario, oracle: str, runs_max: int, jobs: int, out: Path | None, as_json: bool
) -> None:
    from kraft.chaos.case import Case
    from kraft.chaos.report import commit_of_checkout
    from kraft.chaos.run import run
    from kraft.chaos.shrink import NothingToShrink
    from kraft.chaos.shrink import shrink as shrunk

    try:
        with shrink_progress(runs_max) as show:
            small = shrunk(scenario, run, jobs=jobs, oracle=oracle, runs_max=runs_max, on_progress=show)
    except NothingToShrink as error:
        raise UserError(str(error), EXIT_UNDECIDED) from error
    case = Case(small.scenario, small.oracle, small.text, commit_of_checkout()[0])
    path = case.default_path(Path.cwd()) if out is None else out
    path.write_text(case.to_json(), encoding="utf-8")
    left = small.scenario
    summary = {
        "seed": left.seed,
        "oracle": small.oracle,
        "case": str(path),
        "runs": small.runs,
        "minimal": small.is_minimal,
        "seconds": left.seconds,
        "faults": [fault.name for fault in left.faults],
        "workloads": [workload.kind for workload in left.workloads],
        "properties": dict(left.properties),
    }
    if not small.is_minimal:
        console.print(f"[yellow]{runs_max} runs were not enough; --runs-max allows more[/yellow]")
    if as_json:
        print_json(summary)
        return
    print_line(
        f"{small.oracle} still fails with {len(left.faults)} of {len(scenario.faults)} faults, "
        f"{len(left.workloads)} of {len(scenario.workloads)} workloads and {left.seconds:g} of "
        f"{scenario.seconds:g} s, after {small.runs} runs"
    )
    print_line(f"replay: kraft chaos simulate --case {path}")
