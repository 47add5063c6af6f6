"""Kafka's own kafka-log-dirs and kafka-reassign-partitions, where Maven and a JDK are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.group_members import Records
from tests.support.java_programs import DOWNLOAD_S, RUN_S, run_java
from tests.support.node_processes import NodeProcesses, until

LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"

pytestmark = pytest.mark.timeout(DOWNLOAD_S + RUN_S)


def test_log_directories_and_a_reassignment_by_kafkas_own_tools(
    java_classpath: str, cluster: NodeProcesses, tmp_path: Path
) -> None:
    topic = cluster.create_topic("moved", 2)
    Records(cluster, topic).write()
    server = ("--bootstrap-server", cluster.bootstrap)

    def described() -> dict[int, dict[str, int]]:
        """The sizes of the topic's replicas, by broker."""
        told = run_java(java_classpath, LOG_DIRS, *server, "--describe", "--topic-list", topic)
        document = json.loads(told[told.index("{") :])
        for broker in document["brokers"]:
            assert all(folder["error"] is None for folder in broker["logDirs"])
        return {
            broker["broker"]: {
                replica["partition"]: replica["size"]
                for folder in broker["logDirs"]
                for replica in folder["partitions"]
            }
            for broker in document["brokers"]
        }

    everywhere = {broker: {f"{topic}-0", f"{topic}-1"} for broker in (1, 2, 3)}
    until(
        lambda: {broker: set(sizes) for broker, sizes in described().items()} == everywhere,
        "each broker has its replicas",
    )
    moves = tmp_path / "moves.json"
    partitions = [{"topic": topic, "partition": number, "replicas": [3, 1]} for number in range(2)]
    moves.write_text(json.dumps({"version": 1, "partitions": partitions}))
    plan = ("--reassignment-json-file", str(moves))
    assert "Successfully started" in run_java(java_classpath, REASSIGN, *server, *plan, "--execute")
    until(
        lambda: "is completed" in run_java(java_classpath, REASSIGN, *server, *plan, "--verify"),
        "the reassignment is complete",
    )

    def is_moved() -> bool:
        """Who has lost its replicas deletes them after that."""
        left = described()
        assert all(size > 0 for broker in (1, 3) for size in left[broker].values())
        return {broker for broker, sizes in left.items() if sizes} == {1, 3}

    until(is_moved, "only the new brokers have replicas")
