"""Transactions, written into a partition by hand, as read_committed consumers of three libraries see them.

No client can send markers: batches and markers go through the leader's own append, as a coordinator's do,
and are replicated like any others.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest
from confluent_kafka import TopicPartition as ClientPartition

from partitions.errors import NotLeaderOrFollower
from partitions.topic_partition import TopicPartition
from tests.support.logs import batch_of
from tests.support.node_processes import until
from tests.support.real_clients import confluent_consumer, is_passing
from tests.support.threaded_cluster import ThreadedCluster
from tests.support.transactions import ABORT, COMMIT, marker_of, transactional

A, B, C = 100, 101, 102
ALL_ACKS = -1
ROUNDS = 30

Reader = Callable[[str, str, int, bool], list[bytes]]
"""(bootstrap, topic, count, read_committed) → so many values from the partition's start on."""


def with_confluent(bootstrap: str, topic: str, count: int, committed: bool) -> list[bytes]:
    level = "read_committed" if committed else "read_uncommitted"
    consumer = confluent_consumer(bootstrap, **{"isolation.level": level})
    found: list[bytes] = []
    try:
        consumer.assign([ClientPartition(topic, 0, 0)])
        while len(found) < count:
            for message in consumer.consume(1000, 0.5):
                if is_passing(message.error()):
                    continue
                assert message.error() is None, message.error()
                found.append(message.value())
    finally:
        consumer.close()
    return found


def with_kafka_python(bootstrap: str, topic: str, count: int, committed: bool) -> list[bytes]:
    from kafka import KafkaConsumer
    from kafka import TopicPartition as Partition

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        enable_auto_commit=False,
        group_id=None,
        isolation_level="read_committed" if committed else "read_uncommitted",
    )
    found: list[bytes] = []
    try:
        consumer.assign([Partition(topic, 0)])
        consumer.seek(Partition(topic, 0), 0)
        while len(found) < count:
            for records in consumer.poll(timeout_ms=500).values():
                found += [record.value for record in records]
    finally:
        consumer.close()
    return found


def with_aiokafka(bootstrap: str, topic: str, count: int, committed: bool) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer
    from aiokafka import TopicPartition as Partition

    async def run() -> list[bytes]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            enable_auto_commit=False,
            group_id=None,
            isolation_level="read_committed" if committed else "read_uncommitted",
        )
        found: list[bytes] = []
        await consumer.start()
        try:
            consumer.assign([Partition(topic, 0)])
            consumer.seek(Partition(topic, 0), 0)
            while len(found) < count:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    found += [record.value for record in records]
        finally:
            await consumer.stop()
        return found

    return asyncio.run(run())


READERS: Sequence[Reader] = (with_confluent, with_kafka_python, with_aiokafka)


class Writer:
    """A partition's leader, and the records that were written through it."""

    def __init__(self, running: ThreadedCluster, topic: str) -> None:
        self._running = running
        self._topic = topic
        self._sequences: dict[int, int] = {}
        self.everything: list[bytes] = []

    def _append(self, batch: bytes) -> None:
        """Tries again until the leader that the metadata names leads, as a coordinator does."""

        async def append() -> bool:
            broker = self._running.cluster.nodes[leader].broker
            assert broker is not None
            try:
                broker.replicas.partition(TopicPartition(self._topic, 0)).append_records(
                    batch, acks=ALL_ACKS, now_ms=broker.replicas.monotonic_ms(), origin="coordinator"
                )
            except NotLeaderOrFollower:
                return False
            return True

        leader = self._running.leader(self._topic)
        until(lambda: self._running.run(append()), f"node {leader} leads {self._topic}")

    def plain(self, value: bytes) -> None:
        self._append(batch_of(value))
        self.everything.append(value)

    def write(self, producer_id: int, *values: bytes) -> None:
        sequence = self._sequences.get(producer_id, 0)
        self._append(transactional(producer_id, *values, sequence=sequence))
        self._sequences[producer_id] = sequence + len(values)
        self.everything += values

    def end(self, producer_id: int, *, commits: bool) -> None:
        self._append(marker_of(producer_id, COMMIT if commits else ABORT))


