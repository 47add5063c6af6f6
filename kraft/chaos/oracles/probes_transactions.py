"""Probes on what transactions leave in logs, and the questions that transactional clients ask the white box."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from kraft.chaos.cluster import SimulatedCluster
from kraft.chaos.history import TopicKey
from kraft.chaos.oracles.metadata import CommittedMetadata
from kraft.chaos.oracles.node_disks import NodeDisks
from kraft.chaos.oracles.probes import key_of, partition_key
from kraft.chaos.oracles.replication import Replication
from kraft.chaos.oracles.stable_offsets import COUNTERS, Kind, StableOffsets, TransactionBatch
from kraft.chaos.oracles.wrapping import Method, Probes, Whose, around
from kraft.chaos.transaction_history import TransactionHistory
from kraft.chaos.verdict import Verdicts
from kraft.coordinator.groups.partitioning import group_partition
from partitions.log.log import PartitionLog
from partitions.partition import Partition
from partitions.records.batch import Buffer, CorruptBatchError, iter_batches
from quorum.controller.topic_names import TRANSACTION_STATE


class Transactions(Probes):
    """The transactions of a run: their history, their coordinators' partitions, and the logs that they write to."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        verdicts: Verdicts,
        whose: Whose,
        metadata: CommittedMetadata,
        replication: Replication,
        disks: NodeDisks,
    ) -> None:
        self.history = TransactionHistory()
        """Of this run's clients, who enter what they do."""
        self.topics: Collection[str] = ()
        """That transactions write to; the run says which."""
        self._stable = StableOffsets(verdicts)
        self._verdicts = verdicts
        self._cluster = cluster
        self._whose = whose
        self._metadata = metadata
        self._replication = replication
        self._disks = disks

    def watch(self, topics: Collection[str]) -> None:
        """Judges the logs of these topics."""
        self.topics = topics
        self._verdicts.declare(COUNTERS)

    # -- questions

    def is_forgotten(self, transactional_id: str) -> bool:
        """Whether the id's partition of the transactions' log lost committed records, and may."""
        topic = self._metadata.image.topic(TRANSACTION_STATE)
        if topic is None:
            return False
        return self.is_cut((topic.topic_id, group_partition(transactional_id, len(topic.partitions))))

    def is_cut(self, key: TopicKey) -> bool:
        """Whether a partition lost committed records, and may."""
        model = self._replication.partitions.get(key)
        return model is not None and model.committed.went_back

    def may_hang(self, key: TopicKey) -> bool:
        """Whether the partition lost committed records, or any coordinator did, or none can be had again."""
        return (
            self.is_cut(key)
            or any(map(self.is_forgotten, self._ids))
            or any(map(self.is_beyond_repair, self._ids))
        )

    def is_beyond_repair(self, transactional_id: str) -> bool:
        """Whether every copy of the id's partition that may lead is damaged."""
        topic = self._metadata.image.topic(TRANSACTION_STATE)
        if topic is None:
            return False
        number = group_partition(transactional_id, len(topic.partitions))
        return self._cluster.is_beyond_repair(TRANSACTION_STATE, number)

    @property
    def _ids(self) -> dict[str, None]:
        return dict.fromkeys(one.transactional_id for one in self.history.transactions)

    # -- probes

    @around(PartitionLog, "open")
    def _open(self, original: Method, cls: type, *arguments: Any, **options: Any) -> Any:
        log = original(cls, *arguments, **options)
        self._read_again(log)
        return log

    @around(PartitionLog, "claim")
    def _claim(self, original: Method, log: PartitionLog, topic_id: bytes) -> None:
        original(log, topic_id)
        self._read_again(log)

    def _read_again(self, log: PartitionLog) -> None:
        key, node = key_of(log), self._whose.node()
        if key is None or node is None or log.topic_partition.topic not in self.topics:
            return
        found = [one for data in self._disks.segments_in(node, log.directory) for one in _batches(data)]
        self._stable.log(node, key).replaced(one for one in found if one.offset < log.log_end_offset)

    @around(PartitionLog, "_write")
    def _write(self, original: Method, log: PartitionLog, stamped: Any, size_bytes: int) -> None:
        original(log, stamped, size_bytes)
        if log.topic_partition.topic in self.topics:
            key, node = key_of(log), self._whose.owner()
            if key is not None and node is not None:
                self._stable.appended(node, key, list(_batches(b"".join(stamped[0]))))

    @around(PartitionLog, "_truncate")
    @around(PartitionLog, "truncate_fully_and_start_at")
    def _cut(self, original: Method, log: PartitionLog, offset: int) -> None:
        original(log, offset)
        key, node = key_of(log), self._whose.node()
        if key is not None and node is not None and log.topic_partition.topic in self.topics:
            self._stable.log(node, key).cut(log.log_end_offset)

    @around(Partition, "read_for_consumer")
    def _told(self, original: Method, partition: Partition, fetch_offset: int, **options: Any) -> Any:
        answer = original(partition, fetch_offset, **options)
        node, name = self._whose.node(), partition.topic_partition
        if node is not None and name.topic in self.topics and answer.diverging_epoch is None:
            self._stable.told(
                node,
                partition_key(partition),
                None if partition._leading is None else partition.leader_epoch,
                answer.high_watermark,
                answer.last_stable_offset,
                str(name),
            )
        return answer


def _batches(data: Buffer) -> Iterable[TransactionBatch]:
    """The batches of transactions in some bytes, up to the first that is torn."""
    try:
        for _, header in iter_batches(data):
            if header.is_transactional:
                kind = Kind.MARKER if header.is_control else Kind.DATA
                yield TransactionBatch(header.base_offset, header.producer_id, kind)
    except CorruptBatchError:
        return
