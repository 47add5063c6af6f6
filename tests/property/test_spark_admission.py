"""Admission of a stream: limits are kept but for one offset a partition, and nobody starves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

from kraft.spark.admission import Range, is_too_little, limit_bytes, limit_offsets
from kraft.spark.options import Admission
from partitions.topic_partition import TopicPartition

RANGES = st.dictionaries(
    st.builds(TopicPartition, st.just("t"), st.integers(0, 30)),
    st.builds(
        lambda start, size: Range(start, start + size), st.integers(0, 1 << 50), st.integers(0, 1 << 40)
    ),
    min_size=1,
)


def taken(ranges: dict[TopicPartition, Range], ends: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    assert ends.keys() == ranges.keys()
    for partition, end in ends.items():
        part = ranges[partition]
        assert part.start <= end <= part.end
        assert (end > part.start) == (part.size > 0)
    return {partition: end - ranges[partition].start for partition, end in ends.items()}


@given(RANGES, st.integers(1, 1 << 41))
def test_offsets_are_limited_in_proportion(ranges: dict[TopicPartition, Range], limit: int) -> None:
    sizes = taken(ranges, limit_offsets(limit, ranges))
    total = sum(part.size for part in ranges.values())
    busy = sum(part.size > 0 for part in ranges.values())
    assert sum(sizes.values()) <= limit + busy
    assert sum(sizes.values()) >= min(limit, total) - busy
    if total > limit:
        for partition, size in sizes.items():
            assert abs(size - limit * ranges[partition].size / total) <= 1 + limit * 1e-12


@given(RANGES, st.integers(1, 1 << 50), st.data())
def test_bytes_are_limited_in_proportion(
    ranges: dict[TopicPartition, Range], limit: int, data: st.DataObject
) -> None:
    densities = {partition: data.draw(st.floats(1, 1e6)) for partition in ranges}
    sizes = taken(ranges, limit_bytes(limit, ranges, densities))
    size = sum(offsets * densities[partition] for partition, offsets in sizes.items())
    assert size <= limit * (1 + 1e-9) + sum(densities.values())


@given(RANGES, st.integers(1, 1 << 41))
def test_repeated_batches_reach_the_end(ranges: dict[TopicPartition, Range], limit: int) -> None:
    total = sum(part.size for part in ranges.values())
    limit = max(limit, total // 20)
    for _ in range(60):
        ends = limit_offsets(limit, ranges)
        ranges = {partition: Range(ends[partition], part.end) for partition, part in ranges.items()}
    assert all(part.size == 0 for part in ranges.values())


def test_a_partition_that_cannot_be_seen_offers_all() -> None:
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)
    ranges = {zero: Range(0, 100), one: Range(0, 100)}
    assert limit_bytes(10, ranges, {zero: 0.0, one: 1.0}) == {zero: 100, one: 10}


@pytest.mark.parametrize(
    ("now_ms", "last_ms", "size", "waits"),
    [
        (0, None, 1, False),  # the first batch of a query
        (500, 0, 9, True),
        (500, 0, 10, False),
        (1000, 0, 1, False),  # maxTriggerDelay is over
    ],
)
def test_small_batches_wait(now_ms: int, last_ms: int | None, size: int, waits: bool) -> None:
    limits = Admission(min_offsets=10, max_delay_ms=1000)
    ranges = {TopicPartition("t", 0): Range(5, 5 + size)}
    assert is_too_little(limits, ranges, now_ms=now_ms, last_batch_ms=last_ms) is waits
    assert not is_too_little(Admission(), ranges, now_ms=now_ms, last_batch_ms=last_ms)
