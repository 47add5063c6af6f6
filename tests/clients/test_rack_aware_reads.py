"""Consumers that name their rack, against brokers that are processes: who is read from, and what is read (KIP-392)."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from confluent_kafka import KafkaError, TopicPartition

from partitions.replica_selector import RACK_AWARE_SELECTOR
from tests.support.node_processes import PATIENCE, NodeProcesses, until
from tests.support.real_clients import confluent_consumer
from tests.support.streams import ConfluentStream, audit, read_all, streaming

RACKS = {1: "left", 2: "middle", 3: "right"}
PLACES = ("the leader's", "a follower's", "the other follower's", "nobody's", "none")
"""The rack of a reader."""
FILLING_BYTES = 2_000
PHASE = 100
"""Records that a reader gets before a fault, while it lasts, and when it is mended."""
ENOUGH_BYTES = 200_000
"""Of values; some hundred bytes of metadata and addresses come from each broker that is not read from."""
Record = tuple[int, bytes]
"""Offset and value."""


class RackedNodes(NodeProcesses):
    """Each node in a rack of its own."""

    def _prepare(self) -> None:
        for node_id in self.node_ids:
            with (self.local.node_dir(node_id) / "server.properties").open("a") as config:
                config.write(f"broker.rack={RACKS[node_id]}\n")

    def bytes_out(self) -> dict[int, int]:
        """Bytes of record batches that each node has sent to consumers since it was started; 0 of a dead one."""
        return {node_id: self._bytes_out(node_id) for node_id in self.node_ids}

    def _bytes_out(self, node_id: int) -> int:
        if self.local.pid(node_id) is None:
            return 0
        connection = http.client.HTTPConnection("127.0.0.1", self.local.node(node_id).http_port, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        found = re.search(r"^kafka_server_brokertopicmetrics_bytesout_total (\S+)$", text, re.MULTILINE)
        assert found is not None, text
        return int(float(found[1]))


class Reader(Protocol):
    """A consumer of partition 0 of a topic, from its beginning."""

    def poll(self) -> list[Record]: ...

    def close(self) -> None: ...


class ConfluentReader:
    """librdkafka, which tells in its statistics whom it reads from."""

    def __init__(self, bootstrap: str, topic: str, rack: str) -> None:
        self._topic = topic
        self._statistics: dict[str, Any] = {}
        self._consumer = confluent_consumer(
            bootstrap,
            **({"client.rack": rack} if rack else {}),
            **{"auto.offset.reset": "error", "statistics.interval.ms": 100, "stats_cb": self._on_statistics},
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def _on_statistics(self, text: str) -> None:
        self._statistics = json.loads(text)

    def poll(self) -> list[Record]:
        found = []
        for message in self._consumer.consume(1000, 0.2):
            error = message.error()
            if error is None:
                found.append((message.offset(), message.value()))
            else:
                assert error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN), error
        return found

    def source(self) -> int | None:
        """The broker that it fetches from now, as it says itself."""
        topic = self._statistics.get("topics", {}).get(self._topic)
        return None if topic is None else int(topic["partitions"]["0"]["broker"])

    def received(self) -> dict[int, int]:
        """Bytes that came from each broker."""
        return {
            broker["nodeid"]: broker["rxbytes"]
            for broker in self._statistics.get("brokers", {}).values()
            if broker["nodeid"] in RACKS
        }

    def close(self) -> None:
        self._consumer.close()


class AioKafkaReader:
    """aiokafka, on an event loop of its own that turns while it is polled."""

    def __init__(self, bootstrap: str, topic: str, rack: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._consumer: Any = self._loop.run_until_complete(self._started(bootstrap, topic, rack))

    async def _started(self, bootstrap: str, topic: str, rack: str) -> Any:
        from aiokafka import AIOKafkaConsumer
        from aiokafka import TopicPartition as Partition

        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            enable_auto_commit=False,
            group_id=None,
            auto_offset_reset="none",
            client_rack=rack or None,
        )
        await consumer.start()
        consumer.assign([Partition(topic, 0)])
        consumer.seek(Partition(topic, 0), 0)
        return consumer

    def poll(self) -> list[Record]:
        answer = self._loop.run_until_complete(self._consumer.getmany(timeout_ms=200))
        return [(record.offset, record.value) for records in answer.values() for record in records]

    def close(self) -> None:
        self._loop.run_until_complete(self._consumer.stop())
        self._loop.close()


class KafkaPythonReader:
    """kafka-python, with fetch sessions."""

    def __init__(self, bootstrap: str, topic: str, rack: str) -> None:
        from kafka import KafkaConsumer
        from kafka import TopicPartition as Partition

        self._partition = Partition(topic, 0)
        self._consumer: Any = KafkaConsumer(
            bootstrap_servers=bootstrap.split(","),
            enable_auto_commit=False,
            group_id=None,
            auto_offset_reset="none",
            client_rack=rack,
        )
        self._consumer.assign([self._partition])
        self._consumer.seek(self._partition, 0)

    def poll(self) -> list[Record]:
        records = self._consumer.poll(timeout_ms=200).get(self._partition, [])
        return [(record.offset, record.value) for record in records]

    def close(self) -> None:
        self._consumer.close()


READERS: dict[str, Callable[[str, str, str], Reader]] = {
    "confluent-kafka": ConfluentReader,
    "aiokafka": AioKafkaReader,
    "kafka-python": KafkaPythonReader,
}
LEAVE_THE_DEAD = ("confluent-kafka", "aiokafka")
"""Those that ask the leader again once the replica in their rack cannot be reached: kafka-python keeps to it until its
metadata is five minutes old."""


class Reading:
    """What a reader has got. Each record has the next offset: nothing is skipped, and nothing comes twice."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.records: list[Record] = []

    def poll(self) -> int:
        """Returns how many records there are now."""
        for record in self.reader.poll():
            assert record[0] == len(self.records), "a record was skipped, or came twice"
            self.records.append(record)
        return len(self.records)

    @property
    def size_bytes(self) -> int:
        """Of the values that it got."""
        return sum(len(value) for _, value in self.records)

    def wait_for(self, count: int) -> None:
        """Returns when there are `count` records more than there are now."""
        goal = len(self.records) + count
        until(lambda: self.poll() >= goal, f"{goal} records are read")


