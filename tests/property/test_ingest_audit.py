"""The audit's windows and its lists of offsets, against their plain meaning."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kraft.ingest import audit, table_rows
from kraft.ingest.audit import Found
from kraft.ingest.table_rows import RowGroup, windows

GROUPS = st.lists(
    st.builds(
        lambda start, length, size: RowGroup(0, 0, length, size, None, None, (start, start + length)),
        st.integers(0, 100),
        st.integers(0, 40),
        st.integers(0, 2 * table_rows.WINDOW_BYTES),
    )
    | st.just(RowGroup(0, 0, 1, 1, None, None, None)),
    max_size=12,
)


@given(GROUPS, st.integers(0, 100), st.integers(0, 100))
def test_windows_cover_a_range_once_and_know_their_row_groups(
    groups: list[RowGroup], start: int, length: int
) -> None:
    end = start + length
    found = list(windows(groups, start, end))
    edges = [window.start for window in found] + [end]
    assert (edges[0] if found else end) == start
    assert all(one.end == after and one.start < after for one, after in zip(found, edges[1:], strict=True))
    for window in found:
        assert list(window.groups) == [group for group in groups if group.meets(window.start, window.end)]


@given(st.lists(st.sets(st.integers(0, 400), max_size=250), max_size=3))
def test_offsets_are_counted_and_the_first_ranges_named(parts: list[set[int]]) -> None:
    found = Found()
    for number, part in enumerate(parts):
        found.add(np.array(sorted(offset + 400 * number for offset in part), np.int64))
    offsets = [offset + 400 * number for number, part in enumerate(parts) for offset in sorted(part)]
    assert found.count == len(offsets)
    ranges: list[tuple[int, int]] = []
    for offset in offsets:
        if ranges and ranges[-1][1] == offset:
            ranges[-1] = ranges[-1][0], offset + 1
        else:
            ranges.append((offset, offset + 1))
    named = list(
        itertools.takewhile(lambda pair: pair[0] == pair[1], zip(found.ranges, ranges, strict=False))
    )
    assert len(named) >= min(len(ranges), audit.MAX_NAMED - 1)
    assert len(found.ranges) <= audit.MAX_NAMED
