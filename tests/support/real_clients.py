"""Real Kafka clients behind one face: confluent-kafka, kafka-python, aiokafka and kcat.

Each sends given values to given partitions and waits until all are acknowledged, and reads assigned
partitions from an offset on. Everything blocks; a client that gets no further raises `ClientFailed`.
No client is told more than its users tell it: addresses, acks, codec, idempotence.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # how kafka-python reads its own resources
    import kafka.codec

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DEADLINE_S = 90.0
QUIET = {"log_level": 0}
"""librdkafka reports errors to its caller; it need not print them too."""

Lines = Mapping[int, Sequence[bytes]]
"""Partition → values in order."""


Values = dict[int, list[bytes]]
"""What was read, likewise."""

Counts = Mapping[int, int]
"""Partition → how many, or where."""

START: Counts = {}


class How(NamedTuple):
    """The settings of a producer."""

    codec: str = "none"
    acks: str = "all"
    idempotent: bool = False


PLAIN = How()


class ClientFailed(AssertionError):
    """A client could not do what it was asked to; the message is its own."""


class Client(Protocol):
    """One client library."""

    name: str
    codecs: tuple[str, ...]

    def carries(self, value: bytes) -> bool:
        """Whether the client as a producer can send this value at all."""

    def produce(self, bootstrap: str, topic: str, lines: Lines, how: How = PLAIN) -> None:
        """Sends every value to its partition. Raises ClientFailed if one stays unacknowledged."""

    def consume(self, bootstrap: str, topic: str, counts: Counts, offsets: Counts = START) -> Values:
        """Reads `counts[p]` values of each partition from `offsets[p]` (default 0) on."""


def confluent_consumer(bootstrap: str, **settings: Any) -> Any:
    """A consumer for assigned partitions that never looks for a group."""
    from confluent_kafka import Consumer

    fixed = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, **QUIET}
    return Consumer({**fixed, **settings})


def is_passing(error: Any) -> bool:
    """Whether what a consumer of librdkafka returned instead of a record is about a connection, which it makes anew."""
    from confluent_kafka import KafkaError

    return error is not None and error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


class Confluent:
    """librdkafka of today."""

    name = "confluent-kafka"
    codecs = CODECS

    def carries(self, value: bytes) -> bool:
        return True

    def produce(self, bootstrap: str, topic: str, lines: Lines, how: How = PLAIN) -> None:
        from confluent_kafka import Producer

        failures: list[str] = []
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": how.codec,
                "acks": how.acks,
                "enable.idempotence": how.idempotent,
                "linger.ms": 2,
                **QUIET,
            }
        )
        for partition, values in lines.items():
            for value in values:
                producer.produce(
                    topic,
                    value=value,
                    partition=partition,
                    on_delivery=lambda error, _: failures.append(error.str()) if error else None,
                )
                producer.poll(0)
        left = producer.flush(DEADLINE_S)
        if left or failures:
            raise ClientFailed(f"{left} values without an answer; failed: {failures[:3]}")

    def consume(self, bootstrap: str, topic: str, counts: Counts, offsets: Counts = START) -> Values:
        from confluent_kafka import TopicPartition

        consumer = confluent_consumer(bootstrap)
        read = _Reading(counts)
        try:
            consumer.assign([TopicPartition(topic, p, offsets.get(p, 0)) for p in counts])
            while read.unfinished():
                for message in consumer.consume(1000, 0.5):
                    if is_passing(message.error()):
                        continue
                    if message.error() is not None:
                        raise ClientFailed(message.error().str())
                    read.add(message.partition(), message.value())
        finally:
            consumer.close()
        return read.values


class KafkaPython:
    """kafka-python; snappy and zstd where the libraries it wants for them are installed."""

    name = "kafka-python"
    codecs = tuple(codec for codec in CODECS if codec == "none" or getattr(kafka.codec, f"has_{codec}")())

    def carries(self, value: bytes) -> bool:
        return True

    def produce(self, bootstrap: str, topic: str, lines: Lines, how: How = PLAIN) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            compression_type=None if how.codec == "none" else how.codec,
            acks="all" if how.acks == "all" else int(how.acks),
            enable_idempotence=how.idempotent,
            linger_ms=2,
        )
        try:
            sent = [
                producer.send(topic, value=value, partition=partition)
                for partition, values in lines.items()
                for value in values
            ]
            producer.flush(timeout=DEADLINE_S)
            for future in sent:
                future.get(timeout=DEADLINE_S)
        finally:
            producer.close(timeout=5)

    def consume(self, bootstrap: str, topic: str, counts: Counts, offsets: Counts = START) -> Values:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap.split(","), enable_auto_commit=False, group_id=None
        )
        read = _Reading(counts)
        try:
            consumer.assign([TopicPartition(topic, p) for p in counts])
            for partition in counts:
                consumer.seek(TopicPartition(topic, partition), offsets.get(partition, 0))
            while read.unfinished():
                for records in consumer.poll(timeout_ms=500).values():
                    for record in records:
                        read.add(record.partition, record.value)
        finally:
            consumer.close()
        return read.values


class AioKafka:
    """aiokafka, on an event loop of its own for each call."""

    name = "aiokafka"
    codecs = CODECS

    def carries(self, value: bytes) -> bool:
        return True

    def produce(self, bootstrap: str, topic: str, lines: Lines, how: How = PLAIN) -> None:
        from aiokafka import AIOKafkaProducer

        async def run() -> None:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                compression_type=None if how.codec == "none" else how.codec,
                acks="all" if how.acks == "all" else int(how.acks),
                enable_idempotence=how.idempotent,
            )
            await producer.start()
            try:
                sent = [
                    await producer.send(topic, value=value, partition=partition)
                    for partition, values in lines.items()
                    for value in values
                ]
                async with asyncio.timeout(DEADLINE_S):
                    await producer.flush()
                    await asyncio.gather(*sent)
            finally:
                await producer.stop()

        asyncio.run(run())

    def consume(self, bootstrap: str, topic: str, counts: Counts, offsets: Counts = START) -> Values:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        async def run() -> Values:
            consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, group_id=None)
            read = _Reading(counts)
            await consumer.start()
            try:
                consumer.assign([TopicPartition(topic, p) for p in counts])
                for partition in counts:
                    consumer.seek(TopicPartition(topic, partition), offsets.get(partition, 0))
                while read.unfinished():
                    for records in (await consumer.getmany(timeout_ms=500)).values():
                        for record in records:
                            read.add(record.partition, record.value)
            finally:
                await consumer.stop()
            return read.values

        return asyncio.run(run())


class Kcat:
    """kcat: a producer of lines, one run for each partition, and a consumer of assigned partitions."""

    name = "kcat"
    codecs = CODECS

    def carries(self, value: bytes) -> bool:
        """kcat drops empty lines of its input (with and without -Z), and a \\n ends a line."""
        return bool(value) and b"\n" not in value

    def produce(self, bootstrap: str, topic: str, lines: Lines, how: How = PLAIN) -> None:
        for partition, values in lines.items():
            assert all(map(self.carries, values)), "kcat cannot send these"
            run_kcat(
                "-P", "-b", bootstrap, "-t", topic, "-p", str(partition),
                "-X", f"compression.codec={how.codec}",
                "-X", f"acks={how.acks}",
                "-X", f"enable.idempotence={'true' if how.idempotent else 'false'}",
                stdin=b"".join(value + b"\n" for value in values),
            )  # fmt: skip

    def consume(self, bootstrap: str, topic: str, counts: Counts, offsets: Counts = START) -> Values:
        values = {}
        for partition, count in counts.items():
            values[partition] = []
            if not count:
                continue
            # The length before each value lets it hold any byte.
            output = run_kcat(
                "-C", "-q", "-b", bootstrap, "-t", topic, "-p", str(partition),
                "-o", str(offsets.get(partition, "beginning")), "-c", str(count), "-f", "%S %s",
            )  # fmt: skip
            while output:
                length, _, output = output.partition(b" ")
                values[partition].append(output[: int(length)])
                output = output[int(length) :]
        return values


def run_kcat(*arguments: str, stdin: bytes = b"") -> bytes:
    """Runs kcat; returns its standard output. Raises ClientFailed with its standard error."""
    try:
        done = subprocess.run(
            ["kcat", *arguments], input=stdin, capture_output=True, timeout=DEADLINE_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ClientFailed(
            f"kcat {' '.join(arguments)}: no end after {DEADLINE_S} s: {error.stderr!r}"
        ) from error
    if done.returncode:
        raise ClientFailed(f"kcat {' '.join(arguments)}: {done.stderr.decode(errors='replace')}")
    return done.stdout


class _Reading:
    """Values by partition, until there are enough or it has taken too long."""

    def __init__(self, counts: Mapping[int, int]) -> None:
        self.values: dict[int, list[bytes]] = {partition: [] for partition in counts}
        self._left = dict(counts)
        self._deadline_s = time.monotonic() + DEADLINE_S

    def add(self, partition: int, value: Any) -> None:
        if self._left[partition] > 0:
            self._left[partition] -= 1
            self.values[partition].append(value)

    def unfinished(self) -> bool:
        if not any(self._left.values()):
            return False
        if time.monotonic() > self._deadline_s:
            raise ClientFailed(f"after {DEADLINE_S} s there are still values to come: {self._left}")
        return True


CLIENTS: tuple[Client, ...] = (Confluent(), KafkaPython(), AioKafka(), Kcat())
LIBRARIES: tuple[Client, ...] = CLIENTS[:3]
"""Those that tell of every record what became of it."""