@contextlib.contextmanager
def reading(client: str, cluster: RackedNodes, topic: str, rack: str) -> Iterator[Reading]:
    reader = READERS[client](cluster.bootstrap, topic, rack)
    try:
        yield Reading(reader)
    finally:
        reader.close()


@pytest.fixture(scope="module")
def racked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RackedNodes]:
    folder: Path = tmp_path_factory.mktemp("racks")
    nodes = RackedNodes(folder, settings=PATIENCE | {"replica.selector.class": RACK_AWARE_SELECTOR})
    with contextlib.closing(nodes):
        yield nodes


@pytest.fixture
def fragile(racked: RackedNodes) -> Iterator[RackedNodes]:
    """The same nodes, for a test that ends some: made whole again afterwards."""
    yield racked
    racked.restore()


def in_sync_topic(cluster: RackedNodes) -> str:
    """Followers that are not in the ISR are not read from."""
    topic = cluster.create_topic("near", min_insync_replicas="2")
    until(lambda: len(cluster.partitions(topic)[0].isrs) == len(RACKS), "all replicas are in sync")
    return topic


def stream_to(cluster: RackedNodes, topic: str) -> ConfluentStream:
    settings = {"enable.idempotence": True, "acks": "all"}
    return ConfluentStream(cluster.bootstrap, topic, 1, settings, filling_bytes=FILLING_BYTES)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("client", READERS)
def test_everything_comes_from_the_replica_in_the_rack(racked: RackedNodes, client: str, place: str) -> None:
    """From the leader where there is none, and for a client that names no rack."""
    topic = in_sync_topic(racked)
    leader = racked.leader(topic)
    followers = [node_id for node_id in RACKS if node_id != leader]
    near, rack = {
        "the leader's": (leader, RACKS[leader]),
        "a follower's": (followers[0], RACKS[followers[0]]),
        "the other follower's": (followers[1], RACKS[followers[1]]),
        "nobody's": (leader, "elsewhere"),
        "none": (leader, ""),
    }[place]
    with streaming(stream_to(racked, topic)) as stream:
        stream.wait_for(PHASE)
    before = racked.bytes_out()
    with reading(client, racked, topic, rack) as read:
        read.wait_for(stream.sent)
        audit(stream, {0: read.records})
        sent = {node_id: size - before[node_id] for node_id, size in racked.bytes_out().items()}
        assert [node_id for node_id, size in sent.items() if size] == [near]
        assert sent[near] > read.size_bytes
        if isinstance(read.reader, ConfluentReader):
            assert until(read.reader.source, "it says whom it reads from") == near


