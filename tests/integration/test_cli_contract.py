"""The command line as scripts rely on it: exit codes, what is on standard output, the shapes of --json."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kraft.cli.app import run
from kraft.runtime.free_ports import free_port_range
from tests.support.node_processes import until
from tests.support.real_clients import LIBRARIES
from tests.support.threaded_cluster import ThreadedCluster

LOG_LINE = re.compile(rb"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d .*\n", re.MULTILINE)


class Result(NamedTuple):
    exit_code: int
    output: bytes
    errors: str

    @property
    def document(self) -> Any:
        """The one JSON object on standard output."""
        assert self.exit_code == 0, self.errors
        lines = self.output.splitlines()
        assert len(lines) == 1, "exactly one JSON object, on a line"
        document = json.loads(lines[0])
        assert isinstance(document, dict)
        return document


Kraft = Callable[..., Result]


@pytest.fixture
def kraft(
    shared_cluster: ThreadedCluster,
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> Kraft:
    """Runs a command against the shared cluster."""

    def call(*arguments: str, stdin: bytes = b"") -> Result:
        capfdbinary.readouterr()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        exit_code = run([*arguments, "--bootstrap-server", shared_cluster.bootstrap])
        output, errors = capfdbinary.readouterr()
        return Result(exit_code, output, errors.decode())

    return call


def test_the_life_of_a_topic(kraft: Kraft) -> None:
    created = kraft(
        "topics", "create", "contract", "--partitions", "2", "--replication-factor", "3",
        "--config", "min.insync.replicas=2", "--config", "retention.ms=3600000",
    )  # fmt: skip
    assert created.exit_code == 0, created.errors
    assert b"contract" in kraft("topics", "list").output.splitlines()
    listed = {topic["name"]: topic for topic in kraft("topics", "list", "--json").document["topics"]}
    topic = listed["contract"]
    assert topic.keys() == {"name", "topic_id", "partitions", "replication_factor", "internal"}
    assert (topic["partitions"], topic["replication_factor"], topic["internal"]) == (2, 3, False)
    assert kraft("topics", "alter", "contract", "--partitions", "4").exit_code == 0
    assert len(kraft("topics", "describe", "contract", "--json").document["partitions"]) == 4
    assert kraft("topics", "delete", "contract").exit_code == 0
    assert b"contract" not in kraft("topics", "list").output.splitlines()
    assert kraft("topics", "describe", "contract", "--json").exit_code == 1
    assert kraft("topics", "delete", "contract").exit_code == 1


def test_describing_a_topic(kraft: Kraft, shared_cluster: ThreadedCluster) -> None:
    name = shared_cluster.create_topic("described", 2, min_insync_replicas="2", retention_ms="3600000")
    LIBRARIES[0].produce(shared_cluster.bootstrap, name, {1: [b"x"] * 7})

    def describe() -> dict[str, Any] | None:
        """Once the followers have what the leader has."""
        document: dict[str, Any] = kraft("topics", "describe", name, "--json").document
        return document if set(document["partitions"][1]["leo"].values()) == {7} else None

    document = until(describe, "the followers caught up")
    assert document.keys() == {"name", "topic_id", "configs", "partitions"}
    assert document["name"] == name
    assert len(document["topic_id"]) == 22
    assert document["configs"] == {"min.insync.replicas": "2", "retention.ms": "3600000"}
    assert [partition["partition"] for partition in document["partitions"]] == [0, 1]
    for partition in document["partitions"]:
        assert partition.keys() == {
            "partition",
            "leader",
            "leader_epoch",
            "replicas",
            "isr",
            "elr",
            "offline",
            "hw",
            "leo",
        }
        assert sorted(partition["replicas"]) == sorted(partition["isr"]) == [1, 2, 3]
        assert partition["leader"] == partition["replicas"][0]
        assert partition["leader_epoch"] == 0
        assert partition["elr"] == []
    empty, full = document["partitions"]
    assert (empty["hw"], empty["leo"]) == (0, {"1": 0, "2": 0, "3": 0})
    assert (full["hw"], full["leo"]) == (7, {"1": 7, "2": 7, "3": 7})
    table = kraft("topics", "describe", name)
    assert table.exit_code == 0
    assert name.encode() in table.output


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_producing_and_consuming(
    acks: str, kraft: Kraft, shared_cluster: ThreadedCluster, tmp_path: Path
) -> None:
    """Lines end at \\n only, and a last one without it counts."""
    topic = shared_cluster.create_topic("lines")
    first, second = tmp_path / "first.log", tmp_path / "second one.log"
    first.write_bytes(b"a\r\n\n\xff\x00")
    second.write_bytes(b"\nlast")
    assert kraft("produce", topic, str(first), str(second), "--acks", acks).exit_code == 0
    assert kraft("produce", topic, "--acks", acks, stdin=b"from standard input").exit_code == 0
    consumed = kraft("consume", topic, "--from-beginning", "--max", "6")
    assert consumed.exit_code == 0
    assert consumed.output == b"a\r\n\n\xff\x00\n\nlast\nfrom standard input\n"


def test_where_consuming_starts_and_ends(kraft: Kraft, shared_cluster: ThreadedCluster) -> None:
    topic = shared_cluster.create_topic("ranges", 2)
    LIBRARIES[0].produce(shared_cluster.bootstrap, topic, {0: [b"a", b"b", b"c"], 1: [b"x", b"y"]})

    def consume(*arguments: str) -> list[bytes]:
        result = kraft("consume", topic, *arguments)
        assert result.exit_code == 0, result.errors
        return result.output.splitlines()

    assert consume("--partition", "0", "--offset", "1", "--exit-at-end") == [b"b", b"c"]
    assert consume("--partition", "1", "--offset", "earliest", "--max", "1") == [b"x"]
    assert consume("--offset", "latest", "--exit-at-end") == []
    assert sorted(consume("--from-beginning", "--exit-at-end")) == [b"a", b"b", b"c", b"x", b"y"]
    assert consume("--from-beginning", "--max", "0") == []
    assert consume("--partition", "0", "--offset", "3", "--exit-at-end") == []


def test_formats(kraft: Kraft, shared_cluster: ThreadedCluster) -> None:
    topic = shared_cluster.create_topic("formats")
    sent = kraft("produce", topic, "--key-separator", "=", "--header", "h=1", stdin=b"k=v\n")
    assert sent.exit_code == 0, sent.errors
    shown = kraft(
        "consume", topic, "--from-beginning", "--exit-at-end", "--format", "%t|%p|%o|%k|%v|%h|%%|%T"
    )
    fields = shown.output.rstrip(b"\n").split(b"|")
    assert fields[:7] == [topic.encode(), b"0", b"0", b"k", b"v", b"h=1", b"%"]
    assert int(fields[7]) > 1_600_000_000_000


def test_exit_codes(kraft: Kraft, tmp_path: Path) -> None:
    """0 done, 1 failed, 2 wrong usage; the reason is on standard error and nothing on standard output."""
    for arguments, exit_code in (
        (["topics", "describe", "no-such-topic"], 1),
        (["topics", "create", "x", "--replication-factor", "9"], 1),
        (["produce", "x", str(tmp_path / "missing")], 1),
        (["consume", "no-such-topic", "--exit-at-end"], 1),
        (["topics", "create", "x", "--config", "novalue"], 2),
        (["topics", "create", "x", "--partitions", "0"], 2),
        (["produce", "x", "--acks", "3"], 2),
        (["produce", "x", "--header", "novalue"], 2),
        (["consume", "x", "--offset", "yesterday"], 2),
        (["topics", "frobnicate"], 2),
    ):
        result = kraft(*arguments)
        assert result.exit_code == exit_code, (arguments, result)
        assert result.output == b"", arguments
        assert result.errors.strip(), arguments


def test_the_life_of_a_cluster(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    """Real processes: ports stay over restarts, states are told apart, destroying twice is fine."""
    folder, port = tmp_path / "kraft", free_port_range(3)

    def call(*arguments: str, exit_code: int = 0) -> bytes:
        capfdbinary.readouterr()
        ended = run(["cluster", *arguments, "--dir", str(folder)])
        output, errors = capfdbinary.readouterr()
        assert ended == exit_code, errors.decode()
        return output

    def states() -> list[str]:
        return [node["state"] for node in json.loads(call("status", "--json"))["nodes"]]

    try:
        bootstrap = ",".join(f"127.0.0.1:{port + number}" for number in range(3))
        assert call("start", "--port", str(port), "--set", "num.partitions=2").decode().split() == [bootstrap]
        before = json.loads(call("status", "--json"))
        assert before.keys() == {"cluster_id", "controller_id", "nodes", "partitions"}
        assert before["partitions"] == {"total": 0, "under_replicated": 0, "leaderless": 0}
        assert [node["id"] for node in before["nodes"]] == [1, 2, 3]
        for number, node in enumerate(before["nodes"]):
            assert node.keys() == {"id", "pid", "state", "roles", "listener", "http"}
            assert node["listener"] == f"127.0.0.1:{port + number}"
            assert node["http"].startswith("http://127.0.0.1:")
            assert b"server.properties" in Path(f"/proc/{node['pid']}/cmdline").read_bytes()
        call("kill", "2")
        assert states() == ["running", "dead", "running"]
        assert json.loads(call("status", "--json"))["nodes"][1]["pid"] is None
        call("kill", "2", exit_code=1)
        call("start-node", "2")
        call("pause", "1")
        assert states() == ["paused", "running", "running"]
        call("resume", "1")
        until(lambda: states() == ["running"] * 3, "all nodes run")
        call("stop-node", "3")
        assert states() == ["running", "running", "stopped"]
        call("kill", "1")
        call("stop")
        assert states() == ["dead", "stopped", "stopped"]
        call("start")
        after = json.loads(call("status", "--json"))
        assert after["cluster_id"] == before["cluster_id"]
        for key in ("listener", "http"):
            assert [node[key] for node in after["nodes"]] == [node[key] for node in before["nodes"]]
    finally:
        call("destroy")
    assert not folder.exists()
    call("destroy")
    call("status", exit_code=1)
