"""Simulated clusters, for every change: all cases that ever failed, and a fixed list of seeds.

A failure says how to replay it. Fresh seeds are for `kraft chaos simulate --minutes M`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kraft.chaos.campaign import Tally, run_campaign, verify
from kraft.chaos.case import Case
from kraft.chaos.faults import DEFAULT_FAULTS
from kraft.chaos.report import Asked, counters, failure_lines
from kraft.chaos.run import run
from kraft.chaos.swarm import scenario_of
from kraft.chaos.workload import WORKLOADS

pytestmark = pytest.mark.timeout(240)

CORPUS = Path(__file__).parent / "corpus"
SEEDS = (*range(34, 58), 6, 149, 167, 184, 194, 238, 297)
"""The last ones for faults that strike seldom in so short a time."""
SECONDS = 12.0
VERIFIED = (3, 7)
JOBS = len(os.sched_getaffinity(0))


def failures(tally: Tally, asked: Asked) -> str:
    """What failed, with the commands that replay it; "" if nothing did."""
    return "\n".join(line for one in tally.failed for line in failure_lines(one, asked, with_events=True))


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.json")), ids=lambda path: path.stem)
def test_what_failed_once_holds(path: Path) -> None:
    case = Case.load(path)
    tally = run_campaign([case.scenario], run, jobs=1)
    assert tally.seeds == 1
    assert not tally.failed, failures(tally, Asked(None, (), case=str(path)))


def test_the_fixed_seeds_hold_and_are_worth_something() -> None:
    asked = Asked(None, DEFAULT_FAULTS)
    tally = run_campaign((scenario_of(seed, seconds=SECONDS) for seed in SEEDS), run, jobs=JOBS)
    assert tally.seeds == len(SEEDS)
    assert not tally.failed, failures(tally, asked)
    assert not tally.undecided
    assert tally.excused <= len(SEEDS) / 5
    assert [name for name in counters(asked) if not tally.coverage[name]] == []
    assert tally.acknowledged.keys() == set(WORKLOADS)
    assert all(tally.acknowledged.values())


def test_one_seed_is_one_history_in_every_process() -> None:
    done = verify((scenario_of(seed, seconds=SECONDS) for seed in VERIFIED), run, jobs=JOBS)
    assert {one.seed for one in done} == set(VERIFIED)
    assert [one for one in done if not one.equal] == []
