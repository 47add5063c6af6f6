"""How soon a commit over ten partitions of three brokers is read: from the call until a read_committed consumer has it.

The last stable offset has passed at all ten partitions by then.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

from bench.brokers import cluster
from bench.errors import BenchError
from bench.workers import RECORD_BYTES, quantile

NODES = 3
PARTITIONS = 10
WARM_UP = 50
CALL_S = 30.0
POSITION_WAIT_S = 1.0


class Latency(NamedTuple):
    commits: int
    p50_ms: float
    p99_ms: float
    call_p50_ms: float
    """Of the producer's call alone, which returns when the outcome is decided."""


def latency(directory: Path, commits: int) -> Latency:
    """Raises BenchError."""
    with (
        cluster(directory / "latency", NODES) as brokers,
        brokers.topic(PARTITIONS, NODES) as topic,
    ):
        return _measure(brokers.bootstrap, topic, commits)


def _measure(bootstrap: str, topic: str, commits: int) -> Latency:
    common = {"bootstrap.servers": bootstrap, "log_level": 0}
    producer = Producer({**common, "transactional.id": "bench-latency", "linger.ms": 0})
    consumer = Consumer(
        {**common, "group.id": "none", "enable.auto.commit": False, "isolation.level": "read_committed"}
    )
    try:
        producer.init_transactions(CALL_S)
        consumer.assign([TopicPartition(topic, number, OFFSET_END) for number in range(PARTITIONS)])
        consumer.poll(POSITION_WAIT_S)
        seen_ms, called_ms = [], []
        for _ in range(WARM_UP + commits):
            producer.begin_transaction()
            for number in range(PARTITIONS):
                producer.produce(topic, b"x" * RECORD_BYTES, partition=number)
            producer.flush(CALL_S)
            began_s = time.monotonic()
            producer.commit_transaction(CALL_S)
            called_ms.append((time.monotonic() - began_s) * 1000)
            _await_all(consumer)
            seen_ms.append((time.monotonic() - began_s) * 1000)
    finally:
        consumer.close()
    seen_ms, called_ms = seen_ms[WARM_UP:], called_ms[WARM_UP:]
    return Latency(commits, quantile(seen_ms, 0.5), quantile(seen_ms, 0.99), quantile(called_ms, 0.5))


def _await_all(consumer: Any) -> None:
    missing = set(range(PARTITIONS))
    deadline_s = time.monotonic() + CALL_S
    while missing:
        for message in consumer.consume(PARTITIONS, 0.05):
            if message.error() is None:
                missing.discard(message.partition())
        if time.monotonic() > deadline_s:
            raise BenchError(f"a commit was not read from {sorted(missing)} within {CALL_S:g} s")
