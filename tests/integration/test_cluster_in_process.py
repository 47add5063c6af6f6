"""Nodes in one process under real clients: records, failures, shutdowns, restarts."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest
import structlog
from confluent_kafka import KafkaError, Producer

from kraft.testing import Cluster, cluster
from tests.support.node_processes import until
from tests.support.real_clients import LIBRARIES, QUIET, Client, How
from tests.support.streams import IDEMPOTENT, audit, read_all, streaming
from tests.support.threaded_cluster import ThreadedCluster, threaded_cluster

PARTITIONS = 3
SOME = 60


def test_what_nodes_log_needs_no_standard_stream(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A node that cannot log halts: here its streams change hands with every test."""
    with open(os.devnull, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        monkeypatch.setattr(sys, "stderr", closed)
    structlog.get_logger().info("quorum leader", epoch=1)
    assert "quorum leader" in caplog.text
    assert "epoch=1" in caplog.text


@pytest.mark.parametrize("client", LIBRARIES, ids=lambda client: client.name)
def test_records_go_in_and_come_out(client: Client, shared_cluster: ThreadedCluster) -> None:
    topic = shared_cluster.create_topic("records", PARTITIONS, min_insync_replicas="2")
    lines = {p: [b"%d \x00\xff\r %d" % (p, n) for n in range(100)] for p in range(PARTITIONS)}
    client.produce(shared_cluster.bootstrap, topic, lines, How(codec="lz4", idempotent=True))
    assert client.consume(shared_cluster.bootstrap, topic, dict.fromkeys(lines, 100)) == lines


async def test_the_fixture_of_the_plug_in(kraft_cluster: Cluster) -> None:
    """Blocking clients run in threads; the nodes are on the test's own loop."""
    client, bootstrap = LIBRARIES[0], kraft_cluster.bootstrap_servers
    await asyncio.to_thread(client.produce, bootstrap, "made-on-the-way", {0: [b"hello"]})
    assert await asyncio.to_thread(client.consume, bootstrap, "made-on-the-way", {0: 1}) == {0: [b"hello"]}


def test_a_leader_dies(own_cluster: ThreadedCluster) -> None:
    topic = own_cluster.create_topic("dies", PARTITIONS, min_insync_replicas="2")
    with streaming(IDEMPOTENT["confluent-kafka"](own_cluster.bootstrap, topic, PARTITIONS)) as stream:
        stream.wait_for(SOME)
        victim = own_cluster.leader(topic)
        own_cluster.kill(victim)
        stream.wait_for(SOME)
        until(lambda: own_cluster.leader(topic) != victim, "another node leads")
        own_cluster.start(victim)
        stream.wait_for(SOME)
    audit(stream, read_all(own_cluster.bootstrap, topic, PARTITIONS))


def test_nodes_leave_in_good_order_and_return(own_cluster: ThreadedCluster) -> None:
    """No produce fails, and a node that stops leads nothing when it is gone."""
    topic = own_cluster.create_topic("leave", PARTITIONS, min_insync_replicas="2")
    with streaming(IDEMPOTENT["confluent-kafka"](own_cluster.bootstrap, topic, PARTITIONS)) as stream:
        for node_id in list(own_cluster.cluster.nodes):
            stream.wait_for(SOME)
            own_cluster.stop(node_id)
            states = own_cluster.partitions(topic).values()
            assert node_id not in {state.leader for state in states}
            assert all(node_id not in state.isrs for state in states)
            stream.wait_for(SOME)
            own_cluster.start(node_id)
            own_cluster.wait_in_sync(topic)
    audit(stream, read_all(own_cluster.bootstrap, topic, PARTITIONS))


def test_leaders_go_back_to_whom_they_belong() -> None:
    """Once a broker is back in sync it leads again what it leads by preference, and no produce fails for it."""
    with threaded_cluster(properties={"leader.imbalance.check.interval.seconds": "1"}) as running:
        topic = running.create_topic("belongs", PARTITIONS, min_insync_replicas="2")

        def all_preferred() -> bool:
            states = running.partitions(topic).values()
            return all(state.leader == state.replicas[0] for state in states)

        with streaming(IDEMPOTENT["confluent-kafka"](running.bootstrap, topic, PARTITIONS)) as stream:
            stream.wait_for(SOME)
            away = running.leader(topic)
            running.stop(away)
            assert not all_preferred()
            stream.wait_for(SOME)
            running.start(away)
            until(all_preferred, "every first replica leads")
            stream.wait_for(SOME)
        audit(stream, read_all(running.bootstrap, topic, PARTITIONS))


def test_replicas_leave_the_isr_and_come_back(own_cluster: ThreadedCluster) -> None:
    topic = own_cluster.create_topic("isr")
    leader = own_cluster.leader(topic)
    first, second = (node_id for node_id in own_cluster.cluster.nodes if node_id != leader)
    own_cluster.kill(first)
    until(lambda: sorted(own_cluster.partitions(topic)[0].isrs) == sorted([leader, second]), "it has left")
    LIBRARIES[0].produce(own_cluster.bootstrap, topic, {0: [b"while it was away"]})
    own_cluster.start(first)
    own_cluster.wait_in_sync(topic)
    own_cluster.stop(second)
    own_cluster.stop(leader)  # what it missed, it has caught up on: now it leads
    read = LIBRARIES[0].consume(f"127.0.0.1:{own_cluster.cluster.ports[first]}", topic, {0: 1})
    assert read == {0: [b"while it was away"]}


async def test_metadata_reaches_every_node(kraft_cluster: Cluster) -> None:
    """A topic that is committed is soon the same everywhere."""
    producer = Producer({"bootstrap.servers": kraft_cluster.bootstrap_servers, **QUIET})
    producer.produce("everywhere", b"x")
    assert await asyncio.to_thread(producer.flush, 90) == 0
    for node in kraft_cluster.nodes.values():
        assert node.broker is not None
        async with asyncio.timeout(90):
            await node.broker.loader.wait_until(lambda image: image.topic("everywhere") is not None)
    images = [node.broker.metadata.image for node in kraft_cluster.nodes.values() if node.broker]
    topics = {image.topic("everywhere") for image in images}
    assert len({(topic.topic_id, len(topic.partitions)) for topic in topics if topic}) == 1


async def test_a_cluster_of_one(tmp_path) -> None:
    """Everything works with one node; stopped and started on the same folder it has what it had."""
    client = LIBRARIES[0]
    async with cluster(nodes=1, directory=tmp_path) as first:
        await asyncio.to_thread(client.produce, first.bootstrap_servers, "one", {0: [b"kept"]})
    async with cluster(nodes=1, directory=tmp_path) as second:
        await asyncio.to_thread(client.produce, second.bootstrap_servers, "one", {0: [b"more"]})
        read = await asyncio.to_thread(client.consume, second.bootstrap_servers, "one", {0: 2})
    assert read == {0: [b"kept", b"more"]}


async def test_all_nodes_stop_at_once() -> None:
    """The last ones have no quorum to ask; they stop all the same, and soon."""
    async with asyncio.timeout(90):
        async with cluster(nodes=3) as running:
            await asyncio.to_thread(LIBRARIES[0].produce, running.bootstrap_servers, "x", {0: [b"x"]})


@pytest.mark.kraft_cluster(secure=True)
async def test_a_secured_cluster_serves_its_admin_and_nobody_else(kraft_cluster: Cluster) -> None:
    """Through relays, as every other one: what is encrypted passes them as it is. A node that was away is let in."""
    settings = {**kraft_cluster.client_settings, **QUIET}

    def produce(settings: dict[str, str]) -> list[KafkaError]:
        errors: list[KafkaError] = []
        producer = Producer({**settings, "message.timeout.ms": 60_000, "error_cb": errors.append})
        delivered: list[KafkaError | None] = []
        producer.produce("mine", b"value", on_delivery=lambda error, _: delivered.append(error))
        while not delivered and not any(one.code() == KafkaError._AUTHENTICATION for one in errors):
            producer.poll(0.05)
        return [*errors, *filter(None, delivered)]

    async with kraft_cluster.killed(2):
        """It finds its way in again, by the users that the metadata have."""
    assert await asyncio.to_thread(produce, settings) == []
    stranger = await asyncio.to_thread(produce, {**settings, "sasl.password": "guessed"})
    assert KafkaError._AUTHENTICATION in {one.code() for one in stranger}
