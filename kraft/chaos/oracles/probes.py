"""Probes on logs and partitions, which tell the models every change of a replica.

The probes on `PartitionLog` follow a log's batches, those on `Partition` roles and high watermarks. The quorum's
journal is a log, too; it belongs to `probes_quorum`. Appends and raises of a high watermark are hot: a probe there
costs a few microseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraft.broker.handlers.produce import ACKS_LEADER, _Reply
from kraft.chaos.history import TopicKey
from kraft.chaos.oracles import events
from kraft.chaos.oracles.node_disks import NodeDisks
from kraft.chaos.oracles.partition_model import LeaderView
from kraft.chaos.oracles.replica_shadows import ReplicaShadows
from kraft.chaos.oracles.replication import Replication
from kraft.chaos.oracles.scan import batches_of_append, first_unsound
from kraft.chaos.oracles.wrapping import Method, Probes, Whose, around
from kraft.chaos.verdict import Verdicts
from kraft.chaos.world.disk import SimulatedDisk
from partitions.leadership import Leadership
from partitions.log.errors import LogCorruptError
from partitions.log.log import PartitionLog
from partitions.log.node_logs.data_directory import DELETE_SUFFIX
from partitions.partition import Partition, Transition
from partitions.topic_partition import TopicPartition

CORRUPT_BATCH_SERVED = "corrupt-batch-served"


class LogProbes(Probes):
    """Probes on every change of a partition's log."""

    def __init__(self, verdicts: Verdicts, whose: Whose, replicas: ReplicaShadows, disks: NodeDisks) -> None:
        self._verdicts = verdicts
        self._whose = whose
        self._replicas = replicas
        self._disks = disks
        self._retention = False

    @around(PartitionLog, "open")
    @around(PartitionLog, "newly_made")
    def _open(self, original: Method, cls: type, *arguments: Any, **options: Any) -> Any:
        try:
            log = original(cls, *arguments, **options)
        except LogCorruptError as error:
            self._verdicts.happened(events.DAMAGE_AT_START, f"node {self._whose.node()}: {error}")
            raise
        self._opened(log, options.get("recovery_point", 0))
        return log

    @around(PartitionLog, "claim")
    def _claim(self, original: Method, log: PartitionLog, topic_id: bytes) -> None:
        before = log.topic_id
        original(log, topic_id)
        if before is None:
            self._opened(log, log.recovery_point)
        elif log.topic_id != before:
            self._verdicts.violated(
                "log-matching",
                f"node {self._whose.node()} took the log of a topic that is gone for {log.topic_partition}",
            )

    @around(PartitionLog, "read")
    def _read(self, original: Method, log: PartitionLog, *arguments: int, **options: int) -> Any:
        try:
            return original(log, *arguments, **options)
        except LogCorruptError as error:
            self._verdicts.happened(events.DAMAGE_AT_READ, f"node {self._whose.node()}: {error}")
            raise

    def _opened(self, log: PartitionLog, recovery_point: int) -> None:
        key, node = key_of(log), self._whose.node()
        if key is None or node is None:
            return
        if log.recovery.reason is not None:
            self._verdicts.happened(
                events.LOG_RECOVERED, f"node {node} {log.topic_partition}: {log.recovery}"
            )
        self._replicas.opened(
            key,
            node,
            log.directory,
            log.log_start_offset,
            log.log_end_offset,
            lambda: self._disks.segments_in(node, log.directory),
            recovery_point,
        )

    @around(PartitionLog, "_write")
    def _write(self, original: Method, log: PartitionLog, stamped: Any, size_bytes: int) -> None:
        original(log, stamped, size_bytes)
        key, node = key_of(log), self._whose.owner()
        if key is not None and node is not None:
            buffers, placed, _, _ = stamped
            self._replicas.appended(key, node, batches_of_append(buffers, placed), log.directory)

    @around(PartitionLog, "_duplicate")
    def _duplicate(self, original: Method, log: PartitionLog, *arguments: Any) -> Any:
        self._verdicts.happened(events.DUPLICATE_BATCH, str(log.topic_partition))
        return original(log, *arguments)

    @around(PartitionLog, "_roll")
    def _roll(self, original: Method, log: PartitionLog) -> Any:
        segment = original(log)
        if log.topic_id is not None:
            self._verdicts.happened(events.LOG_ROLL, f"{log.topic_partition} at {log.log_end_offset}")
        return segment

    @around(SimulatedDisk, "rename")
    def _rename(self, original: Method, disk: SimulatedDisk, source: str, target: str) -> None:
        """A log whose folder is renamed for deletion is gone; a closed log still exists."""
        original(disk, source, target)
        node = self._whose.owner()
        if target.endswith(DELETE_SUFFIX) and node is not None:
            self._verdicts.happened(events.LOG_DELETED, f"node {node} {source}")
            self._replicas.deleted(node, source)

    @around(PartitionLog, "_truncate")
    def _truncate_to(self, original: Method, log: PartitionLog, offset: int) -> None:
        self._shorten(
            original,
            log,
            offset,
            lambda key, node, end, done: self._replicas.truncated(key, node, offset, end, done=done),
        )

    @around(PartitionLog, "truncate_fully_and_start_at")
    def _restart(self, original: Method, log: PartitionLog, offset: int) -> None:
        self._shorten(
            original,
            log,
            offset,
            lambda key, node, end, done: self._replicas.restarted(key, node, offset, done=done),
        )

    def _shorten(
        self,
        original: Method,
        log: PartitionLog,
        offset: int,
        tell: Callable[[TopicKey, int, int, bool], None],
    ) -> None:
        key, node = key_of(log), self._whose.node()
        is_done = False
        try:
            original(log, offset)
            is_done = True
        finally:
            if key is not None and node is not None:
                tell(key, node, log.log_end_offset, is_done)

    @around(PartitionLog, "raise_log_start_offset")
    def _raise_start(self, original: Method, log: PartitionLog, offset: int) -> Any:
        key, node, before = key_of(log), self._whose.node(), log.log_start_offset
        try:
            return original(log, offset)
        finally:
            start = log.log_start_offset
            if key is not None and node is not None and start > before:
                self._replicas.start_raised(key, node, start, by_retention=self._retention)

    @around(PartitionLog, "expire_segments")
    def _expire(self, original: Method, log: PartitionLog, now_ms: int, high_watermark: int) -> Any:
        self._retention = True
        try:
            return original(log, now_ms, high_watermark)
        finally:
            self._retention = False


