"""All replicas of a broker: brings them in line with the metadata, and lets handlers find them.

A publisher of the metadata loader. For each changed partition it creates, promotes, demotes or removes
the local replica, and starts or stops copying it. It is also the listener of every replica: it wakes
what waits in purgatory, hands ISR proposals to the AlterPartition manager and runs the one timer for
lagging followers. An error that leaves a replica half changed halts the node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping

import structlog

from fetcher.fetch_state import FollowedPartition
from fetcher.fetcher_manager import FetcherManager
from fetcher.leader_endpoint import PartitionKey
from kraft.broker.alter_partition_manager import AlterPartitionManager
from kraft.broker.metadata_cache import MetadataCache
from kraft.broker.metrics import BrokerMetrics
from kraft.broker.purgatory import DeleteRecordsPurgatory, FetchPurgatory, ProducePurgatory
from kraft.broker.record_check_lanes import RecordCheckLanes
from kraft.broker.vital_task import end_task, start_vital_task
from kraft.dynamic_configs import dynamic_log_defaults
from partitions.errors import NotLeaderOrFollower, PartitionError, ReplicaOffline
from partitions.isr import AlterPartitionProposal, IsrChange
from partitions.lag_schedule import LagSchedule
from partitions.log.config import LogConfig
from partitions.log.errors import LogError, LogStorageError
from partitions.log_manager import LogManager
from partitions.partition import AckStatus, Partition, ReplicaContext, Transition
from partitions.ports import Halt
from partitions.topic_partition import TopicPartition
from quorum.metadata.changes import MetadataChanges
from quorum.metadata.image import MetadataImage, PartitionImage, TopicImage
from quorum.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE

log = structlog.get_logger(__name__)

ROOM_CHECK_S = 1.0
"""How often a replica that met a full disk is tried again."""


class UnknownTopicOrPartition(PartitionError):
    """No such topic or partition in this broker's metadata."""

    code = "UNKNOWN_TOPIC_OR_PARTITION"