def test_librdkafka_receives_from_the_replica_in_its_rack_alone(racked: RackedNodes) -> None:
    """As the client counts it: from the others come metadata, and from the leader where to read."""
    topic = in_sync_topic(racked)
    near = next(node_id for node_id in RACKS if node_id != racked.leader(topic))
    with reading("confluent-kafka", racked, topic, RACKS[near]) as read:
        with streaming(stream_to(racked, topic)) as stream:
            while read.size_bytes < ENOUGH_BYTES:
                read.wait_for(PHASE)
        read.wait_for(stream.sent - len(read.records))
        assert isinstance(read.reader, ConfluentReader)
        size_bytes = read.size_bytes
        received = until(lambda: of_all(read, size_bytes, near), "its statistics are of all that it read")
        assert sum(received.values()) - received[near] < size_bytes / 20
    audit(stream, {0: read.records})


def of_all(read: Reading, size_bytes: int, near: int) -> dict[int, int] | None:
    """The statistics once they count so many bytes from this broker; nothing more may come meanwhile."""
    count = len(read.records)
    assert read.poll() == count
    assert isinstance(read.reader, ConfluentReader)
    received = read.reader.received()
    return received if received.get(near, 0) > size_bytes else None


@pytest.mark.parametrize("client", LEAVE_THE_DEAD)
def test_a_reader_goes_on_when_its_replica_is_killed_and_comes_back_to_it(
    fragile: RackedNodes, client: str
) -> None:
    topic = in_sync_topic(fragile)
    leader = fragile.leader(topic)
    near, other = (node_id for node_id in RACKS if node_id != leader)

    def reads_nearby(read: Reading) -> bool:
        before = fragile.bytes_out()
        read.wait_for(PHASE)
        after = fragile.bytes_out()
        return [node_id for node_id in RACKS if after[node_id] > before[node_id]] == [near]

    with reading(client, fragile, topic, RACKS[near]) as read:
        with streaming(stream_to(fragile, topic)) as stream:
            read.wait_for(PHASE)
            until(lambda: reads_nearby(read), "the reader is sent to its rack")
            before = fragile.bytes_out()
            assert fragile.local.kill(near)

            def reads_from_the_leader() -> bool:
                """It may have fetched much before."""
                read.wait_for(PHASE)
                return fragile.bytes_out()[leader] > before[leader]

            until(reads_from_the_leader, "the reader goes on at the leader")
            assert fragile.bytes_out()[other] == before[other]
            fragile.restore()
            until(lambda: reads_nearby(read), "the reader is sent to its rack again")
        read.wait_for(stream.sent - len(read.records))
    audit(stream, {0: read.records})
    assert read_all(fragile.bootstrap, topic, 1) == {0: read.records}


@pytest.mark.parametrize("client", READERS)
def test_a_reader_in_the_rack_of_a_follower_goes_on_when_the_leader_is_killed(
    fragile: RackedNodes, client: str
) -> None:
    """Whoever leads next: what a follower has shown stays."""
    topic = in_sync_topic(fragile)
    leader = fragile.leader(topic)
    near = next(node_id for node_id in RACKS if node_id != leader)
    with reading(client, fragile, topic, RACKS[near]) as read:
        with streaming(stream_to(fragile, topic)) as stream:
            read.wait_for(PHASE)
            assert fragile.local.kill(leader)
            read.wait_for(PHASE)
            fragile.restore()
            read.wait_for(PHASE)
        read.wait_for(stream.sent - len(read.records))
    audit(stream, {0: read.records})
    assert read_all(fragile.bootstrap, topic, 1) == {0: read.records}
