"""Settings that cannot work say so."""

import pytest

from quorum.raft.config import FAST_TIMING, RaftConfig, RaftConfigError, RaftTiming


def config(**changes):
    return RaftConfig(
        **{"node_id": 1, "voters": {1: "a", 2: "b"}, "cluster_id": "c", "directory": "/d", **changes}
    )


def test_the_defaults_fit_together():
    assert config().timing == RaftTiming()
    assert FAST_TIMING.election_max_s == 0.5


@pytest.mark.parametrize(
    "changes",
    [
        {"heartbeat_s": 0.0},
        {"idle_step_max_s": 0.0},
        {"election_min_s": 0.3},
        {"election_max_s": 0.8},
        {"leader_fallback_s": 0.1},
        {"leader_fallback_s": 1.7},
    ],
)
def test_timers_that_contradict_each_other_are_refused(changes):
    with pytest.raises(RaftConfigError):
        RaftTiming(**changes)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"node_id": 3}, "controller.quorum.voters"),
        ({"voters": {1: "a", -2: "b"}}, "whole numbers"),
        ({"snapshot_every_entries": 1}, "2 entries"),
        ({"max_pending_proposals": 0}, "pending proposal"),
        ({"apply_bytes": 0}, "apply_bytes must be above 0"),
    ],
)
def test_a_quorum_that_cannot_be_is_refused_with_what_to_change(changes, sentence):
    with pytest.raises(RaftConfigError, match=sentence):
        config(**changes)
