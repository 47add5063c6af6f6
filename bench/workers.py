"""The load: producers and consumers on librdkafka, each a process of its own that prints one JSON line.

    python -m bench.workers produce BOOTSTRAP TOPIC PARTITIONS RECORDS ACKS [RECORD_BYTES [SETTING=VALUE …]]
    python -m bench.workers transact BOOTSTRAP TOPIC PARTITIONS RECORDS TRANSACTION_MS
    python -m bench.workers consume BOOTSTRAP TOPIC FIRST_PARTITION PARTITIONS RECORDS [SETTING=VALUE …]
    python -m bench.workers latency BOOTSTRAP TOPIC RECORDS
    python -m bench.workers paced BOOTSTRAP TOPIC PARTITIONS RECORDS_PER_S RECORDS

A worker prints `ready` when it has the topic's metadata and starts when it reads a line, so that several start
together and start-up is not measured. A worker that cannot reach its broker, or sees a record fail, ends with a
sentence and exit code 1. Its settings keep the client from being the limit; it can be given others, which are
librdkafka's own.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping, Sequence

from bench.librdkafka import BatchConsumer, BatchProducer, LibraryError, PacedProducer

RECORD_BYTES = 100
TIMEOUT_S = 90.0
"""Timeout of one worker's work."""
METADATA_TIMEOUT_S = 30.0
POSITION_WAIT_S = 1.0
"""Time for a consumer to find the end of its partition before the first record is sent."""
BATCH_RECORDS = 5_000
TURN_BYTES = BATCH_RECORDS * RECORD_BYTES
"""A partition's turn, before the next partition has its own."""
PRODUCER_SETTINGS = {
    "linger.ms": "50",  # batches fill long before; only the last ones wait
    "batch.size": "1000000",
    "batch.num.messages": "10000",
    "queue.buffering.max.messages": "250000",
    "queue.buffering.max.kbytes": "1048576",
    "max.in.flight.requests.per.connection": "16",
    "log_level": "0",
}
PACED_SETTINGS = {
    "acks": "-1",
    "linger.ms": "0.5",  # counts as latency; without it a millisecond's records leave in splinters, by chance
    "log_level": "0",
}
CONSUMER_SETTINGS = {
    "fetch.message.max.bytes": "1048576",
    "fetch.queue.backoff.ms": "0",
    "queued.min.messages": "1000000",
    "queued.max.messages.kbytes": "524288",
    "check.crcs": "false",
    "log_level": "0",
}


def _wait_for_start() -> None:
    print("ready", flush=True)
    if not sys.stdin.readline():
        sys.exit("the harness went away")


def _report(**values: float) -> None:
    print(json.dumps({**values, "client_cpu_s": time.process_time()}), flush=True)


