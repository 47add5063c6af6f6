"""Where the next micro-batch of a stream ends, and the slices between two of its offsets.

Each call compares where the stream stands with what the topics are now. A topic that is gone or was created anew, a
partition that ends below what was read, and a log that was truncated there and grew again, are reported as data loss:
an error, or a warning after which the stream goes on with what is left (`data_loss.py`). New partitions, and new topics
of a pattern, are read from their beginning. After `freeze` nothing later than that moment is read. The driver's one
Python process owns it (`stream.py`); time is the policy's clock.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraft.protocol.schemas.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kraft.spark.admission import Range, is_too_little, limit_bytes, limit_offsets
from kraft.spark.client import ClusterClient, LeaderOffset, TopicMetadata, TransientError
from kraft.spark.data_loss import LossPolicy
from kraft.spark.errors import RequestFailedError, TopicChangedError, UnknownTopicError
from kraft.spark.options import ReadOptions
from kraft.spark.plan import (
    Bounds,
    list_bounds,
    resolve,
    split_by_options,
    wanted_partitions,
    wanted_topics,
)
from kraft.spark.retry import Attempts
from kraft.spark.sampling import bytes_per_offset
from kraft.spark.slice_reader import PartitionSlice
from kraft.spark.stream_offsets import Position, StreamOffset, TopicPositions
from partitions.topic_partition import TopicPartition

METADATA_MAX_AGE_S = 1.0
"""So soon a running stream sees new partitions and topics."""


class StreamPlanner:
    """Not for several threads. `latest_ends` is what the partitions held when they were last looked at."""

    def __init__(self, client: ClusterClient, options: ReadOptions, loss: LossPolicy) -> None:
        self.latest_ends: dict[TopicPartition, int] = {}
        self._client = client
        self._options = options
        self._loss = loss
        self._clock = client.policy.clock
        self._topics: dict[str, TopicMetadata] = {}
        self._topics_since = float("-inf")
        self._missing: set[str] = set()
        """Topics of `subscribe` and `assign` that are gone."""
        self._histories: dict[TopicPartition, tuple[Position, int, int]] = {}
        """What `_history` found for a position under a later epoch: asked once, warned of once."""
        self._frozen: dict[TopicPartition, LeaderOffset] | None = None
        self._last_batch_s: float | None = None

    def initial(self) -> StreamOffset:
        """Where a new query starts. Raises ConnectorError."""
        topics = wanted_topics(self._client, self._options) if self._frozen is None else self._topics
        bounds = list_bounds(self._client, wanted_partitions(topics, self._options))
        if self._frozen is not None:
            bounds = {
                partition: Bounds(
                    bound.earliest, min(bound.latest, self._frozen[partition].offset), bound.leader_epoch
                )
                for partition, bound in bounds.items()
                if partition in self._frozen
            }
        starts = resolve(self._client, self._options.starting, "starting", bounds, self._loss)
        positions = {
            partition: Position(start, bounds[partition].leader_epoch) for partition, start in starts.items()
        }
        return _stream_offset(topics, positions)

    def freeze(self) -> None:
        """From now on the stream ends where the topics end at this moment (Trigger.AvailableNow)."""
        self._topics = self._wanted_topics()
        self._topics_since = float("inf")
        partitions = wanted_partitions(self._topics, self._options)
        self._frozen = self._client.list_offsets(dict.fromkeys(partitions, LATEST_TIMESTAMP))

    def next(self, start: StreamOffset, *, unlimited: bool) -> StreamOffset:
        """Where the micro-batch from `start` on ends; `start` itself if there is nothing to read.

        `unlimited` ignores the options that limit batches. Raises ConnectorError.
        """
        topics, latest, ranges = self._look(start)
        self.latest_ends = {partition: end.offset for partition, end in latest.items()}
        reshaped = _shape(start) != _shape(
            _stream_offset(topics, {partition: Position(0, 0) for partition in latest})
        )
        if not reshaped and all(part.start == part.end for part in ranges.values()):
            return start
        ends = self._admitted(ranges, unlimited=unlimited, hurry=reshaped)
        if ends is None:
            return start
        self._last_batch_s = self._clock()
        return _stream_offset(
            topics,
            {partition: Position(end, latest[partition].leader_epoch) for partition, end in ends.items()},
        )

    def slices(self, start: StreamOffset, end: StreamOffset) -> list[PartitionSlice]:
        """What executors read of a micro-batch, also when it is planned again after a restart."""
        ranges = []
        for name, topic in end.items():
            try:
                starts = self._starts(start, name, topic)
            except (RequestFailedError, _ReplacedError):
                if not self._is_replaced(name, topic.topic_id):
                    raise
                starts = _starts_as_planned(start, name, topic)  # the reader of each slice tells what is gone
            for index, (end_offset, epoch) in topic.partitions.items():
                ranges.append(PartitionSlice(name, topic.topic_id, index, starts[index], end_offset, epoch))
        return split_by_options(self._client, self._options, ranges)

    def _starts(self, start: StreamOffset, name: str, topic: TopicPositions) -> dict[int, int]:
        """From where each partition of a batch's topic is read."""
        new = [
            TopicPartition(name, index)
            for index in topic.partitions
            if _position(start, name, topic.topic_id, index) is None
        ]
        earliest = self._client.list_offsets(dict.fromkeys(new, EARLIEST_TIMESTAMP))
        for partition, found in earliest.items():
            if found.offset > 0:
                self._loss.report(
                    f"{partition} is new to this stream, but its first offset is {found.offset}: the records"
                    " before it were deleted."
                )
        starts = {}
        for index, (_, epoch) in topic.partitions.items():
            partition = TopicPartition(name, index)
            position = _position(start, name, topic.topic_id, index)
            starts[index] = (
                earliest[partition].offset
                if position is None
                else self._history(partition, topic.topic_id, position, epoch)
            )
        return starts

    # ---- what there is

    def _look(
        self, start: StreamOffset
    ) -> tuple[dict[str, TopicMetadata], dict[TopicPartition, LeaderOffset], dict[TopicPartition, Range]]:
        """The topics, their ends, and what each partition has to offer.

        ListOffsets and OffsetForLeaderEpoch name topics, not ids: one that was created anew since it was described
        answers for its predecessor. So what is odd counts only once the topics are known to be the same.
        """
        attempts = Attempts(self._client.policy)
        while True:
            topics = self._current_topics(start)
            try:
                latest = self._latest(topics)
                return topics, latest, self._ranges(self._known(start, topics), topics, latest)
            except (RequestFailedError, _ReplacedError):
                replaced = [name for name, topic in topics.items() if self._is_replaced(name, topic.topic_id)]
                if not replaced:
                    raise
                # Brokers learn of it one after the other.
                fact = (
                    f"Topic {replaced[0]} is deleted and created anew again and again. {_read_so_far(start)}"
                )
                attempts.wait_or_raise(TopicChangedError(fact))
                self._topics_since = float("-inf")
                if self._frozen is not None:
                    self._frozen = {
                        partition: end
                        for partition, end in self._frozen.items()
                        if partition.topic not in replaced
                    }

    def _is_replaced(self, name: str, topic_id: bytes) -> bool:
        """Whether a topic is gone, or another one has its name. Raises TransientError."""
        try:
            return self._client.topics([name])[name].topic_id != topic_id
        except UnknownTopicError:
            return True

    def _current_topics(self, start: StreamOffset) -> dict[str, TopicMetadata]:
        now = self._clock()
        if now - self._topics_since < METADATA_MAX_AGE_S:
            return self._topics
        try:
            self._topics = self._wanted_topics()
        except UnknownTopicError as error:
            raise TopicChangedError(f"{error} {_read_so_far(start)} {self._loss.advice}") from error
        self._topics_since = now if self._frozen is None else float("inf")
        return self._topics

    def _wanted_topics(self) -> dict[str, TopicMetadata]:
        """Those that the options name; without the missing ones only where data loss is but warned of."""
        if self._options.pattern is not None or self._loss.fail:
            return wanted_topics(self._client, self._options)
        names = self._options.topics or [partition.topic for partition in self._options.partitions or ()]
        topics = {}
        for name in dict.fromkeys(names):
            try:
                if name in self._missing:
                    topics[name] = self._client.refresh(name)
                    self._missing.discard(name)
                else:
                    topics.update(self._client.topics([name]))
            except TransientError:
                continue  # still missing
            except UnknownTopicError:
                self._missing.add(name)  # `_known` tells of it
        return topics

    def _latest(self, topics: Mapping[str, TopicMetadata]) -> dict[TopicPartition, LeaderOffset]:
        partitions = wanted_partitions(topics, self._options)
        if self._frozen is not None:
            return {
                partition: self._frozen[partition] for partition in partitions if partition in self._frozen
            }
        return self._client.list_offsets(dict.fromkeys(partitions, LATEST_TIMESTAMP))

    # ---- compared with where the stream stands

    def _known(
        self, start: StreamOffset, topics: Mapping[str, TopicMetadata]
    ) -> dict[TopicPartition, Position]:
        """The partitions of which the stream has read; reports topics that are gone or were created anew."""
        known = {}
        for name, topic in start.items():
            there = topics.get(name)
            read = _read_so_far({name: topic})
            if there is None:
                self._loss.report(f"Topic {name} is gone. {read}", TopicChangedError)
            elif there.topic_id != topic.topic_id:
                fact = (
                    f"Topic {name} was deleted and created anew: what the old one still held is gone. {read}"
                )
                self._loss.report(fact, TopicChangedError)
            else:
                known.update(
                    {TopicPartition(name, index): position for index, position in topic.partitions.items()}
                )
        return known

    def _ranges(
        self,
        known: Mapping[TopicPartition, Position],
        topics: Mapping[str, TopicMetadata],
        latest: Mapping[TopicPartition, LeaderOffset],
    ) -> dict[TopicPartition, Range]:
        """What each partition has to offer; reports those that were truncated below what was read."""
        new = [partition for partition in latest if partition not in known]
        earliest = self._client.list_offsets(dict.fromkeys(new, EARLIEST_TIMESTAMP))
        ranges = {partition: Range(earliest[partition].offset, latest[partition].offset) for partition in new}
        for partition, position in known.items():
            if partition not in latest:
                continue
            end = latest[partition]
            topic_id = topics[partition.topic].topic_id
            start = self._history(partition, topic_id, position, end.leader_epoch)
            if end.offset < start:
                self._truncated(
                    partition,
                    topic_id,
                    f"{partition} ends at offset {end.offset}, but the stream has read up to {start}:"
                    " committed records were truncated by an unclean leader election.",
                )
            ranges[partition] = Range(start, end.offset)
        return ranges

    def _truncated(self, partition: TopicPartition, topic_id: bytes, fact: str) -> None:
        if self._is_replaced(partition.topic, topic_id):
            raise _ReplacedError
        self._loss.report(fact)

    def _history(self, partition: TopicPartition, topic_id: bytes, position: Position, epoch: int) -> int:
        """From where the partition is to be read on: the position, or where its history was cut below it."""
        if epoch == position.leader_epoch:
            return position.offset
        known = self._histories.get(partition)
        if known is not None and known[:2] == (position, epoch):
            return known[2]
        _, end = self._client.end_of_epoch(partition, position.leader_epoch)
        if not 0 <= end < position.offset:
            end = position.offset
        else:
            self._truncated(
                partition,
                topic_id,
                f"{partition} was truncated at offset {end} (leader epoch {epoch} leads now), but the stream has"
                f" read up to {position.offset} under epoch {position.leader_epoch}: committed records were lost"
                " in an unclean leader election.",
            )
        self._histories[partition] = (position, epoch, end)
        return end

    # ---- admission

    def _admitted(
        self, ranges: Mapping[TopicPartition, Range], *, unlimited: bool, hurry: bool
    ) -> dict[TopicPartition, int] | None:
        """The end in each range; None: the batch waits for more."""
        limits = self._options.admission
        ends = {partition: part.end for partition, part in ranges.items()}
        if unlimited:
            return ends
        now_ms = int(self._clock() * 1000)
        last_ms = None if self._last_batch_s is None else int(self._last_batch_s * 1000)
        may_wait = self._frozen is None and not hurry
        if may_wait and is_too_little(limits, ranges, now_ms=now_ms, last_batch_ms=last_ms):
            return None
        if limits.max_offsets is not None:
            ends = limit_offsets(limits.max_offsets, ranges)
        if limits.max_bytes is not None:
            densities = {partition: self._density(partition, part) for partition, part in ranges.items()}
            by_bytes = limit_bytes(limits.max_bytes, ranges, densities)
            ends = {partition: min(end, by_bytes[partition]) for partition, end in ends.items()}
        return ends

    def _density(self, partition: TopicPartition, part: Range) -> float:
        if not part.size:
            return 0.0
        topic_id = self._topics[partition.topic].topic_id
        where = PartitionSlice(partition.topic, topic_id, partition.partition, part.start, part.start + 1, -1)
        return bytes_per_offset(self._client, where, samples=1)


