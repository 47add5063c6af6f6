"""What replicas and fetchers tell their broker, and who has to hear of it: the listener of both.

The replica manager owns one and gives it to its replicas and fetchers. Guarantees: the very change that decides
about a waiting request wakes it; an ISR proposal goes to the AlterPartition manager; what went wrong with copying is
logged and counted, and where a disk failed it takes the replica offline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

import structlog

from fetcher.leader_endpoint import PartitionKey
from fetcher.replication import LogTruncation
from kraft.broker.membership.metadata_cache import MetadataCache
from kraft.broker.metrics import BrokerMetrics
from kraft.broker.purgatory.fetch_waits import FetchPurgatory
from kraft.broker.purgatory.offset_waits import OffsetPurgatory
from kraft.broker.replicas.alter_partition_manager import AlterPartitionManager
from kraft.broker.replicas.append_refusals import AppendRefusals
from kraft.broker.replicas.log_flusher import LogFlusher
from partitions.isr import AlterPartitionProposal, IsrChange
from partitions.log.errors import LogError, LogStorageError
from partitions.log_manager import LogManager
from partitions.partition import NO_EPOCH, AckStatus, Partition
from partitions.ports import Halt
from partitions.topic_partition import TopicPartition

log = structlog.get_logger(__name__)


class PartitionEvents:
    """The `PartitionListener` and `FetcherListener` of a broker. All methods run on its event loop."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        logs: LogManager,
        metadata: MetadataCache,
        alter_partitions: AlterPartitionManager,
        metrics: BrokerMetrics,
        refusals: AppendRefusals,
        loop: asyncio.AbstractEventLoop,
        halt: Halt,
        resume_copying: Callable[[TopicPartition], None],
        *,
        flush_scheduler_interval_ms: int,
    ) -> None:
        """`partitions` are the broker's replicas, which the replica manager adds and takes away; `resume_copying` has
        one that follows fetched again."""
        self._partitions = partitions
        self._logs = logs
        self._metadata = metadata
        self._alter_partitions = alter_partitions
        self._metrics = metrics
        self._refusals = refusals
        self._loop = loop
        self._halt = halt
        self._resume_copying = resume_copying
        self.produce_purgatory = OffsetPurgatory(loop)
        self.flush_purgatory = OffsetPurgatory(loop)
        self.delete_records_purgatory = OffsetPurgatory(loop)
        self.fetch_purgatory = FetchPurgatory(loop)
        self.log_flusher = LogFlusher(
            logs, loop, halt, self.on_flushed, scheduler_interval_ms=flush_scheduler_interval_ms
        )
        self._moved: dict[TopicPartition, None] = {}
        """Replicas whose high watermark is not what was last taken of it for the checkpoint."""

    def take_changed_high_watermarks(self) -> dict[TopicPartition, int]:
        """Those that rose, or were cut back with the log, since the last call."""
        changed, self._moved = self._moved, {}
        partitions = self._partitions
        return {key: partitions[key].high_watermark for key in changed if key in partitions}

    def note_changed_high_watermarks(self, keys: Iterable[TopicPartition]) -> None:
        """Puts back what was taken and could not be written."""
        self._moved.update(dict.fromkeys(keys))

    def on_flushed(self, key: TopicPartition) -> None:
        """The log was flushed, or its config changed: what the replica counts now goes to all who wait for it."""
        partition = self._partitions.get(key)
        if partition is None:
            return
        partition.on_flushed(int(self._loop.time() * 1000))
        if partition.is_leader:
            if self.flush_purgatory.entries_of(key):
                self.flush_purgatory.on_watermark(key, partition.log.counted_end_offset)
        elif not partition.awaits_flush:
            self._resume_copying(key)

    # -- PartitionListener

    def on_append(self, partition: Partition, log_end_offset: int) -> None:
        if self._refusals.by_directory:
            self._refusals.on_taken(partition.topic_partition)
        self.fetch_purgatory.on_append(partition.topic_partition)
        if partition.log.config.flushes:
            self.log_flusher.consider(partition.topic_partition)

    def on_high_watermark(self, partition: Partition, high_watermark: int) -> None:
        key = partition.topic_partition
        self._moved[key] = None
        if self.produce_purgatory.entries_of(key):
            status = partition.ack_status(high_watermark)
            self.produce_purgatory.on_watermark(
                key, high_watermark, None if status is AckStatus.OK else status.value
            )
        self.fetch_purgatory.on_high_watermark(key)

    def on_low_watermark(self, partition: Partition) -> None:
        key = partition.topic_partition
        self.fetch_purgatory.on_log_start(key)
        if self.delete_records_purgatory.entries_of(key):
            self.delete_records_purgatory.on_watermark(key, partition.low_watermark)

    def on_state_change(self, partition: Partition) -> None:
        key = partition.topic_partition
        if not partition.is_leader:
            code = partition.ack_status(0).value
            self.produce_purgatory.fail(key, code)
            self.flush_purgatory.fail(key, code)
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
        self._metrics.truncations += 1
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
        self._metrics.truncated_records += count
        cut = {"first": to_offset, "last": from_offset - 1, "offsets": count, "hw": truncation.high_watermark}
        known = truncation.known_committed
        if known:
            self._moved[key] = None
        if partition is not None and self._were_given_up(partition, truncation.latest_epoch):
            # After a crash the high watermark is an old checkpoint's: of what was acknowledged nobody knows more.
            self._metrics.lost_records += count
            log.error(
                "truncated",
                consequence="an unclean election gave these up: as many of them as were acknowledged are lost",
                **where,
                **cut,
                lost_at_most=count,
                known_committed=known,
            )
        elif known:
            self._metrics.lost_records += known
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
        self._metrics.failed_partitions += 1
        if code == "KAFKA_STORAGE_ERROR" and error is not None:
            failure = error if isinstance(error, LogError) else LogStorageError(str(error))
            self._logs.give_up(TopicPartition(*key), failure)

    def on_retry(
        self, key: PartitionKey, leader_epoch: int, code: str, error: Exception | None, failures: int
    ) -> None:
        self._metrics.replication_retries += 1
        if isinstance(error, LogError):
            self._refusals.on_refused(TopicPartition(*key), error)
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
