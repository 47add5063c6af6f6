"""Whole clusters under faults: every promise is kept, and one seed is one history in every process.

Three unmodified nodes, an idempotent producer, a tailing consumer, topics that come and go; the faults
are in `tests.support.cluster_faults`, and what is judged at the end in `tests.support.cluster_story`. A
seed that ever failed is added to its list.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cluster_story import play_twice, throughput

pytestmark = pytest.mark.timeout(120)


def sound(plan: str, *seeds: str) -> list[dict[str, Any]]:
    """Plays the seeds in two processes, sees that all is well, and returns what happened."""
    first, second = play_twice("--plan", plan, *seeds)
    print(throughput([*first, *second]))
    for story in first:
        assert not story["wrong"], f"seed {story['seed']}: {story['wrong']} after {story['faults']}"
        assert story["acknowledged"] > 100
    assert [story["digest"] for story in first] == [story["digest"] for story in second]
    assert len({story["digest"] for story in first}) == len(seeds)
    return first


def logged(stories: list[dict[str, Any]]) -> set[str]:
    """What nodes logged in any of the stories."""
    return {text for story in stories for text in story["logged"]}


def test_each_fault_is_survived():
    for story in sound("each-fault-once", "2"):
        told = " ".join(story["faults"])
        for fault in ("kill node", "pause node", "power loss of node", "cut off node"):
            assert fault in told


def test_faults_on_top_of_each_other():
    stories = sound("wild", "1", "52", "183")
    assert {"ISR shrinks", "replica removed"} <= logged(stories)


def test_failing_disks():
    [story] = sound("broken-disks", "49")
    assert "the disk of node" in " ".join(story["faults"])


def test_logs_that_are_deleted_from_their_start():
    sound("retention", "44")


def test_nothing_happens_without_a_reason():
    [story] = sound("quiet", "1")
    assert not story["faults"]
    assert not {"truncated", "ISR shrinks", "controller renounced"} & story["logged"].keys()
