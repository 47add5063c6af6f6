"""What an overview finds wrong, in which order, and for whom."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from kraft.cluster_problems import Problem
from kraft.http.console.overview import (
    PROBLEMS_OF_A_KIND_MAX,
    Rights,
    Seen,
    first_of_each_kind,
    found_problems,
)
from kraft.http.console.structure import Structure, seen
from quorum.metadata.image import MetadataImage, PartitionImage, TopicImage
from quorum.steps import finished

EVERYTHING = Rights(cluster=True, topic=lambda name: True, group=lambda name: True, principal=None)
NOW_MS = 1_000_000
WELL = PartitionImage((1, 2), (1, 2), 1, 0, 0)


def structure(*partitions: PartitionImage) -> Structure:
    topic = TopicImage(b"x" * 16, "t", partitions)
    image = MetadataImage(topics={topic.topic_id: topic}, topic_ids={"t": topic.topic_id})
    return finished(seen(Structure(), image, lambda name: 1))


def voter(node_id: int, **other: Any) -> dict[str, Any]:
    told = {"last_fetch_at_ms": NOW_MS, "last_caught_up_at_ms": NOW_MS, "lag": 0}
    return {"id": node_id, "is_leader": node_id == 1, **told, **other}


def view(**other: Any) -> dict[str, Any]:
    disk = {"path": "/data", "error": None, "total_bytes": 100, "usable_bytes": 50}
    return {"log_dirs": [disk], "still_groups": [], **other}


HEALTHY = Seen(
    NOW_MS,
    structure(WELL),
    [{"id": 1, "state": "running"}, {"id": 2, "state": "running"}],
    {"leader_id": 1, "voters": [voter(1), voter(2)]},
    {1: view(), 2: view()},
)


def told(look: Seen, rights: Rights = EVERYTHING) -> list[tuple[str, dict[str, Any]]]:
    return [(problem.kind, subject) for problem, subject in found_problems(look, rights)[0]]


def test_nothing_is_wrong() -> None:
    assert told(HEALTHY) == []


def test_causes_come_before_what_they_take_along() -> None:
    full = {"path": "/data", "error": None, "total_bytes": 100, "usable_bytes": 4}
    broken = {"path": "/b", "error": "KAFKA_STORAGE_ERROR", "total_bytes": None, "usable_bytes": None}
    look = Seen(
        NOW_MS,
        structure(replace(WELL, isr=(1,)), replace(WELL, isr=(2,), leader=-1)),
        [{"id": 1, "state": "silent"}, {"id": 2, "state": "fenced"}],
        {
            "leader_id": 1,
            "voters": [
                voter(1),
                voter(2, last_fetch_at_ms=NOW_MS - 6_000),
                voter(3, lag=7, last_caught_up_at_ms=NOW_MS - 11_000),
                voter(4, last_fetch_at_ms=None),
            ],
        },
        {
            1: None,
            2: view(
                log_dirs=[full, broken],
                still_groups=[{"group_id": "g", "lag": 5, "since_ms": NOW_MS - 90_000}],
            ),
        },
    )
    assert told(look) == [
        ("broker-fenced", {"broker": 2}),
        ("broker-silent", {"broker": 1}),
        ("voter-silent", {"broker": 2}),
        ("voter-lagging", {"broker": 3}),
        ("voter-silent", {"broker": 4}),
        ("directory-full", {"broker": 2}),
        ("directory-failed", {"broker": 2}),
        ("partition-offline", {"topic": "t", "partition": 1}),
        ("group-stands-still", {"group": "g"}),
        ("under-replicated", {"topic": "t", "partition": 0}),
    ]
    problems, counts = found_problems(look, EVERYTHING)
    sentences = [problem.what for problem, _ in problems]
    assert counts == Counter(problem.kind for problem, _ in problems)
    assert list(counts) == list(dict.fromkeys(problem.kind for problem, _ in problems)), (
        "causes come first here, too"
    )
    assert "group g has committed nothing for 90 s and is 5 records behind" in sentences


def test_no_controller() -> None:
    assert told(replace(HEALTHY, quorum=None)) == [("no-controller", {})]


def test_a_quorum_that_a_voter_alone_tells_of_says_nothing_of_the_others() -> None:
    unknown = {"last_fetch_at_ms": None, "last_caught_up_at_ms": None, "lag": None}
    quorum = {"leader_id": 1, "voters": [voter(1, **unknown), voter(2, **unknown)]}
    assert told(replace(HEALTHY, quorum=quorum)) == []


def test_nobody_is_told_of_what_they_may_not_see() -> None:
    look = replace(
        HEALTHY,
        structure=structure(replace(WELL, isr=(2,), leader=-1)),
        quorum=None,
        views={1: view(still_groups=[{"group_id": "g", "lag": 5, "since_ms": 0}])},
    )
    nothing = Rights(cluster=False, topic=lambda name: False, group=lambda name: False, principal="User:a")
    assert told(look, nothing) == []
    assert told(look, replace(nothing, group=lambda name: name == "g")) == [
        ("group-stands-still", {"group": "g"})
    ]


def test_many_of_a_kind_hide_no_other() -> None:
    offline = [(Problem("partition-offline", str(n)), {"partition": n}) for n in range(1000)]
    shown = list(first_of_each_kind([*offline, (under := Problem("under-replicated", "x"), {})]))
    assert shown == [*offline[:PROBLEMS_OF_A_KIND_MAX], (under, {})]


def test_partitions_that_are_not_named_are_counted() -> None:
    offline, alone = replace(WELL, isr=(2,), leader=-1), replace(WELL, isr=(1,))
    problems, counts = found_problems(
        replace(HEALTHY, structure=structure(*[alone] * 3_000, *[offline] * 2_000)), EVERYTHING
    )
    assert counts == {"partition-offline": 2_000, "under-replicated": 3_000}
    assert [subject["partition"] for _, subject in problems] == [*range(3_000, 3_025), *range(25)]
