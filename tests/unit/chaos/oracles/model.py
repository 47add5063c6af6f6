"""A partition of three replicas, told event by event to the oracles' models; no cluster, no simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kraft.chaos.oracles.metadata import CommittedMetadata, Entry
from kraft.chaos.oracles.partition_model import LeaderView
from kraft.chaos.oracles.raft import Quorum
from kraft.chaos.oracles.replica_shadows import ReplicaShadows
from kraft.chaos.oracles.replication import Replication
from kraft.chaos.oracles.shadow_log import Batch
from kraft.chaos.verdict import Verdicts
from kraft.chaos.world.simulation import Simulation
from partitions.log.config import LogConfig
from partitions.log.config_values import LONG_MAX
from partitions.records.builder import build_opaque_batch
from quorum.metadata.delta import changed_partition
from quorum.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from quorum.metadata.records import PartitionChange, Record

TOPIC_ID = bytes(range(16))
KEY = (TOPIC_ID, 0)
NODES = (1, 2, 3)


def broker(broker_id: int, *, fenced: bool = False, stopping: bool = False, epoch: int = 0) -> BrokerImage:
    return BrokerImage(broker_id, epoch or broker_id, bytes(16), (), None, (), fenced, stopping)


def batch_bytes(offset: int, *, epoch: int = 0, value: bytes = b"v") -> bytes:
    """A sound batch of one record."""
    return build_opaque_batch(value, offset=offset, leader_epoch=epoch, timestamp=0, is_control=False)


class Model:
    """Replicas 1 (leader of epoch 0), 2 and 3, all in the ISR, all empty."""

    def __init__(self, *, unclean: bool = False, min_isr: int = 2, flush_messages: int = LONG_MAX) -> None:
        self.verdicts = Verdicts(Simulation(1, trace=False).scheduler)
        self.metadata = CommittedMetadata(
            self.verdicts,
            LogConfig(
                unclean_leader_election_enable=unclean,
                min_insync_replicas=min_isr,
                flush_messages=flush_messages,
            ),
        )
        self.durable_ends = dict.fromkeys(NODES, LONG_MAX)
        """By node: up to where its log is on the platter."""
        self.features = {"eligible.leader.replicas.version": 1}
        self.running: dict[int, int] = {node: node for node in NODES}
        self.replication = Replication(
            self.verdicts,
            self.metadata,
            self.running.get,
            durable_end=lambda node, directory: self.durable_ends[node],
        )
        self.replicas = ReplicaShadows(self.verdicts, self.replication)
        self.quorum = Quorum(self.verdicts, self.metadata)
        self.disks: dict[int, list[bytes]] = {node: [] for node in NODES}
        self.min_isr = min_isr
        self.state = PartitionImage(NODES, NODES, 1, 0, 0)
        self.brokers = {node: broker(node) for node in NODES}
        self.offset = -1
        self.commit_metadata()
        for node in NODES:
            self.replicas.opened(KEY, node, f"/data/{node}", 0, 0, lambda: ())
        self.replication.became_leader(KEY, 1, 0, 0)

    @property
    def oracles(self) -> list[str]:
        """The names of the oracles that fired, sorted, each once."""
        return sorted({violation.oracle for violation in self.verdicts.violations})

    # -- metadata

    def image(self) -> MetadataImage:
        topic = TopicImage(TOPIC_ID, "orders", (self.state,))
        return MetadataImage(
            offset=self.offset,
            epoch=1,
            brokers=dict(self.brokers),
            topics={TOPIC_ID: topic},
            topic_ids={"orders": TOPIC_ID},
            features=self.features,
        )

    def commit_metadata(self, *records: Record) -> None:
        """The quorum commits an entry; by default one that touches the partition."""
        self.offset += 1
        entry = Entry(self.offset, 1, b"%d" % self.offset, records or (PartitionChange(TOPIC_ID, 0),))
        self.metadata.committed(1, [entry], self.image())

    def change(self, *records: Record, recovering: int | None = None, **fields: Any) -> None:
        """The quorum commits another state of the partition, after these records in the same entry.

        `fields` are those of a PartitionChange. If the ELR is not among them, it is what it has to be
        while nobody restarts.
        """
        isr = fields.get("isr", self.state.isr)
        if "elr" not in fields:
            left = {*self.state.isr, *self.state.elr}.difference(isr)
            fields["elr"] = tuple(sorted(left)) if len(isr) < self.min_isr and not recovering else ()
        change = PartitionChange(TOPIC_ID, 0, leader_recovery_state=recovering, **fields)
        self.state = changed_partition(self.state, change)
        self.commit_metadata(*records, change)

    def fence(self, *nodes: int) -> None:
        """As the next entry has it: these brokers do not serve for now."""
        for node in nodes:
            self.brokers[node] = replace(self.brokers[node], fenced=True)

    def unfence(self, node: int) -> None:
        """As the next entry has it: this one serves again."""
        self.brokers[node] = replace(self.brokers[node], fenced=False)

    # -- logs

    def append(self, offset: int, *nodes: int, epoch: int = 0, value: bytes = b"v") -> Batch:
        """A batch of one record at the end of some replicas' logs, and on their disks."""
        data = batch_bytes(offset, epoch=epoch, value=value)
        batch = Batch(offset, offset + 1, epoch, int.from_bytes(data[17:21], "big"))
        for node in nodes:
            self.disks[node].append(data)
            self.replicas.appended(KEY, node, [batch], f"/data/{node}")
        return batch

    def cut(self, node: int, offset: int) -> None:
        """A replica truncates its log (of batches of one record) to `offset`."""
        del self.disks[node][offset:]
        self.replicas.truncated(KEY, node, offset, offset, done=True)

    def lose(self, node: int, offset: int, kind: str = "power loss", *, is_running: bool = False) -> None:
        """An injected fault leaves a disk with what is below `offset`, and ends the process."""
        del self.disks[node][offset:]
        if not is_running:
            self.running.pop(node, None)
        self.replicas.damaged(
            node, kind, lambda directory: [b"".join(self.disks[node])], is_running=is_running
        )

    def rot(self, node: int, offset: int, byte: int = -1) -> None:
        """A bit of the batch (of one record) at `offset` flips on a disk."""
        data = bytearray(self.disks[node][offset])
        data[byte] ^= 1
        self.disks[node][offset] = bytes(data)
        is_running = node in self.running
        self.replicas.damaged(
            node, "bit rot", lambda directory: [b"".join(self.disks[node])], is_running=is_running
        )

    def restart(
        self, node: int, *, epoch: int | None = None, end: int | None = None, recovery_point: int = 0
    ) -> None:
        """A process starts over the disk as it is; with `epoch` it has registered anew. What lies below
        `recovery_point` was flushed."""
        end = len(self.disks[node]) if end is None else end
        data = [b"".join(self.disks[node][:end])]
        self.replicas.opened(KEY, node, f"/data/{node}", 0, end, lambda: data, recovery_point)
        if epoch is not None:
            self.running[node] = epoch
            self.brokers[node] = broker(node, epoch=epoch)

    # -- high watermarks

    def raise_leader(
        self,
        offset: int,
        *,
        node: int = 1,
        before: int = 0,
        isr: Sequence[int] = NODES,
        maximal: Sequence[int] | None = None,
        epoch: int = 0,
    ) -> None:
        view = LeaderView(epoch, tuple(isr), tuple(isr if maximal is None else maximal), len(NODES))
        self.replication.high_watermark_raised(KEY, node, before, offset, view)

    def raise_follower(self, node: int, offset: int, *, before: int = 0) -> None:
        self.replication.high_watermark_raised(KEY, node, before, offset, None)

    def committed(self, count: int) -> list[Batch]:
        """`count` records, on all replicas, committed."""
        batches = [self.append(offset, *NODES) for offset in range(count)]
        self.raise_leader(count)
        return batches
