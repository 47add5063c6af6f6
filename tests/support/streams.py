"""Streams of numbered records through real producers, and the audit of what became of them.

A stream runs in a thread of its own until it is told to finish, while the test hurts the cluster.
Every value is unique and names its partition and its place, so that the audit can judge by identity:
lost is what was acknowledged and is not where it was acknowledged; doubled is what is there twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from confluent_kafka import TopicPartition

from tests.support.node_processes import until
from tests.support.real_clients import QUIET, confluent_consumer, is_passing

PAUSE_S = 0.004
"""Between two rounds over the partitions, so that a stream lasts while nodes come and go."""
FINISH_S = 120.0
UNKNOWN = -1
"""An offset that a client cannot tell."""

Log = dict[int, list[tuple[int, bytes]]]
"""Partition → (offset, value) in order."""


class Stream(threading.Thread):
    """Sends `partition:number:producer:filling` to all partitions in turn; `acknowledged` is what was acknowledged.

    Streams into one topic have different numbers as `producer`. `pause_s` is between two rounds over the
    partitions, `filling_bytes` the largest filling of a value.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        settings: dict[str, Any] | None = None,
        *,
        producer: int = 0,
        pause_s: float = PAUSE_S,
        filling_bytes: int = 0,
    ) -> None:
        super().__init__(name=type(self).__name__, daemon=True)
        self.producer = producer
        self.pause_s = pause_s
        self._filling = b"x" * filling_bytes
        self.bootstrap = bootstrap
        self.topic = topic
        self.partitions = partitions
        self.settings = settings or {}
        self.sent = 0
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        self.failures: list[str] = []
        self._finish = threading.Event()

    def values(self) -> Iterator[tuple[int, bytes]]:
        """What to send next, until the stream is to end."""
        while not self._finish.is_set():
            number = self.sent // self.partitions
            for partition in range(self.partitions):
                self.sent += 1
                filling = self._filling[: self.sent % (len(self._filling) + 1)]
                yield partition, b"%d:%d:%d:%b" % (partition, number, self.producer, filling)

    def succeeded(self, value: bytes, partition: int, offset: int) -> None:
        self.acknowledged[value] = partition, offset

    def wait_for(self, count: int) -> None:
        """Returns when `count` more records were acknowledged than are now."""
        goal = len(self.acknowledged) + count
        until(
            lambda: len(self.acknowledged) >= goal or self.failures or not self.is_alive(),
            f"{self.name} has {goal} acknowledgements (it has {len(self.acknowledged)})",
        )
        assert self.is_alive(), f"{self.name} ended early: {self.failures[:3]}"
        assert not self.failures, self.failures[:3]

    def finish(self) -> None:
        """Sends no more and waits for the outcome of everything sent."""
        self._finish.set()
        self.join(FINISH_S)
        assert not self.is_alive(), f"{self.name} does not end"
        assert not self.failures, self.failures[:3]
        assert len(self.acknowledged) == self.sent, "every record has an outcome, and none failed"

    def run(self) -> None:
        try:
            self.produce()
        except Exception as error:  # noqa: BLE001 - whatever ends the client is the test's to see
            self.failures.append(f"{type(error).__name__}: {error}")

    def produce(self) -> None:
        raise NotImplementedError


class ConfluentStream(Stream):
    """Through librdkafka."""

    def produce(self) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 2, **QUIET, **self.settings})

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self.failures.append(error.str())
            else:
                offset = message.offset()
                self.succeeded(message.value(), message.partition(), UNKNOWN if offset is None else offset)

        for partition, value in self.values():
            producer.produce(self.topic, value=value, partition=partition, on_delivery=delivered)
            producer.poll(0)
            if partition == self.partitions - 1:
                producer.poll(self.pause_s)
        producer.flush(FINISH_S)


class KafkaPythonStream(Stream):
    """Through kafka-python."""

    def produce(self) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(bootstrap_servers=self.bootstrap.split(","), linger_ms=2, **self.settings)

        def send(partition: int, value: bytes) -> None:
            future = producer.send(self.topic, value=value, partition=partition)
            future.add_callback(lambda metadata: self.succeeded(value, metadata.partition, metadata.offset))
            future.add_errback(lambda error: self.failures.append(repr(error)))

        try:
            for partition, value in self.values():
                send(partition, value)
                if partition == self.partitions - 1:
                    time.sleep(self.pause_s)
            producer.flush(timeout=FINISH_S)
        finally:
            producer.close(timeout=5)