class PartitionProbes(Probes):
    """Probes on roles, epochs and high watermarks of replicas."""

    def __init__(self, verdicts: Verdicts, whose: Whose, replication: Replication) -> None:
        self._verdicts = verdicts
        self._whose = whose
        self._replication = replication
        self._settling = False

    @around(Partition, "_raise_high_watermark")
    def _raise(self, original: Method, partition: Partition, offset: int) -> None:
        node, coverage = self._whose.node(), self._verdicts.coverage
        if node is not None:
            leading, view = partition._leading, None
            if leading is not None:
                view = _view(leading)
                if self._settling:
                    coverage[events.RAISED_BY_ISR] += 1
                elif len(view.maximal_isr) > 1:
                    coverage[events.RAISED_BY_FETCH] += 1
                else:
                    coverage[events.RAISED_ALONE] += 1
            key = partition_key(partition)
            self._replication.high_watermark_raised(key, node, partition.high_watermark, offset, view)
        original(partition, offset)

    @around(Partition, "_settle")
    def _settle(self, original: Method, partition: Partition, leading: Leadership, now_ms: int) -> None:
        """Around the consequences of a new ISR: a new leader is judged before its high watermark moves."""
        self._note_leader(partition, leading)
        self._settling = True
        try:
            original(partition, leading, now_ms)
        finally:
            self._settling = False

    def _note_leader(self, partition: Partition, leading: Leadership) -> None:
        node = self._whose.node()
        key = partition_key(partition)
        model = None if node is None else self._replication.model(key)
        if node is not None and model is not None and model.leading.get(node) != leading.epoch:
            self._replication.became_leader(key, node, leading.epoch, partition.high_watermark)

    @around(Partition, "make_leader")
    def _make_leader(self, original: Method, partition: Partition, state: Any, now_ms: int) -> Any:
        transition = self._forward_only(original, partition, state, now_ms)
        if partition._leading is not None:
            self._note_leader(partition, partition._leading)
        return transition

    @around(Partition, "make_follower")
    def _make_follower(self, original: Method, partition: Partition, state: Any, now_ms: int) -> Any:
        is_first = partition.leader_epoch < 0
        transition = self._forward_only(original, partition, state, now_ms)
        if is_first and transition is Transition.BECAME_FOLLOWER and partition.log_end_offset > 0:
            self._verdicts.happened(
                events.FOLLOWER_RESTART, f"node {self._whose.node()} {partition.topic_partition}"
            )
        return transition

    @around(Partition, "on_alter_partition_result")
    def _forward_only(self, original: Method, partition: Partition, *arguments: Any) -> Any:
        """Around the application of a newer state: a replica's epochs never go back."""
        before = (partition.leader_epoch, partition.partition_epoch)
        result = original(partition, *arguments)
        after = (partition.leader_epoch, partition.partition_epoch)
        if after[0] < before[0] or after[1] < before[1]:
            self._verdicts.violated(
                "epochs-grow",
                f"{partition.topic_partition} at node {self._whose.node()}: from {before[0]}.{before[1]}"
                f" to {after[0]}.{after[1]}",
            )
        return result

    @around(Partition, "truncate_to")
    def _truncated(self, original: Method, partition: Partition, offset: int, *, leader_epoch: int) -> None:
        before = partition.high_watermark
        original(partition, offset, leader_epoch=leader_epoch)
        if partition.high_watermark < before:
            self._verdicts.happened(
                events.HIGH_WATERMARK_CUT,
                f"node {self._whose.node()} {partition.topic_partition} from {before}"
                f" to {partition.high_watermark}",
            )

    @around(Partition, "append_as_follower")
    def _fetched(self, original: Method, partition: Partition, records: Any, **options: int) -> None:
        """Judges the bytes that arrive at a follower, which its leader served: the network changes none."""
        wrong = first_unsound(records)
        if wrong:
            self._verdicts.violated(
                CORRUPT_BATCH_SERVED,
                f"{partition.topic_partition}: leader {partition.leader_id} sent node {self._whose.node()} damaged"
                f" bytes: {wrong}",
            )
        original(partition, records, **options)

    @around(_Reply, "with_leader_hints")
    def _replied(self, original: Method, reply: _Reply) -> Any:
        response, node = original(reply), self._whose.node()
        if node is not None and reply.acks == ACKS_LEADER:
            for topic in response.responses:
                for answer in topic.partition_responses:
                    key = TopicPartition(topic.name, answer.index)
                    partition = reply.services.replicas._partitions.get(key)
                    if partition is not None and not answer.error_code:
                        self._replication.leader_acknowledged(
                            partition_key(partition), node, answer.base_offset
                        )
        return response

    @around(Partition, "read_for_consumer")
    def _read(self, original: Method, partition: Partition, fetch_offset: int, **options: Any) -> Any:
        answer = original(partition, fetch_offset, **options)
        node, key = self._whose.node(), partition_key(partition)
        if node is not None and answer.diverging_epoch is None:
            if partition._leading is None:
                self._verdicts.coverage[events.READ_AT_FOLLOWER] += 1
                self._replication.consumer_saw_at_follower(key, node, answer.high_watermark)
            else:
                self._replication.consumer_saw(key, node, partition.leader_epoch, answer.high_watermark)
        return answer


def _view(leading: Leadership) -> LeaderView:
    isr = leading.isr
    return LeaderView(leading.epoch, isr.committed, isr.maximal, len(leading.replicas))


def key_of(log: PartitionLog) -> TopicKey | None:
    """The partition of a log; None for the quorum's journal and for an unclaimed log."""
    return None if log.topic_id is None else (log.topic_id, log.topic_partition.partition)


def partition_key(partition: Partition) -> TopicKey:
    """The partition's topic id and number."""
    return partition.topic_id, partition.topic_partition.partition
