"""What the stories do not say about the epoch cache and the truncation rule."""

from __future__ import annotations

import pytest

from leader_epoch.epoch_cache import EpochCache, EpochEntry
from leader_epoch.truncation import Truncation, truncation_offset


def cache_of(*entries: tuple[int, int]) -> EpochCache:
    return EpochCache(EpochEntry(*entry) for entry in entries)


def test_assign_tells_whether_anything_changed() -> None:
    cache = EpochCache()
    assert cache.assign(1, 0)
    assert not cache.assign(1, 0)
    assert not cache.assign(1, 10)
    assert cache.assign(2, 10)
    assert cache.entries == ((1, 0), (2, 10))


@pytest.mark.parametrize(
    ("epoch", "start", "expected"),
    [
        (6, 30, ((1, 0), (3, 10), (5, 20), (6, 30))),
        (5, 30, ((1, 0), (3, 10), (5, 20))),  # stays where it began
        (4, 15, ((1, 0), (3, 10), (4, 15))),  # contradicts (5, 20): drops it
        (5, 10, ((1, 0), (5, 10))),  # the same epoch, earlier
        (2, 25, ((1, 0), (2, 25))),
        (1, 5, ((1, 0),)),  # an older epoch again, later: the entries above are what is wrong
        (3, 20, ((1, 0), (3, 10))),
        (3, 30, ((1, 0), (3, 10))),
        (0, 0, ((0, 0),)),
    ],
)
def test_assign_keeps_both_columns_growing(epoch: int, start: int, expected: tuple[object, ...]) -> None:
    cache = cache_of((1, 0), (3, 10), (5, 20))
    cache.assign(epoch, start)
    assert cache.entries == expected


@pytest.mark.parametrize(("epoch", "start"), [(-1, 0), (0, -1)])
def test_assign_refuses_negative_values(epoch: int, start: int) -> None:
    with pytest.raises(ValueError, match="cannot be negative"):
        EpochCache().assign(epoch, start)


def test_epoch_for_offset_and_previous_epoch() -> None:
    cache = cache_of((1, 5), (3, 10))
    assert [cache.epoch_for_offset(offset) for offset in (4, 5, 9, 10, 99)] == [None, 1, 1, 3, 3]
    assert [cache.previous_epoch(epoch) for epoch in (0, 1, 2, 3, 4)] == [None, None, 1, 1, 3]
    assert (cache.latest_epoch, cache.latest_entry, cache.earliest_entry) == (3, (3, 10), (1, 5))


def test_truncation_without_common_epochs() -> None:
    cache = cache_of((2, 0))
    # The leader cannot say: only the high watermark is known to be common.
    assert truncation_offset(cache, (-1, -1), log_end_offset=10, high_watermark=4) == Truncation(4, True)
    # The leader's records carry no epochs.
    assert truncation_offset(cache, (-1, 7), log_end_offset=10, high_watermark=4) == Truncation(7, True)
    # This log's records carry none.
    assert truncation_offset(EpochCache(), (2, 7), log_end_offset=10, high_watermark=4) == Truncation(7, True)
    # Never beyond the own end.
    assert truncation_offset(cache, (2, 70), log_end_offset=10, high_watermark=4) == Truncation(10, True)
