"""The folder of a local cluster: made whole or not at all, and always removable."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kraft.broker.tls import server_context
from kraft.cli.app import run
from kraft.config import HTTP_LISTENER, load_config
from kraft.http.server import HttpServer
from kraft.local_cluster.cluster import LocalCluster, state_of
from kraft.local_cluster.spec import STATE_FILE, node_config, replication_settings
from kraft.runtime.free_ports import free_port_range, is_free
from kraft.user_error import EXIT_FAILED, EXIT_USAGE, UserError
from partitions.log.node_logs.data_directory import CLEAN_SHUTDOWN_FILE
from tests.support.certificates import Authority
from tests.unit.http.test_http_server import Node


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


def test_the_console_is_right_behind_the_client_ports_where_they_are_free(tmp_path: Path) -> None:
    first = free_port_range(6)
    spec = LocalCluster(tmp_path / "one").create(3, first, {})
    assert [node.http_port for node in spec.nodes] == [first + 3, first + 4, first + 5]
    assert spec.console(2) == f"http://127.0.0.1:{first + 4}"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first + 4))
        taken.listen()
        spec = LocalCluster(tmp_path / "two").create(3, first, {})
    assert first + 4 not in [node.http_port for node in spec.nodes]
    spec = LocalCluster(tmp_path / "three").create(2, first, {}, first + 4)
    assert spec.console(2) == f"http://127.0.0.1:{first + 5}"


async def test_a_node_whose_pages_are_https_is_asked_so(tmp_path: Path) -> None:
    store = Authority().write_identity(tmp_path / "node.pem", "CN=node")
    first = free_port_range(2)
    cluster = LocalCluster(tmp_path / "cluster")
    keys = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}
    cluster.create(1, first, {"http.ssl.enable": "true", **keys}, first + 1)
    node: Any = Node()
    pages = HttpServer(node, node)
    config = load_config(node_config(cluster.directory, 1).read_text())
    await pages.start(config.get("http.listener"), server_context(config, HTTP_LISTENER))
    try:
        assert (await asyncio.to_thread(cluster.readiness, 1, 60.0))["ready"] is True
    finally:
        await pages.close()
    assert cluster.status()["nodes"][0]["http"] == f"https://127.0.0.1:{first + 1}"


@pytest.mark.parametrize(
    ("http_port", "sentence"),
    [(0, "--http-port 0 leaves no room"), (65535, "--http-port 65535 leaves no room"), (19093, "overlap")],
)
def test_ports_of_the_console_that_cannot_be(cluster: LocalCluster, http_port: int, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        cluster.create(3, 19092, {}, http_port)
    assert not cluster.exists


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
        "import os; print([n for n in os.environ if n.startswith(('KAFKA_', 'KRAFT_OF_'))]); raise SystemExit(3)"
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
    node_that(SLOW_NODE)
    monkeypatch.setattr("kraft.local_cluster.cluster.START_TIMEOUT_S", 0.5)
    monkeypatch.setattr("kraft.local_cluster.cluster.LAST_ANSWER_TIMEOUT_S", 60.0)
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


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (["--nodes", "2"], "--nodes 2 (it has 1)"),
        (["--port", "1"], "--port 1 (it has "),
        (["--http-port", "1"], "--http-port 1 (it has "),
        (["--set", "num.partitions=2"], "--set num.partitions=2 (not set in it)"),
        (
            ["--set", "log.segment.ms=9", "--set", "log.segment.bytes=9"],
            "--set log.segment.bytes=9 (it has 1000)",
        ),
    ],
)
def test_a_cluster_of_another_shape_is_refused_not_ignored(
    other: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    LocalCluster(tmp_path / "c").create(
        1, free_port_range(1), {"log.segment.ms": "9", "log.segment.bytes": "1000"}
    )
    assert run(["cluster", "start", "--dir", str(tmp_path / "c"), *other]) == EXIT_USAGE
    shown = capsys.readouterr().err
    assert says in shown
    assert "nothing was done" in shown
    assert "log.segment.ms" not in shown, "it is as it was wished"


def test_a_secret_is_not_shown(cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.create(1, free_port_range(1), {"controller.listener.secret": "mellon"})
    other = ("--set", "controller.listener.secret=sesame")
    assert run(["cluster", "start", "--dir", str(cluster.directory), *other]) == EXIT_USAGE
    shown = capsys.readouterr().err
    assert "--set controller.listener.secret (hidden)" in shown
    assert "mellon" not in shown
    assert "sesame" not in shown


# -- how it is started


@pytest.fixture
def ready_nodes(cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nodes are scripts that say at once that they are ready."""
    program = tmp_path / "node"
    program.write_text(f"#!{sys.executable}\n{SLOW_NODE.replace('time.sleep(1.2)', '')}")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    yield
    cluster.destroy()


