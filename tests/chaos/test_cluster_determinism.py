"""Whole clusters under faults: every promise is kept, and one seed is one history in every process.

Three unmodified nodes, an idempotent producer, a tailing consumer, topics that come and go; what is
judged at the end stands in `tests.support.cluster_story`. A seed that ever failed is added to its list.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cluster_story import play_twice, throughput

EACH_FAULT_ONCE = ("2", "3", "4")
"""A leader's kill, a pause, a power loss and a partition, each survived before the next."""
WILD = ("1", "52", "163", "183")
"""Faults of many kinds on top of each other."""


def sound(*arguments: str) -> list[dict[str, Any]]:
    first, second = play_twice(*arguments)
    print(throughput([*first, *second]))
    for story in first:
        assert not story["wrong"], f"seed {story['seed']}: {story['wrong']} after {story['faults']}"
        assert story["acknowledged"] > 200
    assert [story["digest"] for story in first] == [story["digest"] for story in second]
    assert len({story["digest"] for story in first}) == len(first)
    return first


@pytest.mark.timeout(120)
def test_each_fault_is_survived_and_every_history_repeats_itself():
    stories = sound(*EACH_FAULT_ONCE)
    for story in stories:
        told = " ".join(story["faults"])
        for fault in ("kill node", "pause node", "power loss of node", "cut off node"):
            assert fault in told


@pytest.mark.timeout(120)
def test_faults_on_top_of_each_other_break_no_promise():
    stories = sound("--plan", "wild", *WILD)
    logged = {event for story in stories for event in story["logged"]}
    assert {
        "truncated",
        "ISR shrinks",
        "a log was recovered",
        "controlled shutdown",
        "replica removed",
    } <= logged