class AioKafkaStream(Stream):
    """Through aiokafka, on an event loop of its own."""

    def produce(self) -> None:
        asyncio.run(self._produce())

    async def _produce(self) -> None:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, linger_ms=2, **self.settings)
        await producer.start()

        def settled(value: bytes, future: asyncio.Future[Any]) -> None:
            if future.cancelled() or future.exception() is not None:
                self.failures.append(repr(future))
            else:
                self.succeeded(value, future.result().partition, future.result().offset)

        try:
            for partition, value in self.values():
                future = await producer.send(self.topic, value=value, partition=partition)
                future.add_done_callback(lambda done, value=value: settled(value, done))
                if partition == self.partitions - 1:
                    await asyncio.sleep(self.pause_s)
            await producer.flush()
        finally:
            await producer.stop()


IDEMPOTENT: dict[str, Callable[[str, str, int], Stream]] = {
    "confluent-kafka": lambda bootstrap, topic, partitions: ConfluentStream(
        bootstrap, topic, partitions, {"enable.idempotence": True, "acks": "all"}
    ),
    "kafka-python": lambda bootstrap, topic, partitions: KafkaPythonStream(
        bootstrap, topic, partitions, {"enable_idempotence": True, "acks": "all"}
    ),
    "aiokafka": lambda bootstrap, topic, partitions: AioKafkaStream(
        bootstrap, topic, partitions, {"enable_idempotence": True, "acks": "all"}
    ),
}
"""Streams of idempotent producers with acks=all, otherwise as the clients come."""


@contextlib.contextmanager
def streaming(stream: Stream) -> Iterator[Stream]:
    """Runs a stream; it is finished at the end of the block, and told to stop whatever happens in it."""
    stream.start()
    try:
        yield stream
    except BaseException:
        stream._finish.set()
        raise
    stream.finish()


def read_all(bootstrap: str, topic: str, partitions: int) -> Log:
    """Everything that a fresh consumer sees, from the beginning to the end."""
    consumer = confluent_consumer(bootstrap, **{"auto.offset.reset": "error"})
    log: Log = {partition: [] for partition in range(partitions)}
    try:
        ends = {}
        for partition in log:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), FINISH_S)
            assert low == 0
            ends[partition] = high
        consumer.assign([TopicPartition(topic, partition, 0) for partition in log])
        deadline_s = time.monotonic() + FINISH_S
        while any(len(log[partition]) < end for partition, end in ends.items()):
            assert time.monotonic() < deadline_s, f"cannot read to {ends}"
            for message in consumer.consume(5000, 0.5):
                if is_passing(message.error()):
                    continue
                assert message.error() is None, message.error()
                log[message.partition()].append((message.offset(), message.value()))
    finally:
        consumer.close()
    return log


def audit(stream: Stream, log: Log) -> None:
    """Nothing acknowledged is lost, nothing is there twice, and each partition is in order."""
    audit_all([stream], log)


def _told(lost: Sequence[bytes], stream: Stream, log: Log) -> str:
    """Where each of these was acknowledged, what is there, and where else it is, if anywhere."""
    told = []
    for value in lost:
        partition, offset = stream.acknowledged[value]
        there = dict(log[partition]).get(offset)
        elsewhere = [(at, number) for at in log for number, other in log[at] if other == value]
        told.append(
            f"{value[:20]!r} at {partition}/{offset}, where {(there or b'nothing')[:20]!r} is; it is at {elsewhere}"
        )
    return "; ".join(told)


def audit_all(streams: Sequence[Stream], log: Log) -> None:
    """As `audit`, for all the streams into one topic; the order is each producer's.

    librdkafka takes a batch whose answer it lost for acknowledged when a later one of the partition is, since
    the broker keeps the order; it knows no offset then (UNKNOWN), and the records have to be anywhere.
    """
    found = {partition: dict(records) for partition, records in log.items()}
    present = {partition: set(records.values()) for partition, records in found.items()}
    for stream in streams:
        assert stream.acknowledged, "a stream without an acknowledgement shows nothing"
        lost = [
            value
            for value, (partition, offset) in stream.acknowledged.items()
            if (found[partition].get(offset) != value if offset >= 0 else value not in present[partition])
        ]
        assert not lost, f"{len(lost)} acknowledged records lost: {_told(lost[:5], stream, log)}"
    for partition, records in log.items():
        assert [offset for offset, _ in records] == list(range(len(records))), "offsets have no holes"
        numbers: dict[int, list[int]] = {stream.producer: [] for stream in streams}
        for _, value in records:
            place, number, sender, _ = value.split(b":")
            assert int(place) == partition, f"{value!r} is in partition {partition}"
            numbers[int(sender)].append(int(number))
        for producer, its in numbers.items():
            assert len(its) == len(set(its)), f"partition {partition} has records of {producer} twice"
            assert its == sorted(its), f"partition {partition} has records of {producer} out of order"
