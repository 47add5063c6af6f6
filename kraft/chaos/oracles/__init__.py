"""White-box oracles: they watch the logs, high watermarks, ISRs and metadata of all nodes of a run.

A run installs one `WhiteBox`, which wraps methods of product classes from outside and feeds pure models. So the
product carries neither hooks nor switches for its judges, and a renamed method fails the first run. The models:

- `shadow_log`, `committed`: the contents of each replica, and the committed records;
- `replication`, `replica_shadows`: the oracles of data; `compaction`: the limits of cleaners;
- `metadata`, `eligible_leaders`, `raft`: the oracles of the quorum;
- `durability`: the records and votes that must be on the platter; `platter`: how far a log is;
- `listed_offsets`: the log ends that clients are told; `retention`: the records that may be deleted;
- `isr_by_lag`: how long a follower counts as in sync; `excuse`: the losses that injected faults explain;
- `group_log`, `probes_groups`: the order of what coordinators of groups wrote, and what clients are told of it;
- `stable_offsets`, `probes_transactions`: open transactions, and what readers of committed records are told;
- `secured/`: what a broker served and refused, against its ACLs; who its clients are; what they took, against quotas;
- `convergence`: the state at the end.

All of it is incremental: it works when something changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from kraft.chaos import security
from kraft.chaos.cluster import SimulatedCluster
from kraft.chaos.history import TopicKey, Value
from kraft.chaos.oracles.convergence import Convergence
from kraft.chaos.oracles.durability import Durability
from kraft.chaos.oracles.events import COUNTERS
from kraft.chaos.oracles.isr_by_lag import IsrByLag
from kraft.chaos.oracles.listed_offsets import ListedOffsets
from kraft.chaos.oracles.metadata import CommittedMetadata
from kraft.chaos.oracles.node_disks import NodeDisks
from kraft.chaos.oracles.probes import LogProbes, PartitionProbes
from kraft.chaos.oracles.probes_cleaner import CleanerProbes
from kraft.chaos.oracles.probes_fetch import FetchProbes
from kraft.chaos.oracles.probes_groups import Coordinators
from kraft.chaos.oracles.probes_leader import LeaderProbes
from kraft.chaos.oracles.probes_quorum import QuorumProbes
from kraft.chaos.oracles.probes_retention import RetentionProbes
from kraft.chaos.oracles.probes_transactions import Transactions
from kraft.chaos.oracles.raft import Quorum
from kraft.chaos.oracles.replica_shadows import ReplicaShadows
from kraft.chaos.oracles.replication import Replication
from kraft.chaos.oracles.retention import RetentionJudge
from kraft.chaos.oracles.secured.permissions import Permissions
from kraft.chaos.oracles.secured.sessions import Sessions
from kraft.chaos.oracles.secured.taken import TakenByClients
from kraft.chaos.oracles.shadow_log import BIT_ROT, POWER_LOSS
from kraft.chaos.oracles.wrapping import Probes, Whose
from kraft.chaos.verdict import Verdicts
from kraft.config import load_config
from partitions.log.config import LogConfig
from partitions.topic_partition import TopicPartition
from quorum.metadata.image import MetadataImage

__all__ = ["COUNTERS", "WhiteBox"]

WIPE, DATA_WIPE = "wipe", "data wipe"


class WhiteBox:
    """The judges inside the nodes. One for each run, made before the cluster starts."""

    def __init__(self, cluster: SimulatedCluster, verdicts: Verdicts) -> None:
        self._cluster = cluster
        self._verdicts = verdicts
        self._disks = NodeDisks(cluster.hosts)
        verdicts.declare(COUNTERS)
        whose = Whose(cluster.simulation.scheduler, cluster.node_id_of)
        self.metadata = CommittedMetadata(verdicts, _topic_defaults(cluster))
        self.replication = Replication(
            verdicts,
            self.metadata,
            self._running_epoch,
            lambda node_id: cluster.hosts[node_id].storage.sync_failure is not None,
            self._disks.durable_end,
        )
        self.quorum = Quorum(verdicts, self.metadata)
        self.listed_offsets = ListedOffsets(verdicts, self.replication)
        self.groups = Coordinators(cluster, verdicts, whose, self.metadata, self.replication)
        self.transactions = Transactions(
            cluster, verdicts, whose, self.metadata, self.replication, self._disks
        )
        self._replicas = ReplicaShadows(verdicts, self.replication)
        self._durability = Durability(
            verdicts, lambda node_id: cluster.hosts[node_id].storage, cluster.controller_ids
        )
        self._quorum_probes = QuorumProbes(verdicts, whose, self.quorum, self.metadata, self._durability)
        self._leader_probes = LeaderProbes(
            verdicts, whose, IsrByLag(verdicts, self.metadata.name), _lag_max_ms(cluster)
        )
        is_secured = security.is_secured(cluster.properties)
        self._probes: tuple[Probes, ...] = (
            LogProbes(verdicts, whose, self._replicas, self._disks),
            PartitionProbes(verdicts, whose, self.replication),
            CleanerProbes(
                whose,
                self._replicas,
                self._disks,
                self.metadata.rules.delete_retention_ms,
            ),
            RetentionProbes(
                whose,
                RetentionJudge(verdicts, self.metadata.rules.retention, self.metadata.name),
                self._disks,
            ),
            FetchProbes(verdicts),
            self._leader_probes,
            self._quorum_probes,
            self.groups,
            self.transactions,
            Permissions(verdicts, whose, is_secured=is_secured),
            TakenByClients(verdicts, whose, is_secured=is_secured),
        )
        if is_secured:
            session_max_s = security.session_max_s(cluster.properties)
            self._probes += (Sessions(verdicts, whose, session_max_s=session_max_s),)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Puts the probes on the product's classes, for the length of the run."""
        with ExitStack() as stack:
            for probes in self._probes:
                stack.enter_context(probes.installed())
            yield

    # -- events from the run

    def storage_damaged(self, node_id: int, kind: str) -> None:
        """Called right after a fault destroyed durable or cached data of a node, or may have.

        `kind` is "power loss", "wipe", "data wipe", "bit rot", "voter rot" or "disk error"; the real loss is read from
        the disk.
        """
        self._replicas.damaged(
            node_id,
            kind,
            lambda directory: self._disks.segments_in(node_id, directory),
            is_running=self._cluster.hosts[node_id].alive,
        )
        if kind not in (POWER_LOSS, DATA_WIPE, BIT_ROT):
            self._durability.damaged(node_id)
        if kind == WIPE:
            self.quorum.forget(node_id)

    # -- questions

    @property
    def lapsed_tombstones(self) -> dict[TopicKey, dict[int, Value]]:
        """The tombstones that a cleaner was allowed to drop, by offset."""
        return {
            key: model.compaction.lapsed
            for key, model in self.replication.partitions.items()
            if model.compaction.lapsed
        }

    def finish(self, unclean_leaders: Mapping[tuple[str, int], int] | None = None) -> None:
        """The last judgement, after the faults are over and the cluster has come to rest.

        `unclean_leaders`: the leaders' reports of unclean elections, by partition and epoch; None: not collected.
        """
        if unclean_leaders is not None:
            self.replication.judge_reports(unclean_leaders)
        images: dict[str, MetadataImage] = {}
        for node_id in self._cluster.running:
            node = self._cluster.nodes.get(node_id)
            if node is not None and node.controller is not None:
                images[f"controller {node_id}"] = node.controller.image
            if node is not None and node.broker is not None:
                images[f"broker {node_id}"] = node.broker.loader.image
        Convergence(
            self._verdicts,
            self.metadata,
            self.replication,
            self._disks.segments_in,
            self._is_beyond_repair,
            self._high_watermark_of,
        ).judge(images)

    # -- looks into the world

    def _running_epoch(self, node_id: int) -> int | None:
        process = self._cluster.hosts[node_id].process
        if process is None:
            return None
        return self._quorum_probes.registration(node_id, process.incarnation.name)

    def _is_beyond_repair(self, key: TopicKey) -> bool:
        topic = self.metadata.image.topics.get(key[0])
        return topic is not None and self._cluster.is_beyond_repair(topic.name, key[1])

    def _high_watermark_of(self, node_id: int, key: TopicKey) -> int | None:
        """A broker's high watermark; None if it has no such replica that it can serve."""
        topic = self.metadata.image.topics.get(key[0])
        node = self._cluster.nodes.get(node_id)
        if topic is None or node is None or node.broker is None:
            return None
        high_watermarks = node.broker.replicas.high_watermarks()
        return high_watermarks.get(TopicPartition(topic.name, key[1]))


def _topic_defaults(cluster: SimulatedCluster) -> LogConfig:
    """The nodes' own configuration, for topics without a config."""
    return load_config(cluster.properties_of(next(iter(cluster.specs)))).log_defaults


def _lag_max_ms(cluster: SimulatedCluster) -> dict[int, int]:
    """By node: replica.lag.time.max.ms in its file, which does not change while the node runs."""
    files = {node_id: load_config(cluster.properties_of(node_id)) for node_id in cluster.specs}
    return {node_id: int(file.get("replica.lag.time.max.ms")) for node_id, file in files.items()}
