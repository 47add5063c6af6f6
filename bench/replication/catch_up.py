"""The speed at which a follower that was away copies the missed records, until it is in sync again.

One node of three is stopped, a producer writes to the other two, the node is started. The clock runs from the first
bytes that it appends to the moment when every partition's ISR has it again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from bench.brokers import Cluster, cluster
from bench.errors import BenchError
from bench.machine import cpu_seconds, settle
from bench.processes import children
from bench.replication.many import await_in_sync
from bench.replication.throughput import NODES
from bench.rows import PARTITIONS, STORED_RECORD_BYTES, WORKERS
from bench.workers import BATCH_RECORDS
from kraft.local_cluster.cluster import deadline

CHUNK_RECORDS = BATCH_RECORDS * PARTITIONS * 100
"""Three million at a time: a worker has to be done in time on a slow machine, too."""
FIRST_BYTES_TIMEOUT_S = 30.0
COPY_TIMEOUT_S = 120.0


class CatchUp(NamedTuple):
    """Bytes are those of the log files; CPU is in seconds per GB of them."""

    gb: float
    copy_s: float
    """Until the follower had as many bytes as the leaders."""
    in_sync_s: float
    mb_per_s: float
    follower_cpu_s_per_gb: float
    leaders_cpu_s_per_gb: float


def catch_up(directory: Path, gigabytes: float) -> CatchUp:
    """Writes so many GB (10^9 bytes) while node 3 is away. Raises BenchError."""
    with cluster(directory / "catch-up", NODES) as brokers, brokers.topic(PARTITIONS, NODES) as topic:
        away = brokers.node_ids[-1]
        others = [node_id for node_id in brokers.node_ids if node_id != away]
        brokers.local.stop_node(away)
        _produce(brokers, topic, round(gigabytes * 1e9 / STORED_RECORD_BYTES))
        settle(brokers.pids())
        wanted = _stored_bytes(brokers, others, topic)
        leaders = brokers.pids()
        process = brokers.local.spawn(away)
        _await_bytes(brokers, away, topic, 1, FIRST_BYTES_TIMEOUT_S)
        began_s = time.monotonic()
        before_s = cpu_seconds(leaders), cpu_seconds([process.pid])
        _await_bytes(brokers, away, topic, wanted, COPY_TIMEOUT_S)
        copy_s = time.monotonic() - began_s
        await_in_sync(brokers, {topic: PARTITIONS}, COPY_TIMEOUT_S)
        in_sync_s = time.monotonic() - began_s
        after_s = cpu_seconds(leaders), cpu_seconds([process.pid])
    return CatchUp(
        gb=wanted / 1e9,
        copy_s=copy_s,
        in_sync_s=in_sync_s,
        mb_per_s=wanted / 1e6 / in_sync_s,
        follower_cpu_s_per_gb=(after_s[1] - before_s[1]) / (wanted / 1e9),
        leaders_cpu_s_per_gb=(after_s[0] - before_s[0]) / (wanted / 1e9),
    )


def _produce(brokers: Cluster, topic: str, records: int) -> None:
    left = records
    while left > 0:
        load = ["produce", brokers.bootstrap, topic, PARTITIONS, min(left, CHUNK_RECORDS), "1"]
        with children(WORKERS, [load]) as (worker,):
            worker.go()
            left -= int(worker.result()["records"])


def _stored_bytes(brokers: Cluster, nodes: Iterable[int], topic: str) -> int:
    """In the segments of the topic's partitions, of each partition where it has most of them: at its leader, whose
    acknowledgements (acks=1) do not wait for the other replicas."""
    partitions: dict[str, int] = {}
    for node_id in nodes:
        for folder in (brokers.local.node_dir(node_id) / "data").glob(f"{topic}-*"):
            here = sum(path.stat().st_size for path in folder.glob("*.log"))
            partitions[folder.name] = max(here, partitions.get(folder.name, 0))
    return sum(partitions.values())


def _await_bytes(brokers: Cluster, node_id: int, topic: str, wanted: int, timeout_s: float) -> None:
    for _ in deadline(timeout_s):
        if _stored_bytes(brokers, [node_id], topic) >= wanted:
            return
    raise BenchError(
        f"node {node_id} had not copied {wanted / 1e9:g} GB in {timeout_s:g} s:\n{brokers.local.log_tail(node_id)}"
    )
