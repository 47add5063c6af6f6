"""Probes on logs and partitions, which tell the models every change of a replica.

The probes on `PartitionLog` follow a log's batches, those on `Partition` roles and high watermarks. The quorum's
journal is a log, too; it belongs to `probes_quorum`. Appends and raises of a high watermark are hot: a probe there
costs a few microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from kraft.chaos.history import TopicKey
from kraft.chaos.oracles import events
from kraft.chaos.oracles.partition_model import LeaderView
from kraft.chaos.oracles.replica_shadows import ReplicaShadows
from kraft.chaos.oracles.replication import Replication
from kraft.chaos.oracles.scan import batches_of_append, first_unsound
from kraft.chaos.oracles.wrapping import Method, Whose, wrapped
from kraft.chaos.verdict import Verdicts
from kraft.chaos.world.disk import SimulatedDisk
from partitions.leadership import Leadership
from partitions.log.errors import LogCorruptError
from partitions.log.log import PartitionLog
from partitions.log.node_logs.data_directory import DELETE_SUFFIX
from partitions.partition import Partition, Transition

CORRUPT_BATCH_SERVED = "corrupt-batch-served"
SegmentsIn = Callable[[int, str], Sequence[bytes]]
"""The bytes of the data files in a folder of a node's disk."""


class LogProbes:
    """Probes on every change of a partition's log."""

    def __init__(
        self, verdicts: Verdicts, whose: Whose, replicas: ReplicaShadows, segments_in: SegmentsIn
    ) -> None:
        self._verdicts = verdicts
        self._whose = whose
        self._replicas = replicas
        self._segments_in = segments_in
        self._retention = False

    def installed(self) -> AbstractContextManager[None]:
        """The probes, for as long as the context lasts."""
        return wrapped(
            {
                (PartitionLog, "open"): self._open,
                (PartitionLog, "newly_made"): self._open,
                (PartitionLog, "claim"): self._claim,
                (PartitionLog, "read"): self._read,
                (PartitionLog, "_write"): self._write,
                (PartitionLog, "_duplicate"): self._duplicate,
                (PartitionLog, "_roll"): self._roll,
                (SimulatedDisk, "rename"): self._rename,
                (PartitionLog, "_truncate"): self._truncate_to,
                (PartitionLog, "truncate_fully_and_start_at"): self._restart,
                (PartitionLog, "raise_log_start_offset"): self._raise_start,
                (PartitionLog, "expire_segments"): self._expire,
            }
        )

    def _open(self, original: Method) -> Method:
        def probe(cls: type, *arguments: Any, **options: Any) -> Any:
            try:
                log = original(cls, *arguments, **options)
            except LogCorruptError as error:
                self._verdicts.happened(events.DAMAGE_AT_START, f"node {self._whose.node()}: {error}")
                raise
            self._opened(log, options.get("recovery_point", 0))
            return log

        return probe

    def _claim(self, original: Method) -> Method:
        def probe(log: PartitionLog, topic_id: bytes) -> None:
            before = log.topic_id
            original(log, topic_id)
            if before is None:
                self._opened(log, log.recovery_point)
            elif log.topic_id != before:
                self._verdicts.violated(
                    "log-matching",
                    f"node {self._whose.node()} took the log of a topic that is gone for {log.topic_partition}",
                )

        return probe

    def _read(self, original: Method) -> Method:
        def probe(
            log: PartitionLog, offset: int, max_bytes: int, *, up_to_offset: int, min_one_batch: bool = True
        ) -> Any:
            try:
                return original(
                    log, offset, max_bytes, up_to_offset=up_to_offset, min_one_batch=min_one_batch
                )
            except LogCorruptError as error:
                self._verdicts.happened(events.DAMAGE_AT_READ, f"node {self._whose.node()}: {error}")
                raise

        return probe

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
            lambda: self._segments_in(node, log.directory),
            recovery_point,
        )

    def _write(self, original: Method) -> Method:
        appended, owner = self._replicas.appended, self._whose.owner

        def probe(log: PartitionLog, stamped: Any, size_bytes: int) -> None:
            original(log, stamped, size_bytes)
            topic_id, node = log.topic_id, owner()
            if topic_id is not None and node is not None:
                buffers, placed, _, _ = stamped
                batches = batches_of_append(buffers, placed)
                appended((topic_id, log.topic_partition.partition), node, batches, log.directory)

        return probe

    def _duplicate(self, original: Method) -> Method:
        def probe(log: PartitionLog, *arguments: Any) -> Any:
            self._verdicts.happened(events.DUPLICATE_BATCH, str(log.topic_partition))
            return original(log, *arguments)

        return probe

    def _roll(self, original: Method) -> Method:
        def probe(log: PartitionLog) -> Any:
            segment = original(log)
            if log.topic_id is not None:
                self._verdicts.happened(events.LOG_ROLL, f"{log.topic_partition} at {log.log_end_offset}")
            return segment

        return probe

    def _rename(self, original: Method) -> Method:
        """A log whose folder is renamed for deletion is gone; a closed log still exists."""

        def probe(disk: SimulatedDisk, source: str, target: str) -> None:
            original(disk, source, target)
            node = self._whose.owner()
            if target.endswith(DELETE_SUFFIX) and node is not None:
                self._verdicts.happened(events.LOG_DELETED, f"node {node} {source}")
                self._replicas.deleted(node, source)

        return probe

    def _truncate_to(self, original: Method) -> Method:
        return self._shortening(
            original,
            lambda key, node, offset, end, done: self._replicas.truncated(key, node, offset, end, done=done),
        )

    def _restart(self, original: Method) -> Method:
        return self._shortening(
            original,
            lambda key, node, offset, end, done: self._replicas.restarted(key, node, offset, done=done),
        )

    def _shortening(self, original: Method, tell: Callable[[TopicKey, int, int, int, bool], None]) -> Method:
        def probe(log: PartitionLog, offset: int) -> None:
            key, node = key_of(log), self._whose.node()
            try:
                original(log, offset)
            except BaseException:
                if key is not None and node is not None:
                    tell(key, node, offset, log.log_end_offset, False)
                raise
            if key is not None and node is not None:
                tell(key, node, offset, log.log_end_offset, True)

        return probe

    def _raise_start(self, original: Method) -> Method:
        def probe(log: PartitionLog, offset: int) -> Any:
            key, node, before = key_of(log), self._whose.node(), log.log_start_offset
            try:
                return original(log, offset)
            finally:
                start = log.log_start_offset
                if key is not None and node is not None and start > before:
                    self._replicas.start_raised(key, node, start, by_retention=self._retention)

        return probe

    def _expire(self, original: Method) -> Method:
        def probe(log: PartitionLog, now_ms: int, high_watermark: int) -> Any:
            self._retention = True
            try:
                return original(log, now_ms, high_watermark)
            finally:
                self._retention = False

        return probe


