"""`kraft chaos quorum`: plays the controller quorum alone, many seeds a second.

The command imports the simulation when it runs: the others start faster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from kraft.cli.chaos.display import print_verdict
from kraft.cli.chaos.options import Jobs, Seed, jobs_or_cores
from kraft.cli.shared.interrupts import ends_like_ctrl_c
from kraft.cli.shared.options import Json
from kraft.cli.shared.output import console, fail, print_json, progress
from kraft.user_error import EXIT_USAGE

if TYPE_CHECKING:
    from kraft.chaos.quorum.campaign import QuorumPlan, QuorumTally
    from kraft.chaos.quorum.run import QuorumOutcome

SEEDS = 1000
TOLD_MAX = 50
TEXT_MAX_CHARACTERS = 1500


def quorum(
    seed: Seed = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help=f"Play so many seeds; {SEEDS} if not given.", show_default=False)
    ] = None,
    first_seed: Annotated[int, typer.Option(min=0, help="The first of the seeds.")] = 1,
    voters: Annotated[
        int | None,
        typer.Option(help="3 or 5; each seed draws its own number if not given.", show_default=False),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=3600, help="Virtual seconds of faults per seed.")
    ] = 12.0,
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """Play the controllers alone under faults and judge what Raft and the metadata promise.

    Exit code 0: all held; 1: a promise was broken; 2: wrong usage; 3: it could not be told.
    """
    from kraft.chaos.quorum.campaign import QuorumPlan, run_campaign
    from kraft.chaos.quorum.settings import VOTERS
    from kraft.chaos.report import commit_of_checkout

    if seed is not None and seeds is not None:
        fail("--seed plays one seed alone: leave out --seeds", EXIT_USAGE)
    if voters is not None and voters not in VOTERS:
        fail(f"a quorum of {voters} is not simulated: --voters takes 3 or 5", EXIT_USAGE)
    numbers = range(seed, seed + 1) if seed is not None else range(first_seed, first_seed + (seeds or SEEDS))
    plan = QuorumPlan(numbers, voters, seconds)
    told = 0

    def ended(outcome: QuorumOutcome) -> None:
        nonlocal told
        advance(1)
        if outcome.oracle and told < TOLD_MAX:
            told += 1
            _tell(console, outcome, plan)

    with ends_like_ctrl_c(), progress("seeds", len(numbers)) as advance:
        tally = run_campaign(plan, jobs=jobs_or_cores(jobs), on_end=ended)
    if as_json:
        print_json(tally.document(plan, commit_of_checkout()[0]))
    else:
        _print(tally)
    raise typer.Exit(print_verdict(bool(tally.violated_count), tally.shortcomings()))


def _tell(output: Console, outcome: QuorumOutcome, plan: QuorumPlan) -> None:
    text = outcome.text[:TEXT_MAX_CHARACTERS]
    head = f"seed {outcome.seed} of {outcome.voters} voters failed {outcome.oracle} at {outcome.at_s:.6f} virtual s"
    output.print(f"[red]{escape(head)}[/red]: {escape(text)}", soft_wrap=True)
    output.print(f"  replay: {escape(plan.replay(outcome.seed))}", soft_wrap=True)


def _print(tally: QuorumTally) -> None:
    from rich.table import Table

    output = Console(highlight=False)
    happened = Table(title="what really happened", box=None)
    happened.add_column("event")
    happened.add_column("times", justify="right")
    for name, times in tally.coverage.items():
        happened.add_row(escape(name), str(times) if times else "[yellow]0[/yellow]")
    output.print(happened)
    figures = Table(box=None, show_header=False)
    figures.add_column()
    figures.add_column(justify="right")
    for name, value in (
        ("seeds", str(tally.seeds)),
        *((f"seeds of {voters} voters", str(count)) for voters, count in sorted(tally.by_voters.items())),
        ("seeds with a violation", str(tally.violated_count)),
        ("proposals acknowledged", str(tally.acknowledged)),
        ("steps of Raft lanes", str(tally.steps)),
        ("virtual seconds", f"{tally.virtual_s:.1f}"),
        ("wall seconds", f"{tally.wall_s:.1f}"),
        ("CPU seconds", f"{tally.cpu_s:.1f}"),
        ("seeds per CPU second", f"{tally.seeds / max(tally.cpu_s, 1e-9):.1f}"),
    ):
        figures.add_row(name, value)
    output.print(figures)
