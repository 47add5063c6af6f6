"""The logs below a broker's replicas: opened, made, opened again, deleted, given a leader's new epoch.

The replica manager owns one; it asks for logs and is told when a log is there. Guarantees: nothing here holds up
the event loop, however many partitions one step of metadata creates or moves. While a log is being made, opened,
held back or deleted it `is_pending`, and its replica is left alone: until a log is made there is no replica, and
clients and followers get NOT_LEADER_OR_FOLLOWER. What comes of a job is judged by the metadata of the moment when
it ends, not of the moment when it was asked for: a log without a replica by then is deleted, and a replica gets
the state that it has by then. A log that cannot be used takes its replica offline and no other. A few jobs that
make logs or write epochs are under way at a time, bounded in size; one that opens; of deletions one a step of
metadata. A job that ends by a defect halts the node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import structlog

from kraft.broker.membership.metadata_cache import MetadataCache
from kraft.broker.purgatory.pending_replicas import PendingReplicas
from kraft.broker.replicas.offline_replicas import OfflineReplicas, kind_of
from kraft.broker.vital_task import end_task, start_vital_task
from kraft.dynamic_configs import dynamic_log_defaults
from partitions.log.beside_loop import LOGS_PER_ROUND, at_once, next_round
from partitions.log.config import LogConfig
from partitions.log.errors import LogError, LogStorageError
from partitions.log.log import PartitionLog
from partitions.log.node_logs.creation import NewLog
from partitions.log_manager import LogManager
from partitions.partition import NO_LEADER, Partition
from partitions.ports import Halt
from partitions.topic_partition import TopicPartition
from quorum.metadata.changes import MetadataChanges
from quorum.metadata.image import MetadataImage, PartitionId, PartitionImage
from quorum.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE
from quorum.rpc.messages import DAMAGED

log = structlog.get_logger(__name__)

ROOM_CHECK_S: Final = 1.0
"""How often what met a full disk is tried again."""


def assigned(
    image: MetadataImage, broker_id: int, key: TopicPartition
) -> tuple[bytes, PartitionImage] | None:
    """Topic id and state of the partition, if the metadata gives the broker a replica of it."""
    topic = image.topic(key.topic)
    state = None if topic is None else image.partition(topic.topic_id, key.partition)
    if topic is None or state is None or broker_id not in state.replicas:
        return None
    return topic.topic_id, state


class TopicLogConfigs:
    """What configuration a topic's logs go by on one broker.

    A topic's own value goes first, then what was set for this broker while it runs, then for all brokers, then
    the broker's file.
    """

    def __init__(self, broker_id: int, file_defaults: LogConfig) -> None:
        """`file_defaults` are those of the broker's configuration file."""
        self._broker_id = broker_id
        self._file_defaults = file_defaults
        self._defaults = file_defaults

    def of_topic(self, image: MetadataImage, topic: str) -> LogConfig:
        """The configuration of each log of this topic."""
        return self._defaults.with_overrides(image.config(TOPIC_RESOURCE, topic))

    def update_defaults(self, changes: MetadataChanges, image: MetadataImage) -> bool:
        """Takes over changed configs of this broker; whether the defaults are others now."""
        if not any(resource_type == BROKER_RESOURCE for resource_type, _ in changes.changed_configs):
            return False
        before = self._defaults
        self._defaults = dynamic_log_defaults(self._file_defaults, image, self._broker_id)
        return self._defaults != before


