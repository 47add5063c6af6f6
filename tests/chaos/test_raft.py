"""The controller quorum alone under faults, from fixed seeds; `kraft chaos quorum` plays as many as one likes.

A seed that ever failed is added to the list.
"""

import pytest

from kraft.chaos.campaign import run_campaign, verify
from kraft.chaos.quorum.run import PROPOSALS, asked_of_quorums, run
from kraft.chaos.quorum.settings import FAULTS, QuorumScenario, Settings, drawn, scenario_of
from kraft.chaos.report import failure_lines, shortcomings

MILD = {
    name: rate * 0.2
    for name, rate in FAULTS.items()
    if not name.startswith(("fsync", "wipe", "bit-rot", "kill-new", "power-loss-all"))
}
"""Few enough faults that the log grows long and leaders last."""
SEEDS = [6, 12, 35, 37, 45, 51, 58]
"""Two equal proposals, of which one is turned away (12, 45, 51); a voter that meets a torn write or a failed fsync
while it stops (6, 35, 37, 45, 58)."""


def held(outcome):
    assert outcome.violations == []
    return outcome


@pytest.mark.parametrize("seed", SEEDS)
def test_seeds_that_once_failed(seed):
    held(run(scenario_of(seed)))


@pytest.mark.timeout(600)
def test_many_seeds_hold_and_their_faults_strike():
    """`scripts/test chaos` goes on after them."""
    asked = asked_of_quorums(None)
    tally = run_campaign(map(scenario_of, range(1, 101)), run, jobs=2)
    assert [failure_lines(one, asked, with_events=True) for one in tally.failed] == []
    assert tally.shapes.keys() == {"3 voters", "5 voters"}
    assert shortcomings(tally, asked) == []


@pytest.mark.parametrize("workload", ["topics", "bytes"])
def test_one_voter_keeps_its_promises(workload):
    append_bytes = 1 << 20
    settings = Settings(voters=1, workload=workload, append_bytes=append_bytes, faults=FAULTS)
    assert held(run(QuorumScenario(5, settings))).acknowledged[PROPOSALS]


@pytest.mark.parametrize("seed", [11, 12])
def test_a_long_log_under_mild_faults_and_the_sizes_of_production(seed):
    settings = Settings(append_bytes=16 * 1024 * 1024, snapshot_every_entries=50, faults=MILD)
    assert held(run(QuorumScenario(seed, settings))).acknowledged[PROPOSALS] > 200


def test_a_seed_gives_the_same_trace_whatever_the_hash_seed():
    done = verify(map(scenario_of, (21, 22, 23)), run, jobs=2)
    assert [one for one in done if not one.equal] == []
    assert len({one.hashes for one in done}) == 3


def test_a_seed_draws_its_scenario_once_and_for_all():
    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)
    assert drawn(7, voters=5).voters == 5
