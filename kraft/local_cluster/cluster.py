"""A cluster of node processes on this machine, kept in one folder.

`cluster.json` (identity, ports, settings) outlives restarts; each node has a folder with its `server.properties`,
data, log and pid file. A process is recognised by pid and start time together: a recycled pid is never signalled.
`kraft cluster`, the demo, the benchmark and the tests with real processes drive it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any, Final

from kraft.config_environment import PREFIX
from kraft.local_cluster.identities import (
    AUTHORITY_FILE,
    CERTIFICATE_FILE,
    CLIENT_FILES,
    Identities,
    write_client_files,
)
from kraft.local_cluster.node_process import evidence, how_it_ended, log_tail, process_stat
from kraft.local_cluster.spec import (
    FAST_TIMERS,
    STATE_FILE,
    ClusterSpec,
    NodePorts,
    node_config,
    node_folder,
    node_pid,
    permitted,
    read_spec,
)
from kraft.runtime.free_ports import free_ports, is_free
from kraft.storage import format_node, new_uuid, read_config
from kraft.user_error import EXIT_USAGE, UserError
from partitions.log.node_logs.data_directory import CLEAN_SHUTDOWN_FILE
from quorum.metadata.records import UserScramCredential
from quorum.voter_status import NO_LEADER

START_TIMEOUT_S = 120.0
"""A node needs two or three seconds, most of them CPU time, and a busy host may have little to give."""
STOP_TIMEOUT_S = 30.0
POLL_S = 0.02
HTTP_TIMEOUT_S = 1.0
LAST_ANSWER_TIMEOUT_S = 5.0
"""Of the last question, before a node is said not to be ready: a host that stands still cuts short ones off."""
NODES_MAX = 15
PORTS_END: Final = 65_536


@dataclass(frozen=True)
class Placement:
    """Where on this host nodes are, if not simply here."""

    hosts: Mapping[int, str] = field(default_factory=dict)
    """By node: the address of its HTTP listener."""
    entering: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """By node: what is put before the command of its process."""
    asked_from: str | None = None
    """The address from which nodes are asked over HTTP."""


HERE: Final = Placement()


class LocalCluster:
    """The cluster kept in one folder. Every method works from any process of the same user."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.placement = HERE
        self._children: list[subprocess.Popen[bytes]] = []
        self._log_starts: dict[int, int] = {}
        """Where in its node's log each process begins that was started here."""

    # -- the folder

    @property
    def exists(self) -> bool:
        try:
            return (self.directory / STATE_FILE).is_file()
        except OSError as error:
            raise UserError(f"cannot look into {self.directory}: {error.strerror}") from error

    def spec(self) -> ClusterSpec:
        """What `cluster.json` says. Raises UserError if there is no cluster here."""
        return read_spec(self.directory)

    def node(self, node_id: int) -> NodePorts:
        for node in (nodes := self.spec().nodes):
            if node.id == node_id:
                return node
        raise UserError(f"there is no node {node_id}; this cluster has nodes 1 to {len(nodes)}")

    def node_dir(self, node_id: int) -> Path:
        return node_folder(self.directory, node_id)

    def warnings(self) -> tuple[str, ...]:
        """Sentences about settings without effect, which are the same for all nodes. Raises UserError."""
        return read_config(node_config(self.directory, self.spec().nodes[0].id)).warnings

    def create(
        self,
        nodes: int,
        port: int,
        settings: dict[str, str],
        http_port: int | None = None,
        *,
        secure: bool = False,
    ) -> ClusterSpec:
        """Chooses ports, writes the configuration and formats the nodes' storage.

        Node i has the client port `port` + i - 1, and its pages at `http_port` + i - 1; None: right behind the client
        ports, where those are free, else anywhere. `secure`: with certificates, users and an authorizer (`identities`).
        """
        if not 1 <= nodes <= NODES_MAX:
            raise UserError(f"--nodes is a number from 1 to {NODES_MAX}, not {nodes}", EXIT_USAGE)
        if not 1 <= port <= 65535 - nodes:
            raise UserError(f"--port {port} leaves no room for {nodes} ports up to 65535", EXIT_USAGE)
        clients = range(port, port + nodes)
        pages = _page_ports(clients, http_port)
        free = free_ports(2 * nodes, avoid={*clients, *(pages or ())})
        pages = free[nodes:] if pages is None else pages
        spec = ClusterSpec(
            cluster_id=new_uuid(),
            nodes=[NodePorts(i + 1, clients[i], free[i], pages[i]) for i in range(nodes)],
            settings={**FAST_TIMERS, **settings},
            secret=secrets.token_urlsafe(24),
            identities=Identities.new() if secure else None,
        )
        if secure:
            self._refuse_to_overwrite(*CLIENT_FILES, AUTHORITY_FILE)
        made: list[Path] = []
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            for node in spec.nodes:
                folder = self.node_dir(node.id)
                if not folder.exists():
                    made.append(folder)
                (folder / "data").mkdir(parents=True, exist_ok=True)
            users = [] if spec.identities is None else self._secure(spec, spec.identities)
            for node in spec.nodes:
                self._configure(spec, node, users)
            spec.write(self.directory)
        except BaseException as error:
            for folder in made:  # half a cluster could neither be started nor destroyed
                shutil.rmtree(folder, ignore_errors=True)
            if secure:
                self._remove(*CLIENT_FILES, AUTHORITY_FILE)
            if isinstance(error, OSError):
                raise UserError(f"cannot make a cluster in {self.directory}: {error.strerror}") from error
            if isinstance(error, UnicodeEncodeError):
                raise UserError(
                    f"{error.object[error.start]!a} in --dir or --set is no text", EXIT_USAGE
                ) from error
            raise
        return spec

    def _secure(self, spec: ClusterSpec, identities: Identities) -> list[UserScramCredential]:
        """Writes certificates, and files for clients. Returns the users to begin with."""
        from kraft.local_cluster.credentials import scram_users, write_certificates

        folders = {node.id: self.node_dir(node.id) for node in spec.nodes}
        for folder in folders.values():
            folder.chmod(0o700)  # metadata have what passwords are proved with
        write_certificates(self.directory, folders, time.time())
        write_client_files(identities, self.directory, spec.bootstrap_servers())
        return scram_users(identities)

    def client_settings(self) -> dict[str, str]:
        """librdkafka's, of a client that may everything."""
        spec = self.spec()
        security = {} if spec.identities is None else spec.identities.client_settings(self.directory)
        return {"bootstrap.servers": spec.bootstrap_servers(), **security}

    def certify(self, addresses: Iterable[str]) -> None:
        """Certificates of another authority for a secured cluster that has not been started, whose nodes have these
        addresses. Raises OSError."""
        from kraft.local_cluster.credentials import write_certificates

        node_dirs = {node.id: self.node_dir(node.id) for node in self.spec().nodes}
        write_certificates(self.directory, node_dirs, time.time(), addresses=addresses)

    def _refuse_to_overwrite(self, *names: str) -> None:
        """Raises UserError."""
        found = [name for name in names if (self.directory / name).exists()]
        if found:
            raise UserError(
                f"--secure writes {', '.join(found)} into {self.directory}, where there are such files already:"
                " move them, or use another --dir"
            )

    def _remove(self, *names: str) -> None:
        for name in names:
            (self.directory / name).unlink(missing_ok=True)

    def _configure(self, spec: ClusterSpec, node: NodePorts, users: Sequence[UserScramCredential]) -> None:
        """One node's configuration and its formatted storage."""
        config = node_config(self.directory, node.id)
        config.touch(mode=0o600)
        config.write_text(spec.properties(node, self.directory), encoding="utf-8")
        format_node(spec.cluster_id, config, ignore_formatted=True, users=users)

    def destroy(self) -> bool:
        """Ends the processes and removes the folder's cluster. Returns whether there was one: none is fine.

        The nodes are found by their folders, so that a damaged `cluster.json` is no obstacle.
        """
        if not self.exists:
            return False
        folders = {
            int(id_text): config.parent
            for config in sorted(self.directory.glob("node-*/server.properties"))
            if (id_text := config.parent.name.removeprefix("node-")).isdecimal()
        }
        with permitted(self.directory):
            own = (*CLIENT_FILES, AUTHORITY_FILE) if self._is_secured(folders.values()) else ()
            for node_id in folders:
                self._send(node_id, signal.SIGKILL)
            for node_id, folder in folders.items():  # removing takes a while: by now all are to die
                self._await_end(node_id, STOP_TIMEOUT_S)
                shutil.rmtree(folder, ignore_errors=True)
            self._remove(*own, STATE_FILE)
        with contextlib.suppress(OSError):  # other files of the user's may lie in it
            self.directory.rmdir()
        return True

    def _is_secured(self, folders: Iterable[Path]) -> bool:
        """Whether files for clients in the folder are the cluster's, and not the user's."""
        try:
            return self.spec().identities is not None
        except UserError:
            return any((folder / CERTIFICATE_FILE).exists() for folder in folders)

    # -- processes

    def pid(self, node_id: int) -> int | None:
        """The pid of the node's live process, or None."""
        return node_pid(self.directory, node_id)

    def spawn(self, node_id: int) -> subprocess.Popen[bytes]:
        """Starts the node's process in a session of its own; it outlives this one."""
        node, folder = self.node(node_id), self.node_dir(node_id)
        for port in (node.client_port, node.controller_port, node.http_port):
            _require_free(port, node_id)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        environment = {**inherited, "PYTHONUNBUFFERED": "1"}  # the nodes are what their files say
        with self._log(node_id).open("ab") as output:
            self._log_starts[node_id] = output.tell()
            process = subprocess.Popen(
                [
                    *self.placement.entering.get(node_id, ()),
                    sys.executable,
                    "-m",
                    "kraft.cli.entry",
                    "server",
                    str(node_config(self.directory, node_id)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=folder,
                env=environment,
            )
        self._children = [child for child in self._children if child.poll() is None] + [process]
        stat = process_stat(process.pid)
        (folder / "pid").write_text(f"{process.pid} {stat.start_time if stat else 0}\n")
        return process

    def running(self) -> list[int]:
        """The nodes that have a process."""
        return [node.id for node in self.spec().nodes if self.pid(node.id) is not None]

    def start_all(self, on_ready: Callable[[int], None] = lambda _: None) -> None:
        """Starts every node that does not run and returns when all brokers are unfenced."""
        nodes = [node.id for node in self.spec().nodes]
        started = {node_id: self.spawn(node_id) for node_id in nodes if self.pid(node_id) is None}
        self._await_ready(nodes, started, on_ready)

    def start_node(self, node_id: int) -> None:
        """Starts one node and returns when it is unfenced."""
        self.node(node_id)
        if self.pid(node_id) is not None:
            raise UserError(f"node {node_id} is already running (pid {self.pid(node_id)})")
        self._await_ready([node_id], {node_id: self.spawn(node_id)}, lambda _: None)

    def _await_ready(
        self, nodes: list[int], started: dict[int, subprocess.Popen[bytes]], on_ready: Callable[[int], None]
    ) -> None:
        waiting = list(nodes)
        for _ in deadline(START_TIMEOUT_S):
            for node_id in list(waiting):
                if self.pid(node_id) is None:
                    raise UserError(self._ended(node_id, started.get(node_id)))
                if self.readiness(node_id).get("ready"):
                    waiting.remove(node_id)
                    on_ready(node_id)
            if not waiting:
                return
        with ThreadPoolExecutor(len(waiting)) as pool:  # at the same time: one deadline for all
            last_answers = pool.map(self.readiness, waiting, repeat(LAST_ANSWER_TIMEOUT_S))
        answers = dict(zip(waiting, last_answers, strict=True))
        late = {node_id: answer for node_id, answer in answers.items() if not answer.get("ready")}
        for node_id in (node_id for node_id in waiting if node_id not in late):
            on_ready(node_id)
        if late:
            raise UserError(self._not_ready(late))

    def _ended(self, node_id: int, process: subprocess.Popen[bytes] | None) -> str:
        how = "" if process is None else how_it_ended(process.poll())
        printed = self.log_tail(node_id) or "(it printed nothing)"
        return f"node {node_id} ended while it started{how}:\n{printed}"

    def _not_ready(self, late: dict[int, dict[str, Any]]) -> str:
        """A sentence, and what there is to see: the folder may be removed next."""
        reasons = "; ".join(
            f"node {node_id}: {', '.join(answer.get('reasons', ['does not answer']))}"
            for node_id, answer in late.items()
        )
        logs = f"{self.directory}/node-*/server.log"
        return "\n".join(
            [f"not ready after {START_TIMEOUT_S:g} s: {reasons} (logs: {logs})", *map(self.evidence, late)]
        )

    def kill(self, node_id: int) -> bool:
        """SIGKILL. Returns whether there was a process; returns when it is gone."""
        if not self._signal(node_id, signal.SIGKILL):
            return False
        self._await_end(node_id, STOP_TIMEOUT_S)
        if self.pid(node_id) is not None:
            raise UserError(f"not gone {STOP_TIMEOUT_S:g} s after SIGKILL: {self.evidence(node_id)}")
        return True

    def pause(self, node_id: int) -> bool:
        """SIGSTOP."""
        return self._signal(node_id, signal.SIGSTOP)

    def resume(self, node_id: int) -> bool:
        """SIGCONT."""
        return self._signal(node_id, signal.SIGCONT)

    def stop_node(self, node_id: int) -> bool:
        """Controlled shutdown: SIGTERM, then wait; SIGKILL if it does not end in time."""
        if not self._signal(node_id, signal.SIGTERM):
            return False
        self._signal(node_id, signal.SIGCONT)
        self._await_end(node_id, STOP_TIMEOUT_S)
        if self.pid(node_id) is not None:
            self.kill(node_id)
            raise UserError(f"node {node_id} did not stop in {STOP_TIMEOUT_S:g} s and was killed")
        return True

    def stop_all(self, but: Collection[int] = ()) -> list[int]:
        """Controlled shutdown of all nodes at once, `but` some; the data stays. Returns which ones were running."""
        nodes = [node.id for node in self.spec().nodes if node.id not in but]
        running = [node_id for node_id in nodes if self._signal(node_id, signal.SIGTERM)]
        for node_id in running:
            self._signal(node_id, signal.SIGCONT)
        for node_id in running:
            self._await_end(node_id, STOP_TIMEOUT_S)
            if self.pid(node_id) is not None:
                self._signal(node_id, signal.SIGKILL)
                self._await_end(node_id, STOP_TIMEOUT_S)
        return running

    def _signal(self, node_id: int, number: signal.Signals) -> bool:
        return self._send(self.node(node_id).id, number)

    def _send(self, node_id: int, number: signal.Signals) -> bool:
        pid = self.pid(node_id)
        if pid is None:
            return False
        with permitted(self.directory), contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        return True

    def _await_end(self, node_id: int, timeout_s: float) -> None:
        for _ in deadline(timeout_s):
            self._children = [child for child in self._children if child.poll() is None]  # reaps
            if self.pid(node_id) is None:
                return

    # -- what it looks like

    def readiness(self, node_id: int, timeout_s: float = HTTP_TIMEOUT_S) -> dict[str, Any]:
        """What `/health/ready` says, or {} if nobody answers."""
        return self.http_json(node_id, "/health/ready", timeout_s) or {}

    def http_json(self, node_id: int, path: str, timeout_s: float = HTTP_TIMEOUT_S) -> Any:
        """GETs a JSON document from the node's HTTP listener; None if nobody answers in time."""
        port = self.node(node_id).http_port
        host, source = self.placement.hosts.get(node_id, "127.0.0.1"), self.placement.asked_from
        address = None if source is None else (source, 0)
        connection = (
            http.client.HTTPSConnection(
                host, port, timeout=timeout_s, source_address=address, context=_unverified()
            )
            if self.spec().serves_https
            else http.client.HTTPConnection(host, port, timeout=timeout_s, source_address=address)
        )
        try:
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()

    def log_tail(self, node_id: int) -> str:
        """The last lines that the node's process has printed; that all have, if this one was not started here."""
        return log_tail(self._log(node_id), since=self._log_starts.get(node_id, 0))

    def evidence(self, node_id: int, *, all_threads: bool = False) -> str:
        """Why the node may not do what it should: its process, the end of its log, the stacks of its threads."""
        log, since = self._log(node_id), self._log_starts.get(node_id)
        return evidence(f"node {node_id}", self.pid(node_id), log, since=since, all_threads=all_threads)

    def _log(self, node_id: int) -> Path:
        return self.node_dir(node_id) / "server.log"

    def status(self) -> dict[str, Any]:
        """The document of `kraft cluster status --json`; numbers that no node tells are null."""
        spec = self.spec()
        nodes: list[dict[str, Any]] = []
        for node in spec.nodes:
            pid = self.pid(node.id)
            nodes.append(
                {
                    "id": node.id,
                    "pid": pid,
                    "state": self._state(node.id, pid),
                    "roles": ["broker", "controller"],
                    "listener": f"127.0.0.1:{node.client_port}",
                    "http": spec.console(node.id),
                }
            )
        told = self._told({node["id"]: node["state"] for node in nodes})
        return {
            "cluster_id": spec.cluster_id,
            "controller_id": told.get("controller_id"),
            "nodes": nodes,
            "partitions": {
                "total": told.get("partitions"),
                "under_replicated": told.get("under_replicated"),
                "leaderless": told.get("leaderless_count"),
            },
        }

    def _told(self, states: Mapping[int, str]) -> dict[str, Any]:
        """What a node says of the cluster, one that knows of a controller if any does; {} if none answers. Fenced ones
        are asked last: what they know may be old."""
        first: dict[str, Any] = {}
        for wanted in ("running", "fenced"):
            for node_id in (node_id for node_id, state in states.items() if state == wanted):
                told: dict[str, Any] = self.http_json(node_id, "/api/cluster") or {}
                if told.get("controller_id") is not None:
                    return told
                first = first or told
        return first

    def _state(self, node_id: int, pid: int | None) -> str:
        if pid is None:
            return "stopped" if self._is_stopped_in_order(node_id) else "dead"
        stat = process_stat(pid)
        if stat is not None and stat.state == "T":
            return "paused"
        return state_of(self.readiness(node_id))

    def _is_stopped_in_order(self, node_id: int) -> bool:
        """Whether the last process closed its logs and said so, or there has been none. What the process before it said
        stands until the logs are opened again: it is older than the last one's pid file."""
        folder = self.node_dir(node_id)
        began_ns = _modified_ns(folder / "pid")
        closed_ns = _modified_ns(folder / "data" / CLEAN_SHUTDOWN_FILE)
        return began_ns is None or (closed_ns is not None and closed_ns > began_ns)


def _modified_ns(path: Path) -> int | None:
    """When the file was written; None if there is none."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None


def state_of(readiness: Mapping[str, Any]) -> str:
    """By what a running node's `/health/ready` says, which is empty if it does not answer: starting, running or fenced.

    It serves on while the controllers elect one. It counts as fenced, too, when no controller has answered it for its
    session's time, when the quorum is lost, and while it shuts down.
    """
    if readiness.get("ready"):
        return "running"
    reasons = readiness.get("reasons", [])
    if not readiness or "starting" in reasons:
        return "starting"
    return "running" if reasons == [NO_LEADER] else "fenced"


def deadline(seconds: float) -> Iterator[None]:
    """Yields every few milliseconds until `seconds` have passed, and once more at the end."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(POLL_S)
    yield


def _page_ports(clients: range, http_port: int | None) -> Sequence[int] | None:
    """Where nodes serve their pages; None: wherever there is room. Raises UserError."""
    first = clients.stop if http_port is None else http_port
    ports = range(first, first + len(clients))
    if http_port is None:
        return ports if ports.stop <= PORTS_END and all(is_free(port) for port in ports) else None
    if not 1 <= http_port <= PORTS_END - len(clients):
        raise UserError(
            f"--http-port {http_port} leaves no room for {len(clients)} ports up to 65535", EXIT_USAGE
        )
    if set(ports) & set(clients):
        raise UserError(
            f"--http-port {http_port} and --port {clients.start} overlap: {len(clients)} nodes have as many ports each",
            EXIT_USAGE,
        )
    return ports


def _unverified() -> ssl.SSLContext:
    """For nodes of this user on this host, whose certificates may name anything; they are asked for no secret."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _require_free(port: int, node_id: int) -> None:
    if not is_free(port):
        raise UserError(
            f"port {port} of node {node_id} is in use; stop what listens there or choose another --port"
            " or --http-port"
        )
