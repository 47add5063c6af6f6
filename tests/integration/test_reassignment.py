"""A partition moves to other brokers while records go in, also while one of the old ones is away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka import KafkaAdminClient
from kafka import TopicPartition as PythonTopicPartition
from kafka.errors import KafkaConnectionError

from tests.support.node_processes import until
from tests.support.streams import IDEMPOTENT, audit, read_all, streaming
from tests.support.threaded_cluster import ThreadedCluster, threaded_cluster

NODES = 5
SOME = 60


@pytest.fixture
def five_nodes() -> Iterator[ThreadedCluster]:
    with threaded_cluster(NODES, {"log.segment.delete.delay.ms": "0"}) as running:
        yield running


@pytest.fixture
def admin(five_nodes: ThreadedCluster) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=five_nodes.bootstrap)
    yield client
    client.close()


def folders(running: ThreadedCluster, topic: str) -> dict[int, list[str]]:
    """What each node has on disk of the topic, deleted folders that are not removed yet included."""
    return {
        node_id: sorted(path.name for path in running.cluster.data_directory(node_id).glob(f"{topic}-*"))
        for node_id in running.cluster.ports
    }


def wait_moved(running: ThreadedCluster, topic: str, replicas: list[int]) -> None:
    until(
        lambda: (
            (state := running.partitions(topic)[0]).replicas == replicas
            and sorted(state.isrs) == sorted(replicas)
        ),
        f"{topic}-0 is on {replicas}",
    )


def wait_only_on(running: ThreadedCluster, topic: str, replicas: list[int]) -> None:
    expected = {node_id: [f"{topic}-0"] if node_id in replicas else [] for node_id in running.cluster.ports}
    until(lambda: folders(running, topic) == expected, f"only {replicas} have files of {topic}")


def test_a_partition_moves_under_load(five_nodes: ThreadedCluster, admin: KafkaAdminClient) -> None:
    """Every broker is replaced, the leader among them; nothing is lost or doubled, and no file stays."""
    topic = five_nodes.create_topic("moves", min_insync_replicas="2")
    old = five_nodes.partitions(topic)[0].replicas
    new = [node_id for node_id in five_nodes.cluster.ports if node_id not in old] + [old[1]]
    partition = PythonTopicPartition(topic, 0)
    with streaming(IDEMPOTENT["confluent-kafka"](five_nodes.bootstrap, topic, 1)) as stream:
        stream.wait_for(SOME)
        assert admin.alter_partition_reassignments({partition: new})[partition] is None
        wait_moved(five_nodes, topic, new)
        stream.wait_for(SOME)
        wait_only_on(five_nodes, topic, new)
        assert not admin.list_partition_reassignments()
        stream.wait_for(SOME)
    assert five_nodes.leader(topic) in new
    audit(stream, read_all(five_nodes.bootstrap, topic, 1))


def test_a_broker_that_was_away_deletes_what_moved_meanwhile(
    five_nodes: ThreadedCluster, admin: KafkaAdminClient
) -> None:
    """And what was deleted."""
    topic, doomed = five_nodes.create_topic("away"), five_nodes.create_topic("doomed", replication_factor=5)
    old = five_nodes.partitions(topic)[0].replicas
    away = next(node_id for node_id in old if node_id != five_nodes.leader(topic))
    five_nodes.kill(away)
    new = [node_id for node_id in five_nodes.cluster.ports if node_id != away][:3]
    partition = PythonTopicPartition(topic, 0)

    def reassigned() -> bool:
        try:
            return admin.alter_partition_reassignments({partition: new})[partition] is None
        except KafkaConnectionError:
            return False  # the client still takes the broker that is away for the controller

    until(reassigned, "the reassignment is accepted")
    wait_moved(five_nodes, topic, new)
    five_nodes.admin.delete_topics([doomed])[doomed].result(60)
    assert folders(five_nodes, topic)[away] == [f"{topic}-0"]
    five_nodes.start(away)
    wait_only_on(five_nodes, topic, new)
    until(lambda: not any(folders(five_nodes, doomed).values()), "the deleted topic has no files")
