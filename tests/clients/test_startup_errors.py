"""What an operator or a user can get wrong: one clear sentence, a non-zero exit code, no traceback."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kraft.cli.app import run
from kraft.local_cluster.cluster import LocalCluster
from kraft.runtime.free_ports import free_port_range, free_ports
from kraft.storage import new_uuid
from tests.support.node_processes import NodeProcesses, until
from tests.support.real_clients import confluent_consumer

TIMEOUT_S = 120
FAILED, WRONG_USAGE, UNDECIDED = 1, 2, 3


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    exit_code: int
    output: bytes
    errors: str


def kraft(*arguments: str | Path, stdin: bytes = b"", cwd: Path | None = None) -> Ended:
    """Runs the command line to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "kraft.cli.entry", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "80"},
    )
    return Ended(done.returncode, done.stdout, done.stderr.decode(errors="replace"))


def assert_sentence(ended: Ended, *parts: str, exit_code: int = FAILED) -> None:
    """The command failed with one sentence that has all of `parts`, and without a traceback."""
    assert ended.exit_code == exit_code, ended.errors
    assert "Traceback" not in ended.errors, ended.errors
    assert b"Traceback" not in ended.output, ended.output
    sentences = [line for line in ended.errors.splitlines() if line.startswith("error: ")]
    assert len(sentences) == 1, ended.errors
    for part in parts:
        assert part in sentences[0], sentences[0]


# -- a node


