"""The judge of the end, when faults are over and everything has come to rest.

Every replica of a partition holds the same batches, on its disk, too, and knows that all of them are committed.
Images at one offset are equal byte for byte. A partition that is beyond repair need not converge, and no client can
read it to its end: its rotten batches are excused, the rest is still on the disks. `WhiteBox.finish` calls it;
pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kraft.chaos.history import TopicKey
from kraft.chaos.oracles.metadata import CommittedMetadata
from kraft.chaos.oracles.partition_model import PartitionModel
from kraft.chaos.oracles.replica_shadows import logical_batches
from kraft.chaos.oracles.replication import Replication
from kraft.chaos.oracles.shadow_log import Batch, ShadowLog
from kraft.chaos.verdict import Verdicts
from quorum.metadata.image import MetadataImage, PartitionImage

SegmentsIn = Callable[[int, str], Sequence[bytes]]
HighWatermarkOf = Callable[[int, TopicKey], int | None]
"""A node's high watermark of a partition; None if it has none."""


class Convergence:
    """The judgement at the end of a run."""

    def __init__(
        self,
        verdicts: Verdicts,
        metadata: CommittedMetadata,
        replication: Replication,
        segments_in: SegmentsIn,
        is_beyond_repair: Callable[[TopicKey], bool] = lambda key: False,
        high_watermark_of: HighWatermarkOf = lambda node, key: None,
    ) -> None:
        """`is_beyond_repair`: whether every copy that counts is damaged, so that the partition has no leader."""
        self._verdicts = verdicts
        self._metadata = metadata
        self._replication = replication
        self._segments_in = segments_in
        self._is_beyond_repair = is_beyond_repair
        self._high_watermark_of = high_watermark_of

    def judge(self, images: Mapping[str, MetadataImage]) -> None:
        """`images`: every node's image, by a name for people."""
        for who, image in images.items():
            if image.offset < self._metadata.offset:
                self._verdicts.violated(
                    "liveness",
                    f"{who} has metadata up to {image.offset}, committed is {self._metadata.offset}",
                )
            self._metadata.compare_state(who, image.offset, image.encode())
        for key, model in self._replication.partitions.items():
            state = self._metadata.partition(key)
            if state is not None:
                self._judge_partition(key, model, state)

    def _judge_partition(self, key: TopicKey, model: PartitionModel, state: PartitionImage) -> None:
        name = self._replication.name(key)
        logs = {node: model.replicas.get(node) for node in state.replicas}
        leader = logs.get(state.leader)
        if leader is None and self._is_beyond_repair(key):
            for node, log in logs.items():
                if log is not None:
                    gone = self._gone_from_disk(node, model, log, log.start)
                    self._judge_gone(
                        name, node, model, [one for one in gone if model.committed.contains(one)]
                    )
            return
        if leader is None:
            self._verdicts.violated(
                "liveness", f"{name}: its leader is {state.leader}, which has no log of it"
            )
            return
        if model.committed.high_watermark != leader.end:
            self._verdicts.violated(
                "liveness",
                f"{name}: the leader's log ends at {leader.end}, committed is {model.committed.high_watermark}",
            )
        start = max(log.start for log in logs.values() if log is not None)
        for node, log in logs.items():
            if log is None or log.end != leader.end:
                end = "nowhere" if log is None else log.end
                self._verdicts.violated(
                    "liveness", f"{name}: node {node} ends at {end}, the leader at {leader.end}"
                )
            elif _differ(log, leader, start):
                self._verdicts.violated(
                    "log-matching", f"{name}: the logs of {node} and of leader {state.leader} differ"
                )
            else:
                self._judge_told(name, node, model, self._high_watermark_of(node, key))
            if log is not None:
                self._judge_gone(name, node, model, self._gone_from_disk(node, model, log, start))

    def _judge_told(self, name: str, node: int, model: PartitionModel, high_watermark: int | None) -> None:
        """Judges that the last high watermark has reached a replica, and so the readers of followers."""
        if high_watermark not in (None, model.committed.high_watermark):
            self._verdicts.violated(
                "liveness",
                f"{name}: node {node} knows it to be committed up to {high_watermark}; it is up to"
                f" {model.committed.high_watermark}",
            )

    def _gone_from_disk(self, node: int, model: PartitionModel, log: ShadowLog, start: int) -> list[Batch]:
        """The batches that a replica must hold, that no fault took, and that are not on its disk."""
        sound = set(logical_batches(model, log, self._segments_in(node, log.directory)))
        return [
            batch
            for batch in log.batches
            if batch not in sound and batch not in log.lost and batch.next > start
        ]

    def _judge_gone(self, name: str, node: int, model: PartitionModel, gone: Sequence[Batch]) -> None:
        if gone:
            oracle = (
                "no-committed-record-lost" if any(map(model.committed.contains, gone)) else "log-matching"
            )
            self._verdicts.violated(
                oracle,
                f"{name}: the disk of node {node} lacks {len(gone)} batches from offset {gone[0].base} on",
            )


def _differ(log: ShadowLog, leader: ShadowLog, start: int) -> bool:
    """Whether two logs hold different batches from `start` on. A log cannot show its rotten batches."""
    mine = [batch for batch in log.batches if batch.next > start]
    expected = [batch for batch in leader.batches if batch.next > start]
    if mine == expected:
        return False
    rotten = {batch for one in (log, leader) for batch in one.lost if one.is_rotten(batch)}
    return [one for one in mine if one not in rotten] != [one for one in expected if one not in rotten]
