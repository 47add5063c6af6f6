"""What is read and compared when a simulated run is over: the final reads, and the replicas' copies on their disks.

The disks are read with the oracles' own scanner, not with the product's code; the cluster is at rest by then.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraft.chaos.cluster import SimulatedCluster
from kraft.chaos.experiments.evidence import FinalRead, PartitionName, ReplicaComparison
from kraft.chaos.history import Operation, OperationKind
from kraft.chaos.oracles.node_disks import NodeDisks
from kraft.chaos.oracles.scan import sound_batches
from kraft.chaos.oracles.shadow_log import Batch
from kraft.chaos.run import Parts
from partitions.errors import PartitionError
from partitions.topic_partition import TopicPartition
from quorum.metadata.image import PartitionImage


def final_reads(parts: Parts) -> Iterator[FinalRead]:
    """What the fresh client of the final phase read of each partition."""
    polls: dict[PartitionName, list[Operation]] = {}
    for one in parts.history.operations:
        if one.kind is OperationKind.POLL and one.final and one.key is not None:
            polls.setdefault((one.topic, one.key[1]), []).append(one)
    for name, state in _partitions(parts):
        mine = polls.get(name, [])
        end = _log_end(parts.cluster, state.leader, name)
        if not mine:
            continue
        key = mine[0].key
        assert key is not None, "a poll has a partition"
        yield FinalRead(
            topic=name[0],
            partition=name[1],
            log_start=parts.history.log_starts.get(key, 0),
            log_end=-1 if end is None else end,
            read_to=max(one.next_offset for one in mine),
            began_at=min(one.position for one in mine),
            problem="every copy that may lead is damaged" if key in parts.history.unavailable else "",
        )


def comparisons(parts: Parts) -> Iterator[ReplicaComparison]:
    """The copies of each partition, batch by batch, up to the leader's high watermark."""
    disks = NodeDisks(parts.cluster.hosts)
    for name, state in _partitions(parts):
        replicas, end = tuple(state.replicas), _high_watermark(parts.cluster, state.leader, name)
        if end is None:
            yield ReplicaComparison(*name, replicas, (), -1, None, "it has no leader that runs")
            continue
        copies = {node: _copy(parts.cluster, disks, node, name, end) for node in replicas}
        problems = {
            node: "has a flipped bit that nobody has read"
            if parts.cluster.is_damaged(node, *name)
            else f"does not have all of it up to {end}"
            for node, batches in copies.items()
            if parts.cluster.is_damaged(node, *name) or _end(batches) < end
        }
        sound = {node: batches for node, batches in copies.items() if node not in problems}
        start = max((batches[0].base for batches in sound.values() if batches), default=0)
        contents = {node: [one for one in batches if one.next > start] for node, batches in sound.items()}
        leader = contents.get(state.leader)
        differing = [node for node, batches in contents.items() if batches != leader]
        if differing and name[0] in parts.history.compacted and not _were_judged_to_differ(parts, name):
            differing = []  # cleaners of copies work at their own times
        problems.update(dict.fromkeys(differing, f"has other batches than leader {state.leader}"))
        yield ReplicaComparison(
            *name,
            replicas,
            tuple(sound),
            end,
            None if leader is None else not differing,
            "; ".join(f"node {node} {text}" for node, text in problems.items()),
        )


def _were_judged_to_differ(parts: Parts, name: PartitionName) -> bool:
    """Whether the oracles of replication, which know what was compacted, found that copies differ."""
    label = f"{name[0]}-{name[1]}"
    judged = ("log-matching", "no-committed-record-lost", "liveness")
    return any(one.oracle in judged and label in one.text for one in parts.verdicts.violations)


def _partitions(parts: Parts) -> Iterator[tuple[PartitionName, PartitionImage]]:
    image = parts.cluster.image()
    for topic in parts.topics:
        known = None if image is None else image.topic(topic)
        for number, state in enumerate(() if known is None else known.partitions):
            yield (topic, number), state


def _high_watermark(cluster: SimulatedCluster, node_id: int, name: PartitionName) -> int | None:
    """As the leader knows it."""
    node = cluster.nodes.get(node_id)
    if node is None or node.broker is None:
        return None
    return node.broker.replicas.high_watermarks().get(TopicPartition(*name))


def _log_end(cluster: SimulatedCluster, node_id: int, name: PartitionName) -> int | None:
    """Where the leader's log ends."""
    node = cluster.nodes.get(node_id)
    if node is None or node.broker is None:
        return None
    try:
        return node.broker.replicas.partition(TopicPartition(*name)).log_end_offset
    except PartitionError:
        return None


def _copy(
    cluster: SimulatedCluster, disks: NodeDisks, node: int, name: PartitionName, end: int
) -> list[Batch]:
    """The sound batches of a replica below an offset."""
    folders = [f"{directory}/{name[0]}-{name[1]}" for directory in cluster.log_dirs_of(node)]
    return [
        one for folder in folders for one in sound_batches(disks.segments_in(node, folder)) if one.base < end
    ]


def _end(batches: list[Batch]) -> int:
    return batches[-1].next if batches else 0
