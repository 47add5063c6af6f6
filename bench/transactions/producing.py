"""A librdkafka producer in transactions of 100 ms, next to the idempotent one, in turn."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import NamedTuple

from bench.brokers import Cluster, cluster
from bench.processes import children
from bench.rows import PARTITIONS, WORKERS

NODES = 3
TRANSACTION_MS = 100
IDEMPOTENT = ("enable.idempotence=true", "max.in.flight.requests.per.connection=5")
RECORD_BYTES = 100


class Producing(NamedTuple):
    """Records per second, of each run."""

    records: int
    idempotent: list[float]
    transactional: list[float]
    transactions: list[int]

    @property
    def ratio(self) -> float:
        return statistics.median(self.transactional) / statistics.median(self.idempotent)


def producing(directory: Path, records: int, repeats: int) -> Producing:
    """Three replicas, acks=all. Raises BenchError."""
    idempotent, transactional, transactions = [], [], []
    with cluster(directory / "producing", NODES) as brokers:
        for number in range(repeats + 1):  # the first pair warms up
            plain = ["-1", RECORD_BYTES, *IDEMPOTENT]
            rate, _ = _run(brokers, f"idempotent-{number}", "produce", records, plain)
            idempotent.append(rate)
            rate, count = _run(brokers, f"transactional-{number}", "transact", records, [TRANSACTION_MS])
            transactional.append(rate)
            transactions.append(count)
    return Producing(records, idempotent[1:], transactional[1:], transactions[1:])


def _run(
    brokers: Cluster, topic_name: str, mode: str, records: int, options: list[object]
) -> tuple[float, int]:
    """Records per second, and how many transactions there were."""
    with brokers.topic(PARTITIONS, NODES, name=topic_name) as topic:
        arguments = [[mode, brokers.bootstrap, topic, PARTITIONS, records, *options]]
        with children(WORKERS, arguments) as workers:
            workers[0].go()
            result = workers[0].result()
    return records / result["elapsed_s"], int(result.get("transactions", 0))
