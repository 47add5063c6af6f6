"""Faults of a cluster inside one process, as a real client meets them: each strikes, shows, and ends with its block."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Producer

from kraft.testing import NoRelays
from partitions.topic_partition import TopicPartition
from quorum.metadata.image import PartitionImage
from tests.support.node_processes import until
from tests.support.real_clients import QUIET
from tests.support.threaded_cluster import ThreadedCluster, threaded_cluster

FAST = {"replica.lag.time.max.ms": "1000", "broker.session.timeout.ms": "1000"}
IMPATIENT = {"request.timeout.ms": 2000, "topic.metadata.refresh.interval.ms": 500}
DELAY_S = 0.3
CLOCK_S = 0.005
"""Timers of a loop go by a clock of milliseconds, and may be that much early."""
FLUSH_S = 90.0


@pytest.fixture(scope="module")
def behind_relays() -> Iterator[ThreadedCluster]:
    """Three nodes whose network may be hurt; every test leaves them whole."""
    with threaded_cluster(properties=FAST, behind_relays=True) as running:
        yield running


class Sending:
    """A producer, and what it was told of its records."""

    def __init__(self, running: ThreadedCluster, topic: str) -> None:
        self.topic = topic
        self.errors: list[KafkaError] = []
        self.told = threading.Event()
        self._producer = Producer({"bootstrap.servers": running.bootstrap, **IMPATIENT, **QUIET})
        self.send()

    def send(self) -> None:
        """One record; returns when it is acknowledged."""
        self.begin()
        assert self._producer.flush(FLUSH_S) == 0
        assert self.told.is_set()
        assert self.errors == []

    def begin(self) -> None:
        """One record, without waiting for its outcome."""
        self.told.clear()
        self._producer.produce(self.topic, b"a record", on_delivery=self._on_delivery)
        self._producer.poll(0)

    def wait(self) -> None:
        """Returns when the record that was begun is acknowledged."""
        assert self._producer.flush(FLUSH_S) == 0
        assert self.errors == []

    def _on_delivery(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self.errors.append(error)
        self.told.set()


def seen_by(running: ThreadedCluster, node_id: int, topic: str) -> PartitionImage:
    """The topic's only partition, as a node's metadata has it."""
    broker = running.cluster.nodes[node_id].broker
    assert broker is not None
    found = broker.metadata.image.topic(topic)
    assert found is not None
    return found.partitions[0]


def log_end(running: ThreadedCluster, node_id: int, topic: str) -> int:
    """Where the log of a node's replica ends."""
    broker = running.cluster.nodes[node_id].broker
    assert broker is not None
    return broker.replicas.partition(TopicPartition(topic, 0)).log_end_offset


def test_a_follower_that_is_cut_off_leaves_the_isr_and_comes_back(behind_relays: ThreadedCluster) -> None:
    running = behind_relays
    topic = running.create_topic("follower", min_insync_replicas="2")
    sending, leader = Sending(running, topic), running.leader(topic)
    follower = next(node for node in running.cluster.ports if node != leader)
    with running.during(running.cluster.cut_off(follower)) as met:
        until(lambda: follower not in seen_by(running, leader, topic).isr, "it has left the ISR")
        sending.send()
        assert met.times > 0
    until(lambda: follower in seen_by(running, leader, topic).isr, "it is back in the ISR")


def test_a_leader_that_is_cut_off_is_replaced(behind_relays: ThreadedCluster) -> None:
    """Clients still reach it: what it cannot replicate is not acknowledged."""
    running = behind_relays
    topic = running.create_topic("leader", min_insync_replicas="2")
    sending, leader = Sending(running, topic), running.leader(topic)
    other = next(node for node in running.cluster.ports if node != leader)
    with running.during(running.cluster.cut_off(leader)):
        until(lambda: seen_by(running, other, topic).leader not in (-1, leader), "another node leads")
        sending.begin()
    sending.wait()
    running.wait_in_sync(topic)


