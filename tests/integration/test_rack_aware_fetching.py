"""librdkafka consumers that name their rack read from the replica in it, or from the leader (KIP-392)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from partitions.replica_selector import RACK_AWARE_SELECTOR
from tests.support.node_processes import until
from tests.support.real_clients import QUIET
from tests.support.threaded_cluster import ThreadedCluster, threaded_cluster

RACKS = {1: "left", 2: "middle", 3: "right"}
SIZE_BYTES = 100_000


@pytest.fixture(scope="module")
def running() -> Iterator[ThreadedCluster]:
    with threaded_cluster(properties={"replica.selector.class": RACK_AWARE_SELECTOR}, racks=RACKS) as cluster:
        yield cluster


def consumer(running: ThreadedCluster, rack: str, topic: str, offset: int = 0) -> Consumer:
    made = Consumer(
        {
            "bootstrap.servers": running.bootstrap,
            "group.id": "none",
            "client.rack": rack,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "topic.metadata.refresh.interval.ms": 1000,
            **QUIET,
        }
    )
    made.assign([TopicPartition(topic, 0, offset)])
    return made


def read(reader: Consumer, count: int) -> list[bytes]:
    """The next records' first bytes; there must be so many in time."""
    found: list[bytes] = []

    def enough() -> bool:
        for message in reader.consume(count - len(found), timeout=0.2):
            error = message.error()
            assert error is None or error.code() == KafkaError._TRANSPORT, error
            if error is None:
                found.append((message.value() or b"")[:8])
        return len(found) == count

    until(enough, f"{count} records")
    return found


def produce(running: ThreadedCluster, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": running.bootstrap, "acks": "all", **QUIET})
    for value in values:
        producer.produce(topic, value.ljust(SIZE_BYTES, b"."))
    assert producer.flush(90) == 0


def bytes_out(running: ThreadedCluster) -> dict[int, int]:
    """What each broker has sent to consumers so far."""
    sent = {}
    for node_id, node in running.cluster.nodes.items():
        assert node.broker is not None
        sent[node_id] = node.broker.metrics.bytes_out
    return sent


def sent_since(running: ThreadedCluster, before: dict[int, int]) -> dict[int, int]:
    return {node_id: sent - before.get(node_id, 0) for node_id, sent in bytes_out(running).items()}


@pytest.mark.parametrize("rack", [*RACKS.values(), "elsewhere"])
def test_reads_go_to_the_replica_of_the_rack(running: ThreadedCluster, rack: str) -> None:
    topic = running.create_topic("near")
    leader = running.leader(topic)
    expected = next((node_id for node_id, its in RACKS.items() if its == rack), leader)
    produce(running, topic, *(b"%08d" % number for number in range(20)))
    running.wait_in_sync(topic)
    before = bytes_out(running)
    reader = consumer(running, rack, topic)
    assert read(reader, 20) == [b"%08d" % number for number in range(20)]
    sent = sent_since(running, before)
    assert sent[expected] >= 20 * SIZE_BYTES
    assert all(size_bytes == 0 for node_id, size_bytes in sent.items() if node_id != expected)
    produce(running, topic, b"later")  # its long poll waits there, too
    assert read(reader, 1) == [b"later..."]
    assert sent_since(running, before)[expected] >= 21 * SIZE_BYTES
    reader.close()


def test_the_brokers_tell_their_racks(running: ThreadedCluster) -> None:
    admin = AdminClient({"bootstrap.servers": running.bootstrap, **QUIET})
    nodes = admin.describe_cluster().result(60).nodes
    assert {node.id: node.rack for node in nodes} == RACKS


def test_a_reader_goes_on_when_its_replica_is_away_and_comes_back_with_it(running: ThreadedCluster) -> None:
    topic = running.create_topic("away")
    leader = running.leader(topic)
    near = next(node_id for node_id in RACKS if node_id != leader)
    running.wait_in_sync(topic)
    reader = consumer(running, RACKS[near], topic)
    produce(running, topic, b"first")
    assert read(reader, 1) == [b"first..."]
    running.kill(near)
    produce(running, topic, b"second")
    before = bytes_out(running)
    assert read(reader, 1) == [b"second.."]
    assert sent_since(running, before)[running.leader(topic)] >= SIZE_BYTES
    running.start(near)
    running.wait_in_sync(topic)

    def reads_nearby() -> bool:
        before = bytes_out(running)
        produce(running, topic, b"again")
        assert read(reader, 1) == [b"again..."]
        return sent_since(running, before)[near] >= SIZE_BYTES

    until(reads_nearby, "the reader is sent to its rack again")
    reader.close()
