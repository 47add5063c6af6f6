"""The segments that a cleaning reads, as values that jobs can take along, and which go into one new file.

Guarantees: a group is a run of neighbours that fit into one segment by bytes, by index size and by the
span of their offsets, and is small enough that putting its file in place holds nobody up. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from partitions.log.config import LogConfig
from partitions.log.config_values import INT_MAX
from partitions.log.index import TIME_ENTRY_BYTES
from partitions.records.header import HEADER_BYTES

GROUP_MAX_SEGMENTS: Final = 16
"""Segments merged into one at a time: each has up to five names that change, 0.15 ms in all, and a log that has to
change itself in the middle of that makes those that are left before it goes on."""


class SourceSegment(NamedTuple):
    """A segment as it was when the cleaning began."""

    base_offset: int
    next_base: int
    """Base offset of the segment after it; the log's end for the active one."""
    path: str
    size_bytes: int
    created_ms: int


Group: TypeAlias = tuple[SourceSegment, ...]


def group_segments(sources: Sequence[SourceSegment], config: LogConfig) -> list[Group]:
    """The segments in runs, each to become one segment."""
    groups: list[Group] = []
    group: list[SourceSegment] = []
    size = entries = 0
    for source in sources:
        more = _index_entries(source.size_bytes, config.index_interval_bytes)
        if group and not (
            len(group) < GROUP_MAX_SEGMENTS
            and size + source.size_bytes <= config.segment_bytes
            and (entries + more) * TIME_ENTRY_BYTES <= config.index_size_max_bytes
            and source.next_base - 1 - group[0].base_offset <= INT_MAX
        ):
            groups.append(tuple(group))
            group, size, entries = [], 0, 0
        group.append(source)
        size += source.size_bytes
        entries += more
    if group:
        groups.append(tuple(group))
    return groups


def _index_entries(size_bytes: int, interval_bytes: int) -> int:
    """At most so many entries has an index of a segment of this size."""
    return size_bytes // max(interval_bytes + 1, HEADER_BYTES) + 1