Start = Callable[..., str]


@pytest.fixture
def start(cluster: LocalCluster, ready_nodes: None, capsys: pytest.CaptureFixture[str]) -> Start:
    """`kraft cluster start`; returns what stands on standard error."""

    def call(*arguments: str) -> str:
        assert run(["cluster", "start", "--dir", str(cluster.directory), *arguments]) == 0
        output, errors = capsys.readouterr()
        assert output == f"{cluster.spec().bootstrap_servers()}\n"
        return errors

    return call


@pytest.mark.parametrize(
    ("nodes", "settings"),
    [
        (1, {"default.replication.factor": "1"}),
        (2, {"default.replication.factor": "2"}),
        (3, {"default.replication.factor": "3", "min.insync.replicas": "2"}),
        (5, {"default.replication.factor": "3", "min.insync.replicas": "2"}),
    ],
)
def test_new_topics_have_replicas(nodes: int, settings: dict[str, str], cluster: LocalCluster) -> None:
    of_topics = replication_settings(nodes)
    assert {key: of_topics[key] for key in of_topics.keys() & {*settings, "min.insync.replicas"}} == settings
    cluster.create(nodes, 19092, of_topics)
    assert cluster.warnings() == (), "each key is one that a node honours"


@pytest.mark.parametrize(
    ("key", "of_one", "of_two", "of_three"),
    [
        ("offsets.topic.replication.factor", "1", "2", "3"),
        ("transaction.state.log.replication.factor", "1", "2", "3"),
        ("transaction.state.log.min.isr", "1", "1", "2"),
    ],
)
def test_internal_topics_have_replicas(key: str, of_one: str, of_two: str, of_three: str) -> None:
    assert [replication_settings(nodes)[key] for nodes in (1, 2, 3)] == [of_one, of_two, of_three]


def test_starting_tells_what_new_topics_get(cluster: LocalCluster, start: Start) -> None:
    shown = start("--port", str(free_port_range(3)), "--set", "min.insync.replicas=1")
    told = (
        "new topics: default.replication.factor=3, min.insync.replicas=1, offsets.topic.replication.factor=3,"
        " transaction.state.log.replication.factor=3, transaction.state.log.min.isr=2"
    )
    assert f"{told}\n" in shown
    assert f"export KRAFT_BOOTSTRAP_SERVERS={cluster.spec().bootstrap_servers()}\n" in shown
    text = node_config(cluster.directory, 3).read_text()
    assert "default.replication.factor=3\n" in text
    assert "min.insync.replicas=1\n" in text


