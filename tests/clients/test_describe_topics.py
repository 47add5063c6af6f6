"""`kraft topics describe` picks the ailing partitions out of a real cluster."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kraft.cli.app import run
from tests.support.node_processes import NodeProcesses, until


def test_ailing_partitions_are_picked_out(
    fragile_cluster: NodeProcesses, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = fragile_cluster
    whole = cluster.create_topic("whole", replication_factor=1)
    guarded = cluster.create_topic("guarded", min_insync_replicas="2")
    strict = cluster.create_topic("strict", min_insync_replicas="3")
    victim = next(node for node in cluster.node_ids if node != cluster.leader(whole))
    alone = cluster.new_name("alone")
    rest = [cluster.address(node) for node in cluster.node_ids if node != victim]
    servers = ",".join(f"{host}:{port}" for host, port in rest)

    def describe(*arguments: str) -> Any:
        capsys.readouterr()
        assert run(["topics", "describe", *arguments, "--json", "--bootstrap-server", servers]) == 0
        return json.loads(capsys.readouterr().out)

    def described(option: str) -> set[str]:
        return {topic["name"] for topic in describe(option)["topics"]} & {whole, guarded, strict, alone}

    assert {whole, guarded, strict} <= {topic["name"] for topic in describe()["topics"]}
    assert described("--under-replicated") == set()
    assert described("--at-min-isr") == {whole, strict}
    assert run(["topics", "create", alone, "--bootstrap-server", servers]) == 0
    assert (
        run(["reassign", "start", alone, "--to", str(victim), "--wait", "--bootstrap-server", servers]) == 0
    )
    cluster.local.kill(victim)
    until(lambda: described("--unavailable") == {alone}, "the only replica of a partition is gone")
    until(lambda: described("--under-min-isr") == {strict, alone}, "two of three are too few for one topic")
    assert described("--under-replicated") == {guarded, strict, alone}
    assert described("--at-min-isr") == {whole, guarded}
    ailing = describe(strict, "--under-min-isr")["partitions"][0]
    assert victim not in ailing["isr"]
    assert ailing["offline"] == [victim]
    assert str(victim) not in ailing["leo"]
    assert describe(whole, "--under-replicated")["partitions"] == []


def test_one_filter_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "describe", "--unavailable", "--at-min-isr"]) == 2
    assert "choose one" in capsys.readouterr().err
