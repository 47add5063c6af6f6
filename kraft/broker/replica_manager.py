"""All replicas of a broker: brings them in line with the metadata, and lets handlers find them.

A publisher of the metadata loader. For each changed partition it creates, promotes, demotes or removes
the local replica, and starts or stops copying it. It is also the listener of every replica and fetcher
(`ReplicaEvents`), and where handlers find replicas (`LocalReplicas`); `ReplicaLogs` makes and opens the logs
below. An error that leaves a replica half changed halts the node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import structlog

from fetcher.fetch_state import FollowedPartition
from fetcher.fetcher_manager import FetcherManager
from kraft.broker.alter_partition_manager import AlterPartitionManager
from kraft.broker.assignments import partition_ids, strays
from kraft.broker.lag_watch import LagWatch
from kraft.broker.local_replicas import UnknownTopicOrPartition
from kraft.broker.metadata_cache import MetadataCache
from kraft.broker.metrics import BrokerMetrics
from kraft.broker.offline_replicas import OfflineReplicas
from kraft.broker.partition_health import FollowerLag, follower_lags, lagging_partitions
from kraft.broker.record_check_lanes import RecordCheckLanes
from kraft.broker.replica_logs import ReplicaLogs
from kraft.broker.vital_task import end_task, start_vital_task
from partitions.log.config import LogConfig
from partitions.log.config_values import LONG_MAX
from partitions.log.errors import LogError
from partitions.log_manager import LogManager
from partitions.partition import Partition, Transition
from partitions.ports import Halt
from partitions.topic_partition import TopicPartition
from quorum.metadata.changes import MetadataChanges
from quorum.metadata.delta import PartitionKey
from quorum.metadata.image import MetadataImage, PartitionImage, TopicImage
from quorum.steps import ROWS_PER_STEP, Steps

log = structlog.get_logger(__name__)

REPLICAS_PER_STEP: Final = 200
"""That are brought in line with the metadata before requests have their turn: some 20 ms where all begin to lead."""

__all__ = ["ReplicaManager", "UnknownTopicOrPartition"]


class ReplicaManager(ReplicaLogs):
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
        offline: OfflineReplicas,
        flush_scheduler_interval_ms: int = LONG_MAX,
    ) -> None:
        super().__init__(
            broker_id, logs, default_config, metadata, alter_partitions, metrics, loop, halt, offline,
            replica_lag_time_max_ms=replica_lag_time_max_ms,
            flush_scheduler_interval_ms=flush_scheduler_interval_ms,
        )  # fmt: skip
        self._lag_watch = LagWatch(self._context.lag_schedule, replica_lag_time_max_ms, self.monotonic_ms)
        self._lag_task: asyncio.Task[None] | None = None
        self._knows_strays = False
        self._applied_through = -1
        """Offset of the last image."""
        self.record_checks = RecordCheckLanes(logs.executor, loop, halt)

    # -- life

    def start(self, fetchers: FetcherManager) -> None:
        """Begins to watch for lagging followers; `fetchers` copy what this broker follows."""
        self._fetchers = fetchers
        self._lag_task = start_vital_task(self._lag_watch.run(), "isr-lag", self._halt)

    async def close(self) -> None:
        """Stops copying and watching. The logs are closed by their manager."""
        await self._jobs.close()
        await self.record_checks.close()
        await end_task(self._lag_task)
        if self._fetchers is not None:
            await self._fetchers.close()
        await self.log_flusher.close()

    async def settled(self) -> None:
        """Waits until what the metadata asked for so far has been done to the logs."""
        await self._jobs.settled()

    async def delete_old_segments(self, *, max_logs: int) -> None:
        """A step of retention; whoever has to tell where a log starts now hears of it.

        Raises LogStorageError.
        """
        starts: dict[TopicPartition, int] = {}

        def high_watermark(key: TopicPartition) -> int:
            partition = self._partitions.get(key)
            if partition is not None:
                starts[key] = partition.log_start_offset
            return self.high_watermark(key)

        try:
            await self._logs.delete_old_segments(high_watermark, max_logs=max_logs)
        finally:
            for key, start_offset in starts.items():
                partition = self._partitions.get(key)
                if partition is not None and partition.log_start_offset != start_offset:
                    self.fetch_purgatory.on_log_start(key)
                    if self._fetchers is not None:
                        self._fetchers.touch(key)

    def follower_lags(
        self, incomplete: Iterable[TopicPartition], followers: Iterable[int]
    ) -> Mapping[int, FollowerLag]:
        """How far these brokers, and any others, lag behind this one; the ISR of `incomplete` lacks somebody."""
        found = (self._partitions.get(key) for key in incomplete)
        lacking = [partition for partition in found if partition is not None]
        lagging = lagging_partitions(self._context.lag_schedule, lacking)
        return follower_lags(lagging, followers, self.monotonic_ms())

    # -- metadata

    def on_metadata(self, changes: MetadataChanges, image: MetadataImage) -> Steps[None]:
        """Brings the replicas in line with a new image. What is not assigned here any more is taken away at once,
        and the first replicas change; the others follow with the steps that are returned. Whoever asks for one that
        is still to become leader waits for it."""
        removed: list[TopicPartition] = []
        for topic in changes.deleted_topics.values():
            for number in range(len(topic.partitions)):
                self._remove(TopicPartition(topic.name, number), topic.topic_id, removed)
        if not self._knows_strays:
            self._knows_strays = True
            removed += self._strays(image)
        mine: list[PartitionKey] = []
        for topic_id, number in changes.changed_partitions:
            topic = image.topics[topic_id]
            if self._broker_id in topic.partitions[number].replicas:
                mine.append((topic_id, number))
            else:
                self._remove(TopicPartition(topic.name, number), topic_id, removed)
        self._jobs.delete(removed)
        if self._reported.kinds:
            self._jobs.delete(self._repairable(changes, image))
        reconfigured = self._reconfigure(changes, image)
        at_once = self._at_once(mine, reconfigured, changes, image)
        self._applied_through = image.offset
        later = mine[at_once:]
        self._unapplied = {
            TopicPartition(image.topics[topic_id].name, number): None for topic_id, number in later
        }
        self.pending.expect_all(self._unapplied)
        self._apply_all(image, mine[:at_once])
        return self._bring_in_line(image, later, reconfigured, bool(changes.changed_brokers))

    def _at_once(
        self,
        mine: list[PartitionKey],
        reconfigured: Sequence[Partition],
        changes: MetadataChanges,
        image: MetadataImage,
    ) -> int:
        """How many of `mine` have to change before anybody else runs; puts these first.

        A leader that is deposed in this step must not acknowledge by the new min.insync.replicas meanwhile, nor
        count a broker that registers anew in it as the member of an ISR that its old incarnation was (KIP-903).
        """
        registered = (image.brokers[one].epoch for one in changes.changed_brokers if one in image.brokers)
        if 0 <= self._applied_through < max(registered, default=-1):
            return len(mine)
        if not reconfigured:
            return REPLICAS_PER_STEP
        first = {(one.topic_id, one.topic_partition.partition) for one in reconfigured}
        mine.sort(key=lambda key: key not in first)
        return max(len(first), REPLICAS_PER_STEP)

    def _bring_in_line(
        self,
        image: MetadataImage,
        later: Sequence[PartitionKey],
        reconfigured: Iterable[Partition],
        brokers_changed: bool,
    ) -> Steps[None]:
        """Applies the image to the other replicas, so many in a step; no newer one comes in between."""
        for start in range(0, len(later), REPLICAS_PER_STEP):
            yield
            self._apply_unapplied(image, later[start : start + REPLICAS_PER_STEP])
        for partition in reconfigured:
            partition.reconsider(self.monotonic_ms())
            self.log_flusher.consider(partition.topic_partition)
        if brokers_changed:
            yield from self._reconsider_led()

    def newest_partition(self, key: TopicPartition) -> Partition:
        """The local replica, for an append. A leader whose turn in the steps of `on_metadata` is still to come has it
        now: it does not take records by an ISR, or a leadership, that this broker's metadata show otherwise. Who is
        still to become leader has its turn as it comes, and is waited for (`PendingReplicas`).

        Raises as `partition`.
        """
        if self._unapplied and key in self._unapplied:
            partition = self._partitions.get(key)
            if partition is not None and partition.is_leader:
                self._apply_in_advance(key)
        return self.partition(key)

    def _apply_in_advance(self, key: TopicPartition) -> None:
        image = self._metadata.image
        try:
            self._apply_unapplied(image, partition_ids(image, self._broker_id, [key]))
        except Exception as error:
            # It would go to whoever asks, and not to the loader, which halts the node.
            self._halt(f"the newest metadata of {key} could not be applied: {error!r}")
            raise

    def _apply_unapplied(self, image: MetadataImage, replicas: Iterable[PartitionKey]) -> None:
        """Applies the image to those of these replicas that it was not applied to yet."""
        due = {}
        for topic_id, number in replicas:
            key = TopicPartition(image.topics[topic_id].name, number)
            if key in self._unapplied:
                del self._unapplied[key]
                due[key] = (topic_id, number)
        self._apply_all(image, due.values())
        self.pending.settle(due)

    def _apply_all(self, image: MetadataImage, keys: Iterable[PartitionKey]) -> None:
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
        if self._jobs.is_pending(key):
            self.pending.expect(key)
            return
        partition = self._partitions.get(key) or self._open(key, topic.topic_id)
        if partition is None or key in self._logs.failed:
            return
        if self._broker_id in state.offline_replicas:
            self._reported.retract((topic.topic_id, number))
        try:
            transition = partition.apply_state(state, self.monotonic_ms())
        except LogError:
            if key not in self._logs.failed:
                raise
            return  # it cannot lead; who made out the damage, or lost the directory, has given the log up
        if transition is Transition.BECAME_LEADER:
            self.metrics.leader_elections += 1
            _log_leads(partition, state)
            self._stop_fetching(key)
        elif transition is Transition.BECAME_FOLLOWER:
            if state.leader < 0:
                self._stop_fetching(key)
            else:
                followed.append(
                    FollowedPartition(key, topic.topic_id, state.leader, state.leader_epoch, partition)
                )
        if partition.awaits_epoch_start:
            self._jobs.write_epochs(key)
            self.pending.expect(key)
        elif self.pending:
            self.pending.settle([key])

    def _repairable(self, changes: MetadataChanges, image: MetadataImage) -> list[TopicPartition]:
        """Damaged replicas that can be given up (`_is_repairable`).

        Reports those again that the metadata does not show offline.
        """
        keys = []
        for topic_id, number in changes.changed_partitions:
            replica = (topic_id, number)
            state = image.topics[topic_id].partitions[number]
            key = TopicPartition(image.topics[topic_id].name, number)
            if replica not in self._reported.kinds or self._jobs.is_pending(key):
                continue
            if self._broker_id not in state.offline_replicas:
                self._reported.report_again(replica)
            elif self._is_repairable(replica, state):
                log.warning("a damaged replica is made anew", partition=str(key), leader=state.leader)
                keys.append(key)
        return keys

    def _remove(self, key: TopicPartition, topic_id: bytes, removed: list[TopicPartition]) -> None:
        """Ends a replica that is not assigned here any more; its log is to be deleted."""
        if self._offline.pop(key, None) is not None:
            removed.append(key)
        self._reported.forget((topic_id, key.partition))
        partition = self._partitions.get(key)
        if partition is None or partition.topic_id != topic_id:
            return
        del self._partitions[key]
        self._stop_fetching(key)
        partition.take_offline(storage_failed=False)
        self.pending.settle([key])
        removed.append(key)
        log.info("replica removed", partition=str(key))

    def _strays(self, image: MetadataImage) -> list[TopicPartition]:
        """What was not this broker's any more when it came back."""
        found = strays(image, self._broker_id, self._stored_logs())
        for key in found:
            log.info("a log is not assigned here any more", partition=str(key))
        return found

    def _reconsider_led(self) -> Steps[None]:
        """A broker may have become eligible for ISRs: followers that are caught up join now."""
        for count, partition in enumerate(list(self._partitions.values()), 1):
            if partition.is_under_replicated:
                partition.reconsider(self.monotonic_ms())
            if count % ROWS_PER_STEP == 0:
                yield


def _log_leads(partition: Partition, state: PartitionImage) -> None:
    key, epoch, end = str(partition.topic_partition), state.leader_epoch, partition.log_end_offset
    if state.unclean_leader_epoch != epoch:
        log.info("leads", partition=key, epoch=epoch, isr=state.isr, end=end)
        return
    if len(state.replicas) > 1:
        consequence = "what other replicas have from the end on, or instead of what is here, is given up"
    else:
        consequence = "it is the only replica: what its log had and lacks now is lost"
    log.error(
        "leads after an unclean election",
        consequence=consequence,
        partition=key,
        epoch=epoch,
        end=end,
        hw=partition.high_watermark,
    )
