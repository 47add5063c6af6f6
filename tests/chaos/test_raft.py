"""Quorums of real drivers under loss, duplication, reordering, crashes and power loss, from fixed seeds.

The invariants are in `tests.support.raft_cluster`. A seed that ever failed is added to the list.
"""

import os
import subprocess
import sys

import pytest

from tests.support.raft_cluster import MILD, RaftCluster, Settings

THREE_VOTERS = [1, 3, 4, 8, 29, 43, 48, 1271]
FIVE_VOTERS = [2, 8, 17, 1023]


@pytest.mark.parametrize("seed", THREE_VOTERS)
def test_three_voters_keep_their_promises(seed):
    cluster = RaftCluster(seed)
    cluster.run()
    assert cluster.acknowledged
    assert cluster.crashes


@pytest.mark.parametrize("seed", FIVE_VOTERS)
def test_five_voters_keep_their_promises(seed):
    cluster = RaftCluster(seed, Settings(voters=5))
    cluster.run()
    assert cluster.acknowledged
    assert cluster.crashes


def test_one_voter_keeps_its_promises():
    cluster = RaftCluster(5, Settings(voters=1))
    cluster.run()
    assert cluster.acknowledged
    assert cluster.crashes


@pytest.mark.parametrize("seed", [11, 12])
def test_a_long_log_under_mild_faults_and_the_sizes_of_production(seed):
    settings = Settings(append_bytes=16 * 1024 * 1024, snapshot_every_entries=50, faults=MILD)
    cluster = RaftCluster(seed, settings)
    cluster.run()
    assert len(cluster.acknowledged) > 300


_TRACE = """
import sys
from tests.support.raft_cluster import RaftCluster, Settings
for seed, voters in ((21, 3), (22, 5), (23, 3)):
    cluster = RaftCluster(seed, Settings(voters=voters, virtual_s=6.0))
    cluster.run()
    print(cluster.trace_hash)
"""


def test_a_seed_gives_the_same_trace_whatever_the_hash_seed():
    def run(hash_seed):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        command = [sys.executable, "-c", _TRACE]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    first, second = run("1"), run("2")
    assert first == second
    assert len(set(first.split())) == 3