def test_one_way_requests_arrive_and_answers_do_not(behind_relays: ThreadedCluster) -> None:
    running = behind_relays
    topic = running.create_topic("oneway", replication_factor=1)
    sending, leader = Sending(running, topic), running.leader(topic)
    before = log_end(running, leader, topic)
    with running.during(running.cluster.cut_off(leader, peers="clients", direction="out")) as met:
        sending.begin()
        until(lambda: log_end(running, leader, topic) > before, "the record is in the log")
        until(lambda: met.times, "an answer was held back")
        assert not sending.told.is_set()
    sending.wait()


def test_what_is_late_takes_its_time(behind_relays: ThreadedCluster) -> None:
    running = behind_relays
    topic = running.create_topic("late", replication_factor=1)
    sending, leader = Sending(running, topic), running.leader(topic)
    with running.during(running.cluster.latency(leader, delay_s=DELAY_S, peers="clients")):
        began_s = time.monotonic()
        sending.send()
        assert time.monotonic() - began_s >= 2 * DELAY_S - CLOCK_S


def test_a_paused_node_is_silent_for_all(behind_relays: ThreadedCluster) -> None:
    running = behind_relays
    topic = running.create_topic("paused", min_insync_replicas="2")
    sending, leader = Sending(running, topic), running.leader(topic)
    with running.during(running.cluster.paused(leader)) as met:
        sending.begin()
        running.wait_seen(leader, live=False, besides=leader)
        assert met.times > 0
    sending.wait()
    running.wait_in_sync(topic)


@pytest.mark.parametrize("fault", ["half_open", "resetting"])
def test_clients_get_over_broken_connections(behind_relays: ThreadedCluster, fault: str) -> None:
    running = behind_relays
    topic = running.create_topic("broken", replication_factor=1)
    sending, leader = Sending(running, topic), running.leader(topic)
    with running.during(getattr(running.cluster, fault)(leader, peers="clients")) as met:
        sending.begin()
        until(lambda: met.times, "the client has met it")
        assert not sending.told.is_set()
    sending.wait()


def test_the_end_of_one_fault_leaves_the_other(behind_relays: ThreadedCluster) -> None:
    running = behind_relays
    topic = running.create_topic("both", replication_factor=1)
    sending, leader = Sending(running, topic), running.leader(topic)
    with running.during(running.cluster.latency(leader, delay_s=DELAY_S, peers="clients")):
        with running.during(running.cluster.cut_off(leader, peers="clients")):
            sending.begin()
        sending.wait()
        began_s = time.monotonic()
        sending.send()
        assert time.monotonic() - began_s >= 2 * DELAY_S - CLOCK_S


def test_nodes_that_are_down_are_started_again(behind_relays: ThreadedCluster) -> None:
    running = behind_relays
    topic = running.create_topic("down", min_insync_replicas="2")
    sending, leader = Sending(running, topic), running.leader(topic)
    for fault in running.cluster.killed, running.cluster.stopped:
        with running.during(fault(leader)):
            assert leader not in running.cluster.nodes
            sending.send()
        running.wait_in_sync(topic)


def test_whom_a_fault_strikes_and_what_is_refused(
    behind_relays: ThreadedCluster, shared_cluster: ThreadedCluster
) -> None:
    with pytest.raises(NoRelays, match="behind_relays=True"):
        shared_cluster.cluster.cut_off(1)
    with pytest.raises(ValueError, match=r"name some of the nodes \(1, 2, 3\), not \(4,\)"):
        behind_relays.run(behind_relays.cluster.cut_off(4).__aenter__())
    with behind_relays.during(behind_relays.cluster.cut_off(1, 2)) as met:
        assert set(met.links) == {(1, 3), (2, 3), (3, 1), (3, 2)}
    with behind_relays.during(behind_relays.cluster.paused(1, 2)) as met:
        assert {(1, 2), (2, 1), (0, 1), (1, 0), (3, 2)} < set(met.links)
    with pytest.raises(ValueError, match="nobody is left"):
        behind_relays.run(behind_relays.cluster.cut_off(1, 2, 3).__aenter__())
    with pytest.raises(ValueError, match="would hurt nothing"):
        behind_relays.run(behind_relays.cluster.latency(1, delay_s=0.0).__aenter__())
