"""Probes on the coordinators of groups: what they append, and in which leader epoch each broker coordinates.

`Coordinators` answers the questions that members' observations are judged by. It asks the wrapped methods alone, and
counts groups' partitions as every client does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kraft.broker.coordinators.shard_log import PartitionShardLog
from kraft.chaos.cluster import SimulatedCluster
from kraft.chaos.group_history import NO_EPOCH, GroupHistory, LogPlace
from kraft.chaos.history import TopicKey
from kraft.chaos.oracles.group_log import Commit, Entry, Generation, GroupLog, MemberEpoch
from kraft.chaos.oracles.metadata import CommittedMetadata
from kraft.chaos.oracles.replication import Replication
from kraft.chaos.oracles.wrapping import Method, Probes, Whose, around
from kraft.chaos.verdict import Verdicts
from kraft.coordinator.groups import group_metadata
from kraft.coordinator.groups.consumer_records import CONSUMER_GROUP_RECORDS
from kraft.coordinator.groups.offset_records import KEY_TYPES as OFFSET_KEY_TYPES
from kraft.coordinator.groups.offset_records import decode_value
from kraft.coordinator.groups.partitioning import group_partition
from kraft.coordinator.record_schema import type_of_key
from kraft.coordinator.runtime import Runtime
from partitions.records.batch import decode_records, iter_batches
from partitions.topic_partition import TopicPartition
from quorum.controller.topic_names import CONSUMER_OFFSETS

MEMBER_EPOCH_KEY_TYPE = 8
DECOMPRESSED_MAX_BYTES = 64 * 1024 * 1024


class Coordinators(Probes):
    """The group coordinators of all brokers."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        verdicts: Verdicts,
        whose: Whose,
        metadata: CommittedMetadata,
        replication: Replication,
    ) -> None:
        self.history = GroupHistory()
        """Of this run's members, who enter what they do."""
        self.log = GroupLog(verdicts, self.history.commits, self._high_watermark, self._went_back)
        self._cluster = cluster
        self._whose = whose
        self._metadata = metadata
        self._replication = replication
        self._epochs: dict[tuple[str, int], int] = {}
        """By process and partition: the leader epoch in which it coordinates."""

    # -- questions

    def epoch_of(self, group: str, broker: int) -> int:
        """The leader epoch in which that broker coordinates the group now; NO_EPOCH: it does not."""
        process, number = self._cluster.hosts[broker].process, self._number(group)
        if process is None or number is None:
            return NO_EPOCH
        return self._epochs.get((process.incarnation.name, number), NO_EPOCH)

    def told(self, group: str, tag: str, what: str) -> None:
        """A client was told of the commit with that text, just now."""
        number = self._number(group)
        assert number is not None, "somebody coordinates the group"
        self.log.told(number, tag, what)

    def is_excused(self, group: str) -> bool:
        """Whether the group's partition lost committed records, and may."""
        number = self._number(group)
        return number is not None and self._went_back(number)

    def is_beyond_repair(self, group: str) -> bool:
        """Whether every copy of the group's partition that may lead is damaged."""
        number = self._number(group)
        return number is not None and self._cluster.is_beyond_repair(CONSUMER_OFFSETS, number)

    @property
    def places(self) -> Mapping[str, LogPlace]:
        return self.log.places

    @property
    def gone(self) -> set[bytes]:
        """The ids of topics that members committed offsets of, and that are no more."""
        keys = {one.key for one in self.history.operations if one.key is not None}
        return {topic_id for topic_id, _ in keys if topic_id not in self._metadata.image.topics}

    # -- probes

    @around(Runtime, "on_elected")
    def _on_elected(
        self, original: Method, runtime: Any, partition: TopicPartition, leader_epoch: int
    ) -> None:
        if partition.topic == CONSUMER_OFFSETS:
            self._epochs[self._whose.process(), partition.partition] = leader_epoch
        original(runtime, partition, leader_epoch)

    @around(Runtime, "on_resigned")
    def _on_resigned(
        self, original: Method, runtime: Any, partition: TopicPartition, leader_epoch: int
    ) -> None:
        if partition.topic == CONSUMER_OFFSETS:
            self._epochs.pop((self._whose.process(), partition.partition), None)
        original(runtime, partition, leader_epoch)

    @around(PartitionShardLog, "append")
    def _append(self, original: Method, log: PartitionShardLog, batches: bytes) -> int:
        base_offset = log.end_offset
        end_offset: int = original(log, batches)
        if self._whose.node() is not None and log._key.topic == CONSUMER_OFFSETS:
            self.log.appended(log._key.partition, log._leader_epoch, base_offset, entries_of(batches))
        return end_offset

    # -- looks into the world

    def _number(self, group: str) -> int | None:
        topic = self._metadata.image.topic(CONSUMER_OFFSETS)
        return None if topic is None else group_partition(group, len(topic.partitions))

    def _key(self, number: int) -> TopicKey:
        topic = self._metadata.image.topic(CONSUMER_OFFSETS)
        assert topic is not None, "it has a partition"
        return topic.topic_id, number

    def _high_watermark(self, number: int) -> int:
        return self._replication.partitions[self._key(number)].committed.high_watermark

    def _went_back(self, number: int) -> bool:
        model = self._replication.partitions.get(self._key(number))
        return model is not None and model.committed.went_back


def entries_of(batches: bytes) -> list[Entry | None]:
    """What the records of some batches mean, one entry for each."""
    return [
        None if header.is_control else _entry(record.key or b"", record.value)
        for position, header in iter_batches(batches)
        for record in decode_records(batches, position, header, max_decompressed_bytes=DECOMPRESSED_MAX_BYTES)
    ]


def _entry(key: bytes | memoryview, value: bytes | memoryview | None) -> Entry | None:
    key, value = bytes(key), None if value is None else bytes(value)
    kind = type_of_key(key)
    if kind in OFFSET_KEY_TYPES:
        return None if value is None else Commit(decode_value(value, {}).metadata)
    if kind == group_metadata.KEY_TYPE:
        group = group_metadata.KEY.decode(key).group
        if value is None:
            return Generation(group, -1, frozenset())
        found = group_metadata.VALUE.decode(value)
        return Generation(group, found.generation, frozenset(one.member_id for one in found.members))
    if kind == MEMBER_EPOCH_KEY_TYPE:
        schemas = CONSUMER_GROUP_RECORDS[kind]
        named = schemas.key.decode(key)
        epoch = None if value is None else schemas.value.decode(value).member_epoch
        return MemberEpoch(named.group_id, named.member_id, epoch)
    return None
