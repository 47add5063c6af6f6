"""Health, metrics and the cluster's state over HTTP, while nodes come and go."""

from __future__ import annotations

from typing import Any

from tests.support.node_processes import until
from tests.support.real_clients import LIBRARIES
from tests.support.threaded_cluster import ThreadedCluster, metrics


def test_healthy_nodes(shared_cluster: ThreadedCluster) -> None:
    for node_id in shared_cluster.cluster.nodes:
        assert shared_cluster.get(node_id, "/health/live")[:2] == (200, "application/json")
        assert shared_cluster.get(node_id, "/health/ready")[0] == 200
        assert shared_cluster.get_json(node_id, "/health/ready") == {"ready": True, "reasons": []}


def test_every_node_describes_the_same_cluster(shared_cluster: ThreadedCluster) -> None:
    def documents() -> list[dict[str, Any]] | None:
        found = [shared_cluster.get_json(node_id, "/api/cluster") for node_id in (1, 2, 3)]
        return found if len({document["metadata_offset"] for document in found}) == 1 else None

    agreed: list[dict[str, Any]] = until(documents, "all nodes are at one metadata offset")
    assert [document["node_id"] for document in agreed] == [1, 2, 3]
    for key in ("cluster_id", "controller_id", "brokers", "topics"):
        assert agreed[0][key] == agreed[1][key] == agreed[2][key]
    assert agreed[0]["controller_id"] in (1, 2, 3)
    brokers = agreed[0]["brokers"]
    assert [broker["id"] for broker in brokers] == [1, 2, 3]
    assert not any(broker["fenced"] for broker in brokers)
    assert [broker["listeners"] for broker in brokers] == [
        [f"PLAINTEXT://127.0.0.1:{shared_cluster.cluster.ports[node_id]}"] for node_id in (1, 2, 3)
    ]


def test_a_page_that_is_not_there(shared_cluster: ThreadedCluster) -> None:
    status, content_type, body = shared_cluster.get(1, "/nope")
    assert (status, content_type) == (404, "application/json")
    assert b"/health/ready" in body


def test_metrics_count_what_happens(shared_cluster: ThreadedCluster) -> None:
    topic = shared_cluster.create_topic("counted")
    leader = shared_cluster.leader(topic)
    bytes_in = "kafka_server_brokertopicmetrics_bytesin_total"
    messages_in = "kafka_server_brokertopicmetrics_messagesin_total"
    before = metrics(shared_cluster, leader)
    LIBRARIES[0].produce(shared_cluster.bootstrap, topic, {0: [b"x" * 100] * 50})
    LIBRARIES[0].consume(shared_cluster.bootstrap, topic, {0: 50})
    after = metrics(shared_cluster, leader)
    assert after[messages_in] - before[messages_in] == 50
    assert after[bytes_in] - before[bytes_in] > 5000
    assert after["kafka_server_brokertopicmetrics_bytesout_total"] > 5000
    assert after["kafka_server_replicamanager_leadercount"] >= 1
    name = "kafka_controller_kafkacontroller_activecontrollercount"
    until(
        lambda: (
            sorted(metrics(shared_cluster, node_id)[name] for node_id in shared_cluster.cluster.nodes)
            == [0, 0, 1]
        ),
        "there is one active controller",
    )


def test_readiness_follows_the_quorum(own_cluster: ThreadedCluster) -> None:
    """A node that cannot reach a quorum is alive and not ready, and says why; it recovers by itself."""
    for node_id in (1, 2):
        own_cluster.kill(node_id)
    until(lambda: own_cluster.get(3, "/health/ready")[0] == 503, "node 3 is not ready")
    answer = own_cluster.get_json(3, "/health/ready")
    assert answer["ready"] is False
    assert "the quorum has no leader" in answer["reasons"]
    assert own_cluster.get(3, "/health/live")[0] == 200
    assert own_cluster.get(3, "/metrics")[0] == 200
    own_cluster.start(1)
    until(lambda: own_cluster.get(3, "/health/ready")[0] == 200, "node 3 is ready again")


def test_under_replicated_partitions_are_counted(own_cluster: ThreadedCluster) -> None:
    topic = own_cluster.create_topic("under")
    leader = own_cluster.leader(topic)
    gone = next(node_id for node_id in own_cluster.cluster.nodes if node_id != leader)
    name = "kafka_server_replicamanager_underreplicatedpartitions"
    assert metrics(own_cluster, leader)[name] == 0
    own_cluster.kill(gone)
    until(lambda: metrics(own_cluster, leader)[name] == 1, "one partition is under-replicated")
    own_cluster.start(gone)
    until(lambda: metrics(own_cluster, leader)[name] == 0, "it is whole again")
