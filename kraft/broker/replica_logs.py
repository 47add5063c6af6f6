"""The logs below a broker's replicas: opened, made, given up, and their configs and leader epochs.

Guarantees: nothing here waits for the disk; what is not there is made by `LogJobs`, and until then there is no
replica, which clients and followers are told as NOT_LEADER_OR_FOLLOWER and ask again. What comes of a job is
judged by the metadata of that moment: a log that nobody wants any more is deleted, and a replica is made for
the state that it has by then. A log that cannot be used takes its replica offline and no other.
`ReplicaManager` is built on this.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence

import structlog

from fetcher.fetcher_manager import FetcherManager
from kraft.broker.alter_partition_manager import AlterPartitionManager
from kraft.broker.assignments import assigned, can_be_made_anew, owns_log, partition_ids
from kraft.broker.log_jobs import LogJobs
from kraft.broker.metadata_cache import MetadataCache
from kraft.broker.metrics import BrokerMetrics
from kraft.broker.offline_replicas import OfflineReplicas, kind_of
from kraft.broker.pending_replicas import PendingReplicas
from kraft.broker.replica_events import ReplicaEvents
from kraft.broker.topic_log_configs import TopicLogConfigs, changed_topics
from partitions.lag_schedule import LagSchedule
from partitions.log.config import LogConfig
from partitions.log.creation import NewLog
from partitions.log.errors import LogError
from partitions.log_manager import LogManager
from partitions.partition import Partition, ReplicaContext
from partitions.ports import Halt
from partitions.topic_partition import TopicPartition
from quorum.metadata.changes import MetadataChanges
from quorum.metadata.delta import PartitionKey
from quorum.metadata.image import MetadataImage, PartitionImage
from quorum.rpc.replica_messages import DAMAGED

log = structlog.get_logger(__name__)


class ReplicaLogs(ReplicaEvents, ABC):
    """Replicas over their logs; the `LogJobsOwner` of a broker."""

    def __init__(
        self,
        broker_id: int,
        logs: LogManager,
        default_config: LogConfig,
        metadata: MetadataCache,
        alter_partitions: AlterPartitionManager,
        metrics: BrokerMetrics,
        loop: asyncio.AbstractEventLoop,
        halt: Halt,
        offline: OfflineReplicas,
        *,
        replica_lag_time_max_ms: int,
        flush_scheduler_interval_ms: int,
    ) -> None:
        super().__init__(
            broker_id, logs, metadata, alter_partitions, metrics, loop, halt,
            flush_scheduler_interval_ms=flush_scheduler_interval_ms,
        )  # fmt: skip
        self._loop = loop
        self._configs = TopicLogConfigs(broker_id, default_config)
        schedule: LagSchedule[Partition] = LagSchedule()
        self._context = ReplicaContext(broker_id, metadata, self, schedule, replica_lag_time_max_ms)
        self._fetchers: FetcherManager | None = None
        self._jobs = LogJobs(logs, self, halt)
        self.pending = PendingReplicas(loop, self._is_pending)
        self._reported = offline
        self._unapplied: dict[TopicPartition, None] = {}
        """Replicas whose newest state in the metadata is still to be applied (`ReplicaManager`)."""
        self._unnoted: dict[TopicPartition, None] = {}
        """Leaders that could not note their epoch, and try it again and again."""
        logs.set_failure_listener(self._on_logs_failing)

    @abstractmethod
    def _apply_all(self, image: MetadataImage, keys: Iterable[tuple[bytes, int]]) -> None:
        """Brings these partitions in line with the image."""

    def monotonic_ms(self) -> int:
        """The time that replicas reckon lag in."""
        return int(self._loop.time() * 1000)

    def _open(self, key: TopicPartition, topic_id: bytes) -> Partition | None:
        """The replica over its log; None if the log has to be made first, or cannot be used."""
        config = self._configs.of_topic(self._metadata.image, key.topic)
        try:
            replica_log = self._logs.claim(key, topic_id, config)
        except LogError as error:
            self._cannot_use(key, topic_id, error)
            return None
        if replica_log is None:
            self._jobs.make(key)
            self.pending.expect(key)
            return None
        self._offline.pop(key, None)
        self._reported.clear((topic_id, key.partition))
        partition = Partition(
            key,
            topic_id,
            replica_log,
            self._context,
            high_watermark=self._logs.high_watermark(key),
        )
        self._partitions[key] = partition
        return partition

    def _cannot_use(self, key: TopicPartition, topic_id: bytes, error: LogError) -> None:
        """A replica without a log, which leaves the other partitions alone. A full disk is tried again, and so
        is a log that could not be made: nothing on a disk is wrong, and the metadata may not change again."""
        known = self._offline.get(key)
        is_unmade = key not in self._logs.logs and key not in self._logs.failed
        is_known = known is not None and (
            known.needs_room if error.needs_room else is_unmade and type(known) is type(error)
        )
        if not is_known and known is not error:  # said once while it is tried again and again
            log.error("a replica is offline", partition=str(key), reason=str(error))
        self._offline[key] = error
        if error.needs_room or is_unmade:
            self._jobs.wait_for_room(key)
        # Also without room: another broker can lead meanwhile. `_open` takes the mark away.
        self._reported.mark((topic_id, key.partition), kind_of(error))

    def _on_logs_failing(self, failed: Mapping[TopicPartition, LogError]) -> None:
        """Not at once: whoever met the failure is in the middle of something with one of these replicas."""
        self._loop.call_soon(self._on_logs_failed, failed)

    def _on_logs_failed(self, failed: Mapping[TopicPartition, LogError]) -> None:
        """Takes replicas offline whose logs failed while they were in use."""
        for key, error in failed.items():
            # Whoever met it is done: what they held, such as ranges of open files, must not be kept with it.
            error.__traceback__ = error.__context__ = error.__cause__ = None
            partition = self._partitions.get(key)
            if partition is None or key not in self._logs.failed:
                continue
            del self._partitions[key]
            self._stop_fetching(key)
            partition.take_offline(storage_failed=True)
            self._cannot_use(key, partition.topic_id, error)

    def _is_repairable(self, replica: PartitionKey, state: PartitionImage) -> bool:
        """Whether a damaged replica can be given up, to be copied from another broker: the controller knows
        that it is offline, and nobody counts on it."""
        return (
            self._reported.kinds.get(replica) == DAMAGED
            and self._broker_id in state.offline_replicas
            and can_be_made_anew(state, self._broker_id)
        )

    def _stored_logs(self) -> Iterator[tuple[TopicPartition, bytes | None]]:
        """All that is on the disks, with the topic id where it can be told."""
        for key, replica_log in self._logs.logs.items():
            yield key, replica_log.topic_id
        for key in self._logs.failed:
            yield key, self._logs.failed_topic_id(key)

    def _stop_fetching(self, key: TopicPartition) -> None:
        if self._fetchers is not None:
            self._fetchers.remove_partitions([key])

    def _reconfigure(self, changes: MetadataChanges, image: MetadataImage) -> list[Partition]:
        """Gives logs their new configs: those of changed topics, or all if this broker's defaults changed.

        Returns their replicas: what they are to make of it comes when all have the new metadata.
        """
        reconfigured = []
        names: Iterable[str] = changed_topics(changes)
        if self._configs.update_defaults(changes, image):
            names = dict.fromkeys(key.topic for key in self._partitions)
        for name in names:
            topic = image.topic(name)
            if topic is None:
                continue
            config = self._configs.of_topic(image, name)
            for number in range(len(topic.partitions)):
                partition = self._partitions.get(TopicPartition(name, number))
                replica_log = self._logs.get(TopicPartition(name, number))
                if partition is not None and replica_log is not None:
                    replica_log.update_config(config)
                    reconfigured.append(partition)
        return reconfigured

    def _is_pending(self, key: TopicPartition, appends: bool) -> bool:
        """Whether this broker leads and its replica is being made ready, to be asked or to be appended to."""
        partition = self._partitions.get(key)
        if partition is not None and (partition.is_leader or key not in self._unapplied):
            return appends and partition.awaits_epoch_start
        if key not in self._unapplied and (key in self._offline or not self._jobs.is_pending(key)):
            return False
        found = assigned(self._metadata.image, self._broker_id, key)
        return found is not None and found[1].leader == self._broker_id

    # -- LogJobsOwner

    def wanted_log(self, key: TopicPartition) -> NewLog | None:
        image = self._metadata.image
        found = assigned(image, self._broker_id, key)
        if found is None:
            self.pending.settle([key])
            return None
        topic_id, state = found
        leader_epoch = state.leader_epoch if state.leader == self._broker_id else None
        return NewLog(key, topic_id, self._configs.of_topic(image, key.topic), leader_epoch)

    def on_logs_made(self, made: Sequence[NewLog], failed: Mapping[TopicPartition, LogError]) -> None:
        image = self._metadata.image
        ready, given_up = [], []
        for new in made:
            key, error = new.partition, failed.get(new.partition)
            is_wanted = owns_log(image, self._broker_id, key, new.topic_id)
            if error is not None and is_wanted:
                self._cannot_use(key, new.topic_id, error)
            elif error is None and not is_wanted:
                given_up.append(key)
            else:
                ready.append(key)  # or another topic has the name now, and nothing is in its way
        self._jobs.delete(given_up)
        self._apply_all(image, partition_ids(image, self._broker_id, ready))
        self.pending.settle(new.partition for new in made)

    def owns_stored(self, key: TopicPartition) -> bool:
        stored = self._logs.get(key)
        topic_id = self._logs.failed_topic_id(key) if stored is None else stored.topic_id
        return owns_log(self._metadata.image, self._broker_id, key, topic_id)

    def on_log_reopened(self, key: TopicPartition, error: LogError | None) -> None:
        image = self._metadata.image
        found = assigned(image, self._broker_id, key)
        if found is None or not self.owns_stored(key):
            self._jobs.delete([key])
        elif error is None and key in self._logs.reopener.shortened:
            log.warning(
                "a log lacks records that it had: it waits until nobody counts on them", partition=str(key)
            )
            self._reported.mark((found[0], key.partition), DAMAGED)
            self._jobs.hold(key)
        elif error is None:
            self._apply_all(image, partition_ids(image, self._broker_id, [key]))
        else:
            topic_id, state = found
            self._cannot_use(key, topic_id, error)
            if self._is_repairable((topic_id, key.partition), state):
                self._jobs.delete([key])  # the metadata may not change again

    def _consider_held(self, key: TopicPartition) -> None:
        """Goes on with a log that lacks records, once the replica leads nothing and is no eligible leader: until the
        controller has said so, this broker may be the leader that would have to answer with them. The last one that
        is eligible waits for an operator's unclean election, or for a start, which leaves the ELR: it is not elected
        as if it had everything."""
        found = assigned(self._metadata.image, self._broker_id, key)
        if found is not None and self.owns_stored(key) and key in self._logs.logs:
            replica, state = (found[0], key.partition), found[1]
            is_told = self._reported.is_told(replica)
            is_shown = self._broker_id in state.offline_replicas
            if not is_told or not is_shown or self._broker_id in state.elr:
                self._reported.mark(replica, DAMAGED)  # it may have been moved away and back meanwhile
                if is_told and not is_shown:
                    self._reported.report_again(replica)
                self._jobs.hold(key)
                return
            self._logs.reopener.forget_shortened(key)
        self._jobs.release(key)
        self.on_log_reopened(key, self._logs.failed.get(key))

    def on_logs_deleted(self, keys: Sequence[TopicPartition]) -> None:
        for key in keys:
            self._unnoted.pop(key, None)
            self._logs.reopener.forget_shortened(key)
        image = self._metadata.image
        self._apply_all(image, partition_ids(image, self._broker_id, keys))
        self.pending.settle(keys)

    def on_epochs_written(
        self, keys: Sequence[TopicPartition], failed: Mapping[TopicPartition, LogError]
    ) -> None:
        for key in keys:
            partition, replica_log = self._partitions.get(key), self._logs.get(key)
            if partition is None or replica_log is None or not partition.awaits_epoch_start:
                self._unnoted.pop(key, None)
                continue
            error = failed.get(key)
            if error is None:
                self._unnoted.pop(key, None)
            elif key not in self._unnoted:
                log.error("a leader cannot note its epoch", partition=str(key), reason=str(error))
                self._unnoted[key] = None
            if error is not None:
                if error.is_transient:
                    self._jobs.wait_for_room(key)
            elif replica_log.epochs_are_durable:
                partition.on_epoch_start_durable(partition.leader_epoch)
            else:
                self._jobs.write_epochs(key)  # the log has another epoch by now, or wanted to write it itself
        self.pending.settle(keys)

    def on_room(self, keys: Sequence[TopicPartition]) -> None:
        closed = [key for key in keys if self._logs.reopener.may_reopen(key)]
        self._jobs.reopen(closed)
        held = [key for key in keys if self._jobs.is_held(key)]
        for key in held:
            self._consider_held(key)
        image = self._metadata.image
        others = set(keys).difference(closed, held)
        self._apply_all(image, partition_ids(image, self._broker_id, (key for key in keys if key in others)))
