"""`kraft reassign` against a real cluster: moves that end, moves that cannot, and what takes them back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kraft.cli.app import run
from tests.support.node_processes import NodeProcesses, until
from tests.support.streams import IDEMPOTENT, audit, read_all, streaming

SOME = 60


class Ran(NamedTuple):
    """What a command did."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        assert self.exit_code == 0, self.stderr
        return json.loads(self.stdout)


Reassign = Callable[..., Ran]


@pytest.fixture
def reassign(capsys: pytest.CaptureFixture[str]) -> Reassign:
    """`kraft reassign …`, in this process."""

    def ran(*arguments: str) -> Ran:
        capsys.readouterr()
        exit_code = run(["reassign", *arguments])
        return Ran(exit_code, *capsys.readouterr())

    return ran


def at(cluster: NodeProcesses, *but: int) -> tuple[str, str]:
    """The option that names the cluster's brokers, some left out."""
    addresses = [cluster.address(node) for node in cluster.node_ids if node not in but]
    return "--bootstrap-server", ",".join(f"{host}:{port}" for host, port in addresses)


def await_replicas(cluster: NodeProcesses, topic: str, wanted: dict[int, list[int]]) -> None:
    """The broker that is asked may hear of a change after the one that told `kraft reassign` of it."""
    until(
        lambda: {number: state.replicas for number, state in cluster.partitions(topic).items()} == wanted,
        f"{topic} has the replicas {wanted}",
    )


def test_a_partition_moves_while_it_serves(cluster: NodeProcesses, reassign: Reassign) -> None:
    topic = cluster.create_topic("moves", replication_factor=1)
    here = cluster.partitions(topic)[0].replicas[0]
    there = next(node for node in cluster.node_ids if node != here)
    begun = reassign("start", topic, "--to", str(there), "--wait", "--json", *at(cluster))
    assert begun.document == {"partitions": [{"topic": topic, "partition": 0, "error": None}]}
    await_replicas(cluster, topic, {0: [there]})
    until(lambda: cluster.leader(topic) == there, "the new replica leads")
    assert reassign("list", topic, "--json", *at(cluster)).document == {"reassignments": []}


def test_many_at_once_from_a_file(cluster: NodeProcesses, reassign: Reassign, tmp_path: Path) -> None:
    topic = cluster.create_topic("moves", partitions=2)
    file = tmp_path / "plan.json"
    plan = [{"topic": topic, "partition": n, "replicas": [1 + n, 3]} for n in range(2)]
    file.write_text(json.dumps({"version": 1, "partitions": plan}))
    result = reassign("start", "--file", str(file), "--wait", *at(cluster))
    assert (result.exit_code, result.stdout) == (0, f"{topic}-0 done\n{topic}-1 done\n")
    await_replicas(cluster, topic, {0: [1, 3], 1: [2, 3]})


def test_a_move_that_cannot_end_is_seen_and_cancelled(
    fragile_cluster: NodeProcesses, reassign: Reassign
) -> None:
    cluster = fragile_cluster
    topic = cluster.create_topic("moves", replication_factor=1)
    here = cluster.partitions(topic)[0].replicas[0]
    there = next(node for node in cluster.node_ids if node != here)
    cluster.local.pause(there)
    rest = at(cluster, there)
    assert reassign("start", topic, "--to", str(there), *rest).stdout == f"{topic}-0 begun\n"
    row = reassign("list", "--json", *rest).document["reassignments"][0]
    assert (row["topic"], row["partition"], row["adding"], row["removing"]) == (topic, 0, [there], [here])
    assert row["leo"] == {str(here): 0}
    assert reassign("start", topic, "--to", str(there), "--wait", "--timeout", "1", *rest).exit_code == 3
    assert reassign("cancel", topic, *rest).stdout == f"{topic}-0 cancelled\n"
    assert reassign("list", topic, "--json", *rest).document == {"reassignments": []}
    assert "nothing is being reassigned" in reassign("cancel", "--all", *rest).stderr
    cluster.local.resume(there)  # the test's own client may be connected to it
    await_replicas(cluster, topic, {0: [here]})


def test_a_move_under_load_is_watched_taken_back_and_made_after_all(
    fragile_cluster: NodeProcesses, reassign: Reassign
) -> None:
    """No produce fails for any of it; a target that is frozen holds the move up, and nothing else."""
    cluster = fragile_cluster
    topic = cluster.create_topic("moves", replication_factor=2, min_insync_replicas="2")
    stays, leaves = cluster.partitions(topic)[0].replicas
    [there] = set(cluster.node_ids) - {stays, leaves}
    rest, target = at(cluster, there), f"{stays},{there}"
    with streaming(IDEMPOTENT["confluent-kafka"](cluster.bootstrap, topic, 1)) as stream:
        stream.wait_for(SOME)
        cluster.local.pause(there)
        assert reassign("start", topic, "--to", target, *rest).stdout == f"{topic}-0 begun\n"
        stream.wait_for(SOME)
        row = reassign("list", "--json", *rest).document["reassignments"][0]
        assert (row["adding"], row["removing"]) == ([there], [leaves])
        assert row["leo"][str(stays)] >= SOME
        cancelled = reassign("cancel", topic, *rest)
        assert cancelled.stdout == f"{topic}-0 cancelled\n", cancelled.stderr
        stream.wait_for(SOME)
        cluster.local.resume(there)
        await_replicas(cluster, topic, {0: [stays, leaves]})
        moved = reassign("start", topic, "--to", target, "--wait", *at(cluster))
        assert moved.stdout == f"{topic}-0 done\n", moved.stderr
        stream.wait_for(SOME)
    await_replicas(cluster, topic, {0: [stays, there]})
    audit(stream, read_all(cluster.bootstrap, topic, 1))


def test_what_is_refused(cluster: NodeProcesses, reassign: Reassign) -> None:
    topic = cluster.create_topic("moves")
    unknown = reassign("start", topic, "--to", "1,99", *at(cluster))
    assert unknown.exit_code == 1
    assert "INVALID_REPLICA_ASSIGNMENT" in unknown.stderr
    idle = reassign("cancel", topic, "--partition", "0", *at(cluster))
    assert idle.exit_code == 1
    assert "NO_REASSIGNMENT_IN_PROGRESS" in idle.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("start",), "name a topic"),
        (("start", "t"), "name a topic"),
        (("start", "t", "--to", "one"), "--to takes broker ids"),
        (("start", "--file", "/nowhere/plan.json"), "cannot be read"),
        (("cancel",), "name one topic"),
        (("cancel", "t", "--all"), "name one topic"),
    ],
)
def test_wrong_usage(reassign: Reassign, arguments: tuple[str, ...], says: str) -> None:
    result = reassign(*arguments)
    assert result.exit_code == 2
    assert says in result.stderr
