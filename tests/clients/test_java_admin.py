"""Java's Admin, which most of Kafka's tools are made of, on a real cluster; where Maven and a JDK are there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.node_processes import NodeProcesses

SOURCES = Path(__file__).parent / "java"
DOWNLOAD_S = 400
"""The first time; what was downloaded once stays in the user's repository of Maven."""
RUN_S = 120
UNREACHABLE = ("Could not transfer artifact", "Could not resolve", "offline mode")


@pytest.fixture(scope="session")
def classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Kafka's client and what it needs."""
    for command in ("mvn", "javac"):
        if shutil.which(command) is None:
            pytest.skip(f"{command} is not installed: Java's client cannot be run")
    file = tmp_path_factory.mktemp("java") / "classpath"
    done = subprocess.run(
        [
            "mvn",
            "-q",
            "-B",
            "-f",
            SOURCES / "pom.xml",
            "dependency:build-classpath",
            f"-Dmdep.outputFile={file}",
        ],
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_S,
        check=False,
    )
    if any(sign in done.stdout for sign in UNREACHABLE):
        pytest.skip(f"Java's client cannot be downloaded: {done.stdout.strip().splitlines()[0]}")
    assert done.returncode == 0, done.stdout + done.stderr
    return file.read_text().strip()


def java(classpath: str, program: str, *arguments: str) -> dict[str, str]:
    """Runs a program of the folder; what it printed, by the first word of each line."""
    done = subprocess.run(
        ["java", "-cp", classpath, SOURCES / program, *arguments],
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


@pytest.mark.timeout(DOWNLOAD_S + RUN_S)
def test_what_tools_ask_for(classpath: str, cluster: NodeProcesses) -> None:
    one, two = cluster.create_topic("java"), cluster.create_topic("java", partitions=2)
    told = java(classpath, "AdminCalls.java", cluster.bootstrap, one, two, "2")
    nodes = ", ".join(f"BROKER_LOGGER/{node}" for node in cluster.node_ids)
    assert told == {
        "by-name": f"[{one}, {two}]",
        "by-id": f"[{one}:1, {two}:2]",
        "unknown-id": "UnknownTopicIdException",
        "resource-types": "[BROKER, BROKER_LOGGER, TOPIC]",
        "logger-resources": f"[{nodes}]",
        "level-at-first": "INFO DYNAMIC_BROKER_LOGGER_CONFIG",
        "level-set": "DEBUG DYNAMIC_BROKER_LOGGER_CONFIG",
        "level-deleted": "INFO DYNAMIC_BROKER_LOGGER_CONFIG",
        "level-unknown": "InvalidConfigurationException",
        "logger-unknown": "InvalidConfigurationException",
        "producers": "[epoch=0 sequence=2 open=false]",
    }
