"""The controller quorum alone under faults, from fixed seeds; `kraft chaos quorum` plays as many as one likes.

A seed that ever failed is added to the list.
"""

import json
import os
import subprocess
import sys

import pytest

from kraft.chaos.quorum.campaign import QuorumPlan, run_campaign
from kraft.chaos.quorum.run import play
from kraft.chaos.quorum.settings import MILD, Settings, drawn

SEEDS = [86, 128, 147, 163, 168, 179, 252, 297, 301, 368, 2281]


def held(outcome):
    assert (outcome.oracle, outcome.text) == ("", "")
    return outcome


@pytest.mark.parametrize("seed", SEEDS)
def test_seeds_that_once_failed(seed):
    held(play(seed))


@pytest.mark.timeout(600)
def test_many_seeds_hold_and_their_faults_strike():
    """`scripts/test chaos` goes on after them."""
    tally = run_campaign(QuorumPlan(range(1, 101)), jobs=2)
    assert [(one.seed, one.oracle, one.text) for one in tally.violated] == []
    assert tally.by_voters.keys() == {3, 5}
    assert tally.shortcomings() == []


@pytest.mark.parametrize("workload", ["topics", "bytes"])
def test_one_voter_keeps_its_promises(workload):
    append_bytes = 1 << 20
    outcome = held(play(5, Settings(voters=1, workload=workload, append_bytes=append_bytes)))
    assert outcome.acknowledged


@pytest.mark.parametrize("seed", [11, 12])
def test_a_long_log_under_mild_faults_and_the_sizes_of_production(seed):
    settings = Settings(append_bytes=16 * 1024 * 1024, snapshot_every_entries=50, faults=MILD)
    assert held(play(seed, settings)).acknowledged > 200


_DIGESTS = """
import json
from kraft.chaos.quorum.run import play
print(json.dumps([play(seed).digest for seed in (21, 22, 23)]))
"""


def test_a_seed_gives_the_same_trace_whatever_the_hash_seed():
    def digests(hash_seed):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        command = [sys.executable, "-c", _DIGESTS]
        return json.loads(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)

    first = digests("1")
    assert first == digests("2")
    assert len(set(first)) == 3


def test_a_seed_draws_its_scenario_once_and_for_all():
    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)
    assert drawn(7, voters=5).voters == 5
