"""Targets: who has a role now, and whether the metadata journal agrees."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kraft.chaos.experiments.evidence import ControllerChange, Journal, MetadataChange
from kraft.chaos.experiments.targets import (
    MetadataView,
    NobodyThereError,
    PartitionView,
    TargetError,
    check_by_journal,
    parse_target,
    resolve,
)

VIEW = MetadataView(
    nodes=(1, 2, 3),
    running=frozenset((1, 3)),
    controller=3,
    partitions={
        ("orders", 0): PartitionView(2, (1, 2, 3), (2, 3)),
        ("orders", 1): PartitionView(-1, (3, 1), (3,)),
        ("a-b", 0): PartitionView(1, (1,), (1,)),
    },
    groups={"g": 2},
    transactions={"x": 1},
)


@pytest.mark.parametrize(
    ("text", "nodes", "partitions"),
    [
        ("leader of orders-0", (2,), (("orders", 0),)),
        ("leader of a-b-0", (1,), (("a-b", 0),)),
        ("follower of orders-0", (3,), (("orders", 0),)),
        ("replica 1 of orders-0", (1,), (("orders", 0),)),
        ("controller", (3,), ()),
        ("the active controller", (3,), ()),
        ("coordinator of group g", (2,), (("orders", 0),)),
        ("coordinator of transaction x", (1,), (("a-b", 0),)),
        ("node 2", (2,), (("orders", 0),)),
        ("nodes 1, 2", (1, 2), (("a-b", 0), ("orders", 0))),
        ("all nodes", (1, 2, 3), (("a-b", 0), ("orders", 0))),
        ("node of step 1", (2,), (("orders", 0),)),
    ],
)
def test_a_role_is_resolved_by_the_metadata_of_the_instant(text, nodes, partitions):
    found = resolve(parse_target(text), VIEW, random.Random(1), {1: (2,)})
    assert (found.nodes, found.partitions) == (nodes, partitions)


def test_a_random_node_is_one_that_runs():
    rng = random.Random(7)
    drawn = {resolve(parse_target("random node"), VIEW, rng, {}).nodes for _ in range(50)}
    assert drawn == {(1,), (3,)}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("leader of orders-1", "orders-1 has no leader"),
        ("follower of a-b-0", "a-b-0 has no follower in its ISR"),
        ("replica 3 of orders-1", "orders-1 has no replica 3"),
        ("leader of payments-0", "there is no partition payments-0"),
        ("coordinator of group other", "nobody coordinates group other"),
        ("coordinator of transaction other", "nobody coordinates transactional id other"),
        ("node of step 2", "step 2 has struck nobody yet"),
    ],
)
def test_a_role_that_nobody_has_is_told(text, why):
    with pytest.raises(NobodyThereError, match=why):
        resolve(parse_target(text), VIEW, random.Random(1), {})


@pytest.mark.parametrize("text", ["", "leader", "leader of orders", "node", "node x", "kill node 1"])
def test_what_is_no_target_is_refused(text):
    with pytest.raises(TargetError, match="names no target"):
        parse_target(text)


JOURNAL = Journal(
    (
        MetadataChange(0.0, 1, "orders", 0, 1, 0, (1, 2, 3)),
        MetadataChange(10.0, 2, "orders", 0, 2, 1, (2, 3)),
    ),
    (ControllerChange(0.0, 3, 1), ControllerChange(10.0, 1, 2)),
    (
        MetadataChange(0.0, 1, "__consumer_offsets", 0, 1, 0, (1, 2, 3)),
        MetadataChange(0.0, 1, "__consumer_offsets", 1, 2, 0, (1, 2, 3)),
        MetadataChange(10.0, 2, "__consumer_offsets", 1, 3, 1, (1, 3)),
    ),
)
"""Group `a`, whose hash is 97, is kept in the second of two partitions."""


@pytest.mark.parametrize(
    ("text", "node", "at_s", "problem"),
    [
        ("leader of orders-0", 1, 5.0, ""),
        ("leader of orders-0", 1, 10.3, ""),
        ("leader of orders-0", 1, 12.0, "node 1 was not a leader of orders-0 at 12.000 s: node 2 was"),
        ("follower of orders-0", 3, 12.0, ""),
        ("follower of orders-0", 1, 12.0, "node 1 was not a follower of orders-0"),
        ("controller", 3, 5.0, ""),
        ("controller", 3, 12.0, "node 3 was not the active controller at 12.000 s: node 1 was"),
        ("coordinator of group a", 2, 5.0, ""),
        ("coordinator of group a", 1, 5.0, "node 1 was not coordinator of group a at 5.000 s: node 2 was"),
        ("coordinator of group a", 2, 12.0, "node 2 was not coordinator of group a at 12.000 s: node 3 was"),
        (
            "coordinator of transaction a",
            2,
            5.0,
            "the metadata journal does not know coordinator of transaction a",
        ),
        ("leader of other-0", 1, 5.0, "the metadata journal does not know a leader of other-0"),
        ("node 2", 2, 5.0, ""),
    ],
)
def test_the_journal_judges_the_choice(text, node, at_s, problem):
    found = check_by_journal(parse_target(text), (node,), at_s, JOURNAL, 0.5)
    assert found.startswith(problem)
    assert bool(found) == bool(problem)


def test_coordinators_are_judged_only_by_a_journal_that_has_internal_topics():
    journal = replace(JOURNAL, internal=None)
    assert check_by_journal(parse_target("coordinator of group a"), (1,), 5.0, journal, 0.5) == ""
