"""`kraft chaos quorum`: plays the controller quorum alone, many seeds a second; a campaign as any other."""

from __future__ import annotations

from typing import Annotated

import typer

from kraft.cli.chaos.campaign import OneRunFiles, play
from kraft.cli.chaos.options import (
    Counters,
    FirstSeed,
    Jobs,
    Minutes,
    QuorumSeeds,
    Seed,
    TraceAllFile,
    TraceFile,
    Verify,
    select_quorums,
)
from kraft.cli.shared.options import Json


def quorum(
    seed: Seed = None,
    seeds: QuorumSeeds = None,
    first_seed: FirstSeed = None,
    minutes: Minutes = None,
    voters: Annotated[
        int | None,
        typer.Option(help="3 or 5; each seed draws its own number if not given.", show_default=False),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=3600, help="Virtual seconds of faults per seed.")
    ] = 12.0,
    jobs: Jobs = None,
    verify: Verify = False,
    trace: TraceFile = None,
    trace_all: TraceAllFile = None,
    counters: Counters = False,
    as_json: Json = False,
) -> None:
    """Play the controllers alone under faults and judge what Raft and the metadata promise.

    Exit code 0: all held; 1: a promise was broken; 2: wrong usage; 3: it could not be told.
    """
    files = OneRunFiles(trace, trace_all)
    files.check(is_one=seed is not None and not verify)
    selection = select_quorums(
        seed=seed, seeds=seeds, first_seed=first_seed, minutes=minutes, voters=voters, seconds=seconds
    )
    play(selection, files, jobs=jobs, verify=verify, all_counters=counters, as_json=as_json)
