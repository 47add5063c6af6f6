"""What the replicas of a partition have on disk, compared byte by byte below the high watermark."""

from __future__ import annotations

from pathlib import Path

from partitions.log.node_logs.data_directory import HIGH_WATERMARKS
from partitions.log.node_logs.offset_checkpoint import decode_offset_checkpoint
from partitions.records.batch import BatchHeader, iter_batches, verify_crc
from partitions.topic_partition import TopicPartition
from tests.support.node_processes import NodeProcesses, until

CHECKPOINT_S = 90.0
"""Checkpoints are written every 5 s."""


def data_directory(cluster: NodeProcesses, node_id: int) -> Path:
    return cluster.local.node_dir(node_id) / "data"


def high_watermark(cluster: NodeProcesses, node_id: int, partition: TopicPartition) -> int:
    """As the node's checkpoint has it; 0 where it has none."""
    path = data_directory(cluster, node_id) / HIGH_WATERMARKS
    content = path.read_bytes() if path.exists() else b""
    return decode_offset_checkpoint(content, str(path)).get(partition, 0) if content else 0


def await_high_watermarks(cluster: NodeProcesses, ends: dict[TopicPartition, int]) -> None:
    """Returns when every node has made these durable as high watermarks."""

    def all_there() -> bool:
        return all(
            high_watermark(cluster, node_id, partition) == end
            for node_id in cluster.node_ids
            for partition, end in ends.items()
        )

    until(all_there, f"the high watermarks are {ends} everywhere", CHECKPOINT_S)


def stored_bytes(cluster: NodeProcesses, node_id: int, partition: TopicPartition) -> bytes:
    """All segments of a replica, one after the other."""
    folder = data_directory(cluster, node_id) / f"{partition.topic}-{partition.partition}"
    return b"".join(file.read_bytes() for file in sorted(folder.glob("*.log")))


def assert_equal_replicas(cluster: NodeProcesses, partition: TopicPartition, end: int) -> list[BatchHeader]:
    """The batches below `end`, the high watermark, which every replica has, byte for byte. Returns them.

    Where segments begin is each replica's own affair.
    """
    first: tuple[int, bytes] | None = None
    headers: list[BatchHeader] = []
    for node_id in cluster.node_ids:
        data = stored_bytes(cluster, node_id, partition)
        headers, length = [], 0
        for position, header in iter_batches(data):
            if header.base_offset >= end:
                break
            verify_crc(data, position, header)
            headers.append(header)
            length = position + header.size_bytes
        assert headers, f"node {node_id} has nothing of {partition}"
        assert headers[-1].last_offset == end - 1, f"node {node_id} lacks the end of {partition}"
        if first is None:
            first = node_id, data[:length]
        else:
            assert data[:length] == first[1], f"{partition} differs between nodes {first[0]} and {node_id}"
    return headers
