"""One cut through the topics, and the slices that executors read of it.

The driver captures the end of every partition once, with the leader epoch and the topic id it belongs to. It plans
nothing above a high watermark (for read_committed: above a last stable offset); slices are disjoint and cover the asked
offsets exactly. Spark keeps the plan of a `load()`: the first action on the DataFrame takes the cut, and all later ones
see the same; a new `load()` takes a new one. `source.py` calls it, `stream.py` shares its parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kraft.protocol.schemas.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kraft.spark.client import TopicMetadata
from kraft.spark.data_loss import LossPolicy
from kraft.spark.errors import OptionError
from kraft.spark.log_source import LogSource
from kraft.spark.options import EARLIEST, LATEST, ByTimestamp, OffsetSpec, ReadOptions
from kraft.spark.sampling import bytes_per_offset
from kraft.spark.slice_reader import PartitionSlice
from partitions.topic_partition import TopicPartition

DEFAULT_MAX_BYTES_PER_SLICE = 128 << 20
"""Larger ranges of a batch read are split, so that one large partition does not keep one core busy alone."""
_TOO_FEW_TO_SAMPLE = 128
"""Ranges of fewer offsets are not split by bytes by default: with records up to 1 MB they are small enough."""
_NAME_OTHERS = "Name offsets that it holds, or set failOnDataLoss to false to read what is left of the range."


class Bounds(NamedTuple):
    """The first offset of a partition and its high watermark, named by the leader of `leader_epoch`."""

    earliest: int
    latest: int
    leader_epoch: int


def plan(client: LogSource, options: ReadOptions, loss: LossPolicy) -> list[PartitionSlice]:
    """Captures the cut and splits it; empty partitions have no slice. Raises ConnectorError."""
    topics = wanted_topics(client, options)
    partitions = wanted_partitions(topics, options)
    bounds = list_bounds(client, partitions)
    starts = resolve(client, options.starting, "starting", bounds, loss)
    ends = resolve(client, options.ending, "ending", bounds, loss)
    ranges = []
    for partition, start in starts.items():
        end = ends[partition]
        if start > end and loss.fail:
            raise OptionError(
                f"The range of {partition} starts at offset {start}, behind its end, {end}: see the starting and"
                " ending options."
            )
        topic_id = topics[partition.topic].topic_id
        epoch = bounds[partition].leader_epoch
        ranges.append(PartitionSlice(partition.topic, topic_id, partition.partition, start, end, epoch))
    default = (
        None if options.max_bytes_per_partition or options.max_records_per_partition else _TOO_FEW_TO_SAMPLE
    )
    return split_by_options(client, options, ranges, unasked_from=default)


def split_by_options(
    client: LogSource,
    options: ReadOptions,
    ranges: Sequence[PartitionSlice],
    *,
    unasked_from: int | None = None,
) -> list[PartitionSlice]:
    """The slices of the ranges; empty ones are left out.

    Sizes are sampled if `maxBytesPerPartition` is given, and without it in ranges of `unasked_from` offsets or more.
    """
    ranges = [part for part in ranges if part.end > part.start]
    at_least = 1 if options.max_bytes_per_partition is not None else unasked_from
    sizes: list[float] | None = None
    if at_least is not None:
        sizes = [
            bytes_per_offset(client, part) * (part.end - part.start)
            if part.end - part.start >= at_least
            else 0.0
            for part in ranges
        ]
    return split(
        ranges,
        min_slices=options.min_partitions,
        max_records=options.max_records_per_partition,
        sizes=sizes,
        max_bytes=options.max_bytes_per_partition or DEFAULT_MAX_BYTES_PER_SLICE,
    )


def split(
    ranges: Sequence[PartitionSlice],
    *,
    min_slices: int | None,
    max_records: int | None,
    sizes: Sequence[float] | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES_PER_SLICE,
) -> list[PartitionSlice]:
    """Cuts ranges so that none has more than `max_records` offsets, nor, by the estimated `sizes` of the ranges, more
    than `max_bytes`, and there are `min_slices` or more.

    Fewer only where there are fewer offsets. Pieces of a range differ by at most one offset.
    """
    pieces = []
    for part, size in zip(ranges, sizes or [0.0] * len(ranges), strict=True):
        offsets = part.end - part.start
        by_records = 1 if max_records is None else -(-offsets // max_records)
        pieces.append(min(offsets, max(by_records, -int(-size // max_bytes), 1)))
    if min_slices is not None and sum(pieces) < min_slices:
        total = sum(part.end - part.start for part in ranges)
        for index, part in enumerate(ranges):
            offsets = part.end - part.start
            pieces[index] = min(offsets, max(pieces[index], -(-offsets * min_slices // total)))
    return [
        part._replace(
            start=part.start + (part.end - part.start) * index // count,
            end=part.start + (part.end - part.start) * (index + 1) // count,
        )
        for part, count in zip(ranges, pieces, strict=True)
        for index in range(count)
    ]


def wanted_topics(client: LogSource, options: ReadOptions) -> dict[str, TopicMetadata]:
    """The topics of `subscribe` and `assign`, all there, or those in whose names `subscribePattern` is found, if any.

    As in Spark's own source a part of the name is enough; `^` and `$` hold it to the whole.
    """
    if options.pattern is None:
        names = options.topics or [partition.topic for partition in options.partitions or ()]
        return client.topics(names)
    return {
        name: topic
        for name, topic in client.topics(None).items()
        if options.pattern.search(name) and not topic.is_internal
    }


def wanted_partitions(topics: Mapping[str, TopicMetadata], options: ReadOptions) -> list[TopicPartition]:
    """Ascending. Raises OptionError for one that is assigned and does not exist."""
    for partition in options.partitions or ():
        if partition.topic in topics and partition.partition not in topics[partition.topic].leaders:
            raise OptionError(f"assign: topic {partition.topic} has no partition {partition.partition}.")
    if options.partitions is not None:
        return sorted(partition for partition in options.partitions if partition.topic in topics)
    return [TopicPartition(name, index) for name in sorted(topics) for index in topics[name].leaders]


def list_bounds(client: LogSource, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Bounds]:
    """What each partition holds now."""
    latest = client.list_offsets(dict.fromkeys(partitions, LATEST_TIMESTAMP))
    earliest = client.list_offsets(dict.fromkeys(partitions, EARLIEST_TIMESTAMP))
    return {
        partition: Bounds(
            earliest[partition].offset, latest[partition].offset, latest[partition].leader_epoch
        )
        for partition in partitions
    }


def resolve(
    client: LogSource,
    spec: OffsetSpec,
    side: str,
    bounds: Mapping[TopicPartition, Bounds],
    loss: LossPolicy,
) -> dict[TopicPartition, int]:
    """The absolute offset of each partition of `bounds`. `side` is `starting` or `ending`.

    One that the partition does not hold is refused, or with a warning replaced by the next that it holds. Raises
    OptionError.
    """
    if isinstance(spec, ByTimestamp):
        given: Mapping[TopicPartition, int] = _by_timestamp(client, spec, side, bounds)
    elif isinstance(spec, int):
        given = dict.fromkeys(bounds, spec)
    else:
        _check_named(spec, f"{side}Offsets", bounds)
        given = spec
    resolved = {}
    for partition, bound in bounds.items():
        offset, latest = given[partition], max(bound.latest, bound.earliest)
        words = {LATEST: latest, EARLIEST: bound.earliest}
        resolved[partition] = words.get(offset, offset)
        if not bound.earliest <= resolved[partition] <= latest:
            loss.report(
                f"{side}Offsets of {partition} is {offset}, but the partition holds the offsets from"
                f" {bound.earliest} up to {latest}.",
                OptionError,
                advice=_NAME_OTHERS,
            )
            resolved[partition] = min(max(offset, bound.earliest), latest)
    return resolved


def _by_timestamp(
    client: LogSource, spec: ByTimestamp, side: str, bounds: Mapping[TopicPartition, Bounds]
) -> dict[TopicPartition, int]:
    if isinstance(spec.timestamps, int):
        times: Mapping[TopicPartition, int] = dict.fromkeys(bounds, spec.timestamps)
    else:
        _check_named(spec.timestamps, f"{side}OffsetsByTimestamp", bounds)
        times = spec.timestamps
    found = client.list_offsets(times)
    offsets = {}
    for partition, bound in bounds.items():
        offset = found[partition].offset
        if offset < 0 and not spec.or_latest:
            raise OptionError(
                f"{partition} has no record from time {times[partition]} ms on: give an earlier one, or set"
                " startingOffsetsByTimestampStrategy to latest to start at its end."
            )
        # What has been written since the bounds were listed is not of this cut.
        offsets[partition] = LATEST if offset < 0 else min(max(offset, bound.earliest), bound.latest)
    return offsets


def _check_named(
    spec: Mapping[TopicPartition, int], option: str, partitions: Mapping[TopicPartition, object]
) -> None:
    """Offsets by partition must name exactly the partitions that are read, as in Spark's source."""
    missing = [partition for partition in partitions if partition not in spec]
    surplus = sorted(spec.keys() - partitions.keys())
    if missing:
        raise OptionError(
            f"{option} must name every partition that is read: {', '.join(map(str, missing))} missing."
        )
    if surplus:
        raise OptionError(
            f"{option} names partitions that are not read or do not exist: {', '.join(map(str, surplus))}."
        )
