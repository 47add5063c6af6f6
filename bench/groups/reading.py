"""The rate of a librdkafka consumer in a group, next to that of one that assigns its partitions, in turn."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from bench.brokers import cluster
from bench.errors import BenchError
from bench.processes import children
from bench.rows import PARTITIONS, WORKERS

NODES = 3
AT_ONCE = 10_000
READ_S = 90.0
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


class Reading(NamedTuple):
    """Records per second, of each run."""

    records: int
    assigned: list[float]
    grouped: list[float]

    @property
    def ratio(self) -> float:
        return statistics.median(self.grouped) / statistics.median(self.assigned)


def reading(directory: Path, records: int, repeats: int) -> Reading:
    """Raises BenchError."""
    with (
        cluster(directory / "reading", NODES, SETTINGS) as brokers,
        brokers.topic(PARTITIONS, NODES) as topic,
    ):
        with children(WORKERS, [["produce", brokers.bootstrap, topic, PARTITIONS, records, "-1"]]) as workers:
            workers[0].go()
            workers[0].result()
        assigned, grouped = [], []
        for number in range(repeats + 1):  # the first pair warms up
            assigned.append(_rate(brokers.bootstrap, topic, records, None))
            grouped.append(_rate(brokers.bootstrap, topic, records, f"reading-{number}"))
    return Reading(records, assigned[1:], grouped[1:])


def _rate(bootstrap: str, topic: str, records: int, group: str | None) -> float:
    """From the first record to the last one; a group's consumer commits by itself, as is the default."""
    settings = {"bootstrap.servers": bootstrap, "log_level": 0, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "group.id": group or "none", "enable.auto.commit": group is not None})
    try:
        if group is None:
            consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
        else:
            consumer.subscribe([topic])
        deadline_s = time.monotonic() + READ_S
        while not (seen := len(consumer.consume(1, 0.1))):
            _require_time(deadline_s, seen, records)
        began_s = time.monotonic()
        while seen < records:
            seen += sum(1 for message in consumer.consume(AT_ONCE, 0.1) if message.error() is None)
            _require_time(deadline_s, seen, records)
        return records / (time.monotonic() - began_s)
    finally:
        consumer.close()


def _require_time(deadline_s: float, seen: int, records: int) -> None:
    if time.monotonic() > deadline_s:
        raise BenchError(f"only {seen} of {records} records came within {READ_S:g} s")
