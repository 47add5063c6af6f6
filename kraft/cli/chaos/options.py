"""The options of `kraft chaos`, and the scenarios that they ask for.

A contradiction ends the command with a sentence before anything is played.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.cli.shared.output import console, fail
from kraft.user_error import EXIT_USAGE

if TYPE_CHECKING:
    from kraft.chaos.campaign import AnyScenario, Run
    from kraft.chaos.case import Case
    from kraft.chaos.report import Asked
    from kraft.chaos.scenario import Scenario

SEEDS, QUORUM_SEEDS = 10, 1000
SECONDS = 60.0
JOBS_MAX = 256
FRESH_SEEDS = 10**10
"""Seeds from the wall clock stay short enough to be typed."""

Seed = Annotated[int | None, typer.Option(min=0, help="This seed alone.", show_default=False)]
Seconds = Annotated[
    float | None,
    typer.Option(min=0.1, max=86_400, help="Virtual seconds of faults per seed; 60 if not given."),
]
FaultNames = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,…",
        help="Faults by name, all of them in every seed; also 'default' (each seed its own subset), 'all', "
        "'none'. `kraft chaos faults` lists them.",
        show_default=False,
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(min=1, max=JOBS_MAX, help="Seeds played at once; one for each core if not given."),
]
CaseFile = Annotated[
    Path | None, typer.Option("--case", metavar="FILE", help="A case instead of a seed.", show_default=False)
]
Seeds = Annotated[
    int | None,
    typer.Option(
        min=1, help=f"Play so many seeds; {SEEDS} if nothing else is asked for.", show_default=False
    ),
]
QuorumSeeds = Annotated[
    int | None,
    typer.Option(
        min=1, help=f"Play so many seeds; {QUORUM_SEEDS} if nothing else is asked for.", show_default=False
    ),
]
FirstSeed = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="The first seed; if not given 1, and with --minutes one from the clock.",
        show_default=False,
    ),
]
Minutes = Annotated[
    float | None,
    typer.Option(min=0.01, help="Play fresh seeds until the time is over.", show_default=False),
]
Verify = Annotated[
    bool, typer.Option("--verify", help="Play every seed in two fresh processes and compare the traces.")
]
TraceFile = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="Write the story of the one seed: faults, elections, ISRs, clients' errors, verdict.",
        show_default=False,
    ),
]
TraceAllFile = Annotated[
    Path | None,
    typer.Option(
        "--trace-all",
        metavar="FILE",
        help="Write every callback and every byte of the one seed: long, for diff.",
        show_default=False,
    ),
]
ReportFile = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="FILE",
        help="Write the page of the one seed: faults, elections, clients, verdict.",
        show_default=False,
    ),
]
Counters = Annotated[
    bool, typer.Option("--counters", help="Show every counter, and not only those that stand out.")
]
CaseOut = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Where the case goes; by default seed-N-ORACLE.json in the corpus of the checkout around "
        "the current folder, or in the current folder.",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class Selection:
    """What is to be played, and what plays it."""

    scenarios: Iterator[AnyScenario]
    run: Run
    asked: Asked
    total: int | None
    """How many scenarios, if that is known."""
    is_one: bool
    """A seed or a case by its name."""


def select(
    *,
    seed: int | None = None,
    case: Path | None = None,
    seeds: int | None = None,
    first_seed: int | None = None,
    minutes: float | None = None,
    seconds: float | None = None,
    faults: str | None = None,
) -> Selection:
    """The whole clusters that the options ask for. Ends the command if they contradict each other."""
    if case is not None:
        others = {
            "--seeds": seeds,
            "--first-seed": first_seed,
            "--minutes": minutes,
            "--seed": seed,
            "--seconds": seconds,
            "--faults": faults,
        }
        given = [name for name, value in others.items() if value is not None]
        if given:
            fail(f"a case decides everything by itself: leave out {', '.join(given)}", EXIT_USAGE)
        return _case(case)
    from kraft.chaos.run import run
    from kraft.chaos.swarm import scenario_of

    chosen, asked = _asked(faults)
    numbers, total = _numbers(seed, seeds, first_seed, minutes, SEEDS)
    length_s = SECONDS if seconds is None else seconds
    scenarios = (scenario_of(number, seconds=length_s, faults=chosen) for number in numbers)
    return Selection(scenarios, run, asked, total, is_one=seed is not None)


def select_quorums(
    *,
    seed: int | None,
    seeds: int | None,
    first_seed: int | None,
    minutes: float | None,
    voters: int | None,
    seconds: float,
) -> Selection:
    """The quorums that the options ask for. Ends the command if they contradict each other."""
    from kraft.chaos.quorum.run import asked_of_quorums, run
    from kraft.chaos.quorum.settings import VOTERS, scenario_of

    if voters is not None and voters not in VOTERS:
        fail(f"a quorum of {voters} is not simulated: --voters takes 3 or 5", EXIT_USAGE)
    numbers, total = _numbers(seed, seeds, first_seed, minutes, QUORUM_SEEDS)
    scenarios = (scenario_of(number, voters, seconds) for number in numbers)
    return Selection(scenarios, run, asked_of_quorums(voters), total, is_one=seed is not None)


def case_of(path: Path) -> Case:
    """The case in a file. Ends the command if it is none, or none that can be played."""
    from kraft.chaos.case import Case
    from kraft.chaos.playable import check_playable
    from kraft.chaos.scenario import ScenarioError

    try:
        case = Case.load(path)
        check_playable(case.scenario)
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror}", EXIT_USAGE)
    except (ScenarioError, UnicodeDecodeError) as error:
        fail(f"{path}: {error}", EXIT_USAGE)
    return case


def check_writable(path: Path | None) -> None:
    """Ends the command if the file cannot be written; before the work, not after it."""
    if path is None:
        return
    is_file = path.parent.is_dir() and not path.is_dir()
    if not is_file or not os.access(path if path.exists() else path.parent, os.W_OK):
        fail(f"{path} is no file that can be written", EXIT_USAGE)


def jobs_or_cores(jobs: int | None) -> int:
    """As asked, or one for each core that this process may use."""
    return jobs if jobs is not None else len(os.sched_getaffinity(0))


def _case(path: Path) -> Selection:
    from kraft.chaos.coverage import asked_of_clusters
    from kraft.chaos.run import run

    scenario: Scenario = case_of(path).scenario
    return Selection(iter([scenario]), run, asked_of_clusters(None, (), str(path)), 1, is_one=True)


def _asked(text: str | None) -> tuple[tuple[str, ...] | None, Asked]:
    """The faults behind the names of --faults; None: the default swarm."""
    from kraft.chaos.coverage import asked_of_clusters
    from kraft.chaos.faults import DEFAULT_FAULTS, FAULTS

    names = ["default"] if text is None else [name.strip() for name in text.split(",") if name.strip()]
    if names == ["default"]:
        return None, asked_of_clusters(None, DEFAULT_FAULTS)
    groups: dict[str, Sequence[str]] = {"default": DEFAULT_FAULTS, "all": tuple(FAULTS), "none": ()}
    unknown = [name for name in names if name not in groups and name not in FAULTS]
    if unknown or not names:
        sentence = f"there is no fault '{unknown[0]}'" if unknown else "--faults names no fault"
        fail(f"{sentence}; choose from: {', '.join([*FAULTS, *groups])}", EXIT_USAGE)
    chosen = tuple(dict.fromkeys(fault for name in names for fault in groups.get(name, (name,))))
    return chosen, asked_of_clusters(chosen, chosen)


def _numbers(
    seed: int | None, seeds: int | None, first_seed: int | None, minutes: float | None, seeds_default: int
) -> tuple[Iterator[int], int | None]:
    """The seeds, and how many they are if that is known."""
    others = {"--seeds": seeds, "--first-seed": first_seed, "--minutes": minutes}
    many = [name for name, value in others.items() if value is not None]
    if seed is not None and many:
        fail(f"--seed plays one seed alone: leave out {', '.join(many)}", EXIT_USAGE)
    if seed is not None:
        return iter([seed]), 1
    if minutes is not None:
        return _timed(first_seed, seeds, minutes), None
    first, total = 1 if first_seed is None else first_seed, seeds or seeds_default
    return iter(range(first, first + total)), total


def _timed(first_seed: int | None, seeds: int | None, minutes: float) -> Iterator[int]:
    """Seeds until the time is over, from the wall clock if nothing else is said."""
    first = first_seed if first_seed is not None else time.time_ns() // 1_000_000 % FRESH_SEEDS
    console.print(f"the first seed is {first}")
    numbers = itertools.count(first) if seeds is None else iter(range(first, first + seeds))
    until_s = time.monotonic() + minutes * 60
    return itertools.takewhile(lambda _: time.monotonic() < until_s, numbers)
