"""Simulated clusters, for every change: all cases that ever failed, and a fixed list of seeds.

A failure says how to replay it. Fresh seeds are for `kraft chaos simulate --minutes M`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kraft.chaos.campaign import Tally, run_campaign, verify
from kraft.chaos.case import Case
from kraft.chaos.coverage import asked_of_clusters
from kraft.chaos.faults import DEFAULT_FAULTS
from kraft.chaos.report import Asked, failure_lines, never_happened
from kraft.chaos.run import run
from kraft.chaos.swarm import scenario_of
from kraft.chaos.workload import WORKLOADS
from kraft.chaos.workload.reader import BEHIND_THE_END, OUT_OF_RANGE_NEARER
from tests.chaos.mutations.scenarios import ROT
from tests.chaos.mutations.scenarios_of_readers import MADE_ANEW
from tests.chaos.mutations.security import GUESTS

pytestmark = pytest.mark.timeout(900)

CORPUS = Path(__file__).parent / "corpus"
SECONDS, LONGER_S = 12.0, 25.0
SEEDS = {
    SECONDS: (7, 12, 21, 30, 36, 37, 40, 54, 59, 62, 167, 194, 507),
    LONGER_S: (25, 147, 156, 256, 281, 304, 315, 317, 328, 335, 339, 355),
}
"""By virtual seconds. Chosen so that in few runs everything happens that is counted, and most of it several times."""
NARROW = (MADE_ANEW.scenario(1), MADE_ANEW.scenario(3), ROT.scenario(2), GUESTS.scenario(8))
"""Damage that readers find, a partition of which no sound copy is left, and a quota of fetches that is held for long:
rare where all faults are drawn from."""
TOO_RARE = {BEHIND_THE_END, OUT_OF_RANGE_NEARER}
"""Of what is counted, what takes hundreds of seeds: a reader that is ahead of what is left, at a leader or follower."""
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
    assert not tally.failed, failures(tally, asked_of_clusters(None, (), case=str(path)))


def test_the_fixed_seeds_hold_and_are_worth_something() -> None:
    asked = asked_of_clusters(None, DEFAULT_FAULTS)
    scenarios = [scenario_of(seed, seconds=seconds) for seconds, seeds in SEEDS.items() for seed in seeds]
    tally = run_campaign([*scenarios, *NARROW], run, jobs=JOBS)
    assert tally.seeds == len(scenarios) + len(NARROW)
    assert not tally.failed, failures(tally, asked)
    assert not tally.undecided
    assert tally.excused <= tally.seeds / 5
    assert set(never_happened(tally, asked)) <= TOO_RARE
    assert tally.acknowledged.keys() == set(WORKLOADS)


def test_one_seed_is_one_history_in_every_process() -> None:
    done = verify((scenario_of(seed, seconds=SECONDS) for seed in VERIFIED), run, jobs=JOBS)
    assert {one.seed for one in done} == set(VERIFIED)
    assert [one for one in done if not one.equal] == []
