"""Consume, transform, produce exactly once: confluent-kafka's consumer and producer, in transactions of 100 ms.

Each record is taken into Python, changed, and sent on: what the client costs in Python is measured apart, by the same
loop without transactions and with a plain producer.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer

from bench.brokers import cluster
from bench.errors import BenchError
from bench.processes import children
from bench.rows import PARTITIONS, WORKERS

NODES = 3
TRANSACTION_S = 0.1
AT_ONCE = 5_000
PROCESS_S = 120.0
CALL_S = 30.0
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
PRODUCER = {"linger.ms": 5, "batch.size": 1_000_000, "queue.buffering.max.messages": 250_000, "log_level": 0}


class Processing(NamedTuple):
    records: int
    per_s: float
    """Exactly once."""
    plain_per_s: float
    """Without transactions, offsets committed by the consumer itself."""
    transactions: int


def processing(directory: Path, records: int) -> Processing:
    """Raises BenchError."""
    with (
        cluster(directory / "processing", NODES, SETTINGS) as brokers,
        brokers.topic(PARTITIONS, NODES, name="input") as source,
        brokers.topic(PARTITIONS, NODES, name="output") as target,
    ):
        fill = [["produce", brokers.bootstrap, source, PARTITIONS, records, "-1"]]
        with children(WORKERS, fill) as workers:
            workers[0].go()
            workers[0].result()
        plain_s, _ = _process(brokers.bootstrap, source, target, records, None)
        seconds, transactions = _process(brokers.bootstrap, source, target, records, "bench-processor")
    return Processing(records, records / seconds, records / plain_s, transactions)


def _process(
    bootstrap: str, source: str, target: str, records: int, transactional_id: str | None
) -> tuple[float, int]:
    """Seconds from the first record to the end, and how many transactions there were."""
    common = {"bootstrap.servers": bootstrap, "log_level": 0}
    consumer = Consumer(
        {
            **common,
            "group.id": transactional_id or "bench-plain",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": transactional_id is None,
            "isolation.level": "read_committed",
        }
    )
    ids = {} if transactional_id is None else {"transactional.id": transactional_id}
    producer = Producer({**common, **PRODUCER, **ids, "acks": "all"})
    if transactional_id is not None:
        producer.init_transactions(CALL_S)
    consumer.subscribe([source])
    try:
        first: list[Any] = []
        deadline_s = time.monotonic() + PROCESS_S
        while not first and time.monotonic() < deadline_s:
            first = consumer.consume(1, 0.1)
        began_s = time.monotonic()
        transactions = _loop(consumer, producer, target, records, first, transactional_id is not None)
        producer.flush(CALL_S)
        return time.monotonic() - began_s, transactions
    finally:
        consumer.close()


def _loop(
    consumer: Any, producer: Any, target: str, records: int, first: list[Any], is_exactly_once: bool
) -> int:
    """Returns the number of transactions."""
    deadline_s = time.monotonic() + PROCESS_S
    done, transactions, messages = 0, 0, first
    while done < records:
        if is_exactly_once:
            producer.begin_transaction()
        end_s = time.monotonic() + TRANSACTION_S
        while True:
            for message in messages:
                _send_on(producer, target, message)
            done += len(messages)
            messages = []
            producer.poll(0)
            if done >= records or time.monotonic() > end_s:
                break
            messages = consumer.consume(min(AT_ONCE, records - done), 0.05)
        if is_exactly_once:
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), CALL_S)
            producer.commit_transaction(CALL_S)
            transactions += 1
        if time.monotonic() > deadline_s:
            raise BenchError(f"only {done} of {records} records were processed in {PROCESS_S:g} s")
    return transactions


def _send_on(producer: Any, target: str, message: Any) -> None:
    if message.error() is not None:
        raise BenchError(str(message.error()))
    value = message.value().replace(b"x", b"y")
    while True:
        try:
            producer.produce(target, value, partition=message.partition())
        except BufferError:
            producer.poll(0.01)
        else:
            return
