"""How much of what is there a micro-batch takes: pure functions over the ranges that partitions have to offer.

`maxOffsetsPerTrigger` and `maxBytesPerTrigger` are shared out in proportion to what each partition has; none with
something to offer is starved, so the sum may exceed the limit by one offset a partition. `minOffsetsPerTrigger` holds a
batch up, for `maxTriggerDelay` at most. The rules are those of Spark's own Kafka source; bytes are ours.
`stream_plan.py` calls it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kraft.spark.options import Admission
from partitions.topic_partition import TopicPartition


class Range(NamedTuple):
    """Offsets `start` up to, not including, `end`."""

    start: int
    end: int

    @property
    def size(self) -> int:
        return max(self.end - self.start, 0)


def limit_offsets(limit: int, ranges: Mapping[TopicPartition, Range]) -> dict[TopicPartition, int]:
    """The end of each range such that about `limit` offsets are taken in all."""
    total = sum(part.size for part in ranges.values())
    if total <= limit:
        return {partition: part.end for partition, part in ranges.items()}
    return {
        partition: part.start + max(limit * part.size // total, 1) if part.size else part.end
        for partition, part in ranges.items()
    }


def limit_bytes(
    limit: int, ranges: Mapping[TopicPartition, Range], bytes_per_offset: Mapping[TopicPartition, float]
) -> dict[TopicPartition, int]:
    """The end of each range such that about `limit` bytes are taken in all, by these estimates.

    A partition whose batches could not be seen (0 bytes an offset) offers all that it has.
    """
    total = sum(part.size * bytes_per_offset[partition] for partition, part in ranges.items())
    if total <= limit:
        return {partition: part.end for partition, part in ranges.items()}
    share = limit / total
    return {
        partition: part.start + min(max(int(part.size * share), 1), part.size)
        if part.size and bytes_per_offset[partition]
        else part.end
        for partition, part in ranges.items()
    }


def is_too_little(
    limits: Admission, ranges: Mapping[TopicPartition, Range], *, now_ms: int, last_batch_ms: int | None
) -> bool:
    """Whether the batch has to wait for more. The first of a query never does."""
    if limits.min_offsets is None or last_batch_ms is None or now_ms - last_batch_ms >= limits.max_delay_ms:
        return False
    return sum(part.size for part in ranges.values()) < limits.min_offsets
