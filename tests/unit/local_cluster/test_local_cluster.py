"""The folder of a local cluster: made whole or not at all, and always removable."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kraft.cli.app import run
from kraft.config import load_config
from kraft.local_cluster.cluster import LocalCluster, state_of
from kraft.local_cluster.spec import STATE_FILE
from kraft.runtime.free_ports import free_port_range, is_free
from kraft.user_error import EXIT_FAILED, EXIT_USAGE, UserError


@pytest.fixture
def cluster(tmp_path: Path) -> LocalCluster:
    return LocalCluster(tmp_path / "cluster")


def test_every_node_has_a_configuration_that_loads(cluster: LocalCluster) -> None:
    spec = cluster.create(3, 19092, {"num.partitions": "4"})
    assert spec == cluster.spec()
    assert spec.bootstrap_servers() == "127.0.0.1:19092,127.0.0.1:19093,127.0.0.1:19094"
    for node in spec.nodes:
        config = load_config((cluster.node_dir(node.id) / "server.properties").read_text())
        assert config.node_id == node.id
        assert config.get("num.partitions") == 4
        assert sorted(config.voters) == [1, 2, 3]
    ports = [p for n in spec.nodes for p in (n.client_port, n.controller_port, n.http_port)]
    assert len(set(ports)) == 9


def test_a_setting_that_cannot_work_leaves_nothing_behind(cluster: LocalCluster) -> None:
    with pytest.raises(UserError, match=r"num\.partitions"):
        cluster.create(2, 19092, {"num.partitions": "many"})
    assert list(cluster.directory.iterdir()) == []
    cluster.create(2, 19092, {})


@pytest.mark.parametrize(("nodes", "port"), [(0, 9092), (16, 9092), (3, 65534), (1, 0)])
def test_numbers_out_of_range_are_sentences(cluster: LocalCluster, nodes: int, port: int) -> None:
    with pytest.raises(UserError, match=r"--nodes|--port"):
        cluster.create(nodes, port, {})


@pytest.mark.parametrize(
    ("folder", "reason"),
    [
        ("file", "File exists"),
        ("file/below", "Not a directory"),
        ("/proc/cluster", ""),
        ("x" * 300, "too long"),
    ],
)
@pytest.mark.parametrize(
    "command", [("start", "--nodes", "1", "--port", "19092"), ("status",), ("kill", "1"), ("stop-node", "1")]
)
def test_a_folder_that_cannot_be_is_a_sentence(
    command: tuple[str, ...], folder: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert run(["cluster", *command, "--dir", str(tmp_path / folder)]) == EXIT_FAILED
    shown = capsys.readouterr().err
    assert "error: " in shown
    assert command[0] != "start" or reason in shown


def test_destroying_removes_the_cluster_and_nothing_else(cluster: LocalCluster) -> None:
    cluster.create(2, 19092, {})
    (cluster.directory / "node-notes").mkdir()
    (cluster.directory / "mine.txt").write_text("keep")
    cluster.destroy()
    assert sorted(path.name for path in cluster.directory.iterdir()) == ["mine.txt", "node-notes"]
    cluster.destroy()


@pytest.mark.parametrize("text", ["{", "[]", '{"cluster_id": "x"}'])
def test_a_damaged_cluster_says_how_to_remove_it_and_is_removed(cluster: LocalCluster, text: str) -> None:
    cluster.create(1, 19092, {})
    (cluster.directory / STATE_FILE).write_text(text)
    with pytest.raises(UserError, match="kraft cluster destroy"):
        cluster.spec()
    cluster.destroy()
    assert not cluster.directory.exists()


def test_a_recycled_pid_is_nobody(cluster: LocalCluster) -> None:
    import os

    cluster.create(1, 19092, {})
    (cluster.node_dir(1) / "pid").write_text(f"{os.getpid()} 1\n")
    assert cluster.pid(1) is None
    assert cluster.kill(1) is False
    assert cluster.status()["nodes"][0]["state"] == "dead"


@pytest.mark.parametrize(
    ("reasons", "state"),
    [
        ([], "running"),
        (["the quorum has no leader"], "running"),
        (["the quorum has no leader", "no active controller answers"], "fenced"),
        (["the quorum has no leader", "fenced"], "fenced"),
        (["the quorum has no leader", "starting"], "starting"),
        (["shutting down"], "fenced"),
    ],
)
def test_a_node_runs_on_while_controllers_are_elected(reasons: list[str], state: str) -> None:
    assert state_of({"ready": not reasons, "reasons": reasons}) == state


def test_a_node_that_does_not_answer_is_starting() -> None:
    assert state_of({}) == "starting"


# -- nodes that do not become ready


SLOW_NODE = """
import http.server, pathlib, sys, time
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        time.sleep(1.2)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"ready": true}')
config = dict(line.split("=", 1) for line in pathlib.Path(sys.argv[-1]).read_text().splitlines())
http.server.ThreadingHTTPServer(("127.0.0.1", int(config["http.listener"].split(":")[1])), Ready).serve_forever()
"""


@pytest.fixture
def node_that(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], None]]:
    """Makes a cluster whose one node is a Python script."""
    monkeypatch.setattr("kraft.local_cluster.cluster.START_TIMEOUT_S", 50.0)

    def made(script: str) -> None:
        program = tmp_path / "node"
        program.write_text(f"#!{sys.executable}\n{script}")
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))
        cluster.create(1, free_port_range(1), {})

    yield made
    cluster.destroy()


def test_a_node_that_ends_says_how(cluster: LocalCluster, node_that: Callable[[str], None]) -> None:
    node_that("print('this folder is not mine', flush=True); raise SystemExit(3)")
    with pytest.raises(
        UserError, match=r"node 1 ended while it started \(exit code 3\):\nthis folder is not"
    ):
        cluster.start_node(1)


def test_a_node_is_what_its_file_says_and_not_the_environment(
    cluster: LocalCluster, node_that: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_LOG_DIRS", "/elsewhere")
    monkeypatch.setenv("KRAFT_OF_THIS_TEST", "kept")
    node_that(
        "import os; print(sorted(n for n in os.environ if n[:6] in ('KAFKA_', 'KRAFT_'))); raise SystemExit(3)"
    )
    with pytest.raises(UserError, match=r"\(exit code 3\):\n\['KRAFT_OF_THIS_TEST'\]$"):
        cluster.start_node(1)


def test_a_node_that_ends_shows_what_this_process_printed(
    cluster: LocalCluster, node_that: Callable[[str], None]
) -> None:
    node_that("raise SystemExit(3)")
    (cluster.node_dir(1) / "server.log").write_text("an earlier one's\n")
    with pytest.raises(UserError, match=r"\(exit code 3\):\n\(it printed nothing\)$"):
        cluster.start_node(1)
    program = Path(sys.executable)
    program.write_text(program.read_text().replace("raise", "print('mine', flush=True); raise"))
    with pytest.raises(UserError, match=r"\(exit code 3\):\nmine$"):
        cluster.start_node(1)


def test_what_is_done_to_a_node_is_an_object_with_json(
    cluster: LocalCluster, node_that: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    node_that(SLOW_NODE.replace("time.sleep(1.2)", ""))

    def call(*arguments: str) -> dict[str, object]:
        """Without what is always there."""
        assert run(["cluster", *arguments, "--dir", str(cluster.directory), "--json"]) == 0
        (line,) = capsys.readouterr().out.splitlines()
        document: dict[str, object] = json.loads(line)
        assert document.pop("dir") == str(cluster.directory)
        return document

    started = call("start-node", "1")
    for command in ("pause", "resume", "stop-node"):
        assert call(command, "1") == started == {"id": 1, "pid": started["pid"]}
    assert call("start-node", "1") != started
    assert call("stop") == {"stopped": [1]}
    assert call("stop") == {"stopped": []}
    assert call("start-node", "1") == call("kill", "1")
    assert call("destroy") == {"destroyed": True}
    assert call("destroy") == {"destroyed": False}


def test_a_node_that_hangs_shows_its_process_and_its_log(
    cluster: LocalCluster, node_that: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    node_that("import time; print('opening logs', flush=True); time.sleep(100)")
    cluster.spawn(1)
    while not (cluster.node_dir(1) / "server.log").read_text():
        time.sleep(0.01)
    monkeypatch.setattr("kraft.local_cluster.cluster.START_TIMEOUT_S", 0.5)
    with pytest.raises(UserError, match=r"^not ready after 0\.5 s: node 1: does not answer ") as raised:
        cluster.start_all()
    assert f"process {cluster.pid(1)} waits; 1 thread has had 0." in str(raised.value)
    assert cluster.pid(1) is not None


def test_a_running_node_that_ends_meanwhile_is_not_waited_for(
    cluster: LocalCluster, node_that: Callable[[str], None]
) -> None:
    node_that("import time; time.sleep(0.2)")
    cluster.spawn(1)
    with pytest.raises(UserError, match="node 1 ended while it started"):
        cluster.start_all()


def test_the_last_question_is_a_patient_one(
    cluster: LocalCluster, node_that: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraft.local_cluster.cluster.START_TIMEOUT_S", 0.5)
    node_that(SLOW_NODE)
    ready: list[int] = []
    cluster.spawn(1)
    while is_free(cluster.node(1).http_port):
        time.sleep(0.01)
    cluster.start_all(ready.append)
    assert ready == [1]


def test_all_are_asked_the_last_question_at_the_same_time(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create(3, 19092, {})
    all_asked = threading.Barrier(3)

    def readiness(node_id: int, timeout_s: float = 0.0) -> dict[str, bool]:
        if not timeout_s:
            return {}
        all_asked.wait(timeout=30.0)
        return {"ready": True}

    monkeypatch.setattr("kraft.local_cluster.cluster.START_TIMEOUT_S", 0.0)
    monkeypatch.setattr(cluster, "pid", lambda node_id: 1)
    monkeypatch.setattr(cluster, "readiness", readiness)
    ready: list[int] = []
    cluster.start_all(ready.append)
    assert ready == [1, 2, 3]


def test_no_cluster_and_no_node_are_sentences(cluster: LocalCluster) -> None:
    with pytest.raises(UserError, match="there is no cluster"):
        cluster.spec()
    cluster.create(1, 19092, {})
    with pytest.raises(UserError, match="there is no node 2"):
        cluster.kill(2)


def test_a_cluster_of_another_shape_is_refused_not_ignored(tmp_path: Path) -> None:
    LocalCluster(tmp_path / "c").create(1, free_port_range(1), {})
    for other in (["--nodes", "2"], ["--port", "1"], ["--set", "num.partitions=2"]):
        assert run(["cluster", "start", "--dir", str(tmp_path / "c"), *other]) == EXIT_USAGE
