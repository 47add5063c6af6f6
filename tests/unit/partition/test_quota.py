"""The rate of throttled replication, and the list of replicas that it is for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions.quota import UNLIMITED, RateQuota
from partitions.quota_replicas import (
    NOTHING_THROTTLED,
    ThrottledReplicas,
    parse_throttled_replicas,
    throttled_replicas,
)


def quota(bytes_per_s: int = 1000, windows: int = 11, window_ms: int = 1000) -> RateQuota:
    return RateQuota(windows=windows, window_ms=window_ms, bytes_per_s=bytes_per_s)


def test_the_first_bytes_count_over_one_window_at_least() -> None:
    limited = quota()
    limited.record(1000, 5_000_000)
    assert limited.rate(5_000_001) == 1000.0
    assert not limited.is_exceeded(5_000_001)
    limited.record(1, 5_000_002)
    assert limited.is_exceeded(5_000_002)


def test_an_excess_is_waited_for() -> None:
    limited = quota()
    limited.record(4000, 0)
    assert limited.is_exceeded(3_999)
    assert limited.rate(4_000) == 1000.0
    assert not limited.is_exceeded(4_000)


def test_old_windows_are_forgotten() -> None:
    limited = quota(windows=3)
    limited.record(1_000_000, 0)
    assert limited.is_exceeded(2_999)
    assert limited.rate(3_000) == 0.0


def test_without_a_limit_nothing_is_exceeded() -> None:
    free = quota(UNLIMITED)
    free.record(1 << 60, 0)
    assert not free.is_exceeded(0)
    assert not free.is_limited
    free.bytes_per_s = 5
    assert free.is_exceeded(1)


def test_a_rate_of_nothing_lets_one_answer_through() -> None:
    closed = quota(0)
    assert not closed.is_exceeded(0)
    closed.record(1, 0)
    assert closed.is_exceeded(1_000)


@given(
    st.integers(1, 20),
    st.integers(100, 100_000),
    st.lists(st.tuples(st.integers(0, 400), st.integers(1, 50_000)), min_size=20, max_size=200),
)
def test_who_stops_while_it_is_exceeded_keeps_the_rate(
    windows: int, bytes_per_s: int, wishes: list[tuple[int, int]]
) -> None:
    """In any stretch of the measured length passes what the rate allows, and one wish more."""
    limited = quota(bytes_per_s, windows)
    now_ms, passed = 0, list[tuple[int, int]]()
    for pause_ms, size_bytes in wishes:
        now_ms += pause_ms
        if not limited.is_exceeded(now_ms):
            limited.record(size_bytes, now_ms)
            passed.append((now_ms, size_bytes))
    largest = max((size_bytes for _, size_bytes in passed), default=0)
    length_ms = windows * 1000
    for start_ms, _ in passed:
        inside = sum(size for at_ms, size in passed if start_ms <= at_ms < start_ms + length_ms)
        # A window that began before the stretch is forgotten whole: its length is the error of the measure.
        assert inside <= 2 * (bytes_per_s * (length_ms + 1000) / 1000) + 2 * largest


@pytest.mark.parametrize(
    ("text", "expected", "plain"),
    [
        ("", NOTHING_THROTTLED, ""),
        ("*", ThrottledReplicas(all=True), "*"),
        ("0:1, 3:2", ThrottledReplicas(pairs=frozenset({(0, 1), (3, 2)})), "0:1,3:2"),
        ("0:1,0:1", ThrottledReplicas(pairs=frozenset({(0, 1)})), "0:1"),
    ],
)
def test_lists_of_replicas(text: str, expected: ThrottledReplicas, plain: str) -> None:
    assert parse_throttled_replicas(text) == expected
    assert throttled_replicas(text) == plain
    assert parse_throttled_replicas(plain) == expected


def test_what_a_list_covers() -> None:
    some = parse_throttled_replicas("0:1,3:2")
    assert [some.covers(*pair) for pair in ((0, 1), (3, 2), (0, 2), (1, 1))] == [True, True, False, False]
    assert parse_throttled_replicas("*").covers(99, 7)
    assert not NOTHING_THROTTLED.covers(0, 0)


@pytest.mark.parametrize("text", ["1", "1:", ":1", "a:b", "-1:2", "1:2:3", "*,0:1", "none", "٣:1"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"use \* or partition:broker"):
        throttled_replicas(text)
