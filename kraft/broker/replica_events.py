"""What replicas and fetchers tell their broker: the listener of both.

Guarantees: whoever waits in purgatory is woken by the very change that decides about it; ISR proposals go to
the AlterPartition manager; what went wrong with copying is logged and counted, and takes the replica offline
where its disk failed. `ReplicaManager` hands itself to its replicas and fetchers as this listener.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from fetcher.leader_endpoint import PartitionKey
from fetcher.replication import LogTruncation
from kraft.broker.alter_partition_manager import AlterPartitionManager
from kraft.broker.local_replicas import LocalReplicas
from kraft.broker.log_flusher import LogFlusher
from kraft.broker.metadata_cache import MetadataCache
from kraft.broker.metrics import BrokerMetrics
from kraft.broker.purgatory import DeleteRecordsPurgatory, FetchPurgatory, ProducePurgatory
from partitions.errors import PartitionError
from partitions.isr import AlterPartitionProposal, IsrChange
from partitions.log.errors import AppendPostponed, LogError, LogStorageError
from partitions.log_manager import LogManager
from partitions.partition import NO_EPOCH, AckStatus, Partition
from partitions.ports import Halt
from partitions.topic_partition import TopicPartition

log = structlog.get_logger(__name__)

TAKEN_AGAIN_AFTER_S: Final = 5.0
"""So long after the last append that was refused one that is taken ends the episode."""
TOLD_FOR_S: Final = 600.0
"""So long after the last append that was refused, at most, its directory counts as one that takes none."""


@dataclass(slots=True)
class _Refusal:
    """An append that a disk did not take; `at_s` is loop time."""

    at_s: float
    reason: str
    took_one_since: bool = False


class ReplicaEvents(LocalReplicas):
    """The `PartitionListener` and `FetcherListener` of a broker."""

    def __init__(
        self,
        broker_id: int,
        logs: LogManager,
        metadata: MetadataCache,
        alter_partitions: AlterPartitionManager,
        metrics: BrokerMetrics,
        loop: asyncio.AbstractEventLoop,
        halt: Halt,
        *,
        flush_scheduler_interval_ms: int,
    ) -> None:
        super().__init__(broker_id, logs, metadata)
        self._alter_partitions = alter_partitions
        self._halt = halt
        self.metrics = metrics
        self.produce_purgatory = ProducePurgatory(loop)
        self.delete_records_purgatory = DeleteRecordsPurgatory(loop)
        self.fetch_purgatory = FetchPurgatory(loop)
        self.log_flusher = LogFlusher(logs, loop, halt, scheduler_interval_ms=flush_scheduler_interval_ms)

        self._clock_s = loop.time
        self._refusing: dict[str, _Refusal] = {}
        """Data directories whose disk takes no appends, and the last one that it refused."""

    @property
    def refusing_directories(self) -> Mapping[str, str]:
        """Data directories in use that take no appends; path → reason. One that took some since counts as long as its
        episode may go on; one that nobody asks any more, for `TOLD_FOR_S`."""
        lost, now_s = self._logs.failed_directories, self._clock_s()
        return {
            path: last.reason
            for path, last in self._refusing.items()
            if path not in lost
            and now_s - last.at_s < (TAKEN_AGAIN_AFTER_S if last.took_one_since else TOLD_FOR_S)
        }

    def on_append_refused(self, key: TopicPartition, error: LogError | PartitionError) -> None:
        """Says once of a data directory that it has no room, or that there are no descriptors, for appends."""
        replica_log = self._logs.get(key)
        if not isinstance(error, AppendPostponed) or replica_log is None:
            return
        directory = _directory_of(replica_log.directory)
        if directory not in self._refusing:
            log.error("appends are refused", directory=directory, reason=str(error))
        self._refusing[directory] = _Refusal(self._clock_s(), str(error))

    def _on_append_taken(self, partition: Partition) -> None:
        """Says so when a directory takes appends again. A disk that is nearly full takes small ones in between."""
        replica_log = self._logs.get(partition.topic_partition)
        if replica_log is None:
            return
        directory = _directory_of(replica_log.directory)
        last = self._refusing.get(directory)
        if last is None:
            return
        last.took_one_since = True
        if self._clock_s() - last.at_s >= TAKEN_AGAIN_AFTER_S:
            del self._refusing[directory]
            log.info("appends are taken again", directory=directory)

    # -- PartitionListener

    def on_append(self, partition: Partition, log_end_offset: int) -> None:
        if self._refusing:
            self._on_append_taken(partition)
        self.fetch_purgatory.on_append(partition.topic_partition)
        if partition.log.config.flushes:
            self.log_flusher.consider(partition.topic_partition)

    def on_high_watermark(self, partition: Partition, high_watermark: int) -> None:
        key = partition.topic_partition
        self._moved[key] = None
        if self.produce_purgatory.entries_of(key):
            status = partition.ack_status(high_watermark)
            self.produce_purgatory.on_high_watermark(
                key, high_watermark, None if status is AckStatus.OK else status.value
            )
        self.fetch_purgatory.on_high_watermark(key)

    def on_low_watermark(self, partition: Partition) -> None:
        key = partition.topic_partition
        self.fetch_purgatory.on_log_start(key)
        if self.delete_records_purgatory.entries_of(key):
            self.delete_records_purgatory.on_low_watermark(key, partition.low_watermark)

    def on_state_change(self, partition: Partition) -> None:
        key = partition.topic_partition
        if not partition.is_leader:
            code = partition.ack_status(0).value
            self.produce_purgatory.fail(key, code)
            self.delete_records_purgatory.fail(key, code)
        self.fetch_purgatory.on_progress(key)

    def on_alter_partition(self, partition: Partition, proposal: AlterPartitionProposal) -> None:
        if proposal.change is IsrChange.SHRINK:
            log.warning("ISR shrinks", partition=str(partition.topic_partition), to=proposal.new_isr)
        self._alter_partitions.submit(partition, proposal)

    # -- FetcherListener

    def on_truncated(self, truncation: LogTruncation) -> None:
        key = TopicPartition(*truncation.key)
        from_offset, to_offset = truncation.from_offset, truncation.to_offset
        self.metrics.truncations += 1
        self.fetch_purgatory.on_progress(key)
        partition = self._partitions.get(key)
        where = {
            "partition": str(key),
            "leader": None if partition is None else partition.leader_id,
            "leader_epoch": None if partition is None else partition.leader_epoch,
        }
        if to_offset > from_offset:
            log.info("a log starts anew", **where, start=to_offset, end_before=from_offset)
            return
        count = from_offset - to_offset
        self.metrics.truncated_records += count
        cut = {"first": to_offset, "last": from_offset - 1, "offsets": count, "hw": truncation.high_watermark}
        known = truncation.known_committed
        if known:
            self._moved[key] = None
        if partition is not None and self._were_given_up(partition, truncation.latest_epoch):
            # After a crash the high watermark is an old checkpoint's: of what was acknowledged nobody knows more.
            self.metrics.lost_records += count
            log.error(
                "truncated",
                consequence="an unclean election gave these up: as many of them as were acknowledged are lost",
                **where,
                **cut,
                lost_at_most=count,
                known_committed=known,
            )
        elif known:
            self.metrics.lost_records += known
            log.error(
                "truncated",
                consequence="the leader lacks these, although some were committed: those are lost",
                **where,
                **cut,
                known_committed=known,
            )
        else:
            log.info("truncated", **where, **cut)

    def _were_given_up(self, partition: Partition, latest_epoch: int | None) -> bool:
        """Whether an unclean election lies between the epochs of a log and the one that its replica follows in."""
        topic = self._metadata.image.topic(partition.topic_partition.topic)
        number = partition.topic_partition.partition
        if topic is None or number >= len(topic.partitions):
            return False
        unclean_epoch = topic.partitions[number].unclean_leader_epoch
        return (NO_EPOCH if latest_epoch is None else latest_epoch) < unclean_epoch <= partition.leader_epoch

    def on_partition_failed(
        self, key: PartitionKey, leader_epoch: int, code: str, error: Exception | None
    ) -> None:
        # A fenced epoch only means that the leader knows of an election before this broker does. When a broker
        # goes, that may be thousands of partitions at once.
        level = log.debug if code == "FENCED_LEADER_EPOCH" else log.error
        level(
            "replication stopped", partition=f"{key[0]}-{key[1]}", epoch=leader_epoch, code=code, error=error
        )
        self.metrics.failed_partitions += 1
        if code == "KAFKA_STORAGE_ERROR" and error is not None:
            failure = error if isinstance(error, LogError) else LogStorageError(str(error))
            self._logs.give_up(TopicPartition(*key), failure)

    def on_retry(
        self, key: PartitionKey, leader_epoch: int, code: str, error: Exception | None, failures: int
    ) -> None:
        self.metrics.replication_retries += 1
        if isinstance(error, LogError):
            self.on_append_refused(TopicPartition(*key), error)
        # What the own log refuses it may refuse for ever: people are told, at times ever farther apart.
        level = log.debug if error is None or failures & (failures - 1) else log.warning
        level(
            "replication is tried again",
            partition=f"{key[0]}-{key[1]}",
            epoch=leader_epoch,
            code=code,
            error=None if error is None else str(error),
            failures=failures,
        )

    def on_fetcher_crashed(self, leader_id: int, error: BaseException) -> None:
        self._halt(f"the fetcher from broker {leader_id} ended by a defect: {error!r}")


def _directory_of(folder: str) -> str:
    """The data directory that a log's folder is in."""
    return folder.rpartition("/")[0]
