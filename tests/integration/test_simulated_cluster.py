"""One seed of a whole simulated cluster, in two processes: the default suite's proof of determinism.

More seeds, and wilder ones, are in `tests/chaos/test_cluster_determinism.py`.
"""

from __future__ import annotations

from tests.support.cluster_story import play_twice, throughput


def test_a_cluster_survives_each_fault_and_repeats_its_history_exactly():
    [first], [second] = play_twice("1")
    print(throughput([first, second]))
    assert first["wrong"] == []
    told = " ".join(first["faults"])
    for fault in ("kill node", "pause node", "power loss of node", "cut off node"):
        assert fault in told
    assert first["acknowledged"] > 500
    assert first["digest"] == second["digest"]
