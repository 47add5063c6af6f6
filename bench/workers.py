"""The load: producers and consumers on librdkafka, each a process of its own that prints one JSON line.

    python -m bench.workers produce BOOTSTRAP TOPIC RECORDS ACKS
    python -m bench.workers consume BOOTSTRAP TOPIC PARTITIONS RECORDS
    python -m bench.workers latency BOOTSTRAP TOPIC RECORDS RATE

A worker prints `ready` when it has connected and starts when it reads a line, so that several start
together and start-up is not measured.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

RECORD_BYTES = 100
BATCH_RECORDS = 1_000
TIMEOUT_S = 300.0
QUEUE_RECORDS = 500_000


def _wait_for_start() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def _report(**values: float) -> None:
    print(json.dumps({**values, "client_cpu_s": time.process_time()}), flush=True)


def produce(bootstrap: str, topic: str, records: int, acks: str) -> None:
    """Sends `records` records of 100 bytes as fast as they are taken, then waits for the last answer."""
    from confluent_kafka import Producer

    failures: list[str] = []

    def delivered(error: Any, _message: Any) -> None:
        failures.append(error.str())

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "batch.num.messages": 10_000,
            "queue.buffering.max.messages": QUEUE_RECORDS,
            "delivery.report.only.error": True,
            "on_delivery": delivered,
            "log_level": 3,
        }
    )
    producer.list_topics(topic, TIMEOUT_S)
    batch = [{"value": b"x" * RECORD_BYTES}] * BATCH_RECORDS
    _wait_for_start()
    started = time.monotonic()
    left = records
    while left > 0:
        wanted = batch if left >= BATCH_RECORDS else batch[:left]
        try:
            left -= producer.produce_batch(topic, wanted)
        except BufferError:
            producer.poll(0.005)
            continue
        if len(producer) >= QUEUE_RECORDS - 2 * BATCH_RECORDS:
            producer.poll(0.002)
        else:
            producer.poll(0)
    remaining = producer.flush(TIMEOUT_S)
    elapsed_s = time.monotonic() - started
    if remaining or failures:
        sys.exit(f"{remaining} records unanswered, {len(failures)} failed: {failures[:1]}")
    _report(records=records, elapsed_s=elapsed_s)


def consume(bootstrap: str, topic: str, partitions: int, records: int) -> None:
    """Reads `records` records from the start of all partitions."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 1 << 20,
            "queued.max.messages.kbytes": 65536,
            "check.crcs": False,
            "log_level": 3,
        }
    )
    consumer.list_topics(topic, TIMEOUT_S)
    _wait_for_start()
    started = time.monotonic()
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
    seen = 0
    while seen < records:
        messages = consumer.consume(10_000, 1.0)
        for message in messages[:1]:
            if message.error() is not None:
                sys.exit(message.error().str())
        seen += len(messages)
        if time.monotonic() - started > TIMEOUT_S:
            sys.exit(f"only {seen} of {records} records came in {TIMEOUT_S:g} s")
    _report(records=seen, elapsed_s=time.monotonic() - started)
    consumer.close()


def latency(bootstrap: str, topic: str, records: int, rate: float) -> None:
    """Sends at a fixed rate with acks=all and times each record from produce to consume, end to end."""
    from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 3})
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "fetch.wait.max.ms": 500, "log_level": 3}
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
    consumer.poll(1.0)
    latencies_ms: list[float] = []
    _wait_for_start()
    started = time.monotonic()
    sent = 0
    while len(latencies_ms) < records:
        now = time.monotonic()
        if sent < records and now >= started + sent / rate:
            producer.produce(topic, value=b"%020d" % time.monotonic_ns(), partition=0)
            sent += 1
        producer.poll(0)
        wait_s = max(0.0, min(0.01, started + sent / rate - time.monotonic())) if sent < records else 0.05
        message = consumer.poll(wait_s)
        if message is not None and message.error() is None:
            latencies_ms.append((time.monotonic_ns() - int(message.value())) / 1e6)
        if now - started > TIMEOUT_S:
            sys.exit(f"only {len(latencies_ms)} of {records} records came back")
    latencies_ms.sort()
    _report(
        records=records,
        elapsed_s=time.monotonic() - started,
        p50_ms=latencies_ms[len(latencies_ms) // 2],
        p99_ms=latencies_ms[int(len(latencies_ms) * 0.99)],
        p999_ms=latencies_ms[min(len(latencies_ms) - 1, int(len(latencies_ms) * 0.999))],
    )


def main(arguments: list[str]) -> None:
    match arguments:
        case ["produce", bootstrap, topic, records, acks]:
            produce(bootstrap, topic, int(records), acks)
        case ["consume", bootstrap, topic, partitions, records]:
            consume(bootstrap, topic, int(partitions), int(records))
        case ["latency", bootstrap, topic, records, rate]:
            latency(bootstrap, topic, int(records), float(rate))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
