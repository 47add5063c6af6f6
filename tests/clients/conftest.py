"""The cluster that tests with real clients share in each process of theirs: three nodes, gone at the end."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from kraft.protocol.errors import ErrorCode
from tests.support.group_members import GROUP_SETTINGS
from tests.support.java_programs import DOWNLOAD_S, SOURCES
from tests.support.node_processes import PATIENCE, NodeProcesses
from tests.support.raw_client import RawConnection, assert_works, batch
from tests.support.secured_cluster import ALICE_CERTIFIED, BOB, ERIN, USER, SecuredCluster
from tests.support.shared_builds import made_once

TEST_TIMEOUT_S = 600
"""What is downloaded or compiled for all is awaited in it, too."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole clusters and foreign clients: more time than a unit test has, and never without end."""
    for item in items:
        if item.path.parent.name == "clients" and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that failed shows what its nodes were at: the logs go with the cluster."""
    report = yield
    if report.failed:
        found = {id(value): value for value in getattr(item, "funcargs", {}).values()}
        for cluster in (value for value in found.values() if isinstance(value, NodeProcesses)):
            for node_id in cluster.node_ids:
                report.sections.append((f"node {node_id}", cluster.local.evidence(node_id, all_threads=True)))
    return report


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcesses]:
    """Three nodes, on which members' sessions are short. A test that stops one takes `fragile_cluster` instead."""
    running = NodeProcesses(tmp_path_factory.mktemp("cluster"), settings=GROUP_SETTINGS | PATIENCE)
    try:
        yield running
    finally:
        running.close()


@pytest.fixture
def fragile_cluster(cluster: NodeProcesses) -> Iterator[NodeProcesses]:
    """The same cluster, for a test that stops or pauses nodes: made whole again afterwards."""
    yield cluster
    cluster.restore()


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    """Three nodes that ask who one is. No test stops one."""
    running = SecuredCluster(tmp_path_factory.mktemp("secured") / "cluster")
    try:
        running.allow(f"User:{USER}", ALICE_CERTIFIED, "User:carol")
        running.allow(f"User:{BOB}", kinds=[ResourceType.TOPIC], operation=AclOperation.DESCRIBE)
        running.allow(f"User:{ERIN}", kinds=[ResourceType.GROUP], operation=AclOperation.READ)
        yield running
    finally:
        running.close()


@pytest.fixture
def hasty_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    """Benchmarks do not wait until their brokers have nothing left to do, and have patience with silent brokers and
    with workers that start: nobody asks how fast this machine is."""
    monkeypatch.setattr("bench.brokers.SETTINGS", PATIENCE)
    monkeypatch.setattr("bench.machine.SETTLE_TIMEOUT_S", 0.0)
    monkeypatch.setattr("bench.processes.READY_TIMEOUT_S", 120.0)
    monkeypatch.setattr("bench.replication.idle.EMPTY_S", 1)
    monkeypatch.setattr("bench.groups.loading.BEFORE_S", 0.5)
    monkeypatch.setattr("bench.security.connections.QUIET_S", 0.2)


def downloaded(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """What a command that downloads has done; a download that does not come to its end cannot be had either."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_S, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{command[0]} has not downloaded what it should within {DOWNLOAD_S} s")


UNREACHABLE = ("Could not transfer artifact", "Could not resolve", "offline mode")


@pytest.fixture(scope="session")
def java_classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Kafka's client and tools, and what they need."""
    return _classpath(tmp_path_factory, "java", SOURCES / "pom.xml")


@pytest.fixture(scope="session")
def older_java_classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Kafka's client of the line before."""
    return _classpath(tmp_path_factory, "older-java", SOURCES / "older" / "pom.xml")


def _classpath(factory: pytest.TempPathFactory, name: str, project: Path) -> str:
    for command in ("mvn", "javac"):
        if shutil.which(command) is None:
            pytest.skip(f"{command} is not installed: Java's client cannot be run")

    def make(folder: Path) -> None:
        goal = ["dependency:build-classpath", f"-Dmdep.outputFile={folder / 'classpath'}"]
        done = downloaded("mvn", "-q", "-B", "-f", project, *goal)
        if any(sign in done.stdout for sign in UNREACHABLE):
            pytest.skip(f"Java's client cannot be downloaded: {done.stdout.strip().splitlines()[0]}")
        assert done.returncode == 0, done.stdout + done.stderr

    return (made_once(factory, name, make) / "classpath").read_text().strip()


KAFKAJS = "kafkajs@2.2.4"
NPM_UNREACHABLE = (
    "ENOTFOUND", "EAI_AGAIN", "ETIMEDOUT", "ECONNREFUSED", "ECONNRESET", "ENOTCACHED",
    "EIDLETIMEOUT", "ERR_SOCKET_TIMEOUT", "E429", "E502", "E503", "E504",
)  # fmt: skip


@pytest.fixture(scope="session")
def node_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """kafkajs."""
    for command in ("node", "npm"):
        if shutil.which(command) is None:
            pytest.skip(f"{command} is not installed: kafkajs cannot be run")

    def make(folder: Path) -> None:
        done = downloaded("npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", KAFKAJS)
        if any(sign in done.stderr for sign in NPM_UNREACHABLE):
            pytest.skip(f"kafkajs cannot be downloaded: {done.stderr.strip().splitlines()[0]}")
        assert done.returncode == 0, done.stderr

    return made_once(tmp_path_factory, "kafkajs", make) / "node_modules"


# -- for requests over raw sockets


@pytest.fixture(scope="module")
def topic(cluster: NodeProcesses) -> str:
    """A topic with one record."""
    name = cluster.create_topic("bad-input", min_insync_replicas="2", max_message_bytes="20000")
    with RawConnection(cluster.address(cluster.leader(name))) as connection:
        assert connection.produce(name, batch(b"good")).error_code == ErrorCode.NONE
    return name


@pytest.fixture
def leader(cluster: NodeProcesses, topic: str) -> tuple[str, int]:
    """The address of the topic's leader."""
    return cluster.address(cluster.leader(topic))


@pytest.fixture
def bystander(cluster: NodeProcesses, topic: str, leader: tuple[str, int]) -> Iterator[None]:
    """Another connection works throughout, every node lives, and no log tells of a defect."""
    pids = {node_id: cluster.local.pid(node_id) for node_id in cluster.node_ids}
    written = {node_id: len(cluster.log_text(node_id)) for node_id in cluster.node_ids}
    with RawConnection(leader) as connection:
        assert_works(connection, topic)
        yield
        assert_works(connection, topic)
    assert {node_id: cluster.local.pid(node_id) for node_id in cluster.node_ids} == pids
    for node_id, length in written.items():
        new = cluster.log_text(node_id)[length:]
        assert "Traceback" not in new, new


@pytest.fixture
def connection(leader: tuple[str, int]) -> Iterator[RawConnection]:
    with RawConnection(leader) as made:
        yield made
