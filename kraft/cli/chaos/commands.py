"""`kraft chaos`: plays whole clusters under deterministic simulation, shrinks a case that fails, lists the faults.

A command imports the simulation when it runs: the others start faster.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from kraft.cli.chaos.comparison import compare
from kraft.cli.chaos.display import (
    CampaignDisplay,
    print_tally,
    print_verdict,
    shrink_progress,
    tell_difference,
    verify_progress,
)
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
    Selection,
    TraceFile,
    Verify,
    check_writable,
    jobs_or_cores,
    select,
)
from kraft.cli.chaos.quorum import quorum
from kraft.cli.chaos.replay import replay
from kraft.cli.shared.interrupts import ends_like_ctrl_c
from kraft.cli.shared.options import Json
from kraft.cli.shared.output import console, fail, print_json, print_line, print_table
from kraft.user_error import EXIT_DONE, EXIT_FAILED, EXIT_UNDECIDED, EXIT_USAGE, UserError

if TYPE_CHECKING:
    from kraft.chaos.campaign import Run, Tally, Verification
    from kraft.chaos.report import Asked
    from kraft.chaos.run import Outcome
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
    report: ReportFile = None,
    case: CaseFile = None,
    counters: Counters = False,
    as_json: Json = False,
) -> None:
    """Play clusters under faults and judge every promise.

    Exit code 0: all held; 1: a promise or determinism was broken; 2: wrong usage; 3: it could not be told.
    """
    if trace is not None and ((seed is None and case is None) or verify):
        fail("--trace writes the timeline of one run: name it with --seed or --case", EXIT_USAGE)
    if report is not None and ((seed is None and case is None) or verify):
        fail("--report is the page of one run: name it with --seed or --case", EXIT_USAGE)
    check_writable(trace)
    check_writable(report)
    selection = select(
        seed=seed,
        case=case,
        seeds=seeds,
        first_seed=first_seed,
        minutes=minutes,
        seconds=seconds,
        faults=faults,
    )
    with ends_like_ctrl_c():
        if verify:
            raise typer.Exit(_verify(selection, jobs_or_cores(jobs), as_json))
        tally = _campaign(selection, jobs_or_cores(jobs), trace, report)
    raise typer.Exit(_conclude(tally, selection.asked, as_json, all_counters=counters))


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
    selection = select(seed=seed, case=case, seconds=seconds, faults=faults)
    with ends_like_ctrl_c():
        _shrink(selection, oracle, runs_max, jobs_or_cores(jobs), out, as_json)


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


def _campaign(selection: Selection, jobs: int, trace: Path | None, report: Path | None) -> Tally:
    from kraft.chaos.campaign import run_campaign
    from kraft.chaos.report import counters
    from kraft.chaos.run import run

    with CampaignDisplay(selection.asked, selection.total, is_one=selection.is_one) as display:
        return run_campaign(
            selection.scenarios,
            run if report is None else _reporting(selection.asked, report),
            jobs=jobs,
            declared=() if selection.is_one else counters(selection.asked),
            on_end=display.ended,
            on_tick=display.tick,
            trace=None if trace is None else str(trace),
            is_watched=display.is_shown,
        )


def _reporting(asked: Asked, report: Path) -> Run:
    """A run that writes its page, in its own process."""
    from kraft.chaos.experiments.simulated.seed import run_with_page

    def play(scenario: Scenario, **options: Any) -> Outcome:
        return run_with_page(scenario, path=report, command=asked.replay(scenario), **options)

    return play


def _conclude(tally: Tally, asked: Asked, as_json: bool, *, all_counters: bool) -> int:
    """Prints what the campaign came to. Returns the exit code."""
    from kraft.chaos.report import document, shortcomings

    print_tally(tally, asked, to_stderr=as_json, all_counters=all_counters)
    if as_json:
        print_json(document(tally, asked))
    return print_verdict(bool(tally.failed_count), shortcomings(tally, asked))


def _verify(selection: Selection, jobs: int, as_json: bool) -> int:
    from kraft.chaos.campaign import verify
    from kraft.chaos.report import verification_document
    from kraft.chaos.run import run

    done: list[Verification] = []
    interrupted = False
    with verify_progress(selection.total) as show:

        def ended(one: Verification) -> None:
            done.append(one)
            tell_difference(one)

        try:
            verify(
                selection.scenarios,
                run,
                jobs=jobs,
                on_end=ended,
                on_tick=show,
                is_watched=console.is_terminal,
            )
        except KeyboardInterrupt:
            interrupted = True
    done.sort(key=lambda one: one.seed)
    if as_json:
        print_json(verification_document(done, interrupted=interrupted))
    else:
        for one in done:
            verdict = "equal" if one.equal else "DIFFERENT"
            failed = f"; failed {', '.join(one.failed)}" if one.failed else ""
            print_line(f"seed {one.seed}: {' '.join(one.hashes)} {verdict}{failed}")
    if not all(one.equal and not one.failed for one in done):
        return EXIT_FAILED
    return EXIT_UNDECIDED if interrupted or not done else EXIT_DONE


def _shrink(
    selection: Selection, oracle: str, runs_max: int, jobs: int, out: Path | None, as_json: bool
) -> None:
    from kraft.chaos.case import Case
    from kraft.chaos.report import commit_of_checkout
    from kraft.chaos.run import run
    from kraft.chaos.shrink import NothingToShrink
    from kraft.chaos.shrink import shrink as shrunk

    [scenario] = selection.scenarios
    if selection.case is not None:
        oracle = oracle or selection.case.oracle
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