class ReplicaLogs:
    """The logs of one broker's replicas. All methods run on its event loop."""

    def __init__(
        self,
        broker_id: int,
        logs: LogManager,
        default_config: LogConfig,
        metadata: MetadataCache,
        partitions: Mapping[TopicPartition, Partition],
        pending: PendingReplicas,
        reported: OfflineReplicas,
        halt: Halt,
        bring_in_line: Callable[[Iterable[TopicPartition]], None],
        on_durable_epoch: Callable[[Partition], None],
    ) -> None:
        """`partitions` are the replicas over these logs, which the replica manager adds and takes away.

        `bring_in_line` applies the metadata of the moment to the replicas of these partitions. `on_durable_epoch` is
        told of a leader that takes appends from now on.
        """
        self._broker_id = broker_id
        self._logs = logs
        self._configs = TopicLogConfigs(broker_id, default_config)
        self._metadata = metadata
        self._partitions = partitions
        self._pending = pending
        self._reported = reported
        self._halt = halt
        self._bring_in_line = bring_in_line
        self._on_durable_epoch = on_durable_epoch
        self._unusable: dict[TopicPartition, LogError] = {}
        self._wanted: dict[TopicPartition, None] = {}
        self._making: dict[TopicPartition, None] = {}
        self._to_reopen: dict[TopicPartition, None] = {}
        self._reopening: TopicPartition | None = None
        self._held: dict[TopicPartition, None] = {}
        """Logs that were opened again and lack records."""
        self._deleting: dict[TopicPartition, None] = {}
        self._epochs_due: dict[TopicPartition, None] = {}
        self._unnoted: dict[TopicPartition, None] = {}
        """Leaders that could not note their epoch, and try it again and again."""
        self._without_room: dict[TopicPartition, None] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._deletions: dict[asyncio.Task[None], None] = {}
        self._closing = False

    # -- what the replica manager asks for

    @property
    def unusable(self) -> Mapping[TopicPartition, LogError]:
        """Replicas that are assigned here and whose logs cannot be used, with the reason."""
        return self._unusable

    def is_pending(self, key: TopicPartition) -> bool:
        """Whether the log is being made, opened, held back or deleted; then it is brought in line with the metadata."""
        return (
            key in self._wanted
            or key in self._making
            or key in self._deleting
            or key in self._to_reopen
            or key == self._reopening
            or key in self._held
        )

    def open(self, key: TopicPartition, topic_id: bytes) -> PartitionLog | None:
        """A replica's log; None if the log has to be made first, or cannot be used."""
        config = self._configs.of_topic(self._metadata.image, key.topic)
        try:
            replica_log = self._logs.claim(key, topic_id, config)
        except LogError as error:
            self.cannot_use(key, topic_id, error)
            return None
        if replica_log is None:
            self._wanted[key] = None
            self._run("make-logs", self._make_all)
            self._pending.expect(key)
            return None
        self._unusable.pop(key, None)
        self._reported.clear((topic_id, key.partition))
        return replica_log

    def cannot_use(self, key: TopicPartition, topic_id: bytes, error: LogError) -> None:
        """A replica without a log, which leaves the other partitions alone. A full disk is tried again, and so
        is a log that could not be made: nothing on a disk is wrong, and the metadata may not change again."""
        known = self._unusable.get(key)
        is_unmade = key not in self._logs.logs and key not in self._logs.failed
        is_known = known is not None and (
            known.needs_room if error.needs_room else is_unmade and type(known) is type(error)
        )
        if not is_known and known is not error:  # said once while it is tried again and again
            log.error("a replica is offline", partition=str(key), reason=str(error))
        self._unusable[key] = error
        if error.needs_room or is_unmade:
            self._wait_for_room(key)
        # Also without room: another broker can lead meanwhile. `open` takes the mark away.
        self._reported.mark((topic_id, key.partition), kind_of(error))

    def forget_unusable(self, key: TopicPartition, topic_id: bytes) -> bool:
        """The replica is not assigned here any more. Whether it was without a usable log, which may be deleted."""
        self._reported.forget((topic_id, key.partition))
        return self._unusable.pop(key, None) is not None

    def delete(self, keys: Sequence[TopicPartition]) -> None:
        """Has logs deleted. One that is pending is judged when what it waits for is over."""
        keys = [key for key in keys if not self.is_pending(key)]
        if not keys:
            return
        self._deleting.update(dict.fromkeys(keys))
        task = start_vital_task(self._delete(keys), "delete-logs", self._halt)
        self._deletions[task] = None
        task.add_done_callback(self._deletions.pop)

    def delete_repairable(self, changes: MetadataChanges, image: MetadataImage) -> None:
        """Gives damaged replicas up that can be (`_is_repairable`).

        Reports those again that the metadata does not show offline.
        """
        if not self._reported.kinds:
            return
        keys = []
        for topic_id, number in changes.changed_partitions:
            replica = (topic_id, number)
            state = image.topics[topic_id].partitions[number]
            key = TopicPartition(image.topics[topic_id].name, number)
            if replica not in self._reported.kinds or self.is_pending(key):
                continue
            if self._broker_id not in state.offline_replicas:
                self._reported.report_again(replica)
            elif self._is_repairable(replica, state):
                log.warning("a damaged replica is made anew", partition=str(key), leader=state.leader)
                keys.append(key)
        self.delete(keys)

    def strays(self) -> list[TopicPartition]:
        """Of the logs on the disks, those of topics that were deleted, made anew, or moved elsewhere while this
        broker was away."""
        found = [key for key, stored in self._logs.logs.items() if not self._owns_log(key, stored.topic_id)]
        found += [
            key for key in self._logs.failed if not self._owns_log(key, self._logs.failed_topic_id(key))
        ]
        for key in found:
            log.info("a log is not assigned here any more", partition=str(key))
        return found

    def reconfigure(self, changes: MetadataChanges, image: MetadataImage) -> list[Partition]:
        """Gives logs their new configs: those of changed topics, or all if this broker's defaults changed.

        Returns their replicas: what they are to make of it comes when all have the new metadata.
        """
        reconfigured = []
        names: Iterable[str] = [name for kind, name in changes.changed_configs if kind == TOPIC_RESOURCE]
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

    def write_epochs(self, key: TopicPartition) -> None:
        """Has the epochs of a leader's log made durable, as it knows them when its turn comes.

        The leader is told (`Partition.on_epoch_start_durable`).
        """
        self._epochs_due[key] = None
        self._run("write-epochs", self._write_all_epochs)

    async def settled(self) -> None:
        """Waits until there is nothing to do, but for what waits for room."""
        while busy := self._under_way():
            await asyncio.wait(busy)

    async def close(self) -> None:
        """Begins nothing more, and waits for what is under way. What is left is done by the next start."""
        self._closing = True
        await end_task(self._tasks.get("wait-for-room"))
        await asyncio.gather(*self._under_way(), return_exceptions=True)

    def _under_way(self) -> list[asyncio.Task[None]]:
        tasks = [task for name, task in self._tasks.items() if name != "wait-for-room" and not task.done()]
        return [*tasks, *self._deletions]

    def _run(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Sees to it that the task runs: it ends by itself when nothing is left to do."""
        task = self._tasks.get(name)
        if task is None or task.done():
            self._tasks[name] = start_vital_task(work(), name, self._halt)

    # -- what the metadata says now

    def _assigned(self, key: TopicPartition) -> tuple[bytes, PartitionImage] | None:
        return assigned(self._metadata.image, self._broker_id, key)

    def _owns_log(self, key: TopicPartition, topic_id: bytes | None) -> bool:
        """Whether a log with this topic id is that of this broker's replica; one without an id may be."""
        found = self._assigned(key)
        return found is not None and topic_id in (None, found[0])

    def _owns_stored(self, key: TopicPartition) -> bool:
        """Whether the log on the disk, which may be unusable, is that of a replica that is wanted now."""
        stored = self._logs.get(key)
        return self._owns_log(key, self._logs.failed_topic_id(key) if stored is None else stored.topic_id)

    def _is_repairable(self, replica: PartitionId, state: PartitionImage) -> bool:
        """Whether a damaged replica can be given up, to be copied from another broker that leads: the controller
        knows that this one is offline, and counts it among neither ISR nor eligible leaders."""
        return (
            self._reported.kinds.get(replica) == DAMAGED
            and self._broker_id in state.offline_replicas
            and state.leader not in (NO_LEADER, self._broker_id)
            and self._broker_id not in (*state.isr, *state.elr)
        )

    # -- made

    async def _make_all(self) -> None:
        while not self._closing and (batches := next_round(self._take_wanted())):
            await at_once(self._make, batches)

    def _take_wanted(self) -> Iterator[NewLog]:
        """Takes out those that are to be made still."""
        while self._wanted:
            key = next(iter(self._wanted))
            del self._wanted[key]
            found = self._assigned(key)
            if found is None:
                self._pending.settle([key])
                continue
            topic_id, state = found
            leader_epoch = state.leader_epoch if state.leader == self._broker_id else None
            config = self._configs.of_topic(self._metadata.image, key.topic)
            self._making[key] = None
            yield NewLog(key, topic_id, config, leader_epoch)

    async def _make(self, batch: Sequence[NewLog]) -> None:
        failed = await self._logs.creator.create(batch)
        for new in batch:
            del self._making[new.partition]
        if not self._closing:
            self._on_made(batch, failed)

    def _on_made(self, made: Sequence[NewLog], failed: Mapping[TopicPartition, LogError]) -> None:
        ready, given_up = [], []
        for new in made:
            key, error = new.partition, failed.get(new.partition)
            is_wanted = self._owns_log(key, new.topic_id)
            if error is not None and is_wanted:
                self.cannot_use(key, new.topic_id, error)
            elif error is None and not is_wanted:
                given_up.append(key)
            else:
                ready.append(key)  # or another topic has the name now, and nothing is in its way
        self.delete(given_up)
        self._bring_in_line(ready)
        self._pending.settle(new.partition for new in made)

    # -- opened again

    def _reopen(self, keys: Sequence[TopicPartition]) -> None:
        """Has logs opened again that wait for room, one after the other; leaves alone what is pending."""
        self._to_reopen.update(dict.fromkeys(key for key in keys if not self.is_pending(key)))
        if self._to_reopen:
            self._run("reopen-logs", self._reopen_all)

    async def _reopen_all(self) -> None:
        while self._to_reopen and not self._closing:
            key = next(iter(self._to_reopen))
            del self._to_reopen[key]
            if not self._owns_stored(key):
                self.delete([key])  # nobody could, while it was pending
                continue
            error = self._logs.failed.get(key)
            if self._logs.reopener.may_reopen(key):  # its directory may have failed while others were opened
                self._reopening = key
                error = await self._logs.reopener.reopen(key)
                self._reopening = None
            if not self._closing:
                self._on_reopened(key, error)

    def _on_reopened(self, key: TopicPartition, error: LogError | None) -> None:
        """The log can be used again, or the error says why it cannot."""
        found = self._assigned(key)
        if found is None or not self._owns_stored(key):
            self.delete([key])
        elif error is None and key in self._logs.reopener.shortened:
            log.warning(
                "a log lacks records that it had: it waits until nobody counts on them", partition=str(key)
            )
            self._reported.mark((found[0], key.partition), DAMAGED)
            self._hold(key)
        elif error is None:
            self._bring_in_line([key])
        else:
            topic_id, state = found
            self.cannot_use(key, topic_id, error)
            if self._is_repairable((topic_id, key.partition), state):
                self.delete([key])  # the metadata may not change again

    def _hold(self, key: TopicPartition) -> None:
        """Leaves a log alone that was opened again and lacks records; looks at it again after a while."""
        self._held[key] = None
        self._wait_for_room(key)

    def _consider_held(self, key: TopicPartition) -> None:
        """Goes on with a log that lacks records, once the replica leads nothing and is no eligible leader: until the
        controller has said so, this broker may be the leader that would have to answer with them. The last one that
        is eligible waits for an operator's unclean election, or for a start, which leaves the ELR: it is not elected
        as if it had everything."""
        found = self._assigned(key)
        if found is not None and self._owns_stored(key) and key in self._logs.logs:
            replica, state = (found[0], key.partition), found[1]
            is_told = self._reported.is_told(replica)
            is_shown = self._broker_id in state.offline_replicas
            if not is_told or not is_shown or self._broker_id in state.elr:
                self._reported.mark(replica, DAMAGED)  # it may have been moved away and back meanwhile
                if is_told and not is_shown:
                    self._reported.report_again(replica)
                self._hold(key)
                return
            self._logs.reopener.forget_shortened(key)
        del self._held[key]
        self._on_reopened(key, self._logs.failed.get(key))

    # -- deleted

    async def _delete(self, keys: Sequence[TopicPartition]) -> None:
        try:
            await self._logs.delete(keys)
        except LogStorageError as error:
            log.error("deleting logs failed", partitions=[str(key) for key in keys], reason=str(error))
        for key in keys:
            self._deleting.pop(key, None)
        if not self._closing:
            self._on_deleted(keys)

    def _on_deleted(self, keys: Sequence[TopicPartition]) -> None:
        """The names of these are free again."""
        for key in keys:
            self._unnoted.pop(key, None)
            self._logs.reopener.forget_shortened(key)
        self._bring_in_line(keys)
        self._pending.settle(keys)

    # -- given a leader's epoch

    async def _write_all_epochs(self) -> None:
        while self._epochs_due and not self._closing:
            batch = list(islice(self._epochs_due, LOGS_PER_ROUND))
            for key in batch:
                del self._epochs_due[key]
            failed = await self._logs.epoch_writer.write(batch)
            if not self._closing:
                self._on_epochs_written(batch, failed)

    def _on_epochs_written(
        self, keys: Sequence[TopicPartition], failed: Mapping[TopicPartition, LogError]
    ) -> None:
        """What the logs knew of epochs when they were asked is durable, but for those that failed."""
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
                    self._wait_for_room(key)
            elif replica_log.epoch_file.is_durable:
                partition.on_epoch_start_durable(partition.leader_epoch)
                self._on_durable_epoch(partition)
            else:
                self.write_epochs(key)  # the log has another epoch by now, or wanted to write it itself
        self._pending.settle(keys)

    # -- tried again when there may be room

    def _wait_for_room(self, key: TopicPartition) -> None:
        self._without_room[key] = None
        self._run("wait-for-room", self._look_for_room)

    async def _look_for_room(self) -> None:
        while self._without_room:
            await asyncio.sleep(ROOM_CHECK_S)
            waiting, self._without_room = self._without_room, {}
            self._on_room(list(waiting))

    def _on_room(self, keys: Sequence[TopicPartition]) -> None:
        """These may find room on the disk now."""
        closed = [key for key in keys if self._logs.reopener.may_reopen(key)]
        self._reopen(closed)
        held = [key for key in keys if key in self._held]
        for key in held:
            self._consider_held(key)
        others = set(keys).difference(closed, held)
        self._bring_in_line(key for key in keys if key in others)
