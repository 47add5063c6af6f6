"""Where the table stands against the topics, and the next cut: a bounded part of what is new, split into slices.

A stream's planner (`kraft.spark.stream_plan`) compares the table's positions with the topics: one that is gone or was
created anew while the run goes on, a partition that ends below what the table has, and a log that was truncated there,
are refused with the fact. New partitions join at their beginning. The rows of an earlier life of a topic stay in the
table; its new life has positions of its own. `run.py` calls it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kraft.ingest.model import CommitRange, IngestError, PartitionKey, partition_key
from kraft.spark.admission import Range, limit_bytes
from kraft.spark.client import ClusterClient
from kraft.spark.data_loss import LossPolicy
from kraft.spark.options import ReadOptions
from kraft.spark.plan import split
from kraft.spark.sampling import bytes_per_offset
from kraft.spark.slice_reader import PartitionSlice
from kraft.spark.stream_offsets import Position, StreamOffset, TopicPositions
from kraft.spark.stream_plan import StreamPlanner
from partitions.topic_partition import TopicPartition

MAX_CUT_BYTES = 1 << 30
"""About so many bytes, as they are on the wire, go into one commit."""
UNSAMPLED_CUT_OFFSETS = 2_000
"""A cut of no more offsets is taken whole: its records have at most some MB each."""
UNSAMPLED_RANGE_OFFSETS = 128
"""Of so few offsets the size is not asked for."""
DENSITY_MAX_AGE_S = 30.0
"""For so long the size of a partition's records is believed."""
_ADVICE = "Nothing was skipped. To start over from what the topic holds now, ingest into a new folder."


@dataclass(frozen=True)
class Cut:
    """What one commit is to take."""

    end: StreamOffset
    slices: list[PartitionSlice]
    """Disjoint; together exactly the ranges."""
    ranges: Mapping[PartitionKey, CommitRange]

    @property
    def offsets(self) -> int:
        return sum(taken.end - taken.start for taken in self.ranges.values())


class CutPlanner:
    """Not for several threads. `positions` are the table's, by application id.

    `available_now`: the ends of all partitions are captured once, here, and nothing later is planned.
    """

    def __init__(
        self,
        client: ClusterClient,
        options: ReadOptions,
        positions: Mapping[str, Position],
        *,
        available_now: bool,
    ) -> None:
        self._client = client
        self._loss = LossPolicy(advice=_ADVICE)
        self._planner = StreamPlanner(client, options, self._loss)
        self._densities: dict[TopicPartition, tuple[float, float]] = {}
        """When it was asked, and bytes by offset."""
        if available_now:
            self._planner.freeze()
        self.stand_at(positions)

    def stand_at(self, positions: Mapping[str, Position]) -> None:
        """Plans from these positions on: at the beginning, and after a failure. Raises ConnectorError."""
        self._known = set(positions)
        self.at = self._standing(self._planner.initial(), positions)

    @property
    def cluster_id(self) -> str:
        """Raises IngestError for brokers that name none."""
        if not self._client.cluster_id:
            raise IngestError(
                "The brokers name no cluster id, by which a table tells one cluster's positions from another's:"
                " use brokers that have one."
            )
        return self._client.cluster_id

    def next(self) -> Cut | None:
        """The next cut from where the table stands; None: there is nothing new. Raises ConnectorError."""
        end = self._planner.next(self.at, unlimited=True)
        if end is self.at:
            return None
        end, densities = self._limited(end)
        slices = self._planner.slices(self.at, end)
        if not slices:
            self.at = end
            return None
        ranges = {
            partition_key(part): CommitRange(part.start, part.end, part.leader_epoch) for part in slices
        }
        for name, topic in end.items():
            for index, position in topic.partitions.items():
                key = PartitionKey(name, topic.topic_id, index)
                if key not in ranges and key.application_id(self.cluster_id) not in self._known:
                    ranges[key] = CommitRange(position.offset, position.offset, position.leader_epoch)
        sizes = [
            densities.get(TopicPartition(part.topic, part.partition), 0.0) * (part.end - part.start)
            for part in slices
        ]
        return Cut(end, split(slices, min_slices=None, max_records=None, sizes=sizes), ranges)

    def taken(self, cut: Cut) -> None:
        """The table has taken the cut."""
        self.at = cut.end
        self._known.update(key.application_id(self.cluster_id) for key in cut.ranges)

    def lag(self) -> dict[TopicPartition, int]:
        """The offsets that the table does not have, as of the last look."""
        return {
            partition: max(self._planner.latest_ends.get(partition, position.offset) - position.offset, 0)
            for name, topic in self.at.items()
            for index, position in topic.partitions.items()
            for partition in (TopicPartition(name, index),)
        }

    def _standing(self, initial: StreamOffset, positions: Mapping[str, Position]) -> StreamOffset:
        """The table's position of each partition; where it has none, the partition's beginning."""
        standing = {}
        for name, topic in initial.items():
            keys = {index: PartitionKey(name, topic.topic_id, index) for index in topic.partitions}
            known = {
                index: positions[name_in_table]
                for index, key in keys.items()
                if (name_in_table := key.application_id(self.cluster_id)) in positions
            }
            for index, first in topic.partitions.items():
                if known and index not in known and first.offset > 0:
                    self._loss.report(
                        f"{TopicPartition(name, index)} is new to the table, but its first offset is {first.offset}:"
                        " the records before it were deleted before they were ingested."
                    )
            standing[name] = TopicPositions(topic.topic_id, {**topic.partitions, **known})
        return standing

    def new_topics(self) -> dict[str, bytes]:
        """Those of which the table has no position, with their ids."""
        return {
            name: topic.topic_id
            for name, topic in self.at.items()
            if not any(
                PartitionKey(name, topic.topic_id, index).application_id(self.cluster_id) in self._known
                for index in topic.partitions
            )
        }

    def _limited(self, end: StreamOffset) -> tuple[StreamOffset, dict[TopicPartition, float]]:
        """The same end, or an earlier one so that the cut has about MAX_CUT_BYTES; and bytes by offset, where asked."""
        ranges = {}
        for name, topic in end.items():
            before = self.at.get(name)
            for index, position in topic.partitions.items():
                start = None if before is None else before.partitions.get(index)
                ranges[TopicPartition(name, index)] = Range(
                    0 if start is None else start.offset, position.offset
                )
        if sum(part.size for part in ranges.values()) <= UNSAMPLED_CUT_OFFSETS:
            return end, {}
        densities = {
            partition: self._density(partition, end[partition.topic].topic_id, part)
            for partition, part in ranges.items()
        }
        ends = limit_bytes(MAX_CUT_BYTES, ranges, densities)
        limited = {
            name: TopicPositions(
                topic.topic_id,
                {
                    index: Position(ends[TopicPartition(name, index)], position.leader_epoch)
                    for index, position in topic.partitions.items()
                },
            )
            for name, topic in end.items()
        }
        return limited, densities

    def _density(self, partition: TopicPartition, topic_id: bytes, part: Range) -> float:
        if part.size <= UNSAMPLED_RANGE_OFFSETS:
            return 0.0
        now_s = self._client.policy.clock()
        asked_s, density = self._densities.get(partition, (float("-inf"), 0.0))
        if now_s - asked_s >= DENSITY_MAX_AGE_S:
            where = PartitionSlice(
                partition.topic, topic_id, partition.partition, part.start, part.start + 1, -1
            )
            density = bytes_per_offset(self._client, where, samples=1)
            self._densities[partition] = now_s, density
        return density
