"""What `kraft cluster health` finds wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraft.cli.health.command import NAMED_MAX, told_lines
from kraft.cli.health.problems import (
    ClusterSeen,
    problem_lines,
    problems,
)
from kraft.cli.quorum.view import QuorumNode, QuorumView
from kraft.cluster_problems import DirectorySeen, PartitionSeen, Problem

TOLD_MS = 1_000_000


def voter(node_id: int, heard_ms: int = TOLD_MS) -> QuorumNode:
    return QuorumNode(node_id, bytes(16), 10, heard_ms, TOLD_MS)


QUORUM = QuorumView("c", 1, 4, 10, [voter(1), voter(2), voter(3)], [])
WELL = PartitionSeen("t", 0, 1, [1, 2, 3], [1, 2, 3], 0, 2)
HEALTHY = ClusterSeen(
    "c", [1, 2, 3], [1, 2, 3], [], QUORUM, [WELL], [DirectorySeen(1, "/data", None, 100, 50)]
)


def kinds(seen: ClusterSeen) -> list[str]:
    return [problem.kind for problem in problems(seen)]


def test_a_healthy_cluster() -> None:
    assert problems(HEALTHY) == []


@pytest.mark.parametrize(
    ("partition", "wanted"),
    [
        (WELL._replace(leader=-1, isr=[3]), ["partition-offline"]),
        (WELL._replace(isr=[1]), ["under-min-isr", "under-replicated"]),
        (WELL._replace(isr=[1, 2]), ["under-replicated"]),
        (WELL._replace(isr=[1, 2, 3], replicas=[1, 2, 3, 4], adding=1), []),
        (WELL._replace(isr=[1, 2], replicas=[1, 2, 3, 4], adding=1), ["under-replicated"]),
        (WELL._replace(isr=[1], replicas=[1], min_isr=2), []),
    ],
)  # fmt: skip
def test_partitions(partition: PartitionSeen, wanted: list[str]) -> None:
    assert kinds(replace(HEALTHY, partitions=[partition])) == wanted


def test_the_worst_comes_first_and_sentences_name_who_is_missing() -> None:
    seen = replace(HEALTHY, partitions=[WELL._replace(isr=[1]), WELL._replace(partition=1, leader=-1)])
    assert [(one.kind, one.what) for one in problems(seen)] == [
        ("partition-offline", "t-1 has no leader; its replicas: 1,2,3"),
        ("under-min-isr", "t-0 refuses acks=all: 1 of 2 replicas that it needs are in sync (1)"),
        ("under-replicated", "t-0 lacks in its ISR: 2,3"),
    ]


def test_nodes_quorum_and_disks() -> None:
    assert kinds(replace(HEALTHY, live=[1, 2])) == ["broker-fenced"]
    assert kinds(replace(HEALTHY, silent=[2])) == ["broker-silent"]
    assert kinds(replace(HEALTHY, quorum=None)) == ["no-controller"]
    assert kinds(replace(HEALTHY, quorum=replace(QUORUM, leader_id=-1))) == ["no-controller"]
    late = replace(QUORUM, voters=[voter(1), voter(2, TOLD_MS - 60_000), voter(3, -1)])
    assert [one.what for one in problems(replace(HEALTHY, quorum=late))] == [
        "voter 2 is not heard of by the quorum's leader",
        "voter 3 is not heard of by the quorum's leader",
    ]
    disks = [
        DirectorySeen(1, "/a", "KAFKA_STORAGE_ERROR", -1, -1),
        DirectorySeen(2, "/b", None, 100, 4),
        DirectorySeen(3, "/c", None, -1, -1),
    ]
    assert kinds(replace(HEALTHY, directories=disks)) == ["directory-failed", "directory-full"]


def test_people_are_shown_some_of_each_kind() -> None:
    found = [Problem("a", "1"), Problem("a", "2"), Problem("b", "3"), Problem("a", "4")]
    assert list(problem_lines(found, 2)) == ["1", "2", "3", "… and 1 more: a"]
    assert list(problem_lines(found, 3)) == ["1", "2", "3", "4"]


def test_who_watches_is_told_what_changed() -> None:
    a, b, c = Problem("k", "a"), Problem("k", "b"), Problem("k", "c")
    assert list(told_lines(None, [a, b])) == list(told_lines([], [a, b])) == ["a", "b"]
    assert list(told_lines([a, b], [b, c])) == ["+ c", "- a"]
    many = [Problem("k", str(number)) for number in range(NAMED_MAX + 2)]
    assert list(told_lines([*many, a], [a]))[-1] == "- … and 2 more: k"
