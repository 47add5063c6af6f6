"""All replicas of a broker: brings them in line with the metadata, and lets handlers find them.

A publisher of the metadata loader: for each changed partition it creates, promotes, demotes or removes the local
replica, and starts or stops copying it. It owns what the replicas stand on and speak to: `ReplicaLogs` opens, makes
and deletes the logs below them, `PartitionEvents` hears what replicas and fetchers tell and wakes the requests that
wait for it, `Appends` appends for anybody, `LeadershipEvents` tells who keeps records in partitions what this broker
leads, `PendingReplicas` has requests wait for a replica that is being made ready.

Replicas are brought in line with new metadata some hundreds at a time, so that thousands of partitions hold nobody
up. A leader that gets a Produce in between has its turn first: nothing is appended by an ISR that Metadata answers
show otherwise. An error that leaves a replica half changed halts the node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import structlog

from fetcher.fetch_state import FollowedPartition
from fetcher.fetcher_manager import FetcherManager
from kraft.broker.membership.metadata_cache import MetadataCache
from kraft.broker.metrics import BrokerMetrics
from kraft.broker.purgatory.pending_replicas import PendingReplicas
from kraft.broker.replicas.alter_partition_manager import AlterPartitionManager
from kraft.broker.replicas.append_refusals import AppendRefusals
from kraft.broker.replicas.appends import Appends
from kraft.broker.replicas.leadership_events import LeadershipEvents
from kraft.broker.replicas.offline_replicas import OfflineReplicas
from kraft.broker.replicas.partition_events import PartitionEvents
from kraft.broker.replicas.partition_health import FollowerLag, follower_lags
from kraft.broker.replicas.replica_logs import ReplicaLogs, assigned
from kraft.broker.vital_task import end_task, start_vital_task
from partitions.errors import NotLeaderOrFollower, PartitionError, ReplicaOffline
from partitions.lag_schedule import LagSchedule
from partitions.log.config import LogConfig
from partitions.log.config_values import LONG_MAX
from partitions.log.errors import LogError
from partitions.log_manager import LogManager
from partitions.partition import Partition, ReplicaContext, Transition
from partitions.ports import Halt
from partitions.topic_partition import TopicPartition
from quorum.metadata.changes import MetadataChanges
from quorum.metadata.image import MetadataImage, PartitionId, PartitionImage, TopicImage
from quorum.steps import ROWS_PER_STEP, Steps

log = structlog.get_logger(__name__)

REPLICAS_PER_STEP: Final = 200
"""That are brought in line with the metadata before requests have their turn: some 20 ms where all begin to lead."""


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
        offline: OfflineReplicas,
        flush_scheduler_interval_ms: int = LONG_MAX,
    ) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._metadata = metadata
        self._loop = loop
        self._halt = halt
        self.metrics = metrics
        self._partitions: dict[TopicPartition, Partition] = {}
        self.refusals = AppendRefusals(logs, loop.time)
        self.events = events = PartitionEvents(
            self._partitions, logs, metadata, alter_partitions, metrics, self.refusals, loop, halt,
            self._resume_copying, flush_scheduler_interval_ms=flush_scheduler_interval_ms,
        )  # fmt: skip
        # Where handlers have requests wait for what `events` tells.
        self.produce_purgatory = events.produce_purgatory
        self.delete_records_purgatory = events.delete_records_purgatory
        self.fetch_purgatory = events.fetch_purgatory
        self.pending = PendingReplicas(loop, self._is_being_made_ready)
        self.appends = Appends(
            self,
            events.produce_purgatory,
            events.flush_purgatory,
            self.refusals,
            metrics,
            logs.executor,
            loop,
            halt,
        )
        self.leaderships = LeadershipEvents(halt)
        self._reported = offline
        self._replica_logs = ReplicaLogs(
            broker_id, logs, default_config, metadata, self._partitions, self.pending, offline, halt,
            self._apply_newest, self.leaderships.look,
        )  # fmt: skip
        logs.set_failure_listener(self._on_logs_failing)
        schedule: LagSchedule[Partition] = LagSchedule()
        self._context = ReplicaContext(broker_id, metadata, events, schedule, replica_lag_time_max_ms)
        self._lag_task: asyncio.Task[None] | None = None
        self._fetchers: FetcherManager | None = None
        self._knows_strays = False
        self._applied_through = -1
        """Offset of the last image."""
        self._unapplied: dict[TopicPartition, None] = {}
        """Replicas whose newest state in the metadata is still to be applied."""

    # -- finding replicas

    def partition(self, key: TopicPartition) -> Partition:
        """The local replica.

        Raises UnknownTopicOrPartition, NotLeaderOrFollower if it is elsewhere, or ReplicaOffline if its
        log cannot be used.
        """
        partition = self._partitions.get(key)
        if partition is not None:
            return partition
        unusable = self._replica_logs.unusable
        if key in unusable:
            raise ReplicaOffline(f"the log of {key} cannot be used: {unusable[key]}")
        topic = self._metadata.image.topic(key.topic)
        if topic is None or not 0 <= key.partition < len(topic.partitions):
            raise UnknownTopicOrPartition(f"this broker knows no partition {key}")
        raise NotLeaderOrFollower(f"broker {self._broker_id} has no replica of {key}")

    def newest_partition(self, key: TopicPartition) -> Partition:
        """The local replica, for an append. A leader whose turn in the steps of `on_metadata` is still to come has it
        now: it does not take records by an ISR, or a leadership, that this broker's metadata show otherwise. One
        that is still to become leader has its turn as it comes, and is waited for (`PendingReplicas`).

        Raises as `partition`.
        """
        if self._unapplied and key in self._unapplied:
            partition = self._partitions.get(key)
            if partition is not None and partition.is_leader:
                self._apply_in_advance(key)
        return self.partition(key)

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
        return self._replica_logs.unusable

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """What the high watermark checkpoint holds."""
        return {key: partition.high_watermark for key, partition in self._partitions.items()}

    # -- life

    def start(self, fetchers: FetcherManager) -> None:
        """Begins to watch for lagging followers; `fetchers` copy what this broker follows."""
        self._fetchers = fetchers
        self._lag_task = start_vital_task(self._watch_lag(), "isr-lag", self._halt)

    async def close(self) -> None:
        """Stops leading, copying and watching. The logs are closed by their manager."""
        for partition in self._partitions.values():
            if partition.is_leader:
                self._end(partition, storage_failed=False)
        await self._replica_logs.close()
        await self.appends.close()
        await end_task(self._lag_task)
        if self._fetchers is not None:
            await self._fetchers.close()
        await self.events.log_flusher.close()

    def monotonic_ms(self) -> int:
        """The time that replicas reckon lag in."""
        return int(self._loop.time() * 1000)

    async def settled(self) -> None:
        """Waits until what the metadata asked for so far has been done to the logs."""
        await self._replica_logs.settled()

    async def delete_old_segments(self, *, max_logs: int) -> None:
        """A step of retention; fetches of followers, and fetchers, that have to tell where a log starts now hear of it.

        Raises LogStorageError.
        """
        starts: dict[TopicPartition, int] = {}

        def high_watermark(key: TopicPartition) -> int:
            partition = self._partitions.get(key)
            if partition is not None:
                starts[key] = partition.log_start_offset
            return self.high_watermark(key)

        try:
            await self._logs.retention.step(high_watermark, max_logs=max_logs)
        finally:
            for key, start_offset in starts.items():
                partition = self._partitions.get(key)
                if partition is not None and partition.log_start_offset != start_offset:
                    self.fetch_purgatory.on_log_start(key)
                    if self._fetchers is not None:
                        self._fetchers.touch(key)

    async def _watch_lag(self) -> None:
        """Has leaders drop followers that lag too long (KIP-16): one timer for all of them.

        A leader is looked at when the first of its followers may have lagged for `replica.lag.time.max.ms`, at most
        half of that too late; where nobody lags nothing is done.
        """
        schedule, check_s = self._context.lag_schedule, self._context.replica_lag_time_max_ms / 2000
        while True:
            wait_s = check_s
            if (deadline_ms := schedule.next_deadline_ms) is not None:
                wait_s = min(wait_s, max(0.0, (deadline_ms - self.monotonic_ms()) / 1000))
            await asyncio.sleep(wait_s + 0.001)
            now_ms = self.monotonic_ms()
            for partition in schedule.pop_due(now_ms):
                partition.maybe_shrink(now_ms)

    def follower_lags(
        self, incomplete: Iterable[TopicPartition], followers: Iterable[int]
    ) -> Steps[Mapping[int, FollowerLag]]:
        """How far these brokers, and any others, lag behind this one; the ISR of `incomplete` lacks somebody."""
        lagging = dict.fromkeys(self._context.lag_schedule)
        for count, key in enumerate(incomplete, 1):
            partition = self._partitions.get(key)
            if partition is not None:
                lagging[partition] = None
            if count % ROWS_PER_STEP == 0:
                yield
        return (yield from follower_lags(lagging, followers, self.monotonic_ms()))

    # -- metadata

    def on_metadata(self, changes: MetadataChanges, image: MetadataImage) -> Steps[None]:
        """Brings the replicas in line with a new image. What is not assigned here any more is taken away at once,
        and the first replicas change; the others follow with the steps that are returned. Requests for one that is
        still to become leader wait for it (`PendingReplicas`)."""
        removed: list[TopicPartition] = []
        for topic in changes.deleted_topics.values():
            for number in range(len(topic.partitions)):
                self._remove(TopicPartition(topic.name, number), topic.topic_id, removed)
        if not self._knows_strays:
            self._knows_strays = True
            removed += self._replica_logs.strays()
        mine: list[PartitionId] = []
        for topic_id, number in changes.changed_partitions:
            topic = image.topics[topic_id]
            if self._broker_id in topic.partitions[number].replicas:
                mine.append((topic_id, number))
            else:
                self._remove(TopicPartition(topic.name, number), topic_id, removed)
        self._replica_logs.delete(removed)
        self._replica_logs.delete_repairable(changes, image)
        reconfigured = self._replica_logs.reconfigure(changes, image)
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
        mine: list[PartitionId],
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
        later: Sequence[PartitionId],
        reconfigured: Iterable[Partition],
        brokers_changed: bool,
    ) -> Steps[None]:
        """Applies the image to the other replicas, so many in a step; no newer one comes in between."""
        for start in range(0, len(later), REPLICAS_PER_STEP):
            yield
            self._apply_unapplied(image, later[start : start + REPLICAS_PER_STEP])
        for partition in reconfigured:
            partition.reconsider(self.monotonic_ms())
            self.events.on_flushed(partition.topic_partition)
            self.events.log_flusher.consider(partition.topic_partition)
        if brokers_changed:
            yield from self._reconsider_led()

    def _apply_in_advance(self, key: TopicPartition) -> None:
        image = self._metadata.image
        try:
            self._apply_unapplied(image, self._assigned_ids(image, [key]))
        except Exception as error:
            # It would go to the request, and not to the loader, which halts the node.
            self._halt(f"the newest metadata of {key} could not be applied: {error!r}")
            raise

    def _apply_unapplied(self, image: MetadataImage, replicas: Iterable[PartitionId]) -> None:
        """Applies the image to those of these replicas that it was not applied to yet."""
        due = {}
        for topic_id, number in replicas:
            key = TopicPartition(image.topics[topic_id].name, number)
            if key in self._unapplied:
                del self._unapplied[key]
                due[key] = (topic_id, number)
        self._apply_all(image, due.values())
        self.pending.settle(due)

    def _apply_all(self, image: MetadataImage, keys: Iterable[PartitionId]) -> None:
        """Creates, promotes and demotes replicas, and has followers copied."""
        followed: list[FollowedPartition] = []
        for topic_id, number in keys:
            topic = image.topics[topic_id]
            self._apply(topic, number, topic.partitions[number], followed)
        if followed and self._fetchers is not None:
            self._fetchers.add_partitions(followed)

    def _apply_newest(self, keys: Iterable[TopicPartition]) -> None:
        """Something was done to the logs of these: what the metadata says of their replicas by now is applied."""
        image = self._metadata.image
        self._apply_all(image, self._assigned_ids(image, keys))

    def _assigned_ids(self, image: MetadataImage, keys: Iterable[TopicPartition]) -> list[PartitionId]:
        """(topic id, partition) of those that this broker has a replica of."""
        found = ((assigned(image, self._broker_id, key), key.partition) for key in keys)
        return [(entry[0], number) for entry, number in found if entry is not None]

    def _apply(
        self, topic: TopicImage, number: int, state: PartitionImage, followed: list[FollowedPartition]
    ) -> None:
        key = TopicPartition(topic.name, number)
        if self._broker_id not in state.replicas:
            return
        if self._replica_logs.is_pending(key):
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
            return  # it cannot lead; the log was given up where the damage, or the loss of the directory, was found
        if transition is Transition.BECAME_LEADER:
            self.metrics.leader_elections += 1
            self.appends.undecided.look(partition)
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
            self._replica_logs.write_epochs(key)
            self.pending.expect(key)
        elif self.pending:
            self.pending.settle([key])
        self.leaderships.look(partition)

    def _open(self, key: TopicPartition, topic_id: bytes) -> Partition | None:
        """The replica over its log; None if the log has to be made first, or cannot be used."""
        replica_log = self._replica_logs.open(key, topic_id)
        if replica_log is None:
            return None
        high_watermark = self._logs.high_watermark(key)
        partition = Partition(key, topic_id, replica_log, self._context, high_watermark=high_watermark)
        self._partitions[key] = partition
        if replica_log.config.flushes:
            self.events.log_flusher.consider(key)
        return partition

    def _remove(self, key: TopicPartition, topic_id: bytes, removed: list[TopicPartition]) -> None:
        """Ends a replica that is not assigned here any more; its log is to be deleted."""
        is_mine = self._replica_logs.forget_unusable(key, topic_id)
        partition = self._partitions.get(key)
        if partition is not None and partition.topic_id == topic_id:
            is_mine = True
            del self._partitions[key]
            self._stop_fetching(key)
            self._end(partition, storage_failed=False)
            self.pending.settle([key])
            log.info("replica removed", partition=str(key))
        if is_mine:
            removed.append(key)
            self.leaderships.deleted(key, topic_id)

    def _end(self, partition: Partition, *, storage_failed: bool) -> None:
        partition.take_offline(storage_failed=storage_failed)
        self.leaderships.look(partition)

    def _reconsider_led(self) -> Steps[None]:
        """A broker may have become eligible for ISRs: followers that are caught up join now."""
        for count, partition in enumerate(list(self._partitions.values()), 1):
            if partition.is_under_replicated:
                partition.reconsider(self.monotonic_ms())
            if count % ROWS_PER_STEP == 0:
                yield

    def _stop_fetching(self, key: TopicPartition) -> None:
        if self._fetchers is not None:
            self._fetchers.remove_partitions([key])

    def _resume_copying(self, key: TopicPartition) -> None:
        if self._fetchers is not None:
            self._fetchers.resume(key)

    def _is_being_made_ready(self, key: TopicPartition, appends: bool) -> bool:
        """Whether this broker leads and its replica is being made ready, to be asked or to be appended to."""
        partition = self._partitions.get(key)
        if partition is not None and (partition.is_leader or key not in self._unapplied):
            return appends and partition.awaits_epoch_start
        logs = self._replica_logs
        if key not in self._unapplied and (key in logs.unusable or not logs.is_pending(key)):
            return False
        found = assigned(self._metadata.image, self._broker_id, key)
        return found is not None and found[1].leader == self._broker_id

    # -- logs that fail

    def _on_logs_failing(self, failed: Mapping[TopicPartition, LogError]) -> None:
        """Not at once: the caller that met the failure is in the middle of something with one of these replicas."""
        self._loop.call_soon(self._on_logs_failed, failed)

    def _on_logs_failed(self, failed: Mapping[TopicPartition, LogError]) -> None:
        """Takes replicas offline whose logs failed while they were in use."""
        for key, error in failed.items():
            # What the caller that met it held, such as ranges of open files, must not be kept with the error.
            error.__traceback__ = error.__context__ = error.__cause__ = None
            partition = self._partitions.get(key)
            if partition is None or key not in self._logs.failed:
                continue
            del self._partitions[key]
            self._stop_fetching(key)
            self._end(partition, storage_failed=True)
            self._replica_logs.cannot_use(key, partition.topic_id, error)

    def on_unreadable(self, path: str) -> None:
        """A range of a log's file could not be sent as it was read: it became shorter, or the disk refuses it. The
        log checks what there is at its next reads, and is given up if they find it damaged."""
        folder = path.rpartition("/")[0]
        for replica_log in self._logs.logs.values():
            is_usable = not replica_log.is_closed and replica_log.storage.failure is None
            if replica_log.directory == folder and is_usable:
                replica_log.distrust()


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
