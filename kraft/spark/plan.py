"""One cut through the topics, and the slices that executors read of it.

The driver captures the end of every partition once, with the leader epoch and the topic id it belongs to. It plans
nothing above a high watermark; slices are disjoint and cover the asked offsets exactly. Spark keeps the plan of a
`load()`: the first action on the DataFrame takes the cut, and all later ones see the same. `source.py` calls it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kraft.protocol.schemas.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kraft.spark.client import (
    ClusterClient,
    TopicMetadata,
)
from kraft.spark.errors import OptionError
from kraft.spark.options import EARLIEST, LATEST, OffsetSpec, ReadOptions
from kraft.spark.slice_reader import PartitionSlice
from partitions.topic_partition import TopicPartition

DEFAULT_MAX_RECORDS_PER_SLICE = 5_000_000
"""Larger ranges are split, so that one large partition does not keep one core busy alone."""


class Bounds(NamedTuple):
    """The first offset of a partition and its high watermark, named by the leader of `leader_epoch`."""

    earliest: int
    latest: int
    leader_epoch: int


def plan(client: ClusterClient, options: ReadOptions) -> list[PartitionSlice]:
    """Captures the cut and splits it; empty partitions have no slice. Raises KraftReadError."""
    topics = _wanted_topics(client, options)
    partitions = _wanted_partitions(topics, options)
    _check_named(options.starting, "startingOffsets", partitions)
    _check_named(options.ending, "endingOffsets", partitions)
    bounds = _bounds(client, partitions)
    ranges = []
    for partition in partitions:
        bound = bounds[partition]
        start = _resolve(options.starting, "startingOffsets", partition, bound)
        end = _resolve(options.ending, "endingOffsets", partition, bound)
        if start > end:
            raise OptionError(f"startingOffsets of {partition} is {start}, behind its endingOffsets, {end}.")
        topic_id = topics[partition.topic].topic_id
        ranges.append(PartitionSlice(*_name(partition, topic_id), start, end, bound.leader_epoch))
    return split(
        [part for part in ranges if part.end > part.start],
        min_slices=options.min_partitions,
        max_records=options.max_records_per_partition or DEFAULT_MAX_RECORDS_PER_SLICE,
    )


def split(
    ranges: Iterable[PartitionSlice], *, min_slices: int | None, max_records: int
) -> list[PartitionSlice]:
    """Cuts ranges so that none has more than `max_records` offsets, and there are `min_slices` or more.

    Fewer only where there are fewer offsets. Pieces of a range differ by at most one offset.
    """
    ranges = list(ranges)
    pieces = [-(-(part.end - part.start) // max_records) for part in ranges]
    if min_slices is not None and sum(pieces) < min_slices:
        total = sum(part.end - part.start for part in ranges)
        for index, part in enumerate(ranges):
            size = part.end - part.start
            pieces[index] = min(size, max(pieces[index], -(-size * min_slices // total)))
    return [
        part._replace(
            start=part.start + (part.end - part.start) * index // count,
            end=part.start + (part.end - part.start) * (index + 1) // count,
        )
        for part, count in zip(ranges, pieces, strict=True)
        for index in range(count)
    ]


def _name(partition: TopicPartition, topic_id: bytes) -> tuple[str, bytes, int]:
    return partition.topic, topic_id, partition.partition


def _wanted_topics(client: ClusterClient, options: ReadOptions) -> dict[str, TopicMetadata]:
    if options.pattern is None:
        names = options.topics or [partition.topic for partition in options.partitions or ()]
        return client.topics(names)
    topics = {
        name: topic
        for name, topic in client.topics(None).items()
        if options.pattern.fullmatch(name) and not topic.is_internal
    }
    if not topics:
        raise OptionError(f"subscribePattern {options.pattern.pattern!r} matches no topic.")
    return topics


def _wanted_partitions(topics: Mapping[str, TopicMetadata], options: ReadOptions) -> list[TopicPartition]:
    for partition in options.partitions or ():
        leaders = topics[partition.topic].leaders
        if partition.partition not in leaders:
            raise OptionError(f"assign: topic {partition.topic} has no partition {partition.partition}.")
    if options.partitions is not None:
        return sorted(options.partitions)
    return [TopicPartition(name, index) for name in sorted(topics) for index in topics[name].leaders]


def _check_named(spec: OffsetSpec, option: str, partitions: list[TopicPartition]) -> None:
    """Offsets by partition must name exactly the partitions that are read, as in Spark's source."""
    if isinstance(spec, int):
        return
    missing = [partition for partition in partitions if partition not in spec]
    surplus = sorted(spec.keys() - set(partitions))
    if missing:
        raise OptionError(
            f"{option} must name every partition that is read: {', '.join(map(str, missing))} missing."
        )
    if surplus:
        raise OptionError(
            f"{option} names partitions that are not read or do not exist: {', '.join(map(str, surplus))}."
        )


def _bounds(client: ClusterClient, partitions: list[TopicPartition]) -> dict[TopicPartition, Bounds]:
    latest = client.list_offsets(dict.fromkeys(partitions, LATEST_TIMESTAMP))
    earliest = client.list_offsets(dict.fromkeys(partitions, EARLIEST_TIMESTAMP))
    return {
        partition: Bounds(
            earliest[partition].offset, latest[partition].offset, latest[partition].leader_epoch
        )
        for partition in partitions
    }


def _resolve(spec: OffsetSpec, option: str, partition: TopicPartition, bounds: Bounds) -> int:
    """The absolute offset; one that the partition does not hold is refused, as it could not be read."""
    offset = spec if isinstance(spec, int) else spec[partition]
    if offset == LATEST:
        return max(bounds.latest, bounds.earliest)
    if offset == EARLIEST:
        return bounds.earliest
    if not bounds.earliest <= offset <= bounds.latest:
        raise OptionError(
            f"{option} of {partition} is {offset}, but the partition holds the offsets from"
            f" {bounds.earliest} up to {bounds.latest}."
        )
    return offset
