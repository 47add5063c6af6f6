"""A node says where each of its threads is when it is sent SIGQUIT, and serves on."""

from __future__ import annotations

from tests.support.node_processes import NodeProcesses, until


def test_a_node_shows_its_stacks_and_serves_on(cluster: NodeProcesses) -> None:
    pid = cluster.local.pid(1)
    seen = cluster.local.evidence(1, all_threads=True)
    assert seen.startswith(f"node 1: process {pid} ")
    for place in ("in run_server", "raft_lane.py", "link_lane.py"):
        assert place in seen
    assert cluster.local.pid(1) == pid
    until(lambda: cluster.local.readiness(1).get("ready"), "the node is ready")