class _ReplacedError(Exception):
    """A topic is not the one that was described: the answers are of another."""


def _starts_as_planned(start: StreamOffset, name: str, topic: TopicPositions) -> dict[int, int]:
    positions = {index: _position(start, name, topic.topic_id, index) for index in topic.partitions}
    return {index: 0 if position is None else position.offset for index, position in positions.items()}


def _shape(offset: StreamOffset) -> dict[str, tuple[bytes, frozenset[int]]]:
    return {name: (topic.topic_id, frozenset(topic.partitions)) for name, topic in offset.items()}


def _read_so_far(offset: StreamOffset) -> str:
    offsets = [
        f"{TopicPartition(name, index)}: {position.offset}"
        for name, topic in offset.items()
        for index, position in topic.partitions.items()
    ]
    return f"The stream has read up to the offsets {', '.join(offsets)}."


def _position(offset: StreamOffset, name: str, topic_id: bytes, index: int) -> Position | None:
    topic = offset.get(name)
    if topic is None or topic.topic_id != topic_id:
        return None
    return topic.partitions.get(index)


def _stream_offset(
    topics: Mapping[str, TopicMetadata], positions: Mapping[TopicPartition, Position]
) -> StreamOffset:
    grouped: dict[str, dict[int, Position]] = {}
    for partition, position in sorted(positions.items()):
        grouped.setdefault(partition.topic, {})[partition.partition] = position
    return {name: TopicPositions(topics[name].topic_id, group) for name, group in grouped.items()}