class NodeFiles:
    """The configuration and the formatted folder of one node that is a cluster of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.config = directory / "server.properties"
        self.data = directory / "data"
        self.cluster_id = new_uuid()
        self.client_port, self.controller_port, self.http_port = free_ports(3, avoid=set())
        self.write()
        assert run(["storage", "format", "--cluster-id", self.cluster_id, "--config", str(self.config)]) == 0

    def write(self, **settings: str) -> None:
        """Writes the configuration, with some keys set otherwise; an underscore stands for a dot."""
        lines = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.client_port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "http.listener": f"127.0.0.1:{self.http_port}",
            "log.dirs": str(self.data),
            "controller.quorum.election.timeout.ms": "200",
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        self.config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))


@pytest.fixture
def node(tmp_path: Path) -> NodeFiles:
    return NodeFiles(tmp_path)


@pytest.fixture
def occupied() -> Iterator[int]:
    """A port that somebody else listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_the_node_of_these_tests_starts(node: NodeFiles) -> None:
    """What the tests below change one thing of does start, and stops in good order."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kraft.cli.entry", "server", str(node.config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        assert any(line.strip() == b"Kafka Server started" for line in process.stdout)
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_second_process_on_the_same_folder(cluster: NodeProcesses, tmp_path: Path) -> None:
    """Other ports, the same data: the first goes on."""
    first = cluster.local.node_dir(1)
    config = tmp_path / "second.properties"
    text = (first / "server.properties").read_text()
    node = cluster.local.spec().nodes[0]
    own = (node.client_port, node.controller_port, node.http_port)
    for port, other in zip(own, free_ports(3, avoid=set()), strict=True):
        text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{other}")
    config.write_text(text)
    pid = cluster.local.pid(1)
    ended = kraft("server", config)
    assert_sentence(ended, str(first / "data"), "another process")
    assert cluster.local.pid(1) == pid
    until(lambda: cluster.local.readiness(1).get("ready"), "the first is ready")


def test_a_folder_of_another_node(node: NodeFiles) -> None:
    node.write(node_id="2", controller_quorum_voters=f"2@127.0.0.1:{node.controller_port}")
    assert_sentence(kraft("server", node.config), str(node.data), "node 1")


def test_folders_of_two_clusters(node: NodeFiles, tmp_path: Path) -> None:
    other = tmp_path / "other"
    node.write(log_dirs=str(other))
    assert kraft("storage", "format", "-t", new_uuid(), "-c", node.config).exit_code == 0
    node.write(log_dirs=f"{node.data},{other}")
    assert_sentence(kraft("server", node.config), str(other), node.cluster_id)


def test_a_broker_with_a_folder_of_another_cluster(node: NodeFiles, cluster: NodeProcesses) -> None:
    """The controllers of the cluster refuse it."""
    spec = cluster.local.spec()
    node.write(
        process_roles="broker",
        node_id="1",
        listeners=f"PLAINTEXT://127.0.0.1:{node.client_port}",
        controller_quorum_voters=",".join(f"{n.id + 10}@127.0.0.1:{n.controller_port}" for n in spec.nodes),
        controller_listener_secret=spec.secret,
    )
    assert_sentence(kraft("server", node.config), node.cluster_id, spec.cluster_id)
    assert len(cluster.admin.describe_cluster().result(60).nodes) == len(spec.nodes)


@pytest.mark.parametrize("which", ["client", "controller", "http"])
def test_a_port_in_use(which: str, node: NodeFiles, occupied: int) -> None:
    setattr(node, f"{which}_port", occupied)
    node.write()
    assert_sentence(kraft("server", node.config), str(occupied), "in use")


def test_an_unformatted_folder(node: NodeFiles) -> None:
    shutil.rmtree(node.data)
    assert_sentence(kraft("server", node.config), str(node.data), "kraft storage format")


def test_a_damaged_meta_properties(node: NodeFiles) -> None:
    (node.data / "meta.properties").write_bytes(b"\xff\xfe\x00 nonsense")
    assert_sentence(kraft("server", node.config), "meta.properties")


def test_a_data_folder_that_is_a_file(node: NodeFiles) -> None:
    shutil.rmtree(node.data)
    node.data.write_text("not a folder")
    assert_sentence(kraft("server", node.config), str(node.data))


def test_a_configuration_that_is_not_there(tmp_path: Path) -> None:
    assert_sentence(kraft("server", tmp_path / "none.properties"), "none.properties", "No such file")


def test_a_configuration_that_is_a_folder(tmp_path: Path) -> None:
    assert_sentence(kraft("server", tmp_path), str(tmp_path), "cannot read")


def test_a_configuration_of_bytes(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_bytes(b"\xff\xfe\x00\x80" * 100)
    assert_sentence(kraft("server", config), str(config))


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"node_id": "one"}, ("node.id", "one")),
        ({"node_id": "-1"}, ("node.id", "-1")),
        ({"process_roles": "broker,zookeeper"}, ("process.roles", "zookeeper")),
        ({"listeners": "PLAINTEXT:127.0.0.1"}, ("listeners", "PLAINTEXT:127.0.0.1")),
        ({"controller_quorum_voters": "9@127.0.0.1:1"}, ("controller.quorum.voters",)),
        ({"log_segment_bytes": "much"}, ("log.segment.bytes", "much")),
        ({"broker_session_timeout_ms": "1"}, ("broker.session.timeout.ms",)),
        ({"http_listener": "nowhere"}, ("http.listener", "nowhere")),
    ],
)
def test_a_configuration_that_cannot_work(
    settings: dict[str, str], parts: tuple[str, ...], node: NodeFiles
) -> None:
    node.write(**settings)
    assert_sentence(kraft("server", node.config), str(node.config), *parts)


def test_a_configuration_without_an_id(node: NodeFiles) -> None:
    lines = node.config.read_text().splitlines(keepends=True)
    node.config.write_text("".join(line for line in lines if not line.startswith("node.id")))
    assert_sentence(kraft("server", node.config), "node.id")


def test_formatting_what_belongs_to_another_cluster(node: NodeFiles) -> None:
    ended = kraft("storage", "format", "--cluster-id", new_uuid(), "--config", node.config)
    assert_sentence(ended, str(node.data), node.cluster_id)
    again = kraft("storage", "format", "--cluster-id", node.cluster_id, "--config", node.config)
    assert_sentence(again, "--ignore-formatted")
    allowed = kraft("storage", "format", "-g", "--cluster-id", node.cluster_id, "--config", node.config)
    assert allowed.exit_code == 0


def test_formatting_with_what_is_no_cluster_id(node: NodeFiles) -> None:
    ended = kraft("storage", "format", "--cluster-id", "short", "--config", node.config)
    assert_sentence(ended, "short", exit_code=WRONG_USAGE)


# -- a local cluster


def test_a_cluster_on_ports_in_use(cluster: NodeProcesses, tmp_path: Path) -> None:
    """Nothing of the new one stays, nothing of the old one changes."""
    port = cluster.address(1)[1]
    ended = kraft("cluster", "start", "--dir", tmp_path / "c", "--port", str(port))
    assert_sentence(ended, str(port), "in use")
    assert not (tmp_path / "c").exists()
    until(lambda: cluster.local.status()["nodes"][0]["state"] == "running", "the old one runs")


@pytest.mark.parametrize(
    "command", ["status", "stop", "kill 1", "pause 1", "resume 1", "stop-node 1", "start-node 1"]
)
def test_a_cluster_that_is_not_there(command: str, tmp_path: Path) -> None:
    ended = kraft("cluster", *command.split(), "--dir", tmp_path)
    assert_sentence(ended, str(tmp_path), "kraft cluster start")
    assert kraft("cluster", "destroy", "--dir", tmp_path).exit_code == 0, "destroying nothing is fine"


def test_a_damaged_cluster_file(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"cluster_id": ')
    assert_sentence(kraft("cluster", "status", "--dir", tmp_path), "cluster.json", "damaged")


def test_a_node_that_is_not_there(cluster: NodeProcesses) -> None:
    ended = kraft("cluster", "kill", "7", "--dir", cluster.local.directory)
    assert_sentence(ended, "7", "1 to 3")
    ended = kraft("cluster", "start-node", "1", "--dir", cluster.local.directory)
    assert_sentence(ended, "already running")


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [
        ("--nodes 0", WRONG_USAGE),
        ("--nodes 99", WRONG_USAGE),
        ("--port 70000", WRONG_USAGE),
        ("--port 0", WRONG_USAGE),
        ("--set no-equals-sign", WRONG_USAGE),
        ("--set log.segment.bytes=much", FAILED),
    ],
)
def test_a_cluster_that_cannot_be(arguments: str, exit_code: int, tmp_path: Path) -> None:
    ended = kraft("cluster", "start", "--dir", tmp_path / "c", *arguments.split())
    assert_sentence(ended, exit_code=exit_code)
    assert not LocalCluster(tmp_path / "c").exists


# -- producing, consuming, topics


def test_a_file_that_cannot_be_read_sends_nothing(cluster: NodeProcesses, tmp_path: Path) -> None:
    """Not even the lines of the files before it."""
    topic = cluster.create_topic("unreadable")
    good, missing, folder = tmp_path / "good.log", tmp_path / "missing.log", tmp_path / "folder"
    good.write_bytes(b"a line\n")
    folder.mkdir()
    for bad in (missing, folder):
        ended = kraft("produce", topic, good, bad, "--bootstrap-server", cluster.bootstrap)
        assert_sentence(ended, str(bad), "cannot read")
    consumer = confluent_consumer(cluster.bootstrap)
    from confluent_kafka import TopicPartition

    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), 60) == (0, 0)
    consumer.close()


def test_a_line_that_is_too_long(cluster: NodeProcesses, tmp_path: Path) -> None:
    """The others are sent; the exit code and the sentence tell of the one."""
    topic = cluster.create_topic("too-long")
    ended = kraft(
        "produce", topic, "--bootstrap-server", cluster.bootstrap, stdin=b"a\n" + b"x" * 3_000_000 + b"\nb\n"
    )
    assert_sentence(ended, "1 of 3 lines")
    read = kraft(
        "consume", topic, "--from-beginning", "--exit-at-end", "--bootstrap-server", cluster.bootstrap
    )
    assert read.output == b"a\nb\n"


def test_nobody_listens(tmp_path: Path) -> None:
    nobody = f"127.0.0.1:{free_port_range(1)}"
    for command, exit_code in (
        (["topics", "list"], UNDECIDED),
        (["topics", "describe", "t"], UNDECIDED),
        (["consume", "t"], UNDECIDED),
    ):
        ended = kraft(*command, "--bootstrap-server", nobody)
        assert_sentence(ended, "no broker answer", exit_code=exit_code)
        assert len(ended.errors.splitlines()) <= 4, "the same trouble is not told again and again"


def test_topics_that_are_not_there_or_cannot_be(cluster: NodeProcesses) -> None:
    where = ["--bootstrap-server", cluster.bootstrap]
    topic = cluster.create_topic("exists", partitions=2)
    unknown = "UNKNOWN_TOPIC_OR_PARTITION"
    assert_sentence(kraft("topics", "describe", "nope", *where), "nope", unknown)
    assert_sentence(kraft("topics", "delete", "nope", *where), "nope", unknown)
    assert_sentence(kraft("topics", "alter", "nope", "--partitions", "2", *where), "nope", unknown)
    assert_sentence(kraft("topics", "alter", topic, "--partitions", "1", *where), "INVALID_PARTITIONS")
    assert_sentence(kraft("topics", "create", topic, *where), topic, "TOPIC_ALREADY_EXISTS")
    create = ["topics", "create", "fresh", *where]
    assert_sentence(kraft(*create, "--replication-factor", "4"), "INVALID_REPLICATION_FACTOR")
    assert_sentence(kraft(*create, "--config", "retention.ms=soon"), "retention.ms", "INVALID_CONFIG")
    assert_sentence(kraft(*create, "--config", "retention.ms"), "key=value", exit_code=WRONG_USAGE)
    assert_sentence(kraft("topics", "create", "a b", *where), "INVALID_TOPIC_EXCEPTION")
    assert_sentence(kraft("consume", topic, "--partition", "5", *where), "5")
    assert_sentence(kraft("consume", topic, "--offset", "soon", *where), "soon", exit_code=WRONG_USAGE)
    assert_sentence(kraft("consume", topic, "--format", "%q", *where), "%q", exit_code=WRONG_USAGE)
    assert_sentence(kraft("consume", "nope", *where), "nope")


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-command"],
        ["topics", "create"],
        ["topics", "create", "t", "--partitions", "many"],
        ["produce", "t", "--acks", "2"],
        ["consume", "t", "--max", "-1"],
        ["cluster", "kill", "one"],
        ["cluster", "start", "--no-such-option"],
        ["server"],
    ],
    ids=" ".join,
)
def test_wrong_usage(arguments: list[str]) -> None:
    ended = kraft(*arguments)
    assert ended.exit_code == WRONG_USAGE
    assert "Traceback" not in ended.errors
    assert ended.errors.strip()


@pytest.mark.parametrize("where", ["nowhere", "host:port", ":9092", ""])
def test_a_bootstrap_server_that_is_no_address(where: str) -> None:
    ended = kraft("topics", "list", "--bootstrap-server", where)
    assert_sentence(ended, "HOST:PORT", exit_code=WRONG_USAGE)


# -- damaged files of the metadata log


@pytest.fixture
def killed(node: NodeFiles) -> NodeFiles:
    """A node that ran for a while and was killed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kraft.cli.entry", "server", str(node.config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        assert any(line.strip() == b"Kafka Server started" for line in process.stdout)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    return node


@pytest.mark.parametrize("name", ["00000000000000000001.log", "quorum-state"])
def test_a_flipped_byte_in_the_metadata_log(killed: NodeFiles, name: str) -> None:
    """Of a segment it is also said where: in the first of the batches that are not what was written."""
    path = killed.data / "__cluster_metadata-0" / name
    content = bytearray(path.read_bytes())
    first_batch_bytes = 12 + int.from_bytes(content[8:12], "big")
    position = first_batch_bytes + 70 if name.endswith(".log") else len(content) // 2
    content[position] ^= 1
    path.write_bytes(content)
    ended = kraft("server", killed.config)
    assert_sentence(ended, f"{path} is damaged", "Restore the folder from a copy")
    if name.endswith(".log"):
        assert f"{path} is damaged at byte {first_batch_bytes}:" in ended.errors
    assert path.read_bytes() == bytes(content), "nothing was cut"
