"""The cost of idle partitions: CPU of each node's process, broker and controller together."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from bench.brokers import Cluster, cluster
from bench.machine import cpu_seconds, settle
from bench.replication.many import EveryPartition, create
from bench.replication.throughput import NODES

CREATE_TIMEOUT_S = 60.0
EMPTY_S = 5


class Idle(NamedTuple):
    """Shares of a core, in percent."""

    partitions: int
    percent: float
    """Of the busiest node."""
    percents: list[float]
    empty_percents: list[float]
    """Before there was any partition."""


def idle(directory: Path, partitions: int, seconds: int) -> Idle:
    """Makes the partitions, writes once to each, waits for quiet, and watches. Raises BenchError."""
    with cluster(directory / "idle", NODES) as brokers:
        settle(brokers.pids())
        empty = _percents(brokers, EMPTY_S)
        topics = create(brokers, partitions, NODES, CREATE_TIMEOUT_S)
        EveryPartition(brokers.bootstrap, topics, CREATE_TIMEOUT_S).write()
        settle(brokers.pids())
        percents = _percents(brokers, seconds)
    return Idle(partitions, max(percents), percents, empty)


def _percents(brokers: Cluster, seconds: int) -> list[float]:
    pids = brokers.pids()
    began_s, before = time.monotonic(), [cpu_seconds([pid]) for pid in pids]
    time.sleep(seconds)
    after, spent_s = [cpu_seconds([pid]) for pid in pids], time.monotonic() - began_s
    return [100 * (late - early) / spent_s for early, late in zip(before, after, strict=True)]
