"""Retention by time and by size: how many of a log's oldest segments go (retention.ms, retention.bytes).

Guarantees: a segment goes only when it lies wholly below the high watermark, and when all older ones go too. Pure but
for what segments ask of the disk. `PartitionLog.expire_segments` gives up what these functions count;
`retention_rounds.py` goes through all logs of a node.
"""

from __future__ import annotations

from partitions.log.config import LogConfig
from partitions.log.segment import Segment
from partitions.log.segments import SegmentList


def expired_count(
    segments: SegmentList, config: LogConfig, now_ms: int, high_watermark: int, log_end_offset: int
) -> int:
    """How many segments go, from the first on; all of them where that is true of the active one. Raises
    LogCorruptError, OSError."""
    surplus = surplus_bytes(segments, config)
    count = 0
    while count < len(segments):
        end = segments.next_base(count)
        size_bytes = segments[count].size_bytes
        if (log_end_offset if end is None else end) > high_watermark:
            break
        if not size_bytes or not (is_expired(segments[count], config, now_ms) or surplus >= size_bytes):
            break  # only the active segment is empty
        surplus -= size_bytes
        count += 1
    return count


def is_expired(segment: Segment, config: LogConfig, now_ms: int) -> bool:
    """Whether its newest record is older than retention.ms."""
    return config.retention_ms >= 0 and now_ms - segment.newest_ms > config.retention_ms


def surplus_bytes(segments: SegmentList, config: LogConfig) -> int:
    """By how much the log exceeds retention.bytes; negative when it does not."""
    limit = config.retention_bytes
    return sum(segment.size_bytes for segment in segments) - limit if limit >= 0 else -1
