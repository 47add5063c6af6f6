"""`kraft chaos compare`: acks by min.insync.replicas by fault, from runs of its own."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.cli.chaos.experiments import RUNS, SEED, make_folder, say
from kraft.cli.shared.interrupts import ends_like_ctrl_c
from kraft.cli.shared.options import Json
from kraft.cli.shared.output import console, fail, print_json, print_line, print_rows
from kraft.cli.shared.tables import Rows
from kraft.user_error import EXIT_DONE, EXIT_FAILED, EXIT_UNDECIDED, EXIT_USAGE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kraft.chaos.experiments.comparison import Planned, Row

NAME = "comparison"


def compare(
    faults: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…",
            help="Only these of leader-killed, leader-killed-ahead, answers-lost, last-copy-lost.",
            show_default=False,
        ),
    ] = None,
    backend: Annotated[str, typer.Option(help="real or sim.")] = "real",
    seed: Annotated[int, typer.Option(min=0, help="As of `kraft chaos run`.")] = SEED,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help=f"Where table, picture and reports go; by default {RUNS}/{NAME}-BACKEND-SEED.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare what acks and min.insync.replicas cost and save: lost, doubled, unavailable, fault by fault.

    Each fault and each min.insync.replicas is a run of its own, with a report of its own. Exit code 0: all held;
    1: a promise was broken; 2: wrong usage; 3: a run could not be decided.
    """
    from kraft.chaos.experiments.comparison import document, plan, table
    from kraft.chaos.experiments.comparison.picture import picture
    from kraft.chaos.experiments.vocabulary import BOTH

    if backend not in BOTH:
        fail(f"--backend is {' or '.join(sorted(BOTH))}, not {backend}", EXIT_USAGE)
    names = [name.strip() for name in (faults or "").split(",") if name.strip()]
    try:
        planned = plan(names)
    except KeyError as error:
        from kraft.chaos.experiments.comparison import CASES

        known = ", ".join(case.name for case in CASES)
        fail(f"there is no fault {error.args[0]!r} to compare: choose from {known}", EXIT_USAGE)
    folder = RUNS / f"{NAME}-{backend}-{seed}" if out is None else out
    make_folder(folder)
    with ends_like_ctrl_c():
        rows = [_played(one, backend, seed, folder) for one in planned]
    shown = table(rows)
    told = document(rows, backend, seed, str(folder))
    (folder / f"{NAME}.md").write_text(shown, encoding="utf-8")
    (folder / f"{NAME}.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    world = "real processes" if backend == "real" else "simulated clusters"
    caption = (
        f"kraft chaos compare: {len(rows)} runs on {world}, seed {seed}, 20 records/s a producer, 3 replicas"
        ", unclean elections allowed in last-copy-lost"
    )
    (folder / f"{NAME}.svg").write_text(picture(rows, caption), encoding="utf-8")
    if as_json:
        print_json(told)
    else:
        _print(rows, folder)
    raise typer.Exit(exit_code(rows))


def exit_code(rows: Sequence[Row]) -> int:
    """1 if any run is violated, else 3 if any is undecided."""
    verdicts = {row.verdict for row in rows}
    if "violated" in verdicts:
        return EXIT_FAILED
    return EXIT_UNDECIDED if "undecided" in verdicts else EXIT_DONE


def _played(planned: Planned, backend: str, seed: int, folder: Path) -> Row:
    """Plays one run; its report is in a folder below."""
    from kraft.chaos.experiments.backends import play_on
    from kraft.chaos.experiments.comparison import row_of
    from kraft.chaos.experiments.report import write_report
    from kraft.chaos.experiments.report.summary import Run
    from kraft.chaos.experiments.verdict import judge

    experiment = planned.experiment
    own = folder / experiment.name
    make_folder(own)
    console.print(f"[dim]{experiment.name} on {backend}, seed {seed}, {experiment.duration_s:g} s …[/dim]")
    evidence = play_on(backend, experiment, seed, own, say)
    verdict = judge(experiment, evidence)
    command = [
        "kraft",
        "chaos",
        "run",
        str(own / "experiment.yaml"),
        "--backend",
        backend,
        "--seed",
        str(seed),
    ]
    write_report(own, Run(experiment, evidence, verdict, shlex.join(command)))
    return row_of(planned, evidence, verdict)


def _print(rows: Sequence[Row], folder: Path) -> None:
    from kraft.chaos.experiments.comparison import ACKS, ACKS_NAMES, shown

    printed = Rows(["fault", "min ISR", *(ACKS_NAMES[acks] for acks in ACKS), "verdict"])
    for row in rows:
        printed.add(row.case, str(row.min_insync), *map(shown, row.cells), row.verdict)
    print_rows(printed)
    print_line("records lost / doubled / the longest wait for an acknowledgement")
    for row in rows:
        if row.why:
            print_line(f"{row.case}, min.insync.replicas={row.min_insync}: {row.verdict}: {row.why}")
    print_line(f"table, picture and reports: {folder}")