class PartitionProbes:
    """Probes on roles, epochs and high watermarks of replicas."""

    def __init__(self, verdicts: Verdicts, whose: Whose, replication: Replication) -> None:
        self._verdicts = verdicts
        self._whose = whose
        self._replication = replication
        self._settling = False

    def installed(self) -> AbstractContextManager[None]:
        """The probes, for as long as the context lasts."""
        return wrapped(
            {
                (Partition, "_raise_high_watermark"): self._raise,
                (Partition, "_settle"): self._settle,
                (Partition, "make_leader"): self._make_leader,
                (Partition, "make_follower"): self._make_follower,
                (Partition, "on_alter_partition_result"): self._forward_only,
                (Partition, "truncate_to"): self._truncated,
                (Partition, "append_as_follower"): self._fetched,
                (Partition, "read_for_consumer"): self._read,
            }
        )

    def _raise(self, original: Method) -> Method:
        raised, who, coverage = (
            self._replication.high_watermark_raised,
            self._whose.node,
            self._verdicts.coverage,
        )

        def probe(partition: Partition, offset: int) -> None:
            node = who()
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
                key = (partition.topic_id, partition.topic_partition.partition)
                raised(key, node, partition.high_watermark, offset, view)
            original(partition, offset)

        return probe

    def _settle(self, original: Method) -> Method:
        """Around the consequences of a new ISR: a new leader is judged before its high watermark moves."""

        def probe(partition: Partition, leading: Leadership, now_ms: int) -> None:
            self._note_leader(partition, leading)
            self._settling = True
            try:
                original(partition, leading, now_ms)
            finally:
                self._settling = False

        return probe

    def _note_leader(self, partition: Partition, leading: Leadership) -> None:
        node = self._whose.node()
        key = (partition.topic_id, partition.topic_partition.partition)
        model = None if node is None else self._replication.model(key)
        if node is not None and model is not None and model.leading.get(node) != leading.epoch:
            self._replication.became_leader(key, node, leading.epoch, partition.high_watermark)

    def _make_leader(self, original: Method) -> Method:
        forward = self._forward_only(original)

        def probe(partition: Partition, state: Any, now_ms: int) -> Any:
            transition = forward(partition, state, now_ms)
            if partition._leading is not None:
                self._note_leader(partition, partition._leading)
            return transition

        return probe

    def _make_follower(self, original: Method) -> Method:
        forward = self._forward_only(original)

        def probe(partition: Partition, state: Any, now_ms: int) -> Any:
            is_first = partition.leader_epoch < 0
            transition = forward(partition, state, now_ms)
            if is_first and transition is Transition.BECAME_FOLLOWER and partition.log_end_offset > 0:
                self._verdicts.happened(
                    events.FOLLOWER_RESTART, f"node {self._whose.node()} {partition.topic_partition}"
                )
            return transition

        return probe

    def _forward_only(self, original: Method) -> Method:
        """Around the application of a newer state: a replica's epochs never go back."""

        def probe(partition: Partition, *arguments: Any) -> Any:
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

        return probe

    def _truncated(self, original: Method) -> Method:
        def probe(partition: Partition, offset: int, *, leader_epoch: int) -> None:
            before = partition.high_watermark
            original(partition, offset, leader_epoch=leader_epoch)
            if partition.high_watermark < before:
                self._verdicts.happened(
                    events.HIGH_WATERMARK_CUT,
                    f"node {self._whose.node()} {partition.topic_partition} from {before}"
                    f" to {partition.high_watermark}",
                )

        return probe

    def _fetched(self, original: Method) -> Method:
        """Judges the bytes that arrive at a follower, which its leader served: the network changes none."""

        def probe(
            partition: Partition,
            records: Any,
            *,
            leader_epoch: int,
            leader_high_watermark: int,
            leader_log_start_offset: int,
        ) -> None:
            wrong = first_unsound(records)
            if wrong:
                self._verdicts.violated(
                    CORRUPT_BATCH_SERVED,
                    f"{partition.topic_partition}: leader {partition.leader_id} sent node {self._whose.node()} damaged"
                    f" bytes: {wrong}",
                )
            original(
                partition,
                records,
                leader_epoch=leader_epoch,
                leader_high_watermark=leader_high_watermark,
                leader_log_start_offset=leader_log_start_offset,
            )

        return probe

    def _read(self, original: Method) -> Method:
        saw, who = self._replication.consumer_saw, self._whose.node
        saw_at_follower = self._replication.consumer_saw_at_follower

        def probe(partition: Partition, fetch_offset: int, **options: Any) -> Any:
            answer = original(partition, fetch_offset, **options)
            node = who()
            if node is not None and answer.diverging_epoch is None:
                key = (partition.topic_id, partition.topic_partition.partition)
                if partition._leading is None:
                    self._verdicts.coverage[events.READ_AT_FOLLOWER] += 1
                    saw_at_follower(key, node, answer.high_watermark)
                else:
                    saw(key, node, partition.leader_epoch, answer.high_watermark)
            return answer

        return probe


def _view(leading: Leadership) -> LeaderView:
    isr = leading.isr
    return LeaderView(leading.epoch, isr.committed, isr.maximal, len(leading.replicas))


def key_of(log: PartitionLog) -> TopicKey | None:
    """The partition of a log; None for the quorum's journal and for an unclaimed log."""
    return None if log.topic_id is None else (log.topic_id, log.topic_partition.partition)
