"""Java's Admin, which most of Kafka's tools are made of, on a real cluster; where Maven and a JDK are there."""

from __future__ import annotations

import pytest

from tests.support.java_programs import DOWNLOAD_S, RUN_S, SOURCES, run_java
from tests.support.node_processes import NodeProcesses


@pytest.mark.timeout(DOWNLOAD_S + RUN_S)
def test_what_tools_ask_for(java_classpath: str, cluster: NodeProcesses) -> None:
    one, two = cluster.create_topic("java"), cluster.create_topic("java", partitions=2)
    printed = run_java(java_classpath, SOURCES / "AdminCalls.java", cluster.bootstrap, one, two, "2")
    told = dict(line.split("=", 1) for line in printed.splitlines())
    kinds = set(told.pop("resource-types").strip("[]").split(", "))
    assert kinds - {"GROUP"} == {"BROKER", "BROKER_LOGGER", "TOPIC"}, (
        "a group has configs if some test gave it any"
    )
    nodes = ", ".join(f"BROKER_LOGGER/{node}" for node in cluster.node_ids)
    assert told == {
        "by-name": f"[{one}, {two}]",
        "by-id": f"[{one}:1, {two}:2]",
        "unknown-id": "UnknownTopicIdException",
        "logger-resources": f"[{nodes}]",
        "level-at-first": "INFO DYNAMIC_BROKER_LOGGER_CONFIG",
        "level-set": "DEBUG DYNAMIC_BROKER_LOGGER_CONFIG",
        "level-deleted": "INFO DYNAMIC_BROKER_LOGGER_CONFIG",
        "level-unknown": "InvalidConfigurationException",
        "logger-unknown": "InvalidConfigurationException",
        "producers": "[epoch=0 sequence=2 open=false]",
    }