def end_offset(running: ThreadedCluster, topic: str, level: str) -> int:
    consumer = confluent_consumer(running.bootstrap, **{"isolation.level": level})
    try:
        return int(consumer.get_watermark_offsets(ClientPartition(topic, 0), timeout=60)[1])
    finally:
        consumer.close()


def story(writer: Writer) -> list[bytes]:
    """Writes transactions that overlap, over several segments; returns what is committed of it."""
    writer.plain(b"first")
    writer.write(A, b"a0", b"a1")
    writer.write(B, b"b0")
    writer.end(A, commits=False)
    writer.write(B, b"b1")
    writer.plain(b"between")
    writer.end(B, commits=True)
    committed = [b"first", b"b0", b"b1", b"between"]
    writer.write(C, b"of all aborted transactions the longest")
    for number in range(ROUNDS):
        lost, kept = b"lost %d " % number + b"x" * 50, b"kept %d " % number + b"y" * 50
        writer.write(A, lost)
        writer.write(B, kept)
        writer.end(A, commits=False)
        writer.end(B, commits=True)
        committed.append(kept)
    writer.end(C, commits=False)
    writer.plain(b"last")
    return [*committed, b"last"]


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_aborted_records_are_not_delivered(read: Reader, shared_cluster: ThreadedCluster) -> None:
    running = shared_cluster
    topic = running.create_topic("transactions", segment_bytes="2000")
    writer = Writer(running, topic)
    committed = story(writer)
    assert read(running.bootstrap, topic, len(committed), True) == committed
    assert read(running.bootstrap, topic, len(writer.everything), False) == writer.everything


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_an_open_transaction_holds_readers_up_until_its_marker(
    read: Reader, shared_cluster: ThreadedCluster
) -> None:
    running = shared_cluster
    topic = running.create_topic("open")
    writer = Writer(running, topic)
    writer.plain(b"0")
    writer.write(A, b"1", b"2")
    writer.plain(b"3")
    until(lambda: end_offset(running, topic, "read_uncommitted") == 4, "all is replicated")
    assert end_offset(running, topic, "read_committed") == 1
    assert read(running.bootstrap, topic, 1, True) == [b"0"]
    assert read(running.bootstrap, topic, 4, False) == [b"0", b"1", b"2", b"3"]
    found: list[list[bytes]] = []
    waiting = threading.Thread(target=lambda: found.append(read(running.bootstrap, topic, 4, True)))
    waiting.start()
    writer.end(A, commits=True)
    waiting.join(90)
    assert found == [[b"0", b"1", b"2", b"3"]]
    until(lambda: end_offset(running, topic, "read_committed") == 5, "the marker is replicated")


def test_a_new_leader_and_a_restarted_one_know_the_same(own_cluster: ThreadedCluster) -> None:
    running = own_cluster
    topic = running.create_topic("moving", segment_bytes="2000", min_insync_replicas="2")
    writer = Writer(running, topic)
    committed = story(writer)
    writer.write(C, b"open when the leader goes")
    running.wait_in_sync(topic)
    first = running.leader(topic)
    running.kill(first)
    until(lambda: running.leader(topic) != first, "there is a new leader")
    until(lambda: end_offset(running, topic, "read_committed") > 0, "its high watermark is known")
    for read in READERS:
        assert read(running.bootstrap, topic, len(committed), True) == committed
    running.start(first)
    running.wait_in_sync(topic)
    second = running.leader(topic)
    writer.end(C, commits=False)
    writer.plain(b"the end")
    running.wait_in_sync(topic)
    running.stop(second)
    until(lambda: running.leader(topic) != second, "there is another leader")
    for read in READERS:
        assert read(running.bootstrap, topic, len(committed) + 1, True) == [*committed, b"the end"]
