"""A node's use of the cyclic garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kraft.runtime.collector import (
    KEPT_PARTITIONS,
    THRESHOLDS,
    KeptPartitions,
    collect_no_more,
    collect_seldom,
    keep_for_good,
)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.enable()
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_cycles_are_looked_for_seldom_and_still_found() -> None:
    collect_seldom()
    assert gc.get_threshold() == THRESHOLDS
    assert gc.isenabled()


def test_what_is_kept_is_not_walked_through() -> None:
    kept = [[] for _ in range(100)]  # type: list[list[object]]
    keep_for_good()
    assert gc.get_freeze_count() > len(kept)
    assert not any(one is kept for one in gc.get_objects())


def test_what_comes_with_many_more_partitions_is_kept_too() -> None:
    partitions = 5
    kept = KeptPartitions(lambda: partitions)
    made: list[list[object]] = []

    def collected(generation: int) -> bool:
        """Whether what is there after a collection is kept."""
        made.append([])
        gc.collect(generation)
        return not any(one is made[-1] for one in gc.get_objects())

    assert not collected(1), "none have come"
    partitions += KEPT_PARTITIONS
    assert not collected(0), "what is young may be garbage"
    assert collected(1)
    assert not collected(1)
    partitions -= KEPT_PARTITIONS
    assert not collected(2)
    partitions += KEPT_PARTITIONS + 1
    assert not collected(2), "there were as many before"
    partitions += KEPT_PARTITIONS
    assert collected(2)
    kept.close()
    kept.close()
    partitions += KEPT_PARTITIONS
    assert not collected(1)


def test_what_ends_is_not_walked_through() -> None:
    ending = [[] for _ in range(100)]  # type: list[list[object]]
    collect_no_more()
    assert not gc.isenabled()
    assert not any(one is ending for one in gc.get_objects())