class ReplicaManager:
    """The replicas of one broker. All methods run on its event loop."""

    def __init__(
        self,
        broker_id: int,
        *,
        logs: LogManager,
        default_config: LogConfig,
        metadata: MetadataCache,
        alter_partitions: AlterPartitionManager,
        metrics: BrokerMetrics,
        loop: asyncio.AbstractEventLoop,
        halt: Halt,
        replica_lag_time_max_ms: int,
    ) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._default_config = default_config
        self._topic_defaults = default_config
        self._metadata = metadata
        self._alter_partitions = alter_partitions
        self._loop = loop
        self._halt = halt
        self._lag_schedule: LagSchedule[Partition] = LagSchedule()
        self._lag_check_s = replica_lag_time_max_ms / 2000
        self._context = ReplicaContext(broker_id, metadata, self, self._lag_schedule, replica_lag_time_max_ms)
        self._partitions: dict[TopicPartition, Partition] = {}
        self._fetchers: FetcherManager | None = None
        self._lag_task: asyncio.Task[None] | None = None
        self._moved: dict[TopicPartition, None] = {}
        self._offline: dict[TopicPartition, LogError] = {}
        self._knows_strays = False
        self._deleting: dict[TopicPartition, None] = {}
        self._deletions: dict[asyncio.Task[None], None] = {}
        self._without_room: dict[tuple[bytes, int], None] = {}
        self._closing = False
        self.metrics = metrics
        self.produce_purgatory = ProducePurgatory(loop)
        self.delete_records_purgatory = DeleteRecordsPurgatory(loop)
        self.fetch_purgatory = FetchPurgatory(loop)
        self.record_checks = RecordCheckLanes(logs.executor, loop, halt)

    # -- life

    def start(self, fetchers: FetcherManager) -> None:
        """Begins to watch for lagging followers; `fetchers` copy what this broker follows."""
        self._fetchers = fetchers
        self._lag_task = start_vital_task(self._watch_lag(), "isr-lag", self._halt)

    async def close(self) -> None:
        """Stops copying and watching. The logs are closed by their manager."""
        self._closing = True
        await self.record_checks.close()
        await end_task(self._lag_task)
        if self._fetchers is not None:
            await self._fetchers.close()
        await asyncio.gather(*self._deletions, return_exceptions=True)

    def monotonic_ms(self) -> int:
        """The time that replicas reckon lag in."""
        return int(self._loop.time() * 1000)

    # -- finding

    def partition(self, key: TopicPartition) -> Partition:
        """The local replica.

        Raises UnknownTopicOrPartition, NotLeaderOrFollower if it is elsewhere, or ReplicaOffline if its
        log cannot be used.
        """
        partition = self._partitions.get(key)
        if partition is not None:
            return partition
        if key in self._offline:
            raise ReplicaOffline(f"the log of {key} cannot be used: {self._offline[key]}")
        topic = self._metadata.image.topic(key.topic)
        if topic is None or not 0 <= key.partition < len(topic.partitions):
            raise UnknownTopicOrPartition(f"this broker knows no partition {key}")
        raise NotLeaderOrFollower(f"broker {self._broker_id} has no replica of {key}")

    @property
    def partition_count(self) -> int:
        return len(self._partitions)

    def partitions(self) -> Iterator[Partition]:
        """All local replicas."""
        return iter(self._partitions.values())

    def high_watermark(self, key: TopicPartition) -> int:
        """A log's high watermark: the replica's, else the checkpointed one."""
        partition = self._partitions.get(key)
        return self._logs.high_watermark(key) if partition is None else partition.high_watermark

    @property
    def offline_partitions(self) -> Mapping[TopicPartition, LogError]:
        """Replicas that are assigned here and whose logs cannot be used, with the reason."""
        return self._offline

    def take_changed_high_watermarks(self) -> dict[TopicPartition, int]:
        """Those that rose, or were cut back with the log, since the last call."""
        changed, self._moved = self._moved, {}
        return {key: self.high_watermark(key) for key in changed if key in self._partitions}

    def note_changed_high_watermarks(self, keys: Iterable[TopicPartition]) -> None:
        """Puts back what was taken and could not be written."""
        self._moved.update(dict.fromkeys(keys))

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """What the high watermark checkpoint holds."""
        return {key: partition.high_watermark for key, partition in self._partitions.items()}

    # -- metadata

    def on_metadata(self, changes: MetadataChanges, image: MetadataImage) -> None:
        """Brings the replicas in line with a new image."""
        removed: list[TopicPartition] = []
        for topic in changes.deleted_topics.values():
            for number in range(len(topic.partitions)):
                self._remove(TopicPartition(topic.name, number), topic.topic_id, removed)
        if not self._knows_strays:
            self._knows_strays = True
            removed += self._strays(image)
        for topic_id, number in changes.changed_partitions:
            if self._broker_id not in image.topics[topic_id].partitions[number].replicas:
                self._remove(TopicPartition(image.topics[topic_id].name, number), topic_id, removed)
        self._delete_logs(removed)
        reconfigured = self._update_configs(changes, image)
        self._apply_all(image, changes.changed_partitions)
        # Not before: a leader deposed in this very step would acknowledge by the new min.insync.replicas.
        for partition in reconfigured:
            partition.reconsider(self.monotonic_ms())
        if changes.changed_brokers:
            self._reconsider_led()

    def _apply_all(self, image: MetadataImage, keys: Iterable[tuple[bytes, int]]) -> None:
        """Creates, promotes and demotes replicas, and has followers copied."""
        followed: list[FollowedPartition] = []
        for topic_id, number in keys:
            topic = image.topics[topic_id]
            self._apply(topic, number, topic.partitions[number], followed)
        if followed and self._fetchers is not None:
            self._fetchers.add_partitions(followed)

    def _apply(
        self, topic: TopicImage, number: int, state: PartitionImage, followed: list[FollowedPartition]
    ) -> None:
        key = TopicPartition(topic.name, number)
        if self._broker_id not in state.replicas:
            return
        if key in self._deleting:
            return  # the log of an earlier topic of this name goes first; see `_delete_logs`
        partition = self._partitions.get(key) or self._create(key, topic.topic_id)
        if partition is None:
            return
        try:
            transition = partition.apply_state(state, self.monotonic_ms())
        except LogError as error:
            self._wait_for_room(key, topic.topic_id, error)
            return
        if transition is Transition.BECAME_LEADER:
            self.metrics.leader_elections += 1
            log.info(
                "leads",
                partition=str(key),
                epoch=state.leader_epoch,
                isr=state.isr,
                end=partition.log_end_offset,
            )
            self._stop_fetching(key)
        elif transition is Transition.BECAME_FOLLOWER:
            if state.leader < 0:
                self._stop_fetching(key)
            else:
                followed.append(
                    FollowedPartition(key, topic.topic_id, state.leader, state.leader_epoch, partition)
                )

    def _create(self, key: TopicPartition, topic_id: bytes) -> Partition | None:
        """The replica over its log; None if the log cannot be used, which leaves the other partitions alone."""
        try:
            replica_log = self._logs.get_or_create(key, topic_id, self._topic_config(key.topic))
        except LogError as error:
            log.error("a replica is offline", partition=str(key), reason=str(error))
            self._offline[key] = error
            if error.is_transient:
                self._wait_for_room(key, topic_id, error)
            return None
        self._offline.pop(key, None)
        partition = Partition(
            key,
            topic_id,
            replica_log,
            self._context,
            high_watermark=self._logs.high_watermark(key),
        )
        self._partitions[key] = partition
        return partition

    def _wait_for_room(self, key: TopicPartition, topic_id: bytes, error: LogError) -> None:
        """The disk was full when a replica should have begun or led: nothing changed, it is tried again."""
        if not error.is_transient:
            raise error
        log.error("a replica waits for room on the disk", partition=str(key), reason=str(error))
        self._without_room[topic_id, key.partition] = None

    def _try_again(self) -> None:
        """Applies what the metadata says now of the replicas that had no room."""
        waiting, self._without_room = self._without_room, {}
        image = self._metadata.image
        self._apply_all(image, [key for key in waiting if image.partition(*key) is not None])

    def _remove(self, key: TopicPartition, topic_id: bytes, removed: list[TopicPartition]) -> None:
        """Ends a replica that is not assigned here any more; its log is to be deleted."""
        if self._offline.pop(key, None) is not None:
            removed.append(key)
        partition = self._partitions.get(key)
        if partition is None or partition.topic_id != topic_id:
            return
        del self._partitions[key]
        self._stop_fetching(key)
        partition.take_offline(storage_failed=False)
        removed.append(key)
        log.info("replica removed", partition=str(key))

    def _strays(self, image: MetadataImage) -> list[TopicPartition]:
        """Logs of topics that were deleted, made anew, or moved elsewhere, while this broker was away."""
        strays = []
        for key, replica_log in self._logs.logs.items():
            if not self._is_assigned(image, key, replica_log.topic_id):
                log.info("a log is not assigned here any more", partition=str(key))
                strays.append(key)
        for key in self._logs.failed:
            if not self._is_assigned(image, key, self._logs.failed_topic_id(key)):
                log.info("a log that cannot be used is not assigned here any more", partition=str(key))
                strays.append(key)
        return strays

    def _is_assigned(self, image: MetadataImage, key: TopicPartition, topic_id: bytes | None) -> bool:
        """Whether this broker has a replica of the partition, and a folder with this topic id is its."""
        topic = image.topic(key.topic)
        state = None if topic is None else image.partition(topic.topic_id, key.partition)
        if topic is None or state is None or self._broker_id not in state.replicas:
            return False
        return topic_id is None or topic_id == topic.topic_id

    def _delete_logs(self, keys: list[TopicPartition]) -> None:
        """Deletes logs beside the loop; a new replica of the same name is created when that is done."""
        if not keys:
            return
        self._deleting.update(dict.fromkeys(keys))
        task = start_vital_task(self._delete(keys), "delete-logs", self._halt)
        self._deletions[task] = None
        task.add_done_callback(self._deletions.pop)

    async def _delete(self, keys: list[TopicPartition]) -> None:
        try:
            await self._logs.delete(keys)
        except LogStorageError as error:
            log.error("deleting logs failed", partitions=[str(key) for key in keys], reason=str(error))
        for key in keys:
            self._deleting.pop(key, None)
        if self._closing:
            return  # what should be made anew is made by the next start
        image = self._metadata.image
        topics = [(image.topic(key.topic), key.partition) for key in keys]
        self._apply_all(
            image,
            [(topic.topic_id, n) for topic, n in topics if topic is not None and n < len(topic.partitions)],
        )

    def _stop_fetching(self, key: TopicPartition) -> None:
        if self._fetchers is not None:
            self._fetchers.remove_partitions([key])

    def _topic_config(self, topic: str) -> LogConfig:
        return self._topic_defaults.with_overrides(self._metadata.image.config(TOPIC_RESOURCE, topic))

    def _update_configs(self, changes: MetadataChanges, image: MetadataImage) -> list[Partition]:
        """Gives logs their new configs: those of changed topics, or all if this broker's defaults changed.

        Returns their replicas: what they are to make of it comes when all have the new metadata.
        """
        reconfigured = []
        defaults = self._topic_defaults
        if any(resource_type == BROKER_RESOURCE for resource_type, _ in changes.changed_configs):
            self._topic_defaults = dynamic_log_defaults(self._default_config, image, self._broker_id)
        names: Iterable[str] = (name for kind, name in changes.changed_configs if kind == TOPIC_RESOURCE)
        if self._topic_defaults != defaults:
            names = dict.fromkeys(key.topic for key in self._partitions)
        for name in names:
            topic = image.topic(name)
            if topic is None:
                continue
            config = self._topic_config(name)
            for number in range(len(topic.partitions)):
                partition = self._partitions.get(TopicPartition(name, number))
                replica_log = self._logs.get(TopicPartition(name, number))
                if partition is not None and replica_log is not None:
                    replica_log.update_config(config)
                    reconfigured.append(partition)
        return reconfigured

    def _reconsider_led(self) -> None:
        """A broker may have become eligible for ISRs: followers that are caught up join now."""
        now_ms = self.monotonic_ms()
        for partition in list(self._partitions.values()):
            if partition.is_under_replicated:
                partition.reconsider(now_ms)

    # -- PartitionListener

    def on_append(self, partition: Partition, log_end_offset: int) -> None:
        self.fetch_purgatory.on_append(partition.topic_partition)

    def on_high_watermark(self, partition: Partition, high_watermark: int) -> None:
        key = partition.topic_partition
        self._moved[key] = None
        status = partition.ack_status(high_watermark)
        self.produce_purgatory.on_high_watermark(
            key, high_watermark, None if status is AckStatus.OK else status.value
        )
        self.fetch_purgatory.on_high_watermark(key)

    def on_low_watermark(self, partition: Partition) -> None:
        key = partition.topic_partition
        if self.delete_records_purgatory.entries_of(key):
            self.delete_records_purgatory.on_low_watermark(key, partition.low_watermark)

    def on_state_change(self, partition: Partition) -> None:
        key = partition.topic_partition
        if not partition.is_leader:
            self.produce_purgatory.fail(key, "NOT_LEADER_OR_FOLLOWER")
            self.delete_records_purgatory.fail(key, "NOT_LEADER_OR_FOLLOWER")
        self.fetch_purgatory.on_progress(key)

    def on_alter_partition(self, partition: Partition, proposal: AlterPartitionProposal) -> None:
        if proposal.change is IsrChange.EXPAND:
            self.metrics.isr_expands += 1
        elif proposal.change is IsrChange.SHRINK:
            self.metrics.isr_shrinks += 1
            log.warning("ISR shrinks", partition=str(partition.topic_partition), to=proposal.new_isr)
        self._alter_partitions.submit(partition, proposal)

    # -- FetcherListener

    def on_truncated(self, key: PartitionKey, from_offset: int, to_offset: int, high_watermark: int) -> None:
        self.metrics.truncations += 1
        if to_offset < high_watermark:
            self._moved[TopicPartition(*key)] = None
        level = log.error if to_offset < high_watermark else log.info
        level(
            "truncated", partition=f"{key[0]}-{key[1]}", start=from_offset, end=to_offset, hw=high_watermark
        )

    def on_partition_failed(
        self, key: PartitionKey, leader_epoch: int, code: str, error: Exception | None
    ) -> None:
        # A fenced epoch only means that the leader knows of an election before this broker does.
        level = log.info if code == "FENCED_LEADER_EPOCH" else log.error
        level(
            "replication stopped", partition=f"{key[0]}-{key[1]}", epoch=leader_epoch, code=code, error=error
        )
        self.metrics.failed_partitions += 1
        partition = self._partitions.get(TopicPartition(*key))
        if code == "KAFKA_STORAGE_ERROR" and partition is not None:
            partition.take_offline(storage_failed=True)

    def on_retry(self, key: PartitionKey, leader_epoch: int, code: str, error: Exception | None) -> None:
        self.metrics.replication_retries += 1
        log.debug("replication is tried again", partition=f"{key[0]}-{key[1]}", epoch=leader_epoch, code=code)

    def on_fetcher_crashed(self, leader_id: int, error: BaseException) -> None:
        self._halt(f"the fetcher from broker {leader_id} ended by a defect: {error!r}")

    # -- lag

    async def _watch_lag(self) -> None:
        """Drops followers that lag too long from ISRs, when their time has come."""
        while True:
            deadline_ms = self._lag_schedule.next_deadline_ms
            wait_s = self._lag_check_s
            if deadline_ms is not None:
                wait_s = min(wait_s, max(0.0, (deadline_ms - self.monotonic_ms()) / 1000))
            if self._without_room:
                wait_s = min(wait_s, ROOM_CHECK_S)
            await asyncio.sleep(wait_s + 0.001)
            if self._without_room:
                self._try_again()
            now_ms = self.monotonic_ms()
            for partition in self._lag_schedule.pop_due(now_ms):
                partition.maybe_shrink(now_ms)