def test_with_json_the_nodes_that_were_started_are_named(
    cluster: LocalCluster, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    start("--nodes", "2", "--port", str(free_port_range(2)))
    cluster.kill(2)
    assert run(["cluster", "start", "--dir", str(cluster.directory), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["started"] == [2]


def test_the_folder_where_all_commands_look_needs_no_variable(
    cluster: LocalCluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraft.cli.cluster.DEFAULT_DIR", cluster.directory)
    assert "export" not in start("--nodes", "1", "--port", str(free_port_range(1)))


def test_a_setting_without_effect_is_told_at_once(start: Start) -> None:
    settings = ("num.partition=2", "num.io.threads=8", "leader.replication.throttled.rate=1")
    options = [word for setting in settings for word in ("--set", setting)]
    shown = start("--nodes", "1", "--port", str(free_port_range(1)), *options)
    assert "warning: num.partition is not known and has no effect; did you mean num.partitions?\n" in shown
    assert "warning: num.io.threads is Kafka's, and has no effect here\n" in shown
    assert "warning: leader.replication.throttled.rate can only be set while the broker runs" in shown


def test_starting_what_runs_says_so(cluster: LocalCluster, start: Start) -> None:
    same = ("--nodes", "2", "--port", str(free_port_range(2)), "--set", "num.partitions=4")
    assert "existed" not in start(*same)
    pids = [cluster.pid(1), cluster.pid(2)]
    assert "nothing to start: all nodes run already\n" in start(*same)
    assert [cluster.pid(1), cluster.pid(2)] == pids
    cluster.kill(2)
    assert "this cluster existed, with its topics; nodes started: 2; running already: 1\n" in start()
    cluster.stop_all()
    assert "nodes started: 1,2\n" in start()


def test_a_start_that_fails_leaves_alone_what_ran(
    cluster: LocalCluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    start("--nodes", "2", "--port", str(free_port_range(2)))
    cluster.kill(2)
    pid = cluster.pid(1)
    Path(sys.executable).write_text(f"#!{sys.orig_argv[0]}\nraise SystemExit(3)")
    assert run(["cluster", "start", "--dir", str(cluster.directory)]) == EXIT_FAILED
    assert cluster.running() == [1]
    assert cluster.pid(1) == pid


# -- how it ended


def test_a_node_that_closed_its_logs_is_stopped_and_any_other_dead(cluster: LocalCluster) -> None:
    cluster.create(1, 19092, {})
    pid_file = cluster.node_dir(1) / "pid"
    marker = cluster.node_dir(1) / "data" / CLEAN_SHUTDOWN_FILE

    def state() -> object:
        return cluster.status()["nodes"][0]["state"]

    assert state() == "stopped", "it was never started"
    pid_file.write_text("1 0\n")
    os.utime(pid_file, ns=(2_000, 2_000))
    assert state() == "dead"
    marker.touch()
    assert state() == "stopped"
    os.utime(marker, ns=(1_000, 1_000))
    assert state() == "dead", "what it says is of the process before"


def test_nobody_tells_of_partitions_while_nothing_runs(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.create(2, 19092, {})
    assert cluster.status()["partitions"] == {"total": None, "under_replicated": None, "leaderless": None}
    assert run(["cluster", "status", "--dir", str(cluster.directory)]) == 0
    assert "partitions: no node answers" in capsys.readouterr().out


CLUSTER_PAGE = """{"controller_id": %s, "partitions": 6, "under_replicated": 4, "leaderless_count": 1}"""


def test_the_status_tells_of_partitions(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a node says that knows the controller; a fenced one is not asked while another runs."""
    spec = cluster.create(3, 19092, {})
    pages = {
        1: ({"ready": False, "reasons": ["fenced"]}, {"controller_id": 1, "partitions": 0}),
        2: ({"ready": True}, {"controller_id": None, "partitions": 0}),
        3: ({"ready": True}, json.loads(CLUSTER_PAGE % 3)),
    }
    monkeypatch.setattr(cluster, "pid", lambda node_id: os.getpid())
    monkeypatch.setattr(
        cluster, "http_json", lambda node_id, path, timeout_s=0: pages[node_id][path == "/api/cluster"]
    )
    document = cluster.status()
    assert [node["state"] for node in document["nodes"]] == ["fenced", "running", "running"]
    assert document["controller_id"] == 3
    assert document["partitions"] == {"total": 6, "under_replicated": 4, "leaderless": 1}
    monkeypatch.setattr("kraft.cli.cluster._cluster_in", lambda directory: cluster)
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["cluster", "status"]) == 0
    shown = capsys.readouterr().out
    assert "partitions: 6, under-replicated: 4, without a leader: 1\n" in shown
    for node in spec.nodes:
        assert f"http://127.0.0.1:{node.http_port}" in shown
    assert "controller 3" in shown


def test_without_a_controller_the_status_says_that_it_is_old(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last node of a quorum knows nothing of what was lost since it was one of several."""
    cluster.create(1, 19092, {})
    page = {"controller_id": None, "partitions": 6, "under_replicated": 6, "leaderless_count": 0}
    pages = {False: {"ready": False, "reasons": ["fenced"]}, True: page}
    monkeypatch.setattr(cluster, "pid", lambda node_id: os.getpid())
    monkeypatch.setattr(
        cluster, "http_json", lambda node_id, path, timeout_s=0: pages[path == "/api/cluster"]
    )
    monkeypatch.setattr("kraft.cli.cluster._cluster_in", lambda directory: cluster)
    assert run(["cluster", "status"]) == 0
    assert "without a leader: 0 (as last known: there is no active controller)\n" in capsys.readouterr().out


# -- whose it is


@pytest.mark.parametrize("command", ["stop", "destroy", "kill 1", "pause 1", "stop-node 1"])
def test_a_cluster_of_another_user_is_a_sentence(
    command: str, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.create(1, 19092, {})
    before = {path: path.stat().st_mtime_ns for path in cluster.directory.rglob("*")}

    def refuse(_pid: int, _number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patched:
        patched.setattr("kraft.local_cluster.cluster.LocalCluster.pid", lambda self, node_id: 1)
        patched.setattr("os.kill", refuse)
        patched.setattr("os.geteuid", lambda: 4_000_000)
        assert run(["cluster", *command.split(), "--dir", str(cluster.directory)]) == EXIT_FAILED
    owner = pwd.getpwuid(os.geteuid()).pw_name
    assert capsys.readouterr().err == (
        f"error: the cluster in {cluster.directory} belongs to {owner}: only its owner, or root, can do this with it\n"
    )
    assert {path: path.stat().st_mtime_ns for path in cluster.directory.rglob("*")} == before


def test_files_that_cannot_be_read_are_a_sentence(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create(1, 19092, {})

    def refuse(self: Path, *_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_text", refuse)
    for what in (cluster.spec, lambda: cluster.pid(1)):
        with pytest.raises(UserError, match=r"cannot use the cluster in .*: Permission denied"):
            what()