def turn_records(record_bytes: int) -> int:
    """How many records of this size a partition gets at a time: half a megabyte of them, `BATCH_RECORDS` at most."""
    return max(1, min(BATCH_RECORDS, TURN_BYTES // record_bytes))


def produce(
    bootstrap: str,
    topic: str,
    partitions: int,
    records: int,
    acks: str,
    record_bytes: int = RECORD_BYTES,
    settings: Mapping[str, str] | None = None,
) -> None:
    """Sends `records` records as fast as they are taken, then waits for the last answer. `settings` go over
    `PRODUCER_SETTINGS`.
    """
    producer = BatchProducer(
        {**PRODUCER_SETTINGS, **(settings or {}), "bootstrap.servers": bootstrap, "acks": acks},
        topic,
        partitions=partitions,
        value=b"x" * record_bytes,
        batch_records=turn_records(record_bytes),
    )
    _wait_for_start()
    started = time.monotonic()
    producer.send(records, started + TIMEOUT_S)
    _report(records=records, elapsed_s=time.monotonic() - started)
    producer.close()


def transact(bootstrap: str, topic: str, partitions: int, records: int, transaction_ms: int) -> None:
    """Sends `records` records in transactions of so many milliseconds."""
    producer = BatchProducer(
        {
            **PRODUCER_SETTINGS,
            "bootstrap.servers": bootstrap,
            "max.in.flight.requests.per.connection": "5",
            "transactional.id": f"bench-{topic}",
        },
        topic,
        partitions=partitions,
        value=b"x" * RECORD_BYTES,
        batch_records=turn_records(RECORD_BYTES),
    )
    _wait_for_start()
    started = time.monotonic()
    transactions = producer.send_in_transactions(records, transaction_ms / 1000, started + TIMEOUT_S)
    _report(records=records, elapsed_s=time.monotonic() - started, transactions=transactions)
    producer.close()


def consume(
    bootstrap: str,
    topic: str,
    first: int,
    partitions: int,
    records: int,
    settings: Mapping[str, str] | None = None,
) -> None:
    """Reads `records` records from the start of some partitions. `settings` go over `CONSUMER_SETTINGS`."""
    consumer = BatchConsumer(
        {**CONSUMER_SETTINGS, **(settings or {}), "bootstrap.servers": bootstrap},
        topic,
        range(first, first + partitions),
    )
    _wait_for_start()
    started = time.monotonic()
    seen = consumer.receive(records, started + TIMEOUT_S)
    _report(records=seen, elapsed_s=time.monotonic() - started)
    consumer.close()


def latency(bootstrap: str, topic: str, records: int) -> None:
    """Sends one record with acks=all, waits until it is consumed, then sends the next, as in 2014."""
    from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

    common = {"bootstrap.servers": bootstrap, "log_level": 0}
    producer = Producer({**common, "acks": "all", "linger.ms": 0})
    producer.list_topics(topic, METADATA_TIMEOUT_S)
    consumer = Consumer({**common, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
    consumer.poll(POSITION_WAIT_S)
    latencies_ms: list[float] = []
    _wait_for_start()
    started = time.monotonic()
    while len(latencies_ms) < records:
        sent_s = time.monotonic()
        producer.produce(topic, b"x" * RECORD_BYTES, partition=0)
        message = consumer.poll(METADATA_TIMEOUT_S)
        latencies_ms.append((time.monotonic() - sent_s) * 1000)
        if message is None or message.error() is not None:
            raise LibraryError(
                f"record {len(latencies_ms)} did not come back within {METADATA_TIMEOUT_S:g} s"
            )
        producer.poll(0)
        if sent_s - started > TIMEOUT_S:
            raise LibraryError(f"only {len(latencies_ms)} of {records} records came back in {TIMEOUT_S:g} s")
    elapsed_s = time.monotonic() - started
    _report(
        records=records,
        elapsed_s=elapsed_s,
        p50_ms=quantile(latencies_ms, 0.5),
        p99_ms=quantile(latencies_ms, 0.99),
        p999_ms=quantile(latencies_ms, 0.999),
    )
    consumer.close()


def paced(bootstrap: str, topic: str, partitions: int, records_per_s: int, records: int) -> None:
    """Sends records with acks=all at an even rate; latencies are those of the acknowledgements."""
    producer = PacedProducer(
        {**PACED_SETTINGS, "bootstrap.servers": bootstrap},
        topic,
        partitions=partitions,
        value=b"x" * RECORD_BYTES,
    )
    _wait_for_start()
    started = time.monotonic()
    producer.send(records, records_per_s, started + TIMEOUT_S)
    elapsed_s = time.monotonic() - started
    latencies_ms = sorted(latency_us / 1000 for latency_us in producer.latencies_us)
    _report(
        records=records,
        elapsed_s=elapsed_s,
        p50_ms=quantile(latencies_ms, 0.5),
        p99_ms=quantile(latencies_ms, 0.99),
        p999_ms=quantile(latencies_ms, 0.999),
    )
    producer.close()


def quantile(values: list[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


def settings_of(words: Sequence[str]) -> dict[str, str]:
    """The settings in words of the form SETTING=VALUE. Raises LibraryError."""
    pairs = [word.partition("=") for word in words]
    for name, is_there, _ in pairs:
        if not name or not is_there:
            raise LibraryError(f"a setting is written SETTING=VALUE, but here is {name + is_there!r}")
    return {name: value for name, _, value in pairs}


def main(arguments: list[str]) -> None:
    match arguments:
        case ["produce", bootstrap, topic, partitions, records, acks]:
            produce(bootstrap, topic, int(partitions), int(records), acks)
        case ["produce", bootstrap, topic, partitions, records, acks, record_bytes, *settings]:
            given = settings_of(settings)
            produce(bootstrap, topic, int(partitions), int(records), acks, int(record_bytes), given)
        case ["transact", bootstrap, topic, partitions, records, transaction_ms]:
            transact(bootstrap, topic, int(partitions), int(records), int(transaction_ms))
        case ["consume", bootstrap, topic, first, partitions, records, *settings]:
            given = settings_of(settings)
            consume(bootstrap, topic, int(first), int(partitions), int(records), given)
        case ["latency", bootstrap, topic, records]:
            latency(bootstrap, topic, int(records))
        case ["paced", bootstrap, topic, partitions, records_per_s, records]:
            paced(bootstrap, topic, int(partitions), int(records_per_s), int(records))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    from confluent_kafka import KafkaException

    try:
        main(sys.argv[1:])
    except (LibraryError, KafkaException) as error:
        sys.exit(f"{sys.argv[1]} failed: {error}")
